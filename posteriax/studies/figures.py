"""The figures of a study's page, described: panels of lines, with one value per seed or their means and errors."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from posteriax._internal.plot_style import legend_below, subplots

Figure = Any  # Matplotlib's, which is imported on first use
Axis = Any
Points = Sequence[float] | np.ndarray


@dataclass(frozen=True)
class Curve:
    """Points joined by a line, or not, as Matplotlib's style says; `options` go to ``axis.plot``."""

    x: Points
    y: Points
    style: str = "-"
    colour: str = "0.3"
    label: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    def draw(self, axis: Axis) -> None:
        axis.plot(self.x, self.y, self.style, color=self.colour, label=self.label, **self.options)


@dataclass(frozen=True)
class Means:
    """Means over seeds with their standard errors; `y` has the values by seed at every x."""

    x: Points
    y: Sequence[np.ndarray]
    style: str = "o-"
    colour: str = "0.3"
    label: str | None = None
    options: Mapping[str, Any] = field(default_factory=lambda: {"markersize": 4})

    def draw(self, axis: Axis) -> None:
        means, errors = [values.mean() for values in self.y], [standard_error(values) for values in self.y]
        options = {"capsize": 3, "color": self.colour, "label": self.label, **self.options}
        axis.errorbar(self.x, means, errors, fmt=self.style, **options)


@dataclass(frozen=True)
class Panel:
    """Lines, a horizontal line of reference, and what ``axis.set`` takes: labels, limits, ticks."""

    lines: Sequence[Curve | Means]
    settings: Mapping[str, Any]
    title: str = ""
    reference: tuple[float, str, str | None] | None = None  # height, colour, label
    legend: Mapping[str, Any] | None = None


def draw_panels(
    panels: Sequence[Panel], width: float, height: float, *, columns: int = 0, below: int = 0, **settings: Any
) -> tuple[Figure, Sequence[Axis]]:
    """A figure of panels in rows, and its axes.

    Args:
        panels: in reading order.
        width, height: of one panel, in inches.
        columns: panels in a row; all of them by default.
        below: columns of one legend below all panels; none if 0.
        settings: for Matplotlib's ``subplots``.
    """
    columns = columns or max(len(panels), 1)
    figure, grid = subplots(max(-(-len(panels) // columns), 1), columns, width, height, **settings)
    axes = list(grid.flat)
    for axis in axes[len(panels) :]:
        axis.set_visible(False)
    for axis, panel in zip(axes, panels, strict=False):
        if panel.reference is not None:
            height, colour, label = panel.reference
            axis.axhline(height, color=colour, label=label)
        for line in panel.lines:
            line.draw(axis)
        if panel.title:
            axis.set_title(panel.title, fontsize="medium")
        axis.set(**panel.settings)
        if panel.legend is not None and axis.get_legend_handles_labels()[0]:
            axis.legend(frameon=False, fontsize="small", **panel.legend)
    if below:
        legend_below(figure, *axes, columns=below)
    return figure, axes


def standard_error(values: np.ndarray) -> float:
    """That of a mean over seeds; 0 for one seed.

    >>> standard_error(np.array([1.0, 3.0]))
    1.0
    """
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0


def numbers(values: Sequence[float | None]) -> np.ndarray:
    """An array of floats; None is NaN."""
    return np.array([np.nan if value is None else value for value in values], float)
