"""Chart data: what each chart of a comparison shows, as plain lists. The page and the figures for papers draw these.

A line is the index of a posterior and its points; a group is a name (a test set, a kind of corruption) and its lines.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from posteriax.evaluation.chart_summaries import ChartSummary
from posteriax.evaluation.comparison import Comparison
from posteriax.metrics.score import Estimate

HISTOGRAM_BINS = 24
EXPLODED = 6  # times the median of all posteriors: does not set the limit of an axis
ATTACK_POINTS = 200
MEAN_OF_KINDS = "mean over all kinds"
OUTSIDE = "out: "


class Line(NamedTuple):
    """The points of one posterior, given by its index."""

    method: int
    points: list[tuple[float, ...]]


class Group(NamedTuple):
    """Lines that are drawn in one chart."""

    name: str
    lines: list[Line]


class Histograms(NamedTuple):
    """Histograms of uncertainties: inside (the main test set), and outside, by set.

    The last bin includes all larger values.
    """

    edges: list[float]
    inside: list[Line]
    outside: list[Group]


def reliability(comparison: Comparison) -> list[Group]:
    """By test set: points (confidence, fraction right, number of examples) of classifiers.

    >>> chart = ChartSummary(confidence=np.array([0.9]), right=np.array([0.8]), count=np.array([50]))
    >>> reliability(Comparison({"test": {"MAP": {}}}, charts={"test": {"MAP": chart}}))
    [Group(name='test', lines=[Line(method=0, points=[(0.9, 0.8, 50)])])]
    """
    return _by_set(comparison, lambda chart: [chart.confidence, chart.right, chart.count])


def coverage(comparison: Comparison) -> list[Group]:
    """By test set: points (nominal, observed) of how often central intervals hold the target.

    >>> chart = ChartSummary(levels=np.array([0.5]), coverage=np.array([0.4]))
    >>> coverage(Comparison({"test": {"MAP": {}}}, charts={"test": {"MAP": chart}}))
    [Group(name='test', lines=[Line(method=0, points=[(0.5, 0.4)])])]
    """
    return _by_set(comparison, lambda chart: [chart.levels, chart.coverage])


def errors_by_uncertainty(comparison: Comparison) -> list[Group]:
    """By test set: points (expected error, observed error, number of examples) by decile of the uncertainty.

    >>> from posteriax.evaluation.uncertainty_deciles import Deciles
    >>> deciles = Deciles(np.array([1.0]), np.array([1.2]), count=np.array([50]))
    >>> charts = {"test": {"MAP": ChartSummary(deciles=deciles)}}
    >>> errors_by_uncertainty(Comparison({"test": {"MAP": {}}}, charts=charts))
    [Group(name='test', lines=[Line(method=0, points=[(1.0, 1.2, 50)])])]
    """
    return _by_set(comparison, lambda chart: [chart.deciles.expected, chart.deciles.observed, chart.deciles.count])


def coverage_by_uncertainty(comparison: Comparison) -> list[Group]:
    """By test set: points (share of more certain examples, coverage of the 90 % interval, examples), by decile.

    A posterior that is equally certain of all examples has a single point.

    >>> from posteriax.evaluation.uncertainty_deciles import Deciles
    >>> deciles = Deciles(np.ones(2), np.ones(2), np.array([0.9, 0.7]), np.array([50, 50]))
    >>> charts = {"test": {"MAP": ChartSummary(deciles=deciles)}}
    >>> coverage_by_uncertainty(Comparison({"test": {"MAP": {}}}, charts=charts))[0].lines[0].points
    [(0.25, 0.9, 50), (0.75, 0.7, 50)]
    """

    def columns(chart: ChartSummary) -> list[np.ndarray]:
        count = chart.deciles.count
        middles = (np.cumsum(count) - count / 2) / max(1, count.sum())
        return [middles, chart.deciles.covered, count] if len(chart.deciles.covered) else [np.zeros(0)]

    return _by_set(comparison, columns)


def severity(comparison: Comparison, column: str) -> list[Group]:
    """By kind of corruption, preceded by the mean if there are several: points (severity, score, standard error).

    Severity 0 is the clean test set.

    >>> from posteriax.data.corruptions.corrupt import Corruption
    >>> sets = {"clean": {"MAP": {"nll": Estimate(0.1, 0.01)}}, "fog 3": {"MAP": {"nll": Estimate(0.3, 0.02)}}}
    >>> severity(Comparison(sets, corruptions={"fog 3": Corruption("fog", 3)}), "nll")
    [Group(name='fog', lines=[Line(method=0, points=[(0.0, 0.1, 0.01), (3.0, 0.3, 0.02)])])]
    """
    kinds: dict[str, dict[int, str]] = {}
    for name, corruption in comparison.corruptions.items():
        kinds.setdefault(corruption.kind, {})[corruption.severity] = name
    means = comparison.severities(column)
    if not means:
        return []
    methods = {name: i for i, name in enumerate(comparison.rows) if name in means}
    groups = [Group(MEAN_OF_KINDS, [_curve(i, means[name]) for name, i in methods.items()])]
    for kind, sets in kinds.items():
        lines = []
        for name, i in methods.items():
            estimates = {0: comparison.rows[name][column]}
            lines.append(_curve(i, estimates | {s: comparison.sets[sets[s]][name][column] for s in sorted(sets)}))
        groups.append(Group(kind, lines))
    return groups[1:] if len(kinds) == 1 else groups


def uncertainties(comparison: Comparison) -> Histograms | None:
    """Histograms of each prediction's entropy (classes) or standard deviation (numbers), inside and outside.

    >>> charts = {"test": {"MAP": ChartSummary(entropies=np.array([0.0, 0.1, 1.0]))}}
    >>> histograms = uncertainties(Comparison({"test": {"MAP": {}}}, charts=charts))
    >>> len(histograms.edges), histograms.inside[0].points[0]
    (25, (0.333...,))
    """
    outside = [name for name in comparison.charts if name.startswith(OUTSIDE)]
    pools = [
        _finite(chart.entropies)
        for name in [comparison.main, *outside]
        for chart in comparison.charts.get(name, {}).values()
    ]
    pools = [pool for pool in pools if len(pool)]
    if not pools:
        return None
    low = min(0.0, *(float(pool.min()) for pool in pools))
    high = without_explosions([float(np.quantile(pool, 0.995)) for pool in pools])  # outliers would squeeze the rest
    edges = np.linspace(low, high if high > low else low + 1, HISTOGRAM_BINS + 1)
    inside, *others = (Group(name, _histogram_lines(comparison, name, edges)) for name in [comparison.main, *outside])
    return Histograms(edges.tolist(), inside.lines, others)


def distances(comparison: Comparison) -> tuple[str, list[Line]] | None:
    """The first column that holds distances to the reference, and for each posterior (value, error).

    >>> rows = {"VI": {"total_variation": Estimate(0.1, 0.01)}, "HMC": {"total_variation": Estimate(0.0, 0.0)}}
    >>> distances(Comparison({"test": rows}, reference="HMC"))
    ('total_variation', [Line(method=0, points=[(0.1, 0.01)])])
    """
    for column in comparison.columns:
        score = comparison.score(column)
        if not score.against_reference or score.better != "lower":
            continue
        lines = [
            Line(i, [(row[column].value, row[column].error)])
            for i, (name, row) in enumerate(comparison.rows.items())
            if name != comparison.reference and column in row
        ]
        if comparison.reference is not None and lines:
            return column, lines
    return None


def attacks(comparison: Comparison) -> list[Group]:
    """By quantity ("success", "accuracy", "entropy"): points (iteration, value) of an attack.

    >>> charts = {"attacked": {"MAP": ChartSummary(attack={"success": np.array([0.0, 0.4])})}}
    >>> attacks(Comparison({"test": {"MAP": {}}}, charts=charts))
    [Group(name='success', lines=[Line(method=0, points=[(0.0, 0.0), (1.0, 0.4)])])]
    """
    groups: dict[str, list[Line]] = {}
    for i, name in enumerate(comparison.rows):
        for charts in comparison.charts.values():
            for quantity, values in charts[name].attack.items() if name in charts else ():
                kept = np.unique(np.linspace(0, len(values) - 1, ATTACK_POINTS).astype(int)) if len(values) else ()
                groups.setdefault(quantity, []).append(Line(i, [(float(k), float(values[k])) for k in kept]))
    return [Group(quantity, lines) for quantity, lines in groups.items()]


def is_regression(comparison: Comparison) -> bool:
    """Whether numbers were predicted, not classes: only numbers have intervals with a coverage.

    >>> is_regression(Comparison({"test": {"MAP": {}}}, charts={"test": {"MAP": ChartSummary(levels=np.array([0.5]))}}))
    True
    """
    return any(len(chart.levels) for chart in comparison.charts.get(comparison.main, {}).values())


def without_explosions(tops: list[float]) -> float:
    """The largest of the posteriors' largest values, without those of a posterior that has exploded.

    >>> without_explosions([1.0, 2.0, 3.0]), without_explosions([1.0, 2.0, 4e21])
    (3.0, 2.0)
    """
    median = float(np.median(tops))
    return max(top for top in tops if top <= EXPLODED * median) if median > 0 else max(tops)


def _by_set(comparison: Comparison, columns: Callable[[ChartSummary], list[np.ndarray]]) -> list[Group]:
    groups = []
    for name in dict.fromkeys([comparison.main, *comparison.charts]):
        charts = comparison.charts.get(name, {})
        arrays = {i: columns(charts[row]) for i, row in enumerate(comparison.rows) if row in charts}
        lines = [Line(i, list(zip(*map(np.ndarray.tolist, a), strict=True))) for i, a in arrays.items() if len(a[0])]
        if lines:
            groups.append(Group(name, lines))
    return groups


def _curve(method: int, estimates: dict[int, Estimate]) -> Line:
    return Line(method, [(float(severity), value, error) for severity, (value, error, _) in estimates.items()])


def _histogram_lines(comparison: Comparison, set_name: str, edges: np.ndarray) -> list[Line]:
    lines = []
    for i, row in enumerate(comparison.rows):
        chart = comparison.charts.get(set_name, {}).get(row)
        values = _finite(chart.entropies) if chart is not None else np.zeros(0)
        if len(values):
            counts = np.histogram(np.clip(values, edges[0], edges[-1]), edges)[0]
            lines.append(Line(i, [(float(c) / len(values),) for c in counts]))
    return lines


def _finite(values: np.ndarray) -> np.ndarray:
    values = np.asarray(values, np.float64).ravel()
    return values[np.isfinite(values)]
