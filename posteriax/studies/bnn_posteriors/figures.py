"""The figures of the study, drawn from its results alone."""

from typing import Any

import numpy as np

from posteriax._internal.plot_style import PALETTE, colours, legend_below, subplots
from posteriax.studies.bnn_posteriors.measures import (
    by_temperature,
    of_method,
    prior_accuracies,
    sweep,
    targets,
)
from posteriax.studies.bnn_posteriors.methods import METHODS, SG_MCMC
from posteriax.studies.bnn_posteriors.regression import ROWS as REGRESSION_ROWS
from posteriax.studies.bnn_posteriors.shift import ROWS as SHIFT_ROWS
from posteriax.studies.bnn_posteriors.shift import noise_name
from posteriax.studies.bnn_posteriors.targets import AUGMENTATIONS
from posteriax.studies.results import Results

COLOURS = colours(METHODS) | {"HMC, EmpCov": PALETTE[9]}
STYLES = {"HMC, EmpCov": "--"}


def fidelity(results: Results) -> Any:
    """Total variation from HMC against test NLL, one panel per target."""
    names = targets(results)
    figure, (axes,) = subplots(1, max(len(names), 1), 4.2, 3.6)
    for axis, target in zip(axes, names, strict=False):
        for name in (name for name in METHODS if name in results.of(experiment="methods", target=target)[0].result):
            x, y = (of_method(results, target, name, score) for score in ("total_variation", "nll"))
            marker = "s" if name == "HMC" else "^" if name in SG_MCMC else "o"
            axis.errorbar(
                *(x.mean(), y.mean(), _error(y), _error(x), marker),
                color=COLOURS[name],
                capsize=2,
                markersize=5,
                label="HMC (one chain from the others)" if name == "HMC" else name,
            )
        axis.set(title=target, xlabel="total variation from HMC", ylabel="test NLL (nats per example)")
    legend_below(figure, *axes, columns=3)
    return figure


def mixing(results: Results) -> Any:
    """Trajectory length, step size, and single draws along the chains."""
    figure, (axes,) = subplots(1, 3, 3.6, 3.2)
    if not results.of(experiment="mixing"):
        return figure
    for axis, vary, path, label in (
        (axes[0], "trajectory", "nll", "test NLL (nats per example)"),
        (axes[1], "step", "quality.acceptance", "acceptance"),
    ):
        found = sweep(results, path, vary)
        draw_means(axis, list(found), list(found.values()), PALETTE[0])
        axis.set(ylabel=label)
    axes[0].set_xlabel("trajectory (units of $\\pi\\alpha/2$)")
    axes[1].set(xlabel="step size (units of the smallest)", ylim=(0, 1.02))
    burn_in = results.settings["mixing"]["burn_in"]
    for cell in results.of(experiment="mixing", trajectory=1.0, step=1.0):
        each = np.asarray(cell.result["draw_nll"], float)
        axes[2].plot(burn_in + 1 + np.arange(len(each)), each, color=PALETTE[2], linewidth=1)
    axes[2].set(xlabel="iteration", ylabel="test NLL of single draws (nats)")
    return figure


def temperatures(results: Results) -> Any:
    """Test NLL by temperature: HMC, and SGHMC with and without augmentation."""
    figure, (axes,) = subplots(1, 2, 4.4, 3.4)
    for colour, target in enumerate(targets(results, experiment="temperature")):
        found = by_temperature(results, "nll", experiment="temperature", target=target)
        draw_means(axes[0], list(found), list(found.values()), PALETTE[colour], target)
    for colour, name in enumerate(AUGMENTATIONS):
        found = by_temperature(results, "nll", experiment="augmentation", augmentation=name)
        draw_means(axes[1], list(found), list(found.values()), PALETTE[2 + colour], f"augmentation: {name}")
    for axis, title in zip(axes, ("HMC", "SGHMC"), strict=True):
        axis.axvline(1.0, color="0.8", linewidth=1, zorder=0)
        axis.set(xscale="log", title=title, xlabel="temperature", ylabel="test NLL (nats per example)")
        if axis.get_legend_handles_labels()[0]:
            axis.legend(frameon=False, fontsize="small")
    return figure


def priors(results: Results) -> Any:
    """Accuracy by the variance of a Gaussian prior, and by family."""
    figure, (axes,) = subplots(1, 2, 4.2, 3.2, sharey=True)
    cells = results.of(experiment="prior")
    if not cells:
        return figure
    variances = sorted({float(c.settings["variance"]) for c in cells if c.settings["family"] == "Normal"})
    draw_means(axes[0], variances, list(prior_accuracies(results, families=False)), PALETTE[0])
    usual = {c.settings["variance"] for c in cells if c.settings["family"] != "Normal"}
    families = sorted({str(c.settings["family"]) for c in cells if c.settings["variance"] in usual})
    each = list(prior_accuracies(results, families=True))
    axes[1].errorbar(
        range(len(each)), [v.mean() for v in each], [_error(v) for v in each], fmt="o", color=PALETTE[3], capsize=3
    )
    axes[0].set(xscale="log", xlabel="variance of a Gaussian prior", ylabel="test accuracy")
    axes[0].set_xticks(variances, [f"{variance:g}" for variance in variances])
    axes[0].minorticks_off()
    axes[1].set_xticks(range(len(families)), families, fontsize="small")
    axes[1].set(xlabel="family, of one variance", xlim=(-0.5, len(families) - 0.5))
    return figure


def noise(results: Results) -> Any:
    """Accuracy by noise on the pixels."""
    figure, ((axis,),) = subplots(1, 1, 5.0, 3.4)
    if not results.of(experiment="shift"):
        return figure
    levels = list(results.settings["noises"])
    for name in SHIFT_ROWS:
        values = [results.values(f"{name}.{noise_name(level)}", experiment="shift") for level in levels]
        draw_means(axis, levels, values, COLOURS[name], name, STYLES.get(name, "-"))
    axis.set(xlabel="standard deviation of the noise (units of the inputs)", ylabel="test accuracy, MNIST")
    axis.set_ylim(0, 1)
    axis.legend(frameon=False, fontsize="small")
    return figure


def regression(results: Results) -> Any:
    """Test log-likelihood on UCI sets, as the difference from HMC by split."""
    names = list(dict.fromkeys(str(cell.settings["data"]) for cell in results.of(experiment="regression")))
    figure, ((axis,),) = subplots(1, 1, 6.4, 3.6)
    for place, method in enumerate(REGRESSION_ROWS[1:]):
        apart = [
            results.values(f"{method}.log_likelihood", experiment="regression", data=name)
            - results.values("HMC.log_likelihood", experiment="regression", data=name)
            for name in names
        ]
        x = np.arange(len(names)) + 0.12 * (place - 1.5)
        means, errors = [v.mean() for v in apart], [_error(v) for v in apart]
        axis.errorbar(x, means, errors, fmt="o", color=COLOURS[method], capsize=3, markersize=4, label=method)
    axis.axhline(0.0, color="0.5", linewidth=1, zorder=0)
    axis.set_yscale("symlog", linthresh=0.1, linscale=1.0)
    axis.set_yticks([0, -0.1, -1, -10], ["0", "-0.1", "-1", "-10"])
    axis.set_xticks(range(len(names)), [name.rpartition("/")[2] for name in names])
    axis.set(ylabel="test log-likelihood minus HMC's (nats)")
    legend_below(figure, axis, columns=4)
    return figure


def draw_means(axis: Any, x: Any, values: Any, colour: str, label: str | None = None, style: str = "-") -> None:
    """A line through the means, with their standard errors."""
    means, errors = [each.mean() for each in values], [_error(each) for each in values]
    axis.errorbar(x, means, errors, fmt=f"o{style}", markersize=4, capsize=3, color=colour, label=label)


def _error(values: np.ndarray) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0


FIGURES = {
    "fidelity": fidelity,
    "mixing": mixing,
    "temperatures": temperatures,
    "priors": priors,
    "noise": noise,
    "regression": regression,
}
