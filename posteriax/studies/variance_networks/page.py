"""The tables of the study, beside the paper's.

The figures of the study, drawn from its results alone.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from posteriax._internal.plot_style import PALETTE, subplots
from posteriax.studies.results import Results
from posteriax.studies.study import Table
from posteriax.studies.variance_networks.experiments import EDGES, THRESHOLD

# stochastic, deterministic, ensemble accuracy in per cent
PAPER_ACCURACIES: dict[tuple[str, ...], tuple[float | None, ...]] = {
    ("LeNet-5", "mnist", "dropout"): (99.1, 99.4, 99.4),
    ("LeNet-5", "mnist", "layer"): (95.9, 10.1, 99.3),
    ("LeNet-5", "mnist", "zero-mean"): (None, None, 99.2),
    ("VGG", "cifar10", "dropout"): (91.0, 93.1, 93.4),
    ("VGG", "cifar10", "layer"): (91.3, 10.0, 93.4),
    ("VGG", "cifar10", "zero-mean"): (None, None, 92.9),
    ("VGG", "cifar100", "dropout"): (77.5, 79.8, 81.7),
    ("VGG", "cifar100", "layer"): (76.9, 5.0, 82.2),
}
# ELBO in nats, deterministic and ensemble accuracy in per cent
PAPER_PARAMETERISATIONS = {
    "layer": ("-5.9e+02", 11.3, 99.2),
    "neuron": ("-7.7e+02", 11.3, 99.2),
    "weight": ("-6.4e+04", 81.3, 99.2),
    "additive": ("-2.3e+04", 96.3, 99.2),
    "student-t": ("", "chance", 99.2),
}
LAYERS = {
    "dropout": "dropout",
    "layer": "one alpha per layer",
    "neuron": "one alpha per neuron",
    "weight": "one alpha per weight",
    "additive": "additive",
    "student-t": "one alpha per layer, Student-t prior",
    "zero-mean": "zero mean, from scratch",
}


def with_error(values: Sequence[float], unit: float = 1.0, digits: int = 2) -> str:
    """The mean over seeds, with its standard error if there are several.

    >>> with_error([0.991, 0.993], 100), with_error([], 100)
    ('99.20 ± 0.10', '')
    """
    found = unit * np.asarray(values, float)
    if not len(found):
        return ""
    error = f" ± {found.std(ddof=1) / np.sqrt(len(found)):.{digits}f}" if len(found) > 1 else ""
    return f"{found.mean():.{digits}f}{error}"


def tables(results: Results) -> list[Table]:
    return [_accuracies(results), _parameterisations(results), _sparse(results), _attacks(results), _toy(results)]


def _accuracies(results: Results) -> Table:
    columns = ("stochastic", "deterministic", "ensemble")
    rows = []
    for key in _distinct(results, "accuracy", ("network", "data", "method")):
        own = {"experiment": "accuracy", **dict(zip(("network", "data", "method"), key, strict=True))}
        paper = PAPER_ACCURACIES.get(key, (None, None, None))
        numbers = [
            text
            for column, reported in zip(columns, paper, strict=True)
            for text in (
                with_error(results.values(column, **own).tolist(), 100),
                "" if reported is None else str(reported),
            )
        ]
        rows.append([key[0], key[1], LAYERS[key[2]], *numbers])
    headings = ["network", "data", "layer", *(text for column in columns for text in (f"{column} (%)", "paper"))]
    return Table("Test accuracy of single draws, of the mean weights, and of the average over draws", headings, rows)


def _parameterisations(results: Results) -> Table:
    rows = []
    for (method,) in _distinct(results, "parameterisation", ("method",)):
        own, paper = {"experiment": "parameterisation", "method": method}, PAPER_PARAMETERISATIONS[method]
        elbo = results.values("elbo", **own)
        # a proper prior with so heavy tails has a KL of millions of nats that says nothing about the fit
        row = [LAYERS[method], "" if method == "student-t" else f"{elbo.mean():.3g}", paper[0]]
        for name, reported in (("deterministic", paper[1]), ("ensemble", paper[2])):
            row += [with_error(results.values(name, **own).tolist(), 100), str(reported)]
        row += [with_error(results.values(name, **own).tolist(), 100) for name in ("without_means", "shuffled")]
        rows.append([*row, with_error(results.values("log_alpha", **own).tolist())])
    headings = ["parameterisation", "ELBO (nats)", "paper", "deterministic (%)", "paper", "ensemble (%)", "paper"]
    headings += ["means set to 0 (%)", "variances shuffled (%)", "log alpha"]
    return Table("Parameterisations of the first dense layer, trained on the subset", headings, rows)


def _sparse(results: Results) -> Table:
    cells = results.of(experiment="curvature")
    rows = [["0", *[with_error([cell.result["ensemble"] for cell in cells], 100)] * 2]]
    for i, share in enumerate(cells[0].result["removed"] if cells else ()):
        accuracies = [with_error([cell.result[rest][i] for cell in cells], 100) for rest in ("zero", "mean")]
        rows.append([f"{100 * share:g}", *accuracies])
    headings = ["removed (%)", "set to 0 (%)", "set to their means (%)"]
    return Table(
        "Ensemble accuracy without the weights of the smallest kappa (paper: no loss up to 98 %)", headings, rows
    )


def _attacks(results: Results) -> Table:
    cells, rows = results.of(experiment="attack"), []
    for name in cells[0].result if cells else ():
        own = [cell.result[name] for cell in cells]
        row = [name, with_error([o["accuracy"][0] for o in own], 100)]
        row += [with_error([float(np.mean(o["success"][1:])) for o in own], 100)]
        row += [with_error([o["success"][-1] for o in own], 100)]
        row += [with_error([o["entropy"][0] for o in own], digits=3)]
        rows.append([*row, with_error([float(np.mean(o["entropy"][1:])) for o in own], digits=3)])
    headings = [
        "",
        "clean accuracy (%)",
        "success, mean (%)",
        "success, last (%)",
        "entropy, clean",
        "entropy, attacked",
    ]
    return Table("Targeted attacks: success rates and mean predictive entropies in nats", headings, rows)


def _toy(results: Results) -> Table:
    names = ("stochastic", "deterministic", "ensemble")
    row = [with_error(results.values(name, experiment="toy").tolist(), 100) for name in names]
    return Table("Four Gaussians through two units with mean 0", [f"{name} (%)" for name in names], [row])


def _distinct(results: Results, experiment: str, names: tuple[str, ...]) -> list[tuple[str, ...]]:
    """The different settings of an experiment, in the order of the study."""
    found = (tuple(str(cell.settings[n]) for n in names) for cell in results.of(experiment=experiment))
    return list(dict.fromkeys(found))


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
