"""Matplotlib figures: uncertainty over the plane and along a line, reliability, traces, and the charts of a comparison.

Needs matplotlib: the extra `plots`.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from posteriax._internal.plot_style import colours, subplots
from posteriax.evaluation.chart_summaries import chart_summary
from posteriax.evaluation.comparison import Comparison
from posteriax.evaluation.report import chart_data
from posteriax.likelihoods.predictive import Predictive
from posteriax.posterior.posterior import Posterior
from posteriax.posterior.trace import Trace

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CLASS_COLOURS = ("#0072B2", "#D55E00")
FEWEST_IN_BIN = 10  # examples for a bin to count
MARKERS = "os^DvPX*ph"


def uncertainty_plane(
    posteriors: Mapping[str, Posterior],
    data: tuple[np.ndarray, np.ndarray],
    *,
    margin: float = 1.0,
    resolution: int = 90,
) -> "Figure":
    """For each posterior of a classifier with two inputs: predictive entropy over the plane, and the data.

    On the white line both classes are equally probable.
    """
    x, y = data
    low, high = x.min(axis=0) - margin, x.max(axis=0) + margin
    axes_1, axes_2 = (np.linspace(low[i], high[i], resolution) for i in range(2))
    grid = np.stack(np.meshgrid(axes_1, axes_2), axis=-1).reshape(-1, 2).astype(np.float32)
    figure, (axes,) = subplots(1, len(posteriors), 3.3, 3.6, sharex=True, sharey=True)
    for axis, (name, posterior) in zip(axes, posteriors.items(), strict=True):
        predictive: Any = posterior.predict(grid, reduce=True)
        entropy, probs = (a.reshape(resolution, -1) for a in (predictive.entropy(), predictive.probs[:, 1]))
        image = axis.pcolormesh(axes_1, axes_2, entropy, vmin=0.0, vmax=np.log(2), cmap="cividis", rasterized=True)
        axis.contour(axes_1, axes_2, probs, levels=[0.5], colors="white", linewidths=1.5)
        for label, colour in enumerate(CLASS_COLOURS):
            chosen = y == label
            axis.scatter(*x[chosen].T, s=9, color=colour, edgecolor="white", linewidth=0.4, marker="os"[label])
        axis.set_title(name)
        axis.set_xlabel("$x_1$")
    axes[0].set_ylabel("$x_2$")
    bar = figure.colorbar(image, ax=axes, label="entropy of the prediction (nats)", pad=0.01)
    bar.set_ticks([0, 0.2, 0.4, np.log(2)], labels=["0: sure", "0.2", "0.4", "ln 2: no idea"])
    return figure


def interval_bands(
    posteriors: Mapping[str, Posterior],
    data: tuple[np.ndarray, np.ndarray],
    test: tuple[np.ndarray, np.ndarray],
    *,
    level: float = 0.9,
    resolution: int = 120,
) -> "Figure":
    """For each posterior of numbers with one input: its mean and interval along the input, with the data; test targets
    are grey."""
    x, y = data
    grid = np.linspace(test[0].min(), test[0].max(), resolution, dtype=np.float32)
    palette = colours(posteriors)
    figure, (axes,) = subplots(1, len(posteriors), 3.0, 3.0, sharex=True, sharey=True)
    for axis, (name, posterior) in zip(axes, posteriors.items(), strict=True):
        predictive: Any = posterior.predict(grid[:, None])
        low, high = (np.ravel(bound) for bound in predictive.interval(level))
        axis.fill_between(grid, low, high, color=palette[name], alpha=0.25, linewidth=0)
        axis.plot(grid, np.ravel(predictive.mean), color=palette[name])
        axis.plot(test[0][:, 0], test[1], ".", color="0.7", markersize=1.5, zorder=0)
        axis.plot(x[:, 0], y, ".", color="black", markersize=4)
        axis.set_title(name)
        axis.set_xlabel("x")
    span = float(np.ptp(test[1]))
    axes[0].set_ylim(test[1].min() - 0.3 * span, test[1].max() + 0.3 * span)
    axes[0].set_ylabel(f"y, and its {level:.0%} interval")
    return figure


def reliability_diagram(predictives: Mapping[str, Predictive], y: ArrayLike, *, bins: int = 15) -> "Figure":
    """For each prediction: the fraction right against the confidence, in the bins of `ece_equal_width`.

    A point's size shows how many examples its bin has; it is hollow below ten. Below the diagonal is over-confident.
    """
    charts = {name: chart_summary(predictive, np.asarray(y), y, bins) for name, predictive in predictives.items()}
    points = {name: np.stack([chart.confidence, chart.right, chart.count], axis=1) for name, chart in charts.items()}
    return reliability_panels(points, colours(predictives))


def reliability_panels(points: Mapping[str, np.ndarray], palette: Mapping[str, str]) -> "Figure":
    """A reliability diagram for each name, from points (confidence, fraction right, number of examples)."""
    figure, (axes,) = subplots(1, len(points), 2.9, 3.7, sharex=True, sharey=True)
    for axis, (name, bins) in zip(axes, points.items(), strict=True):
        means, rights, sizes = bins.T
        share = sizes / sizes.sum()
        axis.plot([0, 1], [0, 1], color="0.6", linewidth=1, zorder=1)
        firm = sizes >= FEWEST_IN_BIN  # a handful of examples says little: shown, but not joined
        axis.plot(means[firm], rights[firm], color=palette[name], linewidth=1.2, zorder=2)
        face = np.where(firm, palette[name], "white")
        axis.scatter(means, rights, s=12 + 200 * share, facecolor=face, edgecolor=palette[name], zorder=3)
        axis.set_title(f"{name}\nECE {float(share @ np.abs(means - rights)):.3f}")
        axis.set_xlabel("confidence")
        axis.set(xlim=(0, 1.02), ylim=(0, 1.02), xticks=[0, 0.5, 1], yticks=[0, 0.5, 1])
        axis.set_box_aspect(1)
    axes[0].set_ylabel("fraction right")
    axes[0].text(0.96, 0.06, "over-confident", ha="right", color="0.4")
    axes[0].text(0.04, 0.9, "under-confident", color="0.4")
    return figure


TRACES = {  # the quantities of a run to show, and their labels
    "elbo": "ELBO (nats)",
    "log_joint": "log joint (nats)",
    "acceptance": "acceptance",
}


def traces(runs: Mapping[str, Trace], *, window: int = 20) -> "Figure":
    """For each run: its objective at every step, and for a sampler its acceptance, as running means."""
    panels = [(name, key) for name, trace in runs.items() for key in TRACES if key in trace]
    figure, (axes,) = subplots(1, len(panels), 3.0, 3.0)
    palette = colours(runs)
    for axis, (name, key) in zip(axes, panels, strict=True):
        late = []  # the axis limits ignore the first steps, which would hide all others
        for line in np.atleast_2d(runs[name][key]):
            smooth = np.convolve(line, np.ones(window) / window, mode="valid") if len(line) > 2 * window else line
            steps = np.arange(len(smooth)) + (len(line) - len(smooth))
            axis.plot(steps, smooth, color=palette[name], linewidth=1, alpha=0.8)
            late.append(smooth[len(smooth) // 20 :])
        low, high = (0.0, 1.0) if key == "acceptance" else (np.min(late), np.max(late))
        axis.set_ylim(low, high + (0.05 * (high - low) or 1.0))
        axis.set_title(name)
        axis.set_xlabel("transition" if "acceptance" in runs[name] else "step")
        axis.set_ylabel(TRACES[key])
    return figure


def plot(comparison: Comparison, kind: str) -> "Figure":
    """A Matplotlib figure.

    Args:
        comparison: what `px.compare` returned.
        kind: "reliability" (classes), "coverage" (numbers), "severity" (corrupted test sets), "entropy" (on the main
            test set and on out-of-distribution inputs), "distance" (to the reference), "error" (made against expected,
            by decile of the uncertainty).

    >>> from posteriax.metrics import Estimate
    >>> rows = {"VI": {"total_variation": Estimate(0.1, 0.01)}, "HMC": {"total_variation": Estimate(0.0)}}
    >>> plot(Comparison({"test": rows}, reference="HMC"), "distance").axes[0].get_xlabel()
    'total variation to HMC'
    """
    if kind not in PLOTS:
        raise ValueError(f"kind must be one of {', '.join(map(repr, PLOTS))}, got {kind!r}")
    has_data, draw, needs = PLOTS[kind]
    if not has_data(comparison):
        there = [repr(other) for other, (has, _, _) in PLOTS.items() if has(comparison)]
        rest = f"There is data for {', '.join(there)}." if there else "There is no data for any other plot either."
        raise ValueError(f"this comparison has no data for {kind!r}: it needs {needs}. {rest}")
    return draw(comparison)


def _reliability(comparison: Comparison) -> "Figure":
    group = chart_data.reliability(comparison)[0]
    names = list(comparison.rows)
    return reliability_panels({names[line.method]: np.array(line.points) for line in group.lines}, colours(names))


def _coverage(comparison: Comparison) -> "Figure":
    group = chart_data.coverage(comparison)[0]
    figure, ((axis,),) = subplots(1, 1, 4.0, 3.8)
    axis.plot([0, 1], [0, 1], color="0.6", linewidth=1)
    for line in group.lines:
        nominal, observed = np.array(line.points).T
        axis.plot(nominal, observed, **_style(comparison, line.method))
    axis.set(xlabel="nominal coverage", ylabel="observed coverage", xlim=(0, 1), ylim=(0, 1))
    axis.set_box_aspect(1)
    axis.legend(frameon=False, fontsize="small")
    return figure


def _error(comparison: Comparison) -> "Figure":
    group = chart_data.errors_by_uncertainty(comparison)[0]
    figure, ((axis,),) = subplots(1, 1, 4.0, 3.8)
    high = 1.05 * chart_data.without_explosions([max(max(p[:2]) for p in line.points) for line in group.lines])
    axis.plot([0, high], [0, high], color="0.6", linewidth=1)
    for line in group.lines:
        expected, observed, _ = np.array(line.points).T
        axis.plot(expected, observed, **_style(comparison, line.method))
    numbers = chart_data.is_regression(comparison)
    names = ("predicted standard deviation", "rmse") if numbers else ("predicted chance of being wrong", "share wrong")
    axis.set(xlabel=names[0], ylabel=names[1], xlim=(0, high), ylim=(0, high))
    axis.set_box_aspect(1)
    axis.legend(frameon=False, fontsize="small")
    return figure


def _severity(comparison: Comparison) -> "Figure":
    panels = [(c, chart_data.severity(comparison, c)) for c in comparison.columns]
    panels = [(column, groups) for column, groups in panels if groups][:2]
    figure, (axes,) = subplots(1, len(panels), 3.8, 3.4)
    for axis, (column, groups) in zip(axes, panels, strict=True):
        for line in groups[0].lines:
            severity, value, error = np.array(line.points).T
            axis.errorbar(severity, value, np.nan_to_num(error), capsize=2, **_style(comparison, line.method))
        axis.set(xlabel="severity of the corruption", ylabel=comparison.score(column).heading)
        axis.set_xticks([int(s) for s in severity])
    axes[0].legend(frameon=False, fontsize="small")
    return figure


def _entropy(comparison: Comparison) -> "Figure":
    histograms = chart_data.uncertainties(comparison)
    assert histograms is not None
    names, palette = list(comparison.rows), colours(comparison.rows)
    figure, (axes,) = subplots(1, len(histograms.inside), 2.6, 2.6, sharex=True, sharey=True)
    for axis, line in zip(axes, histograms.inside, strict=True):
        name = names[line.method]
        inside = np.array(line.points)[:, 0]
        axis.stairs(inside, histograms.edges, fill=True, color=palette[name], alpha=0.6, label=comparison.main)
        for group in histograms.outside[:1]:
            for other in group.lines:
                if other.method == line.method:
                    axis.stairs(np.array(other.points)[:, 0], histograms.edges, color="0.1", label=group.name)
        axis.set_title(name)
    numbers = chart_data.is_regression(comparison)
    figure.supxlabel(f"{'standard deviation' if numbers else 'entropy (nats)'} of the prediction", fontsize="medium")
    axes[0].set_ylabel("share of examples")
    axes[0].legend(frameon=False, fontsize="small")
    return figure


def _distance(comparison: Comparison) -> "Figure":
    measured = chart_data.distances(comparison)
    assert measured is not None
    column, lines = measured
    lines = sorted(lines, key=lambda line: -line.points[0][0])
    figure, ((axis,),) = subplots(1, 1, 4.6, 1.0 + 0.34 * len(lines))
    doubtful = comparison.is_doubtful(column)
    for position, line in enumerate(lines):
        value, error = line.points[0]
        style = _style(comparison, line.method) | ({"color": "0.7"} if doubtful else {})
        axis.errorbar(value, position, xerr=np.nan_to_num(error), capsize=3, **style)
    axis.set_yticks(range(len(lines)), [list(comparison.rows)[line.method] for line in lines])
    axis.set_xlim(left=0)
    axis.set_ylim(-0.6, len(lines) - 0.4)
    check = comparison.reference_check
    doubt = f",\nwhich has not converged: {check.doubt}" if check is not None and doubtful else ""
    axis.set_xlabel(f"{comparison.score(column).title} to {comparison.reference}{doubt}")
    return figure


def _style(comparison: Comparison, method: int) -> dict[str, Any]:
    name = list(comparison.rows)[method]
    marker = MARKERS[(method + 3 * (method // len(MARKERS))) % len(MARKERS)]  # shifted where colours repeat
    return {"label": name, "color": colours(comparison.rows)[name], "marker": marker, "markersize": 4, "linewidth": 1.3}


def _has_severity(comparison: Comparison) -> bool:
    return any(chart_data.severity(comparison, column) for column in comparison.columns)


Plot = tuple[Callable[[Comparison], Any], Callable[[Comparison], "Figure"], str]  # has data?; draw; what it needs
PLOTS: dict[str, Plot] = {
    "reliability": (chart_data.reliability, _reliability, "a classifier's predictions"),
    "coverage": (chart_data.coverage, _coverage, "predictions of numbers"),
    "severity": (_has_severity, _severity, "corrupted test sets, as px.data.corrupted makes them"),
    "entropy": (chart_data.uncertainties, _entropy, "predictions on the main test set"),
    "distance": (chart_data.distances, _distance, "a reference"),
    "error": (chart_data.errors_by_uncertainty, _error, "predictions on the main test set"),
}
