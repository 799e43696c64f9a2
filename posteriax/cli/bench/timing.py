"""Timing in turn: on a shared machine only ratios within one run mean anything."""

from collections.abc import Callable
from typing import Any

import numpy as np


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


def ratio_table(
    times: dict[str, np.ndarray], baseline: str, *, unit: float, unit_name: str, title: str, digits: int = 2
) -> Any:
    """A table of median times and of ratios to a baseline, round by round, with their 10 % to 90 % range."""
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    table.add_column("")
    table.add_column(unit_name, justify="right")
    table.add_column(f"over {baseline}", justify="right")
    table.add_column("10 % to 90 %", justify="right")
    for name, values in times.items():
        ratios = values / times[baseline]
        low, high = np.quantile(ratios, [0.1, 0.9])
        median = float(np.median(values))
        table.add_row(
            name, f"{median / unit:.3g}", f"{np.median(ratios):.{digits}f}", f"{low:.{digits}f} to {high:.{digits}f}"
        )
    return table
