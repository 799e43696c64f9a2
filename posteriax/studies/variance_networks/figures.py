"""The figures of the study, drawn from its results alone."""

from typing import Any

import numpy as np

from posteriax._internal.plot_style import PALETTE, subplots
from posteriax.studies.results import Results
from posteriax.studies.variance_networks.curvature import EDGES, THRESHOLD

WAYS = {"ensemble": (2, "-"), "stochastic": (0, "--"), "deterministic": (3, ":")}
ATTACKED = {
    "dropout, means": (5, ":"),
    "dropout": (0, "--"),
    "deep ensemble": (1, "-."),
    "variance": (2, "-"),
    "variance ensemble": (3, "-"),
}


def phase_transition(results: Results) -> Any:
    """Accuracies and log alpha along the runs with one alpha for the layer; one line per seed."""
    figure, ((top,), (bottom,)) = subplots(2, 1, 5.6, 2.7, sharex=True)
    cells = results.of(experiment="parameterisation", method="layer")
    if not cells:
        return figure
    for cell in cells:
        curve, last = cell.result["curve"], cell is cells[-1]
        for name, (colour, style) in WAYS.items():
            values = _numbers(curve[name])
            top.plot(curve["step"], values, style, color=PALETTE[colour], label=name if last else None)
        bottom.plot(curve["step"], _numbers(curve["log_alpha"]), color="0.3")
    top.set(ylabel="accuracy", ylim=(0, 1.02))
    top.legend(frameon=False, fontsize="small", loc="lower left")
    bottom.set(xlabel="step", ylabel="log alpha")
    return figure


def kappa_histograms(results: Results) -> Any:
    """Histograms of kappa at the start, in the middle and at the end, and their tail beside the accuracy of means."""
    figure, ((left, right),) = subplots(1, 2, 4.8, 3.2)
    cells = results.of(experiment="curvature")
    if not cells:
        return figure
    found = cells[0].result
    histograms, steps = np.asarray(found["histograms"], float), found["curve"]["step"]
    for colour, i in zip((0, 2, 3), sorted({0, len(steps) // 2, len(steps) - 1}), strict=False):
        left.stairs(histograms[i], EDGES, color=PALETTE[colour], label=f"step {steps[i]}", linewidth=1.5)
    left.axvline(np.log10(THRESHOLD), color="0.5", linewidth=1)
    left.text(np.log10(THRESHOLD), left.get_ylim()[1], " $\\kappa_0$", va="top", fontsize="small")
    left.set(xlabel="log10 |κ|", ylabel="share of weights")
    left.legend(frameon=False, fontsize="small", loc="upper left")
    for cell in cells:
        curve, last = cell.result["curve"], cell is cells[-1]
        means = "accuracy of the means" if last else None
        right.plot(curve["step"], curve["deterministic"], ":", color=PALETTE[3], label=means)
        right.plot(
            curve["step"], _numbers(curve["above"]), color="0.3", label="share of weights with κ > κ0" if last else None
        )
    right.set(xlabel="step", ylim=(0, 1.02))
    right.legend(frameon=False, fontsize="small", loc="center left")
    return figure


def sparse_ensembles(results: Results) -> Any:
    """Accuracy against the share of weights removed."""
    figure, ((axis,),) = subplots(1, 1, 5.2, 3.2)
    cells = results.of(experiment="curvature")
    if not cells:
        return figure
    for cell in cells:
        left = 100 * (1 - np.asarray(cell.result["removed"], float))
        for colour, rest, words in ((0, "mean", "others at their means"), (2, "zero", "others at 0")):
            label = words if cell is cells[-1] else None
            axis.plot(left, cell.result[rest], "o-", color=PALETTE[colour], label=label, markersize=4)
        axis.axhline(cell.result["ensemble"], color=PALETTE[3], linewidth=1, zorder=0)
    axis.text(axis.get_xlim()[0], cells[0].result["ensemble"], "all weights random", va="bottom", fontsize="small")
    axis.set_xscale("log")
    axis.minorticks_off()
    axis.set_xticks(left, [f"{share:.2g}" for share in left])
    axis.invert_xaxis()
    axis.set(xlabel="weights of the layer that stay random (%)", ylabel="ensemble accuracy")
    axis.legend(frameon=False, fontsize="small", loc="lower left")
    return figure


def attacks(results: Results) -> Any:
    """Success rates and entropies by iteration, averaged over seeds."""
    figure, ((left, right),) = subplots(1, 2, 4.6, 3.4)
    cells = results.of(experiment="attack")
    if not cells:
        return figure
    for name, (colour, style) in ATTACKED.items():
        for axis, quantity in ((left, "success"), (right, "entropy")):
            values = np.mean([_numbers(cell.result[name][quantity]) for cell in cells], axis=0)
            axis.plot(range(len(values)), values, style, color=PALETTE[colour], label=name)
    left.set(xlabel="iteration", ylabel="success rate", ylim=(0, 1.02))
    right.set(xlabel="iteration", ylabel="predictive entropy (nats)")
    right.set_ylim(bottom=0)
    left.legend(frameon=False, fontsize="small")
    return figure


def toy(results: Results) -> Any:
    """Standard deviations of the two units, by class; one panel per seed."""
    cells = results.of(experiment="toy")
    figure, (axes,) = subplots(1, max(len(cells), 1), 3.4, 3.2)
    for axis, cell in zip(axes, cells, strict=False):
        deviations, labels = np.asarray(cell.result["deviations"], float), np.asarray(cell.result["labels"])
        for label in range(4):
            own = deviations[labels == label]
            axis.plot(*own.T, "osv^"[label], color=PALETTE[label], markersize=4)
            axis.annotate(f"class {label}", own.mean(axis=0), fontsize="small")
        axis.set(xscale="log", yscale="log", xlabel="sd of unit 1", ylabel="sd of unit 2")
        axis.tick_params(which="minor", labelbottom=False, labelleft=False)
    return figure


def _numbers(values: Any) -> np.ndarray:
    """An array of floats; None is NaN."""
    return np.array([np.nan if value is None else value for value in values], float)


FIGURES = {
    "phase_transition": phase_transition,
    "kappa": kappa_histograms,
    "sparse_ensembles": sparse_ensembles,
    "attacks": attacks,
    "toy": toy,
}
