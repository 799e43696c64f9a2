"""The figures of the page, drawn from the results alone."""

from typing import Any

import numpy as np

from posteriax._internal.plot_style import PALETTE, legend_below, subplots
from posteriax.studies.rank_1.comparisons import CLOTHES, IMAGES, by_seed
from posteriax.studies.rank_1.names import (
    ABLATIONS,
    BATCH_ENSEMBLE,
    CAUCHY,
    DEEP,
    DETERMINISTIC,
    DROPOUT,
    EQUAL,
    GAUSSIAN,
    MEAN_FIELD,
    size_name,
)
from posteriax.studies.results import Results

COLOURS = {
    GAUSSIAN: PALETTE[3],
    CAUCHY: PALETTE[1],
    BATCH_ENSEMBLE: PALETTE[0],
    DEEP: PALETTE[7],
    EQUAL: "0.55",
    DROPOUT: PALETTE[2],
    MEAN_FIELD: PALETTE[4],
    DETERMINISTIC: PALETTE[5],
}
LABELS = {"nll": "NLL (nats)", "accuracy": "accuracy (%)", "ece": "ECE"}
UNITS = {"nll": 1.0, "accuracy": 100.0, "ece": 1.0}
DATA = {IMAGES: "CIFAR-10", CLOTHES: "Fashion-MNIST"}


def severity(results: Results) -> Any:
    """Scores by severity of corruption, 0 is clean, less those of the deep ensemble; means over seeds.

    Every severity has images of its own, few and of uneven difficulty, the same for all methods.
    """
    shown = (BATCH_ENSEMBLE, DROPOUT, MEAN_FIELD, GAUSSIAN, CAUCHY)
    figure, axes = subplots(2, 3, 3.6, 2.7)
    for row, (data, called) in zip(axes, DATA.items(), strict=True):
        for axis, score in zip(row, LABELS, strict=True):
            base = _curve(results, data, DEEP, score)
            axis.axhline(0.0, color=COLOURS[DEEP], label=DEEP)
            for method in shown:
                curve = _curve(results, data, method, score)
                if len(curve) and len(base):
                    gap = UNITS[score] * (curve - base)
                    axis.plot(range(len(gap)), gap, "o-", color=COLOURS[method], markersize=3.5, label=method)
            axis.set(xlabel="severity", ylabel=f"{LABELS[score]}, difference")
            axis.set_title(called, fontsize="medium")
    legend_below(figure, axes[0, 0], columns=6)
    return figure


def _curve(results: Results, data: str, method: str, score: str) -> np.ndarray:
    found = [
        [cell.result["clean"][score], *cell.result["severity"][score]]
        for cell in results.cells
        if data in cell.settings["data"] and cell.settings["method"] == method
    ]
    return np.mean(found, axis=0) if found else np.array([])


def components(results: Results) -> Any:
    """Scores by the number of components, at the same number of rows and steps; each dot is a seed."""
    sizes = sorted({*(results.settings["sizes"] if results.settings else ()), 4})
    usual = results.settings["members"] if results.settings else 4
    figure, (axes,) = subplots(1, 3, 3.4, 2.9)
    for axis, score in zip(axes, LABELS, strict=True):
        for part, colour in (("clean", PALETTE[0]), ("corrupted", PALETTE[3])):
            means = []
            for size in sizes:
                name = GAUSSIAN if size == usual else size_name(size)
                found = UNITS[score] * np.array(list(by_seed(results, CLOTHES, name, f"{part}.{score}").values()))
                axis.plot(np.full(len(found), size), found, "o", color=colour, markersize=3.5, alpha=0.6)
                means.append(found.mean() if len(found) else np.nan)
            axis.plot(sizes, means, color=colour)
            known = np.flatnonzero(np.isfinite(means))
            if len(known):
                axis.text(sizes[known[0]], means[known[0]], f"{part}  ", color=colour, ha="right", fontsize="small")
        axis.set_xscale("log", base=2)
        axis.set(xlabel="components K", ylabel=LABELS[score], xticks=sizes, xticklabels=sizes)
        axis.set_xlim(sizes[0] / 2.6, sizes[-1] * 1.2)
    return figure


def diversity(results: Results) -> Any:
    """Disagreement of members over the error rate, against the accuracy of their average; each dot is a seed."""
    figure, (axes,) = subplots(1, 2, 4.4, 3.4)
    for axis, (data, called) in zip(axes, DATA.items(), strict=True):
        for method in (BATCH_ENSEMBLE, GAUSSIAN, CAUCHY, DEEP, EQUAL, DROPOUT):
            accuracy = np.array(list(by_seed(results, data, method, "clean.accuracy").values()))
            diverse = np.array(list(by_seed(results, data, method, "diversity").values()))
            if not len(accuracy):
                continue
            axis.plot(100 * accuracy, diverse, "o", color=COLOURS[method], markersize=6, alpha=0.8, label=method)
        axis.set(xlabel="accuracy (%)", ylabel="disagreement / error rate")
        axis.set_title(called, fontsize="medium")
        axis.margins(x=0.1, y=0.1)
    legend_below(figure, axes[0], columns=3)
    return figure


def variants(results: Results) -> Any:
    """What is changed in the rank-1 network: NLL, clean and corrupted; each dot is a seed."""
    figure, (axes,) = subplots(1, 2, 4.6, 3.2, sharey=True)
    names = (GAUSSIAN, CAUCHY, *ABLATIONS)
    for axis, part in zip(axes, ("clean", "corrupted"), strict=True):
        for place, method in enumerate(reversed(names)):
            found = list(by_seed(results, CLOTHES, method, f"{part}.nll").values())
            axis.plot(found, np.full(len(found), place), "o", color=COLOURS.get(method, "0.4"), markersize=5, alpha=0.8)
        axis.set(xlabel=f"NLL, {part} (nats)", yticks=range(len(names)), yticklabels=names[::-1])
    return figure


FIGURES = {"severity": severity, "components": components, "diversity": diversity, "variants": variants}
