"""Do two posteriors differ in a sum of absolute gaps, such as the calibration error? A test that keeps its level.

    E = sum_b |g_b|        g_b = 1/N sum of (right - confidence) over the examples in bin b

By chance E is above zero even if predictions are perfectly calibrated, and more so the less confident they are. So the
difference between the E of two perfectly calibrated predictors is not centred at zero, and resampling examples does not
help. Its distribution under the null hypothesis is simulated instead:

    g_b ~ N(n_b / N (p_b - c_b), p_b (1 - p_b) n_b / N^2),      p_b = c_b +- gamma      c_b: mean confidence in the bin

with the sign of the bin's observed gap.

1. For each posterior, gamma is chosen so that the simulated E has the observed one as its mean: the gap beyond chance,
   0 if chance explains all of it.
2. Under the null hypothesis both have the mean of these two, weighted by the inverse variance of E at gamma = 0.
3. The difference of E is compared with simulated ones. The two posteriors' gaps are correlated as their residuals
   (right - confidence - gap) are, on the examples that two bins share.

With several runs the observed difference, minus the mean of the simulated ones, is divided by its standard error, from
the variance between runs and the simulated variance over examples, as in
:mod:`posteriax.comparison.difference_of_means`. The assignment of examples to bins is taken as given.

A mean that should be close to a target is treated as one bin that promises the target; unless it is a probability, its
variance is the observed one.
"""

from typing import NamedTuple

import numpy as np

from posteriax.comparison.difference_of_means import NONE, Difference, between_runs, noise_of_single_runs, t_test
from posteriax.metrics import Gaps

DRAWS = 4000  # for a tail
DRAWS_OF_A_MEAN = 1000
HALVINGS = 14


def compare_gaps(one: list[Gaps], other: list[Gaps]) -> Difference:
    """Whether the sum of absolute gaps differs between two posteriors, given their runs on the same examples.

    >>> from posteriax.metrics import BinnedGaps
    >>> rng = np.random.default_rng(0)
    >>> confidence, luck = rng.uniform(0.5, 1.0, 2000), rng.uniform(size=2000)
    >>> honest = np.stack([confidence, luck < confidence], axis=1)
    >>> boasting = np.stack([confidence, luck < confidence - 0.1], axis=1)
    >>> compare_gaps([BinnedGaps().gaps(boasting)], [BinnedGaps().gaps(honest)]).p_value < 0.001
    True
    """
    if not all(np.isfinite(gaps.residual).all() for gaps in (*one, *other)):
        return NONE
    runs = [_run(gaps) for gaps in (*one, *other)]
    groups = (np.arange(len(one)), np.arange(len(one), len(runs)))
    errors = np.array([np.abs(run.gaps).sum() for run in runs])
    single_runs = len(one) == len(other) == 1
    noise = _noise([*one, *other], runs, DRAWS if single_runs else DRAWS_OF_A_MEAN)
    gaps = [_gap_beyond_chance([runs[i] for i in own], [noise[i][:DRAWS_OF_A_MEAN] for i in own]) for own in groups]
    if_none = np.stack([_simulated(run, 0.0, z[:DRAWS_OF_A_MEAN]) for run, z in zip(runs, noise, strict=True)])
    weights = [1 / max(if_none[own].mean(axis=0).var(), 1e-300) for own in groups]
    both = float(np.average(gaps, weights=weights))
    simulated = np.stack([_simulated(run, both, z) for run, z in zip(runs, noise, strict=True)])
    means = [errors[own].mean() for own in groups]
    observed = means[0] - means[1]
    differences = simulated[groups[0]].mean(axis=0) - simulated[groups[1]].mean(axis=0)
    centred = float(observed - differences.mean())
    if single_runs:
        above, below = (differences >= observed).sum(), (differences <= observed).sum()
        return Difference(centred, float(min(1.0, 2 * (1 + min(above, below)) / (1 + DRAWS))))
    single = noise_of_single_runs(simulated[groups[0]], simulated[groups[1]], _noise_over_examples)
    own_runs = between_runs(errors[groups[0]], errors[groups[1]])
    return t_test(centred, own_runs, float(differences.var()) - single, len(one[0].residual) - 1)


class _Run(NamedTuple):
    """The non-empty bins of a run."""

    cells: np.ndarray  # for every example, the index of its bin among these
    fractions: np.ndarray  # of the examples, by bin
    gaps: np.ndarray  # sum of the residuals / N, by bin
    promised: np.ndarray  # mean, by bin
    variance: float | None  # of one example, if it does not follow from the probability of what happens
    dispersion: float  # variance / (p (1 - p)): 1 for a binary outcome, less if an example is a mean of several


def _run(gaps: Gaps) -> _Run:
    n = len(gaps.bin)
    _, cells, counts = np.unique(gaps.bin, return_inverse=True, return_counts=True)
    sums, promised = (np.bincount(cells, values) for values in (gaps.residual, gaps.promised))
    happened = gaps.residual + gaps.promised
    p = happened.mean()
    binary = bool(np.isin(happened.round(6), (0.0, 1.0)).all())
    dispersion = 1.0 if binary else min(1.0, happened.var() / max(p * (1 - p), 1e-12))
    variance = None if gaps.probabilities else float(happened.var())
    return _Run(cells, counts / n, sums / n, promised / counts, variance, dispersion)


def _noise(given: list[Gaps], runs: list[_Run], draws: int) -> list[np.ndarray]:
    """For every run, (draws, bins): simulated sums over a bin's examples, over N, if each example had variance 1."""
    n = len(given[0].bin)
    left = [gaps.residual - (run.gaps / run.fractions)[run.cells] for gaps, run in zip(given, runs, strict=True)]
    correlation = _correlation(np.stack(left))
    blocks = [
        [
            correlation[i, j] * _shared(a.cells, b.cells, len(a.fractions), len(b.fractions)) / n**2
            for j, b in enumerate(runs)
        ]
        for i, a in enumerate(runs)
    ]
    values, vectors = np.linalg.eigh(np.block(blocks))
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    drawn = np.random.default_rng(0).standard_normal((draws, len(root))) @ root.T
    return np.split(drawn, np.cumsum([len(run.fractions) for run in runs])[:-1], axis=1)


def _shared(one: np.ndarray, other: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """How many examples are in each pair of bins."""
    return np.bincount(one * columns + other, minlength=rows * columns).reshape(rows, columns).astype(float)


def _correlation(left: np.ndarray) -> np.ndarray:
    sizes = np.sqrt(np.square(left).sum(axis=1))
    matrix = left @ left.T / np.maximum(np.outer(sizes, sizes), 1e-300)
    np.fill_diagonal(matrix, 1.0)
    return matrix


def _simulated(run: _Run, gap: float, noise: np.ndarray) -> np.ndarray:
    """Simulated sums of absolute gaps, if the gap of every bin has this size."""
    mean = run.promised + np.sign(run.gaps) * gap
    if run.variance is None:
        mean = np.clip(mean, 0.0, 1.0)
    variance = run.dispersion * mean * (1 - mean) if run.variance is None else run.variance
    return np.abs(run.fractions * (mean - run.promised) + np.sqrt(variance) * noise).sum(axis=1)


def _gap_beyond_chance(runs: list[_Run], noise: list[np.ndarray]) -> float:
    seen = np.mean([np.abs(run.gaps).sum() for run in runs])
    expected = lambda gap: np.mean([_simulated(r, gap, z).mean() for r, z in zip(runs, noise, strict=True)])  # noqa: E731
    if expected(0.0) >= seen:
        return 0.0
    low, high = 0.0, 1.0 if all(run.variance is None for run in runs) else float(seen)  # E|gap + noise| >= gap
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if expected(middle) < seen else (low, middle)
    return (low + high) / 2


def _noise_over_examples(simulated: np.ndarray) -> float:
    """The part of the variance between runs that is noise over examples, from simulated runs, (runs, draws)."""
    centred = simulated - simulated.mean(axis=1, keepdims=True)
    return float(centred.var(axis=0, ddof=1).mean())
