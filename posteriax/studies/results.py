"""Results of a study: read from its file, checked, and looked up by setting."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

FORMAT, VERSION = "posteriax study results", 1
# what a file of results must have, with its type (docs/studies.md describes it)
FIELDS: dict[str, type | tuple[type, ...]] = {
    "study": str,
    "scale": str,
    "seeds": int,
    "settings": dict,
    "complete": bool,
    "cells": list,
    "verdicts": list,
    "times": dict,
    "made_by": dict,
}
CELL_FIELDS: dict[str, type | tuple[type, ...]] = {"name": str, "settings": dict, "seed": int, "result": dict}


class ResultsError(ValueError):
    """A file of results is missing, damaged or not one of a study; the message says which."""


@dataclass(frozen=True)
class CellResult:
    """What one cell gave: its settings, its seed, and the numbers by name."""

    settings: Mapping[str, Any]
    seed: int
    result: Mapping[str, Any]


@dataclass(frozen=True)
class Results:
    """All finished cells of a study.

    Args:
        study: its name.
        scale: "smoke", "laptop" or "paper".
        seeds: how many were asked for.
        settings: the settings of the scale.
        cells: those that are finished, in the order of the study.
        times: seconds by name of the cell, and what cells measured themselves.
        made_by: command, version, commit and machine.
        complete: whether all cells are finished.
    """

    study: str
    scale: str
    seeds: int
    settings: Mapping[str, Any]
    cells: Sequence[CellResult]
    times: Mapping[str, Any]
    made_by: Mapping[str, Any]
    complete: bool

    def of(self, **settings: Any) -> list[CellResult]:
        """The cells with these settings, by seed.

        >>> cells = [CellResult({"family": "k-tied 2"}, seed, {"nll": 0.1 * seed}) for seed in (0, 1)]
        >>> results = Results("k-tied", "smoke", 2, {}, cells, {}, {}, True)
        >>> results.of(family="k-tied 2")[1].seed, results.values("nll", family="k-tied 2").tolist()
        (1, [0.0, 0.1])
        """
        missing = object()
        found = [c for c in self.cells if all(c.settings.get(n, missing) == v for n, v in settings.items())]
        return sorted(found, key=lambda cell: cell.seed)

    def values(self, path: str, **settings: Any) -> np.ndarray:
        """One entry of the results of these cells, by seed: "truncation.1.nll" looks into nested dicts; None is NaN."""
        return np.array([look_up(cell.result, path) for cell in self.of(**settings)], dtype=np.float64)


def look_up(result: Mapping[str, Any], path: str) -> Any:
    """An entry of nested dicts by its path; None stands for a number that is not finite, and is NaN.

    >>> look_up({"truncation": {"1": {"nll": 0.7}}}, "truncation.1.nll")
    0.7
    """
    found: Any = result
    for name in path.split("."):
        found = found[name]
    return math.nan if found is None else found


def plain(value: Any) -> Any:
    """Numbers, arrays, dicts and sequences as JSON has them; numbers that are not finite become None.

    >>> plain({"a": np.float32(0.5), "b": [np.inf, 1]})
    {'a': 0.5, 'b': [None, 1]}
    """
    if isinstance(value, Mapping):
        return {str(name): plain(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    if value is None or isinstance(value, str | bool | int):
        return value
    found = np.asarray(value)
    if found.ndim:
        return [plain(entry) for entry in found.tolist()]
    number = found.item()
    return None if isinstance(number, float) and not math.isfinite(number) else number


def read_results(path: Path) -> Results:
    """The results in a file, or in the folder that `study run` wrote.

    Raises:
        ResultsError: if the file is missing, damaged, or not one of a study.
    """
    path = path / "results.json" if path.is_dir() else path
    try:
        stored = json.loads(path.read_text())
    except FileNotFoundError:
        raise ResultsError(f"{path} does not exist: run `posteriax study run NAME --out {path.parent}` first") from None
    except (OSError, ValueError) as error:
        raise ResultsError(f"{path} cannot be read: {error}") from error
    if not isinstance(stored, dict) or stored.get("format") != FORMAT:
        raise ResultsError(f"{path} does not hold results of a study")
    if stored.get("version") != VERSION:
        raise ResultsError(f"{path} has version {stored.get('version')} of the format; this posteriax reads {VERSION}")
    _check_fields(path, "the file", stored, FIELDS)
    for i, cell in enumerate(stored["cells"]):
        _check_fields(path, f"cell {i}", cell, CELL_FIELDS)
    cells = [CellResult(cell["settings"], cell["seed"], cell["result"]) for cell in stored["cells"]]
    names = ("study", "scale", "seeds", "settings", "times", "made_by", "complete")
    return Results(cells=cells, **{name: stored[name] for name in names})


def _check_fields(path: Path, what: str, found: Any, fields: Mapping[str, Any]) -> None:
    if not isinstance(found, dict):
        raise ResultsError(f"{path}: {what} must be an object, got {type(found).__name__}")
    for name, kind in fields.items():
        if name not in found:
            raise ResultsError(f"{path}: {what} has no {name!r}")
        if not isinstance(found[name], kind) or (kind is int and isinstance(found[name], bool)):
            raise ResultsError(f"{path}: {name!r} of {what} is {type(found[name]).__name__}, not {kind}")
