"""Do two posteriors differ in a mean over test examples? Seeds and examples are both samples.

    a_ik: score of run i on example k      b_jk: the other posterior's, on the same examples
    D = mean_ik a - mean_jk b              t = D / sqrt(V)

With one run each, the examples are the sample: V is the variance of mean_k (a_k - b_k). With several, runs and examples
are two crossed samples, as readers and cases are in radiology:

    V = s_a^2 / S_a + s_b^2 / S_b + max(v - e, 0)

    s^2: variance of the runs' own means       v: variance of mean_k (mean_i a_ik - mean_j b_jk), as if runs were fixed
    e: the part of v that is noise of single runs on single examples, which s^2 already contains

Degrees of freedom are Satterthwaite's. For equal methods the last term is about zero, and this is Welch's t-test over
seeds. A posterior with a single run is assigned the other's variance. (Obuchowski and Rockette 1995; Hillis 2007)
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.special import bdtr, stdtr


class Difference(NamedTuple):
    """A difference between two scores, minus its mean by chance alone, and the p-value.

    >>> Difference(value=0.1, p_value=0.03).p_value
    0.03
    """

    value: float
    p_value: float


NONE = Difference(0.0, 1.0)


def compare_means(one: np.ndarray, other: np.ndarray) -> Difference:
    """The test above.

    Args:
        one: values whose mean is the score, (runs, examples).
        other: those of the other posterior on the same examples, (runs, examples).

    >>> rng = np.random.default_rng(0)
    >>> examples = rng.normal(size=400)  # hard and easy ones, for both
    >>> better, worse = examples + 0.1 * rng.normal(size=(2, 1, 400)) + [[[0.0]], [[0.1]]]
    >>> compare_means(better, worse).p_value < 1e-6
    True
    """
    difference = float(one.mean() - other.mean())
    if not np.isfinite(difference):
        return NONE
    if len(one) == len(other) == 1:
        return _over_examples(one[0] - other[0], difference)
    shared = one.mean(axis=0) - other.mean(axis=0)
    as_if_fixed = shared.var(ddof=1) / shared.size if shared.size > 1 else 0.0
    own = between_runs(one.mean(axis=1), other.mean(axis=1))
    single = noise_of_single_runs(one, other, _residual_variance)
    return t_test(difference, own, as_if_fixed - single, shared.size - 1)


class BetweenRuns(NamedTuple):
    """For each posterior, the variance of its score's mean over runs, and the degrees of freedom."""

    variances: tuple[float, ...]
    freedoms: tuple[int, ...]


def between_runs(one: np.ndarray, other: np.ndarray) -> BetweenRuns:
    """From the scores of single runs; at least one posterior has two.

    >>> between_runs(np.array([1.0, 3.0]), np.array([2.0]))
    BetweenRuns(variances=(3.0,), freedoms=(1,))
    """
    if min(len(one), len(other)) > 1:
        variances = tuple(float(own.var(ddof=1) / len(own)) for own in (one, other))
        return BetweenRuns(variances, (len(one) - 1, len(other) - 1))
    several = one if len(one) > 1 else other
    weight = 1 / len(one) + 1 / len(other)
    return BetweenRuns((float(several.var(ddof=1) * weight),), (len(several) - 1,))


def noise_of_single_runs(one: np.ndarray, other: np.ndarray, variance: Callable[[np.ndarray], float]) -> float:
    """e above, from the `variance` of each posterior's runs; one with a single run is taken to have the other's."""
    known = {i: variance(values) for i, values in enumerate((one, other)) if len(values) > 1}
    fallback = next(iter(known.values()))
    return known.get(0, fallback) / len(one) + known.get(1, fallback) / len(other)


def _residual_variance(values: np.ndarray) -> float:
    """Of a run's score, from the residuals after subtracting each run's and each example's mean."""
    runs, examples = values.shape
    centred = values - values.mean(axis=1, keepdims=True)
    centred = centred - centred.mean(axis=0, keepdims=True)
    return float(np.square(centred).sum() / ((runs - 1) * max(examples - 1, 1) * examples))


def t_test(difference: float, own: BetweenRuns, shared: float, freedom: int) -> Difference:
    """The two-sided t-test, from the variances between runs and over examples and their degrees of freedom."""
    shared = max(shared, 0.0)
    variance = sum(own.variances) + shared
    if variance == 0.0:
        return Difference(difference, 1.0 if difference == 0.0 else 0.0)
    parts = [*zip(own.variances, own.freedoms, strict=True), (shared, max(freedom, 1))]
    degrees = variance**2 / sum(part**2 / own_freedom for part, own_freedom in parts)
    return Difference(difference, float(2 * stdtr(degrees, -abs(difference) / np.sqrt(variance))))


def _over_examples(differences: np.ndarray, mean: float) -> Difference:
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
    here = at_most - (float(bdtr(least - 1, count, 0.5)) if least else 0.0)
    return min(1.0, 2 * at_most - here) if more != fewer else 1.0
