"""The tables of the study, beside the paper's figures.

The figures of the study, drawn from its results alone.
"""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from posteriax._internal.plot_style import PALETTE, colours, legend_below, subplots
from posteriax.studies.bnn_posteriors.experiments import AUGMENTATIONS, REGRESSION_ROWS, SHIFT_ROWS, noise_name
from posteriax.studies.bnn_posteriors.measures import (
    FIDELITY,
    by_temperature,
    of_method,
    prior_accuracies,
    sweep,
    targets,
)
from posteriax.studies.bnn_posteriors.methods import METHODS, SG_MCMC
from posteriax.studies.results import Results
from posteriax.studies.study import Table

# CIFAR-10: accuracy (%), agreement (%), total variation, accuracy (%) and total variation on corrupted images
PAPER_METHODS: dict[str, tuple[str, ...]] = {
    "HMC": ("89.64", "94.01", ".074", "70.91", ".133"),
    "SGLD": ("89.32", "91.54", ".110", "78.80", ".214"),
    "SGHMC": ("89.38", "91.98", ".109", "78.20", ".203"),
    "cyclical SGHMC": ("89.63", "92.67", ".099", "76.43", ".194"),
    "preconditioned SGHMC": ("87.46", "90.96", ".111", "73.42", ".205"),
    "deep ensemble": ("88.49", "91.52", ".115", "76.99", ".220"),
    "mean-field VI": ("86.45", "88.75", ".136", "75.40", ".245"),
    "MAP": ("83.44", "85.48", ".190", "71.04", ".334"),
}
# IMDB: accuracy, NLL, ECE, read off its figures
PAPER_IMDB: dict[str, tuple[str, ...]] = {
    "HMC": (".868", ".308", ".032"),
    "SGLD": (".861", ".315", ".007"),
    "deep ensemble": (".859", ".357", ".042"),
    "mean-field VI": (".854", ".345", ".037"),
    "MAP": (".829", ".757", ".136"),
}
# log-likelihood and RMSE of the paper, read off its figures: HMC, SGLD, SGD, SWAG
PAPER_UCI = {
    "uci/boston": ("-2.39, -2.46, -2.71, -2.76", "3.7, 3.7, 4.3, 3.5"),
    "uci/concrete": ("-2.67, -3.05, -3.37, -3.02", "4.45, 5.7, 5.0, 5.25"),
    "uci/energy": ("-1.1, -2.2, -1.5, -1.7", ".36, 1.3, .86, 1.6"),
    "uci/naval": ("9.65, 3.4, 3.7, 6.65", "1e-4, 6e-3, 6.3e-3, 1e-3"),
}
SAMPLED = ("acceptance", "divergent", "leapfrogs", "rhat", "far", "weights", "effective", "draws")
SAMPLED_HEADINGS = (
    "acceptance",
    "divergent",
    "leapfrogs",
    "R-hat, largest",
    "above 1.1",
    "R-hat, weights",
    "effective draws",
    "draws",
)


def with_error(values: Any, digits: int = 3, unit: float = 1.0) -> str:
    """The mean over seeds, with its standard error if there are several.

    >>> with_error([0.991, 0.993], 2, 100), with_error([])
    ('99.20 ± 0.10', '')
    """
    found = unit * np.asarray(values, float)
    if not len(found):
        return ""
    error = f" ± {found.std(ddof=1) / np.sqrt(len(found)):.{digits}f}" if len(found) > 1 else ""
    return f"{found.mean():.{digits}f}{error}"


def sampled(results: Results, path: str = "quality", **own: Any) -> list[str]:
    """How well HMC sampled: means over seeds; R-hats are the largest."""
    of = lambda name: results.values(f"{path}.{name}", **own)  # noqa: E731
    total = of("chains") * of("draws")
    return [
        f"{of('acceptance').mean():.2f}",
        f"{of('divergent').mean():.1%}",
        f"{of('leapfrogs').mean():.0f}",
        f"{of('function_rhat').max():.2f}",
        f"{of('function_rhat_far').mean():.1%}",
        f"{of('weight_rhat').max():.2f}",
        f"{of('function_effective').mean():.0f} ({of('function_effective_least').min():.0f})",
        f"{of('chains').mean():.0f} x {total.mean() / of('chains').mean():.0f}",
    ]


def tables(results: Results) -> list[Table]:
    found = [_methods(results, target) for target in targets(results)]
    found += [_order(results), _sampling(results), _mixing(results), _temperatures(results), _augmentation(results)]
    found += [_priors(results), _shift(results), *_regression(results)]
    return [table for table in found if table.rows]


def _methods(results: Results, target: str) -> Table:
    own = {"experiment": "methods", "target": target}
    shifted = "corrupted" in results.of(**own)[0].result["HMC"]
    outside = "auroc" in results.of(**own)[0].result["HMC"]
    headings = ["method", "accuracy (%)", "NLL", "ECE", "agreement (%)", "total variation"]
    headings += ["corrupted: accuracy (%)", "NLL", "ECE", "agreement (%)", "total variation"] if shifted else []
    headings += ["AUROC"] if outside else []
    if target.startswith("IMDB"):
        paper, heading = PAPER_IMDB, "the paper, IMDB: accuracy, NLL, ECE"
    else:
        paper, heading = PAPER_METHODS, "the paper, CIFAR-10: accuracy, agreement, TV; corrupted: accuracy, TV"
    headings += [heading]
    rows = []
    for name in METHODS:
        if name not in results.of(**own)[0].result:
            continue
        values = [
            with_error(of_method(results, target, name, f"{part}{score}"), digits, unit)
            for part in (("", "corrupted.") if shifted else ("",))
            for score, digits, unit in SCORED
        ]
        values += [with_error(of_method(results, target, name, "auroc"))] if outside else []
        rows.append([name, *values, ", ".join(paper.get(name, ("-",)))])
    caption = (
        f"{target}: all methods. Agreement and total variation are with HMC, those of HMC itself of one chain with the "
        "others. MAP is the mean over the members of the deep ensemble, one at a time."
    )
    return Table(caption, headings, rows)


SCORED = (
    ("accuracy", 1, 100.0),
    ("nll", 3, 1.0),
    ("ece", 3, 1.0),
    ("agreement", 1, 100.0),
    ("total_variation", 3, 1.0),
)


def _order(results: Results) -> Table:
    """Distances of the groups that the order is about, by target."""
    rows = [
        [target, *(with_error(of_method(results, target, name, "total_variation")) for name in FIDELITY), *steps]
        for target in targets(results)
        for steps in [[with_error(step) for step in _steps(results, target)]]
    ]
    names = [f"{further} minus {closer}" for closer, further in itertools.pairwise(FIDELITY)]
    caption = (
        "Total variation from HMC by network, and the steps of the order, by seed. SG-MCMC is the mean of its kinds."
    )
    return Table(caption, ["target", *FIDELITY, *names], rows)


def _steps(results: Results, target: str) -> list[np.ndarray]:
    each = [of_method(results, target, name, "total_variation") for name in FIDELITY]
    return [further - closer for closer, further in itertools.pairwise(each)]


def _sampling(results: Results) -> Table:
    rows = []
    for target in targets(results):
        own = {"experiment": "methods", "target": target}
        plain = [f"{results.values(f'quality.{s}_plain', **own).max():.2f}" for s in ("function", "weight")]
        far = [f"{results.values(f'quality.{s}_plain_far', **own).mean():.1%}" for s in ("function", "weight")]
        rows.append([target, *sampled(results, **own), plain[0], far[0], plain[1], far[1]])
    caption = (
        "HMC, the reference: how well it sampled. R-hat is rank-normalised and split, the largest over all class "
        "probabilities at 200 test points, or over 2,000 weights; effective draws are the median over predictions "
        "(and the fewest). The last four columns have R-hat as the paper computes it."
    )
    last = ("R-hat of predictions, plain", "above 1.1", "R-hat of weights, plain", "above 1.1")
    return Table(caption, ["target", *SAMPLED_HEADINGS, *last], rows)


def _mixing(results: Results) -> Table:
    rows = []
    pairs = [(value, 1.0) for value in sweep(results, "nll", "trajectory")]
    pairs += [(1.0, value) for value in sweep(results, "nll", "step") if value != 1.0]
    for trajectory, step in pairs:
        own: dict[str, Any] = {"experiment": "mixing", "trajectory": trajectory, "step": step}
        scores = [with_error(results.values(name, **own), 3) for name in ("accuracy", "nll")]
        rows.append([f"{trajectory:g}", f"{step:g}", *scores, *sampled(results, **own)])
    caption = (
        "HMC with unit masses and fixed step size from random weights: trajectories in units of pi / 2 times the "
        "prior's scale, step sizes in units of the smallest."
    )
    return Table(caption, ["trajectory", "step size", "accuracy", "NLL", *SAMPLED_HEADINGS], rows)


def _temperatures(results: Results) -> Table:
    rows = []
    for target in targets(results, experiment="temperature"):
        own = {"experiment": "temperature", "target": target}
        for temperature in _distinct(results, "temperature", **own):
            here: dict[str, Any] = {**own, "temperature": temperature}
            paper = PAPER_TEMPERATURES.get(temperature, "") if target.startswith("IMDB") else ""
            scores = [with_error(results.values(name, **here)) for name in ("accuracy", "nll", "ece")]
            rows.append([target, f"{temperature:g}", *scores, paper, *sampled(results, **here)])
    headings = ["target", "T", "accuracy", "NLL", "ECE", "the paper: accuracy, NLL, ECE", *SAMPLED_HEADINGS]
    return Table("HMC by temperature, without augmentation", headings, rows)


PAPER_TEMPERATURES = {
    0.03: ".772, .47, .012",
    0.1: ".797, .425, .012",
    0.3: ".83, .38, .021",
    1.0: ".866, .31, .034",
    3.0: ".83, .42, .101",
    10.0: ".672, .66, .134",
}


def _augmentation(results: Results) -> Table:
    rows = [
        [str(name), f"{temperature:g}", *(with_error(results.values(s, **here)) for s in ("accuracy", "nll", "ece"))]
        for name in _distinct(results, "augmentation", experiment="augmentation")
        for temperature in _distinct(results, "temperature", experiment="augmentation")
        for here in [{"experiment": "augmentation", "augmentation": name, "temperature": temperature}]
    ]
    caption = "SGHMC by temperature, with and without augmentation (HMC needs one log joint, which it has not)"
    return Table(caption, ["augmentation", "T", "accuracy", "NLL", "ECE"], rows)


def _priors(results: Results) -> Table:
    rows = []
    for cell in dict.fromkeys((c.settings["family"], c.settings["variance"]) for c in results.of(experiment="prior")):
        own = {"experiment": "prior", "family": cell[0], "variance": cell[1]}
        scores = [with_error(results.values(name, **own)) for name in ("accuracy", "nll", "ece")]
        rows.append([str(cell[0]), f"{cell[1]:.4g}", *scores, *sampled(results, **own)])
    return Table("HMC by prior", ["family", "variance", "accuracy", "NLL", "ECE", *SAMPLED_HEADINGS], rows)


def _shift(results: Results) -> Table:
    cells = results.of(experiment="shift")
    sets = list(cells[0].result["HMC"]) if cells else []
    rows = []
    for name in SHIFT_ROWS if cells else ():
        path = {"HMC": "quality", "HMC, EmpCov": "quality_empcov"}.get(name)
        quality = sampled(results, path, experiment="shift") if path else [""] * len(SAMPLED_HEADINGS)
        rows.append([name, *(with_error(results.values(f"{name}.{s}", experiment="shift")) for s in sets), *quality])
    headings = ["", *(s.replace("_", "." if s.startswith("noise") else " ") for s in sets), *SAMPLED_HEADINGS]
    caption = "MNIST: accuracy with noise on the pixels, in units of the inputs, and under corruptions of severity 5"
    return Table(caption, headings, rows)


def _regression(results: Results) -> list[Table]:
    found = []
    sets = _distinct(results, "data", experiment="regression")
    for score, words, place in (("log_likelihood", "log-likelihood", 0), ("rmse", "RMSE", 1)):
        rows = []
        for data in sets:
            own = {"experiment": "regression", "data": data}
            digits = 5 if data == "uci/naval" and score == "rmse" else 3
            values = [with_error(results.values(f"{name}.{score}", **own), digits) for name in REGRESSION_ROWS]
            paper = PAPER_UCI.get(str(data), ("-", "-"))[place]
            count = f"{results.values('rows', **own).mean():.0f}"
            rows.append([str(data), count, *values, paper, *sampled(results, **own)])
        headings = ["data", "training rows", *REGRESSION_ROWS, "the paper: HMC, SGLD, SGD, SWAG", *SAMPLED_HEADINGS]
        found.append(Table(f"UCI: test {words}, mean over splits and its standard error", headings, rows))
    return found


def _distinct(results: Results, name: str, **own: Any) -> Sequence[Any]:
    """The values of a setting, in the order of the study."""
    return list(dict.fromkeys(cell.settings[name] for cell in results.of(**own)))


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
