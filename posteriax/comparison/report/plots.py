"""Plots for papers: the charts of the report as Matplotlib figures. Needs matplotlib: the extra `plots`."""

from collections.abc import Callable
from typing import Any

import numpy as np

from posteriax._internal.plot_style import colours, subplots
from posteriax.comparison.comparison import Comparison
from posteriax.comparison.report import chart_data
from posteriax.comparison.report.figures import reliability_panels

MARKERS = "os^DvPX*ph"


def plot(comparison: Comparison, kind: str) -> Any:
    """A Matplotlib figure.

    Args:
        comparison: what `px.compare` returned.
        kind: "reliability" (classes), "coverage" (numbers), "severity" (corrupted test sets), "entropy" (on the main
            test set and on out-of-distribution inputs), "distance" (to the reference), "error" (made against expected,
            by tenth of the uncertainty).

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


def _reliability(comparison: Comparison) -> Any:
    group = chart_data.reliability(comparison)[0]
    names = list(comparison.rows)
    return reliability_panels({names[line.method]: np.array(line.points) for line in group.lines}, colours(names))


def _coverage(comparison: Comparison) -> Any:
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


def _error(comparison: Comparison) -> Any:
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


def _severity(comparison: Comparison) -> Any:
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


def _entropy(comparison: Comparison) -> Any:
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


def _distance(comparison: Comparison) -> Any:
    found = chart_data.distances(comparison)
    assert found is not None
    column, lines = found
    lines = sorted(lines, key=lambda line: -line.points[0][0])
    figure, ((axis,),) = subplots(1, 1, 4.6, 1.0 + 0.34 * len(lines))
    doubtful = comparison.is_doubtful(column)
    for place, line in enumerate(lines):
        value, error = line.points[0]
        style = _style(comparison, line.method) | ({"color": "0.7"} if doubtful else {})
        axis.errorbar(value, place, xerr=np.nan_to_num(error), capsize=3, **style)
    axis.set_yticks(range(len(lines)), [list(comparison.rows)[line.method] for line in lines])
    axis.set_xlim(left=0)
    axis.set_ylim(-0.6, len(lines) - 0.4)
    check = comparison.reference_check
    doubt = f",\nwhich has not converged: {check.doubt}" if check is not None and doubtful else ""
    axis.set_xlabel(f"{comparison.score(column).title} to {comparison.reference}{doubt}")
    return figure


def _style(comparison: Comparison, method: int) -> dict[str, Any]:
    name = list(comparison.rows)[method]
    marker = MARKERS[method % len(MARKERS)]
    return {"label": name, "color": colours(comparison.rows)[name], "marker": marker, "markersize": 4, "linewidth": 1.3}


def _has_severity(comparison: Comparison) -> bool:
    return any(chart_data.severity(comparison, column) for column in comparison.columns)


Plot = tuple[Callable[[Comparison], Any], Callable[[Comparison], Any], str]  # has data?; draw; what it needs
PLOTS: dict[str, Plot] = {
    "reliability": (chart_data.reliability, _reliability, "a classifier's predictions"),
    "coverage": (chart_data.coverage, _coverage, "predictions of numbers"),
    "severity": (_has_severity, _severity, "corrupted test sets, as px.corrupted makes them"),
    "entropy": (chart_data.uncertainties, _entropy, "predictions on the main test set"),
    "distance": (chart_data.distances, _distance, "a reference"),
    "error": (chart_data.errors_by_uncertainty, _error, "predictions on the main test set"),
}
