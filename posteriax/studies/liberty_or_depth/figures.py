"""The figures of the study, drawn from its results alone."""

from typing import Any

import numpy as np

from posteriax._internal.plot_style import PALETTE, colours, heat_map, subplots
from posteriax.studies.liberty_or_depth import iris as iris_cells
from posteriax.studies.liberty_or_depth import product_matrices as product_cells
from posteriax.studies.liberty_or_depth import swag as swag_cells
from posteriax.studies.liberty_or_depth import two_moons as moons_cells
from posteriax.studies.results import Results

LIMIT = 0.5  # correlations beyond it have the darkest colours
COVARIANCES = {"diagonal": PALETTE[0], "more": PALETTE[3]}


def product_matrices(results: Results) -> Any:
    """Correlations between the entries of product matrices; the first seed."""
    shown = [cell for cell in results.of(experiment=product_cells.NAME) if "correlation_percent" in cell.result]
    shown = [c for c in shown if c.settings["activation"] == "linear" or c.settings["layers"] > 1]
    figure, (axes,) = subplots(1, len(shown), 2.9, 3.3)
    for axis, cell in zip(axes, shown, strict=True):
        activation, layers = cell.settings["activation"], cell.settings["layers"]
        kind = "one weight matrix" if layers == 1 else f"{layers} layers, {activation}"
        image = heat_map(axis, from_triangle(cell.result["correlation_percent"]) / 100, limit=LIMIT, title=kind)
        axis.set_aspect("equal")
        axis.set(xlabel="entry, row by row", ylabel="entry" if axis is axes[0] else "", xticks=[], yticks=[])
    figure.colorbar(image, ax=list(axes), label="correlation", shrink=0.7)
    return figure


def from_triangle(above: Any) -> np.ndarray:
    """The symmetric matrix, with a diagonal of 0, that has these values above its diagonal, row by row.

    >>> from_triangle([1, 2, 3]).tolist()
    [[0.0, 1.0, 2.0], [1.0, 0.0, 3.0], [2.0, 3.0, 0.0]]
    """
    size = round((1 + np.sqrt(1 + 8 * len(above))) / 2)
    found = np.zeros((size, size))
    found[np.triu_indices(size, 1)] = above
    return found + found.T


def two_moons(results: Results) -> Any:
    """E_KL and E_W by depth, minus their null."""
    depths, colour = moons_cells.depths(results), colours(moons_cells.SLOPES)
    figure, (axes,) = subplots(1, 2, 4.4, 3.4)
    for axis, measure, label in ((axes[0], "w", "$E_W$"), (axes[1], "kl", "$E_{KL}$ (nats)")):
        for place, name in enumerate(moons_cells.activations(results)):
            values = [moons_cells.excess(results, measure, name, depth) for depth in depths]
            draw_means(axis, np.array(depths) + 0.04 * (place - 1.5), values, colour[name], name)
        axis.axhline(0.0, color="0.7", linewidth=1, zorder=0)
        axis.set(xlabel="hidden layers", ylabel=f"{label}, null subtracted", xticks=depths)
    axes[1].legend(frameon=False, fontsize="small")
    return figure


def iris(results: Results) -> Any:
    """Test NLL by depth, full covariance and mean-field."""
    depths = iris_cells.depths(results)
    figure, ((axis,),) = subplots(1, 1, 4.6, 3.4)
    for name, colour in zip(iris_cells.FAMILIES, COVARIANCES.values(), strict=True):
        where = {"experiment": iris_cells.NAME, "family": name}
        values = [results.values("nll", depth=depth, **where) for depth in depths]
        draw_means(axis, np.array(depths), values, colour, name)
    label_lines(axis)
    axis.set(xlabel="hidden layers", ylabel="test NLL on Iris (nats per example)", xticks=depths)
    return figure


def swag(results: Results) -> Any:
    """Test NLL and accuracy by depth, SWAG and SWAG-Diag."""
    depths = swag_cells.depths(results)
    figure, (axes,) = subplots(1, 2, 4.6, 3.4)
    for axis, score, label in ((axes[0], "nll", "test NLL (nats per example)"), (axes[1], "accuracy", "test accuracy")):
        for (name, kind), colour in zip(swag_cells.KINDS.items(), COVARIANCES.values(), strict=True):
            values = [results.values(f"{kind}.{score}", experiment=swag_cells.NAME, depth=depth) for depth in depths]
            draw_means(axis, np.array(depths), values, colour, name)
        axis.set(xlabel="depth of the PreResNet", ylabel=label, xticks=depths)
        label_lines(axis)
    return figure


def draw_means(axis: Any, x: np.ndarray, values: list[np.ndarray], colour: str, label: str) -> None:
    """A line through the means, with their standard errors."""
    means = [each.mean() for each in values]
    errors = [each.std(ddof=1) / np.sqrt(len(each)) if len(each) > 1 else 0.0 for each in values]
    axis.errorbar(x, means, errors, fmt="o-", markersize=4, capsize=3, color=colour, label=label)


def label_lines(axis: Any) -> None:
    """The name of each line in its colour, on top: the upper line at its last point comes first."""
    low, high = axis.get_ylim()
    axis.set_ylim(low, high + 0.25 * (high - low))  # room for the names
    handles, labels = axis.get_legend_handles_labels()
    order = sorted(range(len(labels)), key=lambda i: -handles[i].lines[0].get_ydata()[-1])
    legend = axis.legend(
        [handles[i] for i in order],
        [labels[i] for i in order],
        frameon=False,
        fontsize="small",
        labelcolor="linecolor",
        loc="upper right",
    )
    legend.set_zorder(0)
