"""The JSON file beside a posterior file: how to prepare new rows, and the posterior's network. Holds no code."""

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import posteriax as px
from posteriax._internal.atomic_file import whole_file
from posteriax.tabular.estimators import in_target_units
from posteriax.tabular.image_preparation import ImagePreparation, images_from_plain
from posteriax.tabular.messages import TableError, read_bytes
from posteriax.tabular.networks import Architecture
from posteriax.tabular.preparation import Preparation, preparation_from_plain

FORMAT = "posteriax description"
VERSION = 3  # 1: no dates, no pooled categories; 2: dates as days only, no ranges, no IDs. Both can still be read


@dataclass(frozen=True)
class Description:
    """Everything `posteriax predict` needs besides the posterior itself.

    Args:
        method: by its name.
        architecture: of the network.
        preparation: of new rows.
    """

    method: str
    architecture: Architecture
    preparation: Preparation | ImagePreparation


def path_beside(posterior: Path) -> Path:
    """The path of a posterior's description.

    >>> path_beside(Path("runs/hmc.posterior")).name
    'hmc.posterior.json'
    """
    return posterior.with_name(f"{posterior.name}.json")


def save_described(posterior: px.Posterior, description: Description, path: Path) -> None:
    """Write a posterior and its description; an existing file is replaced only by a complete one."""
    posterior.save(path)
    plain = {
        "format": FORMAT,
        "version": VERSION,
        "posterior": hashlib.sha256(path.read_bytes()).hexdigest(),  # the two belong together
        "method": description.method,
        "network": asdict(description.architecture),
        "preparation": asdict(description.preparation),
    }
    with whole_file(path_beside(path)) as file:
        file.write(json.dumps(plain, indent=1, ensure_ascii=False).encode())


def load_described(path: Path) -> tuple[px.Posterior, Description]:
    """A posterior that predicts in the target's own units, and its description."""
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
        architecture = Architecture(**{**network, "shape": tuple(map(int, network["shape"]))})
        images = "shape" in plain["preparation"]
        preparation = (images_from_plain if images else preparation_from_plain)(plain["preparation"])
        description = Description(str(plain["method"]), architecture, preparation)
        belongs = plain["posterior"] == hashlib.sha256(content).hexdigest()
    except TableError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise TableError(f"{beside} is damaged, or not the description of a posterior: {error}") from error
    if not belongs:
        raise TableError(f"{beside} describes a different posterior, not {path}: keep both files of a run together")
    posterior = px.load(path, architecture.build(0))
    return in_target_units(posterior, preparation.target.units), description
