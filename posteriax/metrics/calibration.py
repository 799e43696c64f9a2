"""Calibration: whether confidence is the fraction of being right.

    ECE = sum_b (n_b / N) |accuracy_b - confidence_b|

over bins of the highest probability. How the bins are cut changes the value, so each function names its rule. All
put every example in exactly one bin, and the number of bins never depends on how many examples there are. Bins of
equal width are the same for every batch, so their sums add up; those of equal mass need all examples at once.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from posteriax._internal.checks import check_count
from posteriax._internal.compiler import jit
from posteriax.metrics.inputs import as_probs, score_classes

BLOCK = 256  # examples summed one after another in float32, before the blocks' sums are


class CalibrationBins(NamedTuple):
    """Sums over the examples of every bin, (..., bins): what a reliability diagram shows, and batches that add up.

    Made by :func:`calibration_bins`, or :func:`classwise_bins`.

    Args:
        examples: how many are in the bin.
        right: how many of them were right.
        excess: the sum of right - confidence, positive where the predictions are too modest. Kept by itself, as it is
            small where the other two are large.

    >>> batches = [([[0.8, 0.2]], [0]), ([[0.8, 0.2]], [1])]
    >>> first, second = (calibration_bins(probs, y) for probs, y in batches)
    >>> first.plus(second).error().round(3).item()
    0.3...
    """

    examples: jax.Array
    right: jax.Array
    excess: jax.Array

    def plus(self, other: "CalibrationBins") -> "CalibrationBins":
        """The bins of both sets of examples together."""
        return CalibrationBins(*(a + b for a, b in zip(self, other, strict=True)))

    def accuracy(self) -> jax.Array:
        """The fraction of being right in every bin; NaN in an empty one."""
        return self.right / self.examples

    def confidence(self) -> jax.Array:
        """The mean confidence in every bin; NaN in an empty one."""
        return (self.right - self.excess) / self.examples

    def error(self) -> jax.Array:
        """The expected calibration error; of classwise bins, one per class."""
        # |sum of accuracy - sum of confidence| in a bin, over N: the bin's size cancels
        return jnp.abs(self.excess).sum(axis=-1) / self.examples.sum(axis=-1)


def ece_equal_width(probs: Any, y: Any, bins: int = 15) -> jax.Array:
    """Expected calibration error over bins of equal width, ((b-1)/bins, b/bins]; the first also takes 0. Best is 0.

    Args:
        probs: (N, C), or (S, N, C) for one value per draw.
        y: labels, (N,).
        bins: how many.

    >>> ece_equal_width([[0.8, 0.2], [0.8, 0.2]], [0, 1]).round(3).item()
    0.3...
    """
    return calibration_bins(probs, y, bins).error()


def ece_equal_mass(probs: Any, y: Any, bins: int = 15) -> jax.Array:
    """Expected calibration error over bins between quantiles of the confidence; equal confidences share a bin.

    The b-th edge is the confidence that a fraction b / bins of the examples do not exceed. Best is 0. The edges depend
    on all examples: put batches together first.

    Args:
        probs: (N, C), or (S, N, C) for one value per draw.
        y: labels, (N,).
        bins: how many.

    >>> ece_equal_mass([[0.8, 0.2], [0.8, 0.2]], [0, 1]).round(3).item()
    0.3...
    """
    return score_classes(partial(_equal_mass, bins=check_count("bins", bins)), as_probs("probs", probs), y).error()


def classwise_ece(probs: Any, y: Any, bins: int = 15) -> jax.Array:
    """Classwise calibration error: of the probability of every class, not only the highest; the mean over classes.

        1/C sum_c sum_b (n_bc / N) |frequency of c in bin - mean p[c] in bin|

    with bins of equal width. Best is 0. With many classes most probabilities are close to 0, and so is the error: it
    compares predictions of the same problem only. (Kull et al. 2019)

    Args:
        probs: (N, C), or (S, N, C) for one value per draw.
        y: labels, (N,).
        bins: how many.

    >>> classwise_ece([[0.8, 0.2], [0.8, 0.2]], [0, 1]).round(3).item()
    0.3...
    """
    return classwise_bins(probs, y, bins).error().mean(axis=-1)


def calibration_bins(probs: Any, y: Any, bins: int = 15) -> CalibrationBins:
    """The sums behind :func:`ece_equal_width`, to add over batches with `plus`, or to draw a reliability diagram.

    Args:
        probs: (N, C), or (S, N, C) for sums (S, bins).
        y: labels, (N,).
        bins: how many.

    >>> bins = calibration_bins([[0.8, 0.2], [0.6, 0.4], [0.2, 0.8]], [0, 0, 0], bins=5)
    >>> bins.examples.tolist(), bins.right.tolist()
    ([0, 0, 1, 2, 0], [0, 0, 1, 1, 0])
    """
    return score_classes(partial(_equal_width, bins=check_count("bins", bins)), as_probs("probs", probs), y)


def classwise_bins(probs: Any, y: Any, bins: int = 15) -> CalibrationBins:
    """The sums behind :func:`classwise_ece`, (C, bins): `right` counts the examples that are of the class.

    Args:
        probs: (N, C), or (S, N, C) for sums (S, C, bins).
        y: labels, (N,).
        bins: how many.

    >>> classwise_bins([[0.8, 0.2], [0.6, 0.4]], [0, 1], bins=2).right.tolist()
    [[0, 1], [1, 0]]
    """
    return score_classes(partial(_classwise, bins=check_count("bins", bins)), as_probs("probs", probs), y)


@partial(jit, static_argnames="bins")
def _equal_width(probs: jax.Array, y: jax.Array, bins: int) -> CalibrationBins:
    confidence = probs.max(axis=-1)
    return _sums(confidence, probs.argmax(axis=-1) == y, bin_of(confidence, bins), bins)


@partial(jit, static_argnames="bins")
def _equal_mass(probs: jax.Array, y: jax.Array, bins: int) -> CalibrationBins:
    confidence = probs.max(axis=-1)
    n = confidence.size
    edges = jnp.sort(confidence)[np.array([-(-b * n // bins) - 1 for b in range(1, bins)], int)]
    return _sums(confidence, probs.argmax(axis=-1) == y, jnp.searchsorted(edges, confidence), bins)


@partial(jit, static_argnames="bins")
def _classwise(probs: jax.Array, y: jax.Array, bins: int) -> CalibrationBins:
    of_class = lambda p, c: _sums(p, y == c, bin_of(p, bins), bins)  # noqa: E731
    return jax.vmap(of_class)(probs.T, jnp.arange(probs.shape[1]))


def bin_of(confidence: Any, bins: int) -> jax.Array:
    """The bin of equal width that each confidence is in; edges belong to the bin below.

    >>> bin_of(jnp.array([0.1, 0.5, 0.51]), 2).tolist()
    [0, 0, 1]
    """
    return jnp.clip(jnp.ceil(confidence * bins).astype(jnp.int32) - 1, 0, bins - 1)


def _sums(confidence: jax.Array, right: jax.Array, index: jax.Array, bins: int) -> CalibrationBins:
    # a scatter adds one after another, which in float32 loses digits over 1e5 examples: sum blocks, then their sums
    blocks = -(-confidence.size // BLOCK)
    cell = index * blocks + jnp.arange(confidence.size) // BLOCK
    excess = jax.ops.segment_sum(right - confidence, cell, num_segments=bins * blocks).reshape(bins, blocks)
    count = lambda ones: jax.ops.segment_sum(ones.astype(jnp.int32), index, num_segments=bins)  # noqa: E731
    return CalibrationBins(count(jnp.ones_like(right)), count(right), excess.sum(axis=-1))
