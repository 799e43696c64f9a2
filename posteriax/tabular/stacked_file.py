"""The stacked row of a comparison: the ensemble and the baselines as one mixture, and the file that names its parts.

Weights are those of the best log score on training rows that none of the parts has seen: the fifth that was held out
when the network was chosen. The networks of that choice stand for the ensemble, and baselines are fitted once more,
without these rows. The parts of the mixture are then those that were fitted to all training rows.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from posteriax._internal.atomic_file import whole_file
from posteriax.evaluation.stacking import NEGLIGIBLE, Stacked, stacking_weights
from posteriax.tabular.baseline_files import SavableBaseline
from posteriax.tabular.baselines import BaselineTask, fit_baselines
from posteriax.tabular.folds import Fold
from posteriax.tabular.held_out_choice import ENOUGH_TO_CHOOSE, Choice, assign_folds
from posteriax.tabular.messages import TableError, read_bytes
from posteriax.tabular.targets import Classes, Quantity

FORMAT, VERSION = "posteriax stack", 1
STACKED, ENDING = "stacked", ".stack"


def weigh_parts(
    fold: Fold, choice: Choice, network: str, baselines: Mapping[str, SavableBaseline], seed: int, seconds: float
) -> tuple[dict[str, float], np.ndarray] | None:
    """The weight of each part by its name, and the log scores they come from; None if there is nothing to mix.

    Args:
        fold: training rows.
        choice: with how the network predicts held-out ones.
        network: the name of the row that it stands for.
        baselines: that were fitted to all training rows.
        seed: of the held-out rows, as of the choice.
        seconds: about how long the baselines may take.
    """
    (x, y), target = fold.train, fold.target
    mixes = target.task == "classification" if isinstance(target, Classes) else isinstance(target, Quantity)
    if not (mixes and baselines and choice.held is not None and len(y) >= ENOUGH_TO_CHOOSE):
        return None
    parts = assign_folds(y, seed, len(y))
    held, rest = np.flatnonzero(parts == 0), np.flatnonzero(parts != 0)
    classes = None if target.class_names is None else len(target.class_names)
    task: BaselineTask = "regression" if classes is None else "classification"
    own = target.restore(y)
    fitted = fit_baselines(x[rest], own[rest], task, classes=classes, seed=seed, names=list(baselines), seconds=seconds)
    units = 0.0 if classes is not None else target.units.total_log_scale  # densities are per unit of the target
    scores = {network: choice.held.by_row - units}
    scores |= {name: np.asarray(part.predict(x[held]).log_prob(own[held])) for name, part in fitted.items()}
    table = np.stack(list(scores.values()), axis=1).astype(np.float64)
    weights = dict(zip(scores, stacking_weights(table).tolist(), strict=True))
    return (weights, table) if sum(weight > NEGLIGIBLE for weight in weights.values()) > 1 else None


def save_stack(path: Path, parts: Sequence[tuple[str, Path, float]]) -> None:
    """Write the names of a mixture's parts, their files, which are beside this one, and their weights."""
    plain = {
        "format": FORMAT,
        "version": VERSION,
        "parts": [
            {"name": name, "file": file.name, "weight": weight, "sha256": hashlib.sha256(file.read_bytes()).hexdigest()}
            for name, file, weight in parts
        ],
    }
    with whole_file(path) as file:
        file.write(json.dumps(plain, indent=1, ensure_ascii=False).encode())


def read_stack(path: Path) -> list[tuple[str, Path, float]]:
    """The parts that :func:`save_stack` wrote; their files are checked to be the same."""
    try:
        plain: dict[str, Any] = json.loads(read_bytes(path))
        if plain["format"] != FORMAT or plain["version"] > VERSION:
            raise ValueError(f"it is a {plain['format']!r} of version {plain['version']}")
        parts = [
            (str(part["name"]), str(part["file"]), float(part["weight"]), str(part["sha256"]))
            for part in plain["parts"]
        ]
        if not parts or any(not (0 < weight <= 1) or Path(file).name != file for _, file, weight, _ in parts):
            raise ValueError("its parts are not files beside it with weights")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise TableError(f"{path} is damaged, or not a mixture: {error}") from error
    for _, file, _, digest in parts:
        beside = path.with_name(file)
        if hashlib.sha256(read_bytes(beside)).hexdigest() != digest:
            raise TableError(f"{beside} is not the part that {path} was made of: keep all files of a run together")
    return [(name, path.with_name(file), weight) for name, file, weight, _ in parts]


def stacked_from(models: Mapping[str, Any], weights: Mapping[str, float], log_scores: np.ndarray | None) -> Stacked:
    """The mixture of models that have these weights; the others are left out."""
    used = {name: weight for name, weight in weights.items() if weight > 0}
    chosen = [list(weights).index(name) for name in used]
    scores = np.zeros((1, len(used))) if log_scores is None else log_scores[:, chosen]
    return Stacked({name: models[name] for name in used}, used, scores)
