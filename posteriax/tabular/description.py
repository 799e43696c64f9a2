"""The JSON file beside a posterior's or a baseline's: how to prepare new rows, and the network. Holds no code."""

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from posteriax._internal.atomic_file import whole_file
from posteriax.evaluation.compare import Baseline, Mixture
from posteriax.posterior.export.exported import ExportedPosterior, is_exported, read_exported
from posteriax.posterior.file import load
from posteriax.posterior.posterior import Posterior
from posteriax.tabular.baseline_files import SavableBaseline, load_baseline, save_baseline
from posteriax.tabular.columns import Category, Column, Date, Number
from posteriax.tabular.dates import DATES
from posteriax.tabular.estimators import in_target_units
from posteriax.tabular.messages import TableError, read_bytes
from posteriax.tabular.networks import Architecture
from posteriax.tabular.number_formats import PLAIN, NumberFormat
from posteriax.tabular.preparation import ImagePreparation, Preparation, TablePreparation
from posteriax.tabular.stacked_file import ENDING, STACKED, read_stack, stacked_from
from posteriax.tabular.targets import (
    OF_CLASSES,
    OF_COUNTS,
    TASKS,
    Classes,
    Counts,
    Fractions,
    Quantities,
    Quantity,
    Target,
    Task,
    Times,
)

FORMAT = "posteriax description"
# 1: no dates, no pooled categories; 2: dates as days only, no ranges, no IDs; 3: no baselines; 4: no times, one target.
# All can still be read
VERSION = 5


@dataclass(frozen=True)
class Description:
    """Everything `posteriax predict` needs besides the posterior itself.

    Args:
        method: by its name.
        architecture: of the network; None for a baseline.
        preparation: of new rows.
        target: what is predicted.
    """

    method: str
    architecture: Architecture | None
    preparation: Preparation
    target: Target


def path_beside(posterior: Path) -> Path:
    """The path of a posterior's description.

    >>> path_beside(Path("runs/hmc.posterior")).name
    'hmc.posterior.json'
    """
    return posterior.with_name(f"{posterior.name}.json")


def save_described(model: Posterior | SavableBaseline, description: Description, path: Path) -> None:
    """Write a posterior or a baseline and its description; an existing file is replaced only by a complete one."""
    if isinstance(model, SavableBaseline):
        save_baseline(model, path)
    else:
        model.save(path)
    write_description(description, path)


def write_description(description: Description, path: Path) -> None:
    """Write the description of a file that is there, beside it."""
    plain = {
        "format": FORMAT,
        "version": VERSION,
        "posterior": hashlib.sha256(path.read_bytes()).hexdigest(),  # the two belong together
        "method": description.method,
        "network": None if description.architecture is None else asdict(description.architecture),
        "preparation": preparation_to_plain(description.preparation, description.target),
    }
    with whole_file(path_beside(path)) as file:
        file.write(json.dumps(plain, indent=1, ensure_ascii=False).encode())


def load_described(path: Path) -> tuple[Posterior | ExportedPosterior | Baseline | Mixture, Description]:
    """A posterior, an exported one, a baseline or a mixture, in the target's own units, and its description."""
    if path.is_dir():
        raise TableError(f"{path} is a folder: posteriax predict takes a file; an exported NumPy model has predict.py")
    if path.suffix == ENDING:
        parts = read_stack(path)
        loaded = {name: load_described(file) for name, file, _ in parts}
        models = {name: model for name, (model, _) in loaded.items()}
        stacked = stacked_from(models, {name: weight for name, _, weight in parts}, None)
        return stacked, replace(loaded[parts[0][0]][1], method=STACKED, architecture=None)
    content, beside = read_bytes(path), path_beside(path)
    text = read_bytes(beside)
    try:
        plain: dict[str, Any] = json.loads(text)
        if plain["format"] != FORMAT:
            raise ValueError(f"it is a {plain['format']!r}")
        if plain["version"] > VERSION:
            raise TableError(
                f"{beside} has version {plain['version']}, but this posteriax reads versions up to {VERSION}: use "
                f"the posteriax that wrote it, or a newer one"
            )
        network = plain["network"]
        architecture = None
        if network is not None:
            architecture = Architecture(**{**network, "shape": tuple(map(int, network["shape"]))})
        description = Description(str(plain["method"]), architecture, *preparation_from_plain(plain["preparation"]))
        belongs = plain["posterior"] == hashlib.sha256(content).hexdigest()
    except TableError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise TableError(f"{beside} is damaged, or not the description of a posterior: {error}") from error
    if not belongs:
        raise TableError(f"{beside} describes a different posterior, not {path}: keep both files of a run together")
    if is_exported(path):
        return read_exported(path, TableError), description
    if architecture is None:
        return load_baseline(path), description
    posterior = load(path, architecture.build(0))
    return in_target_units(posterior, description.target.units), description


def preparation_to_plain(preparation: Preparation, target: Target) -> dict[str, Any]:
    """A preparation and the target as JSON can hold them.

    >>> height, kind = Number("height", missing=False, median=1.0), Classes("kind", ("elm", "oak"))
    >>> plain = preparation_to_plain(TablePreparation.from_columns([height], ["nr"]), kind)
    >>> preparation, target = preparation_from_plain(plain)
    >>> preparation.columns_ == (height,), preparation.ids_, target == kind
    (True, ('nr',), True)
    """
    if isinstance(preparation, ImagePreparation):
        pixels = {"divide": preparation.divide_, "mean": preparation.mean_, "scale": preparation.scale_}
        return {"shape": preparation.shape_, **pixels, "target": asdict(target)}
    columns = [asdict(column) for column in preparation.columns_]
    return {"columns": columns, "target": asdict(target), "ids": preparation.ids_}


def preparation_from_plain(plain: dict[str, Any]) -> tuple[Preparation, Target]:
    """The preparation and the target that :func:`preparation_to_plain` gave, in this version or an earlier one."""
    target = target_from_plain(plain["target"])
    if "shape" in plain:
        divide, mean, scale = (float(plain[name]) for name in ("divide", "mean", "scale"))
        return ImagePreparation.from_pixels(tuple(map(int, plain["shape"])), divide, mean, scale), target
    columns = tuple(map(column_from_plain, plain["columns"]))
    ids = tuple(map(str, plain.get("ids", ())))
    return TablePreparation.from_columns(columns, ids, target=target.name), target


def column_from_plain(plain: dict[str, Any]) -> Column:
    """The column that `asdict` gave, in this version or an earlier one.

    >>> column_from_plain({"name": "day", "missing": False, "dates": "ISO8601", "mean": 3.0})  # of version 2
    Date(name='day', missing=False, form='ISO8601', parts=(), trend=True, median=0.0, mean=3.0, ...)
    """
    if "categories" in plain:
        return Category(str(plain["name"]), tuple(plain["categories"]), bool(plain.get("pooled", False)))
    dates, form = plain.get("dates"), plain.get("form")
    settings = {name: value for name, value in plain.items() if name not in ("dates", "form")}
    if dates is None and not isinstance(form, str):
        return Number(**settings, form=NumberFormat(**form) if form else PLAIN)
    form = dates or form
    if form not in DATES:
        raise ValueError(f"dates in an unknown format: {form!r}")
    return Date(**settings | {"parts": tuple(plain.get("parts", ()))}, form=form)


def target_from_plain(plain: dict[str, Any]) -> Target:
    """The target that `asdict` gave."""
    task: Task = plain["task"]
    if "names" in plain:
        forms = tuple(NumberFormat(**form) for form in plain["forms"])
        means, scales = (tuple(map(float, plain[key])) for key in ("means", "scales"))
        names = tuple(map(str, plain["names"]))
        return Quantities(names, means, scales, forms, "predicted" if plain["noise"] == "predicted" else "constant")
    name = str(plain["name"])
    if task not in TASKS:
        raise ValueError(f"an unknown kind of target: {task!r}")
    if task in OF_CLASSES:
        return Classes(name, tuple(map(str, plain["labels"])), task)
    form = NumberFormat(**plain["form"]) if plain.get("form") else PLAIN
    if task == "times":
        return Times(name, float(plain["typical"]), str(plain["event"]), form)
    if task == "fractions":
        return Fractions(name, form)
    if task in OF_COUNTS:
        return Counts(name, float(plain["mean"]), form, task)
    noise: Literal["constant", "predicted"] = "predicted" if plain.get("noise") == "predicted" else "constant"
    return Quantity(name, float(plain["mean"]), float(plain["scale"]), form, noise)
