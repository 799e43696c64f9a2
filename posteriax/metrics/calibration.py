"""Calibration: whether a confidence of 80 % is right 80 % of the time.

    ECE = sum_b (n_b / N) |accuracy_b - confidence_b|

over bins of the highest probability. The value depends on the bins, so each function names its rule. Every example is
in exactly one bin, and the number of bins never depends on the number of examples. Bins of equal width are the same for
every batch, so that their sums add up; bins of equal mass need all examples at once. (Guo et al. 2017)
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from posteriax._internal.checks import check_count
from posteriax.likelihoods.classes import ClassPredictive
from posteriax.metrics.arrays import (
    AnyArray,
    Values,
    as_probs,
    keeps_precision,
    labels_by_example,
    probs_by_example,
    score_classes,
)
from posteriax.metrics.classification import is_right
from posteriax.metrics.score import Gaps, Reduction, Score

BLOCK = 256  # examples summed in float32 before the blocks' sums are added up
BINS = 15
RESAMPLINGS = 200  # of the examples, for the standard error


class CalibrationBins(NamedTuple):
    """Sums over the examples of every bin, (..., bins): what a reliability diagram shows. Those of batches add up.

    Made by :func:`calibration_bins` or :func:`classwise_bins`.

    Args:
        examples: how many are in the bin.
        right: how many of them were right.
        excess: the sum of right - confidence, positive if under-confident. Summed by itself, because the difference of
            two large sums would lose its digits.

    >>> batches = [([[0.8, 0.2]], [0]), ([[0.8, 0.2]], [1])]
    >>> first, second = (calibration_bins(probs, y) for probs, y in batches)
    >>> first.add(second).error().round(3).item()
    0.3...
    """

    examples: Any
    right: Any
    excess: Any

    def add(self, other: "CalibrationBins") -> "CalibrationBins":
        """The bins of both sets of examples together."""
        return CalibrationBins(*(a + b for a, b in zip(self, other, strict=True)))

    def accuracy(self) -> Values:
        """The fraction that is right in every bin; NaN in an empty one."""
        return _quotient(self.right, self.examples)

    def confidence(self) -> Values:
        """The mean confidence in every bin; NaN in an empty one."""
        return _quotient(self.right - self.excess, self.examples)

    def error(self) -> Values:
        """The expected calibration error; of classwise bins, one per class."""
        # |sum of accuracy - sum of confidence| in a bin, over N: the bin's size cancels
        return abs(self.excess).sum(axis=-1) / self.examples.sum(axis=-1)


@keeps_precision
def ece_equal_width(probs: ArrayLike, y: ArrayLike, bins: int = BINS) -> Values:
    """Expected calibration error over bins of equal width, ((b-1)/bins, b/bins]; the first also takes 0. Best is 0.

    Args:
        probs: (N, C), or (S, N, C) for one value per draw.
        y: labels, (N,).
        bins: number of bins.

    >>> ece_equal_width([[0.8, 0.2], [0.8, 0.2]], [0, 1]).round(3).item()
    0.3...
    """
    return calibration_bins(probs, y, bins).error()


@dataclass(frozen=True)
class BinnedGaps(Reduction):
    """:func:`ece_equal_width` of (confidence, right) pairs, (N, 2), in float64, with a bootstrap's standard error.

    >>> round(BinnedGaps().value(np.array([[0.8, 1.0], [0.8, 0.0]])), 3)
    0.3
    """

    bins: int = BINS
    dimensions = 2

    def value(self, values: np.ndarray) -> float:
        return float(CalibrationBins(np.ones(len(values)), values[:, 1], self._excess(values).sum(axis=0)).error())

    def linearised(self, values: np.ndarray) -> np.ndarray:
        raise NotImplementedError("a sum of absolute gaps is not linear near zero; it is compared by its gaps")

    def standard_error(self, values: np.ndarray) -> float:
        n = len(values)
        times = np.random.default_rng(0).multinomial(n, np.full(n, 1 / n), size=RESAMPLINGS).astype(np.float64)
        resampled = CalibrationBins(times, values[:, 1], times @ self._excess(values))
        return float(resampled.error().std(ddof=1))

    def gaps(self, values: np.ndarray) -> Gaps:
        confidence, right = values.T
        return Gaps(np.asarray(bin_index(confidence, self.bins)), right - confidence, confidence)

    def _excess(self, values: np.ndarray) -> np.ndarray:
        """right - confidence of each example in the column of its bin, (N, bins)."""
        index, excess, _, _ = self.gaps(values)
        columns = np.zeros((len(values), self.bins))
        columns[np.arange(len(values)), index] = excess
        return columns


def _confidence_and_right(predictive: ClassPredictive, y: ArrayLike) -> np.ndarray:
    probs = probs_by_example(predictive)
    return np.stack([probs.max(axis=1), is_right(probs, labels_by_example(predictive, y))], axis=1)


ECE = Score(
    name="ece",
    meaning="Expected calibration error: how far the confidence is from the fraction that is right, on average.",
    better="lower",
    per_example=_confidence_and_right,
    reduction=BinnedGaps(),
    needs=("probs", "check"),
)


@keeps_precision
def ece_equal_mass(probs: ArrayLike, y: ArrayLike, bins: int = BINS) -> Values:
    """Expected calibration error over bins between quantiles of the confidence; equal confidences share a bin.

    A fraction b / bins of the examples lies at or below the b-th edge. Best is 0. The edges depend on all examples:
    concatenate batches first.

    Args:
        probs: (N, C), or (S, N, C) for one value per draw.
        y: labels, (N,).
        bins: number of bins.

    >>> ece_equal_mass([[0.8, 0.2], [0.8, 0.2]], [0, 1]).round(3).item()
    0.3...
    """
    return score_classes(partial(_equal_mass, bins=check_count("bins", bins)), as_probs("probs", probs), y).error()


@keeps_precision
def classwise_ece(probs: ArrayLike, y: ArrayLike, bins: int = BINS) -> Values:
    """Classwise calibration error: that of every class's probability, not only the highest; the mean over classes.

        1/C sum_c sum_b (n_bc / N) |frequency of c in bin - mean p[c] in bin|

    with bins of equal width. Best is 0. With many classes most probabilities are close to 0, and so is the error:
    compare it only within one problem. (Kull et al. 2019)

    Args:
        probs: (N, C), or (S, N, C) for one value per draw.
        y: labels, (N,).
        bins: number of bins.

    >>> classwise_ece([[0.8, 0.2], [0.8, 0.2]], [0, 1]).round(3).item()
    0.3...
    """
    return classwise_bins(probs, y, bins).error().mean(axis=-1)


@keeps_precision
def calibration_bins(probs: ArrayLike, y: ArrayLike, bins: int = BINS) -> CalibrationBins:
    """The sums behind :func:`ece_equal_width`, to add over batches with `add`, or to draw a reliability diagram.

    Args:
        probs: (N, C), or (S, N, C) for sums (S, bins).
        y: labels, (N,).
        bins: number of bins.

    >>> bins = calibration_bins([[0.8, 0.2], [0.6, 0.4], [0.2, 0.8]], [0, 0, 0], bins=5)
    >>> bins.examples.tolist(), bins.right.tolist()
    ([0, 0, 1, 2, 0], [0, 0, 1, 1, 0])
    """
    return score_classes(partial(_equal_width, bins=check_count("bins", bins)), as_probs("probs", probs), y)


@keeps_precision
def classwise_bins(probs: ArrayLike, y: ArrayLike, bins: int = BINS) -> CalibrationBins:
    """The sums behind :func:`classwise_ece`, (C, bins): `right` counts the examples that are of the class.

    Args:
        probs: (N, C), or (S, N, C) for sums (S, C, bins).
        y: labels, (N,).
        bins: number of bins.

    >>> classwise_bins([[0.8, 0.2], [0.6, 0.4]], [0, 1], bins=2).right.tolist()
    [[0, 1], [1, 0]]
    """
    return score_classes(partial(_classwise, bins=check_count("bins", bins)), as_probs("probs", probs), y)


@partial(jax.jit, static_argnames="bins")
def _equal_width(probs: jax.Array, y: jax.Array, bins: int) -> CalibrationBins:
    confidence = probs.max(axis=-1)
    return _sums(confidence, is_right(probs, y), bin_index(confidence, bins), bins)


@partial(jax.jit, static_argnames="bins")
def _equal_mass(probs: jax.Array, y: jax.Array, bins: int) -> CalibrationBins:
    confidence = probs.max(axis=-1)
    n = confidence.size
    edges = jnp.sort(confidence)[np.array([-(-b * n // bins) - 1 for b in range(1, bins)], int)]
    return _sums(confidence, is_right(probs, y), jnp.searchsorted(edges, confidence), bins)


@partial(jax.jit, static_argnames="bins")
def _classwise(probs: jax.Array, y: jax.Array, bins: int) -> CalibrationBins:
    class_sums = lambda p, c: _sums(p, y == c, bin_index(p, bins), bins)  # noqa: E731
    return jax.vmap(class_sums)(probs.T, jnp.arange(probs.shape[1]))


def bin_index(confidence: AnyArray, bins: int) -> AnyArray:
    """The bin of equal width that each confidence is in; an edge belongs to the bin below it.

    >>> bin_index(jnp.array([0.1, 0.5, 0.51]), 2).tolist()
    [0, 0, 1]
    """
    arrays = np if isinstance(confidence, np.ndarray) else jnp
    # in float32, whose 0.6 is 0.6 there, on the edge of five bins; in float64 it is 0.60000002, above the edge
    return arrays.clip(arrays.ceil(confidence.astype(np.float32) * bins).astype(np.int32) - 1, 0, bins - 1)


def _quotient(numerator: Values, count: Values) -> Values:
    with np.errstate(invalid="ignore"):  # 0 / 0 in an empty bin
        return numerator / count


def _sums(confidence: jax.Array, right: jax.Array, index: jax.Array, bins: int) -> CalibrationBins:
    # a scatter adds sequentially, which in float32 loses digits over 1e5 examples: sum blocks first
    blocks = -(-confidence.size // BLOCK)
    cell = index * blocks + jnp.arange(confidence.size) // BLOCK
    excess = jax.ops.segment_sum(right - confidence, cell, num_segments=bins * blocks).reshape(bins, blocks)
    count = lambda ones: jax.ops.segment_sum(ones.astype(jnp.int32), index, num_segments=bins)  # noqa: E731
    return CalibrationBins(count(jnp.ones_like(right)), count(right), excess.sum(axis=-1))
