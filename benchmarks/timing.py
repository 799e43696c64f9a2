"""Timing in turn: on a shared machine only ratios within one run mean anything."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from rich.table import Table

UNITS = {"s": 1.0, "ms": 1e-3, "µs": 1e-6}


def timed(run: Callable[[], Any]) -> tuple[Any, float]:
    """What a function returns, once it is computed, and the seconds that took."""
    began = time.perf_counter()
    out = jax.block_until_ready(run())
    return out, time.perf_counter() - began


def interleave(cases: dict[str, Callable[[], float]], rounds: int) -> dict[str, np.ndarray]:
    """Run all cases in turn, `rounds` times, after one round that is discarded.

    Args:
        cases: by name, a function that does its work once and returns the seconds per unit of it.
        rounds: how often.

    >>> interleave({"a": lambda: 1.0, "b": lambda: 2.0}, rounds=3)
    {'a': array([1., 1., 1.]), 'b': array([2., 2., 2.])}
    """
    times: dict[str, list[float]] = {name: [] for name in cases}
    for turn in range(rounds + 1):
        for name, case in cases.items():
            seconds = case()
            if turn:
                times[name].append(seconds)
    return {name: np.array(values) for name, values in times.items()}


def make_table(title: str, columns: Sequence[str], names: str = "") -> Table:
    """A table with a column of names, under the heading `names`, and columns of numbers."""
    table = Table(names, title=title, title_justify="left")
    for column in columns:
        table.add_column(column, justify="right")
    return table


def ratios_of(values: np.ndarray, baseline: np.ndarray, digits: int = 2) -> tuple[str, str]:
    """The median of the ratios round by round, and their 10 % to 90 % range."""
    low, middle, high = np.quantile(values / baseline, [0.1, 0.5, 0.9])
    return f"{middle:.{digits}f}", f"{low:.{digits}f} to {high:.{digits}f}"


def ratio_table(
    times: dict[str, np.ndarray],
    baseline: str,
    *,
    unit: str,
    title: str,
    digits: int = 2,
    more: Mapping[str, Mapping[str, str]] | None = None,
) -> Table:
    """A table of median times and of ratios to a baseline.

    Args:
        times: seconds by case, one for each round.
        baseline: the case that others are compared with.
        unit: of times: "s", "ms" or "µs".
        title: of the table.
        digits: of the ratios.
        more: further columns: by heading, the cells by case.
    """
    further = more or {}
    table = make_table(title, (unit, f"over {baseline}", "10 % to 90 %", *further))
    for name, values in times.items():
        cells = (column.get(name, "") for column in further.values())
        table.add_row(
            name, f"{np.median(values) / UNITS[unit]:.3g}", *ratios_of(values, times[baseline], digits), *cells
        )
    return table
