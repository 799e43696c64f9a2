"""Results of a study: read from its file and checked, looked up by setting, and measured seed by seed."""

import json
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

FORMAT, VERSION = "posteriax study results", 1
# what a file of results must have, with its type (docs/studies.md describes it)
FIELDS: dict[str, type] = {
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
CELL_FIELDS: dict[str, type] = {"name": str, "settings": dict, "seed": int, "result": dict}

Setting = str | int | float  # what tells a cell from the others
Json = Any  # nested dicts and lists of numbers and text; None is a number that is not finite


class ResultsError(ValueError):
    """A file of results is missing, damaged or not one of a study; the message says which."""


class CellsWaiting(ResultsError):
    """What was asked of the results depends on cells that have not run yet."""


@dataclass(frozen=True)
class CellResult:
    """What one cell gave: its settings, its seed, and the numbers by name."""

    settings: Mapping[str, Any]
    seed: int
    result: Mapping[str, Json]


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
        registered: the claims, and a hash of the settings, with which the run started; None if the file has none.
        judged: the verdicts as the run stored them.
        waiting: the cells that have not run yet, without numbers.
        earlier: a run with other settings, whose verdicts stand for claims that wait for cells of this one.
    """

    study: str
    scale: str
    seeds: int
    settings: Mapping[str, Json]
    cells: Sequence[CellResult]
    times: Mapping[str, Mapping[str, float]]
    made_by: Mapping[str, str]
    complete: bool
    registered: Mapping[str, Json] | None = None
    judged: Sequence[Mapping[str, Json]] = ()
    waiting: Sequence[CellResult] = ()
    earlier: "Results | None" = None

    def select(self, **settings: Setting) -> list[CellResult]:
        """The cells with these settings, by seed.

        >>> cells = [CellResult({"family": "k-tied 2"}, seed, {"nll": 0.1 * seed}) for seed in (0, 1)]
        >>> results = Results("k-tied", "smoke", 2, {}, cells, {}, {}, True)
        >>> results.select(family="k-tied 2")[1].seed, results.values("nll", family="k-tied 2").tolist()
        (1, [0.0, 0.1])
        """
        selected = [cell for cell in self.cells if _matches(cell, settings)]
        return sorted(selected, key=lambda cell: cell.seed)

    def values(self, path: str, **settings: Setting) -> np.ndarray:
        """One entry of the results of these cells, by seed; :func:`look_up` says what a path is."""
        return np.array([look_up(cell.result, path) for cell in self.select(**settings)], dtype=np.float64)

    def distinct(self, name: str, **settings: Setting) -> list[Any]:
        """The values that a setting has among these cells, in the order of the study."""
        return list(dict.fromkeys(cell.settings[name] for cell in self.select(**settings)))


@dataclass(frozen=True)
class WholeSelections(Results):
    """The same results, except that a selection to which cells belong that have not run raises `CellsWaiting`.

    A claim or figure of an unfinished study is computed from these: with all of its cells, or not at all.
    """

    def select(self, **settings: Setting) -> list[CellResult]:
        if left := sum(_matches(cell, settings) for cell in self.waiting):
            raise CellsWaiting(f"{left} cells of {settings} have not run yet")
        return super().select(**settings)


def whole_selections(results: Results) -> WholeSelections:
    """The results with selections that are whole or refused."""
    return WholeSelections(**{field.name: getattr(results, field.name) for field in fields(Results)})


def _matches(cell: CellResult, settings: Mapping[str, Setting]) -> bool:
    missing = object()
    return all(cell.settings.get(name, missing) == value for name, value in settings.items())


def look_up(result: Mapping[str, Json], path: str) -> Json:
    """An entry of nested dicts and lists by its path; None stands for a number that is not finite, and is NaN.

    >>> look_up({"truncation": {"1": {"nll": 0.7}}, "curve": [3, 2, 1]}, "truncation.1.nll")
    0.7
    """
    entry: Json = result
    for name in path.split("."):
        entry = entry[int(name) if isinstance(entry, list | tuple) else name]
    return math.nan if entry is None else entry


def has(cell: CellResult, path: str) -> bool:
    """Whether a cell's results have an entry."""
    try:
        look_up(cell.result, path)
    except KeyError:
        return False
    return True


@dataclass(frozen=True)
class Measure:
    """A number for every seed (or restart, or split), computed from the results alone.

    Measures are subtracted and divided seed by seed, for the seeds that both have.

    >>> runs = (("a", 0, 1.0), ("a", 1, 3.0), ("b", 1, 2.0))
    >>> cells = [CellResult({"method": method}, seed, {"nll": nll}) for method, seed, nll in runs]
    >>> results = Results("", "smoke", 2, {}, cells, {}, {}, True)
    >>> (entry("nll", method="a") - entry("nll", method="b"))(results).tolist()
    [1.0]
    """

    by_seed: Callable[[Results], Mapping[int, float]]

    def __call__(self, results: Results) -> np.ndarray:
        values = self.by_seed(results)
        return np.array([values[seed] for seed in sorted(values)], dtype=np.float64)

    def __sub__(self, other: "Measure") -> "Measure":
        return combine(operator.sub, self, other)

    def __truediv__(self, other: "Measure") -> "Measure":
        return combine(operator.truediv, self, other)


@dataclass(frozen=True)
class Parts:
    """Several measures by name, such as one for each network, all of which must lie within a claim's bounds."""

    by_name: Callable[[Results], Mapping[str, Measure]]


@dataclass(frozen=True)
class Conditional:
    """A measure, or several, whose numbers are shown but decide nothing if there is a reason against it.

    Args:
        measure: the numbers.
        objection: why they decide nothing, such as chains that have not mixed; empty if they may decide.
    """

    measure: Measure | Parts
    objection: Callable[[Results], str]


def entry(path: str, **settings: Setting) -> Measure:
    """An entry of the results of the cells with these settings."""
    return per_cell(lambda cell: look_up(cell.result, path), **settings)


def per_cell(number: Callable[[CellResult], float | None], **settings: Setting) -> Measure:
    """A number computed from each of the cells with these settings; None from those that have none."""

    def by_seed(results: Results) -> dict[int, float]:
        numbers = {cell.seed: number(cell) for cell in results.select(**settings)}
        return {seed: value for seed, value in numbers.items() if value is not None}

    return Measure(by_seed)


def combine(function: Callable[..., float], *measures: Measure) -> Measure:
    """A function of several measures, for the seeds that all of them have."""

    def by_seed(results: Results) -> dict[int, float]:
        values = [measure.by_seed(results) for measure in measures]
        shared = [seed for seed in values[0] if all(seed in other for other in values[1:])] if values else []
        return {seed: function(*(numbers[seed] for numbers in values)) for seed in shared}

    return Measure(by_seed)


def depending(choose: Callable[[Results], Measure]) -> Measure:
    """A measure that depends on what is in the results, such as a mean over all depths that were run."""
    return Measure(lambda results: choose(results).by_seed(results))


def least(*measures: Measure) -> Measure:
    """The smallest of these, seed by seed; those without any value, which were not run, are left out."""
    return _combine_those_run(min, measures)


def most(*measures: Measure) -> Measure:
    """The largest of these, seed by seed; those without any value, which were not run, are left out."""
    return _combine_those_run(max, measures)


def mean(*measures: Measure) -> Measure:
    """The mean of these, seed by seed."""
    return combine(lambda *values: float(np.mean(values)), *measures)


def _combine_those_run(function: Callable[[Sequence[float]], float], measures: Sequence[Measure]) -> Measure:
    def choose(results: Results) -> Measure:
        ran = [measure for measure in measures if measure.by_seed(results)]
        return combine(lambda *values: function(values), *ran)

    return depending(choose)


def mean_entries(several: list[dict[str, Json]]) -> dict[str, Json]:
    """The mean of every entry of nested dicts; lists of numbers have one for every place.

    >>> mean_entries([{"a": 1.0, "b": {"c": [0.0, 2.0]}}, {"a": 2.0, "b": {"c": [1.0, 2.0]}}])
    {'a': 1.5, 'b': {'c': [0.5, 2.0]}}
    """
    return {
        name: mean_entries([entries[name] for entries in several])
        if isinstance(value, dict)
        else np.mean([entries[name] for entries in several], axis=0).tolist()
        for name, value in several[0].items()
    }


def plain(value: Any) -> Json:
    """Numbers, arrays, dicts and sequences as JSON has them; numbers that are not finite become None.

    >>> plain({"a": np.float32(0.5), "b": [np.inf, 1]})
    {'a': 0.5, 'b': [None, 1]}
    """
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if value is None or isinstance(value, str | bool | int):
        return value
    array = np.asarray(value)
    if array.ndim:
        return [plain(item) for item in array.tolist()]
    number = array.item()
    return None if isinstance(number, float) and not math.isfinite(number) else number


def read_results(path: Path) -> Results:
    """The results in a file, or in the folder that `study run` wrote, with those of its `earlier.json` if there is one.

    Raises:
        ResultsError: if the file is missing, damaged, or not one of a study.
    """
    if path.is_dir():
        earlier = path / "earlier.json"
        return replace(read_results(path / "results.json"), earlier=read_results(earlier) if earlier.exists() else None)
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
    if not stored["complete"] and "waiting" not in stored:
        raise ResultsError(f"{path} does not list the cells that have not run: the command that wrote it does now")
    return from_json(stored)


def from_json(stored: Mapping[str, Json]) -> Results:
    """The results in the content of a file."""
    cells = [CellResult(cell["settings"], cell["seed"], cell["result"]) for cell in stored["cells"]]
    names = ("study", "scale", "seeds", "settings", "times", "made_by", "complete")
    return Results(
        cells=cells,
        registered=stored.get("registered"),
        judged=stored.get("verdicts", []),
        waiting=[CellResult(cell["settings"], cell["seed"], {}) for cell in stored.get("waiting", [])],
        **{name: stored[name] for name in names},
    )


def _check_fields(path: Path, what: str, stored: Json, fields: Mapping[str, type]) -> None:
    if not isinstance(stored, dict):
        raise ResultsError(f"{path}: {what} must be an object, got {type(stored).__name__}")
    for name, kind in fields.items():
        if name not in stored:
            raise ResultsError(f"{path}: {what} has no {name!r}")
        if not isinstance(stored[name], kind) or (kind is int and isinstance(stored[name], bool)):
            raise ResultsError(f"{path}: {name!r} of {what} is {type(stored[name]).__name__}, not {kind}")
