"""Significance: which posteriors are best in a score, and which are not significantly worse.

All are scored on the same examples; runs with other seeds and examples are both samples. Means over examples are
compared by :func:`paired_test`, sums of absolute gaps (calibration errors, distances from a target such as coverage) by
:func:`calibration_test`. Among several posteriors, the one that is most clearly worse than the best is eliminated as
long as

    p < 0.05 / (K (K - 1) / 2)        K: posteriors that are left

so that if all are equally good, one or more are called worse in at most 5 % of test sets, however many there are. Each
of those left at the end could be the best. (A model confidence set: Hansen, Lunde and Nason 2011)
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import bdtr, stdtr

from posteriax.metrics.registry import SCORES, describe
from posteriax.metrics.score import Gaps, Score

LEVEL = 0.05
TAIL_DRAWS = 4000  # simulated differences, for a p-value
MEAN_DRAWS = 1000  # simulated differences, for a mean or a variance
HALVINGS = 14

Values = dict[str, np.ndarray]  # by score, its per-example values
Runs = Sequence[np.ndarray]  # by run, a score's values for the same examples


class Difference(NamedTuple):
    """A difference between two scores, minus its mean by chance alone, and the p-value.

    >>> Difference(value=0.1, p_value=0.03).p_value
    0.03
    """

    value: float
    p_value: float


NO_DIFFERENCE = Difference(0.0, 1.0)


def best_and_ties(
    values: Mapping[str, Values | Sequence[Values]],
    reference: str | None = None,
    scores: Mapping[str, Score] = SCORES,
) -> dict[str, tuple[str, ...]]:
    """For each score, the best posterior and then those that are not significantly worse.

    Args:
        values: by posterior, each score's values for the same examples in the same order; for several runs, a list.
        reference: excluded from distances to itself.
        scores: the records of the scores, by name.

    >>> right, wrong = np.ones(50), np.r_[np.zeros(20), np.ones(30)]
    >>> best_and_ties({"a": {"accuracy": right}, "b": {"accuracy": wrong}, "c": {"accuracy": right}})
    {'accuracy': ('a', 'c')}
    """
    runs = {name: [group] if isinstance(group, dict) else list(group) for name, group in values.items()}
    ranked = {}
    for column in dict.fromkeys(column for group in runs.values() for column in group[0]):
        score = scores.get(column, describe(column))
        compared = {
            name: [run[column] for run in group]
            for name, group in runs.items()
            if column in group[0] and not (score.against_reference and name == reference)
        }
        if compared and score.better is not None:
            ranked[column] = _ranked(score, compared)
    return ranked


def _ranked(score: Score, values: dict[str, list[np.ndarray]]) -> tuple[str, ...]:
    losses = {name: _loss(score, runs) for name, runs in values.items()}
    best = min(losses, key=lambda name: losses[name] if math.isfinite(losses[name]) else math.inf)
    others = {name: difference(score, values[name], values[best]) for name in values if name != best}
    # a posterior whose score is worse, but better once chance is subtracted, is not called worse
    order = sorted(others, key=lambda name: others[name].p_value if others[name].value > 0 else 1.0)
    left = len(values)
    while order and others[order[0]].value > 0 and others[order[0]].p_value < LEVEL / math.comb(left, 2):
        order.pop(0)
        left -= 1
    return (best, *sorted(order, key=losses.__getitem__))


def _loss(score: Score, runs: Runs) -> float:
    return float(np.mean([score.loss(score.reduction.value(run)) for run in runs]))


def significantly_differ(score: str | Score, a: np.ndarray | Runs, b: np.ndarray | Runs) -> bool:
    """Whether two posteriors' scores differ at the 5 % level, given their values for the same examples, by run."""
    record = describe(score) if isinstance(score, str) else score
    return difference(record, _as_runs(a), _as_runs(b)).p_value < LEVEL


def _as_runs(values: np.ndarray | Runs) -> Runs:
    return [values] if isinstance(values, np.ndarray) else values


def difference(score: Score, a: Runs, b: Runs) -> Difference:
    """By how much a score's loss (lower is better) differs between two posteriors, and how likely by chance alone."""
    if len(a) == len(b) and all(np.array_equal(ours, theirs) for ours, theirs in zip(a, b, strict=True)):
        return NO_DIFFERENCE
    gaps = [[gap for run in group if (gap := score.gaps(run)) is not None] for group in (a, b)]
    if all(gaps):
        return calibration_test(*gaps)
    sign = -1.0 if score.better == "higher" else 1.0
    return paired_test(*(sign * np.stack([score.reduction.linearised(run) for run in group]) for group in (a, b)))


# Means over examples


def paired_test(a: np.ndarray, b: np.ndarray) -> Difference:
    """Whether two posteriors differ in a mean over test examples: a t-test in which runs and examples are samples.

        a_ik: score of run i on example k      b_jk: the other posterior's, on the same examples
        D = mean_ik a - mean_jk b              t = D / sqrt(V)

    With one run each, the examples are the sample: V is the variance of mean_k (a_k - b_k). With several, runs and
    examples are two crossed samples, as readers and cases are in radiology:

        V = s_a^2 / S_a + s_b^2 / S_b + max(v - e, 0)

        s^2: variance of the means of single runs
        v: variance of mean_k (mean_i a_ik - mean_j b_jk), as if runs were fixed
        e: the part of v that is noise of single runs on single examples, which s^2 already contains

    Degrees of freedom are Satterthwaite's. For equal methods the last term is about zero, and this is Welch's t-test
    over seeds. A posterior with a single run is assigned the other's variance. (Obuchowski and Rockette 1995; Hillis
    2007)

    Args:
        a: values whose mean is the score, (runs, examples).
        b: those of the other posterior on the same examples, (runs, examples).

    >>> rng = np.random.default_rng(0)
    >>> examples = rng.normal(size=400)  # hard and easy ones, for both
    >>> better, worse = examples + 0.1 * rng.normal(size=(2, 1, 400)) + [[[0.0]], [[0.1]]]
    >>> paired_test(better, worse).p_value < 1e-6
    True
    """
    difference = float(a.mean()) - float(b.mean())
    if np.isnan(difference):
        return NO_DIFFERENCE
    if np.isinf(difference):  # one of them gave probability 0 to what happened, and the other never did
        return Difference(difference, 0.0)
    if len(a) == len(b) == 1:
        return _test_over_examples(a[0] - b[0], difference)
    by_example = a.mean(axis=0) - b.mean(axis=0)
    as_if_fixed = by_example.var(ddof=1) / by_example.size if by_example.size > 1 else 0.0
    between = between_runs(a.mean(axis=1), b.mean(axis=1))
    single = _single_run_noise(a, b, _residual_variance)
    return _t_test(difference, between, as_if_fixed - single, by_example.size - 1)


def _test_over_examples(differences: np.ndarray, mean: float) -> Difference:
    n = differences.size
    if not differences.any() or n < 2:
        return Difference(mean, 1.0)
    if np.isin(differences, (-1.0, 0.0, 1.0)).all():  # binary, such as right or wrong
        return Difference(mean, _mcnemar(int((differences > 0).sum()), int((differences < 0).sum())))
    error = differences.std(ddof=1) / np.sqrt(n)
    return Difference(mean, float(2 * stdtr(n - 1, -abs(mean) / error)) if error > 0 else 0.0)


def _mcnemar(more: int, fewer: int) -> float:
    """McNemar's test with mid-p: of the examples on which the two differ, half should favour each.

    A t-test would call four such examples, all on one side, significant, which happens in one of eight equal pairs.

    >>> round(_mcnemar(4, 0), 4), round(_mcnemar(10, 2), 4)
    (0.0625, 0.0225)
    """
    least, count = min(more, fewer), more + fewer
    at_most = float(bdtr(least, count, 0.5))
    exactly = at_most - (float(bdtr(least - 1, count, 0.5)) if least else 0.0)
    return min(1.0, 2 * at_most - exactly) if more != fewer else 1.0


class BetweenRuns(NamedTuple):
    """For each posterior, the variance of its score's mean over runs, and the degrees of freedom."""

    variances: tuple[float, ...]
    freedoms: tuple[int, ...]


def between_runs(a: np.ndarray, b: np.ndarray) -> BetweenRuns:
    """From the scores of single runs; at least one posterior has two.

    >>> between_runs(np.array([1.0, 3.0]), np.array([2.0]))
    BetweenRuns(variances=(3.0,), freedoms=(1,))
    """
    if min(len(a), len(b)) > 1:
        variances = tuple(float(scores.var(ddof=1) / len(scores)) for scores in (a, b))
        return BetweenRuns(variances, (len(a) - 1, len(b) - 1))
    several = a if len(a) > 1 else b
    weight = 1 / len(a) + 1 / len(b)
    return BetweenRuns((float(several.var(ddof=1) * weight),), (len(several) - 1,))


def _single_run_noise(a: np.ndarray, b: np.ndarray, variance: Callable[[np.ndarray], float]) -> float:
    """e of :func:`paired_test`, from the `variance` of each posterior's runs; one with a single run is assigned the
    other's."""
    known = {i: variance(values) for i, values in enumerate((a, b)) if len(values) > 1}
    fallback = next(iter(known.values()))
    return known.get(0, fallback) / len(a) + known.get(1, fallback) / len(b)


def _residual_variance(values: np.ndarray) -> float:
    """Of a run's score, from the residuals after subtracting each run's and each example's mean."""
    runs, examples = values.shape
    centred = values - values.mean(axis=1, keepdims=True)
    centred = centred - centred.mean(axis=0, keepdims=True)
    return float(np.square(centred).sum() / ((runs - 1) * max(examples - 1, 1) * examples))


def _t_test(difference: float, between: BetweenRuns, over_examples: float, freedom: int) -> Difference:
    """The two-sided t-test, from the variances between runs and over examples and their degrees of freedom."""
    over_examples = max(over_examples, 0.0)
    variance = sum(between.variances) + over_examples
    if variance == 0.0:
        return Difference(difference, 1.0 if difference == 0.0 else 0.0)
    parts = [*zip(between.variances, between.freedoms, strict=True), (over_examples, max(freedom, 1))]
    degrees = variance**2 / sum(part**2 / part_freedom for part, part_freedom in parts)
    return Difference(difference, float(2 * stdtr(degrees, -abs(difference) / np.sqrt(variance))))


# Sums of absolute gaps


def calibration_test(a: list[Gaps], b: list[Gaps]) -> Difference:
    """Whether two posteriors differ in a sum of absolute gaps, such as the calibration error, at the stated level.

        E = sum_b |g_b|        g_b = 1/N sum of (right - confidence) over the examples in bin b

    By chance E is above zero even if predictions are perfectly calibrated, and more so the less confident they are. So
    the difference between the E of two perfectly calibrated predictors is not centred at zero, and resampling examples
    does not help. Its distribution under the null hypothesis is simulated instead:

        g_b ~ N(n_b / N (p_b - c_b), p_b (1 - p_b) n_b / N^2),    p_b = c_b +- gamma    c_b: mean confidence in the bin

    with the sign of the bin's observed gap.

    1. For each posterior, gamma is chosen so that the simulated E has the observed one as its mean: the gap beyond
       chance, 0 if chance explains all of it.
    2. Under the null hypothesis both have the mean of these two, weighted by the inverse variance of E at gamma = 0.
    3. The difference of E is compared with simulated ones. The two posteriors' gaps are correlated as their residuals
       (right - confidence - gap) are, on the examples that two bins share.

    With several runs the observed difference, minus the mean of the simulated ones, is divided by its standard error,
    from the variance between runs and the simulated variance over examples, as in :func:`paired_test`. The assignment
    of examples to bins is taken as given.

    A mean that should be close to a target is treated as one bin that promises the target; unless it is a probability,
    its variance is the observed one.

    Args:
        a: a posterior's gaps, by run.
        b: the other posterior's, on the same examples.

    >>> from posteriax.metrics import BinnedGaps
    >>> rng = np.random.default_rng(0)
    >>> confidence, luck = rng.uniform(0.5, 1.0, 2000), rng.uniform(size=2000)
    >>> honest = np.stack([confidence, luck < confidence], axis=1)
    >>> boasting = np.stack([confidence, luck < confidence - 0.1], axis=1)
    >>> calibration_test([BinnedGaps().gaps(boasting)], [BinnedGaps().gaps(honest)]).p_value < 0.001
    True
    """
    if not all(np.isfinite(gaps.residual).all() for gaps in (*a, *b)):
        return NO_DIFFERENCE
    runs = [_binned_run(gaps) for gaps in (*a, *b)]
    groups = (np.arange(len(a)), np.arange(len(a), len(runs)))
    errors = np.array([np.abs(run.gaps).sum() for run in runs])
    single_runs = len(a) == len(b) == 1
    noise = _noise([*a, *b], runs, TAIL_DRAWS if single_runs else MEAN_DRAWS)
    gaps = [_gap_beyond_chance([runs[i] for i in group], [noise[i][:MEAN_DRAWS] for i in group]) for group in groups]
    if_none = np.stack([_simulated(run, 0.0, z[:MEAN_DRAWS]) for run, z in zip(runs, noise, strict=True)])
    weights = [1 / max(if_none[group].mean(axis=0).var(), 1e-300) for group in groups]
    shared_gap = float(np.average(gaps, weights=weights))
    simulated = np.stack([_simulated(run, shared_gap, z) for run, z in zip(runs, noise, strict=True)])
    means = [errors[group].mean() for group in groups]
    observed = means[0] - means[1]
    differences = simulated[groups[0]].mean(axis=0) - simulated[groups[1]].mean(axis=0)
    centred = float(observed - differences.mean())
    if single_runs:
        above, below = (differences >= observed).sum(), (differences <= observed).sum()
        return Difference(centred, float(min(1.0, 2 * (1 + min(above, below)) / (1 + TAIL_DRAWS))))
    single = _single_run_noise(simulated[groups[0]], simulated[groups[1]], _noise_over_examples)
    between = between_runs(errors[groups[0]], errors[groups[1]])
    return _t_test(centred, between, float(differences.var()) - single, len(a[0].residual) - 1)


class _BinnedRun(NamedTuple):
    """The non-empty bins of a run."""

    cells: np.ndarray  # for every example, the index of its bin among these
    fractions: np.ndarray  # of the examples, by bin
    gaps: np.ndarray  # sum of the residuals / N, by bin
    promised: np.ndarray  # mean, by bin
    variance: float | None  # of one example, if it does not follow from the probability of what happens
    dispersion: float  # variance / (p (1 - p)): 1 for a binary outcome, less if an example is a mean of several


def _binned_run(gaps: Gaps) -> _BinnedRun:
    n = len(gaps.bin)
    _, cells, counts = np.unique(gaps.bin, return_inverse=True, return_counts=True)
    sums, promised = (np.bincount(cells, values) for values in (gaps.residual, gaps.promised))
    happened = gaps.residual + gaps.promised
    p = happened.mean()
    binary = bool(np.isin(happened.round(6), (0.0, 1.0)).all())
    dispersion = 1.0 if binary else min(1.0, happened.var() / max(p * (1 - p), 1e-12))
    variance = None if gaps.probabilities else float(happened.var())
    return _BinnedRun(cells, counts / n, sums / n, promised / counts, variance, dispersion)


def _noise(given: list[Gaps], runs: list[_BinnedRun], draws: int) -> list[np.ndarray]:
    """For every run, (draws, bins): simulated sums over a bin's examples, over N, if each example had variance 1."""
    n = len(given[0].bin)
    residuals = [gaps.residual - (run.gaps / run.fractions)[run.cells] for gaps, run in zip(given, runs, strict=True)]
    correlation = _correlation(np.stack(residuals))
    blocks = [
        [
            correlation[i, j] * _shared_examples(a.cells, b.cells, len(a.fractions), len(b.fractions)) / n**2
            for j, b in enumerate(runs)
        ]
        for i, a in enumerate(runs)
    ]
    values, vectors = np.linalg.eigh(np.block(blocks))
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    drawn = np.random.default_rng(0).standard_normal((draws, len(root))) @ root.T
    return np.split(drawn, np.cumsum([len(run.fractions) for run in runs])[:-1], axis=1)


def _shared_examples(a: np.ndarray, b: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """How many examples are in each pair of bins."""
    return np.bincount(a * columns + b, minlength=rows * columns).reshape(rows, columns).astype(float)


def _correlation(residuals: np.ndarray) -> np.ndarray:
    sizes = np.sqrt(np.square(residuals).sum(axis=1))
    matrix = residuals @ residuals.T / np.maximum(np.outer(sizes, sizes), 1e-300)
    np.fill_diagonal(matrix, 1.0)
    return matrix


def _simulated(run: _BinnedRun, gap: float, noise: np.ndarray) -> np.ndarray:
    """Simulated sums of absolute gaps, if the gap of every bin has this size."""
    mean = run.promised + np.sign(run.gaps) * gap
    if run.variance is None:
        mean = np.clip(mean, 0.0, 1.0)
    variance = run.dispersion * mean * (1 - mean) if run.variance is None else run.variance
    return np.abs(run.fractions * (mean - run.promised) + np.sqrt(variance) * noise).sum(axis=1)


def _gap_beyond_chance(runs: list[_BinnedRun], noise: list[np.ndarray]) -> float:
    observed = np.mean([np.abs(run.gaps).sum() for run in runs])
    expected = lambda gap: np.mean([_simulated(r, gap, z).mean() for r, z in zip(runs, noise, strict=True)])  # noqa: E731
    if expected(0.0) >= observed:
        return 0.0
    low, high = 0.0, 1.0 if all(run.variance is None for run in runs) else float(observed)  # E|gap + noise| >= gap
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if expected(middle) < observed else (low, middle)
    return (low + high) / 2


def _noise_over_examples(simulated: np.ndarray) -> float:
    """The part of the variance between runs that is noise over examples, from simulated runs, (runs, draws)."""
    centred = simulated - simulated.mean(axis=1, keepdims=True)
    return float(centred.var(axis=0, ddof=1).mean())
