"""Scores of predicted class probabilities against labels.

All take ``probs`` (N, C) and labels ``y`` (N,), or one label per token and more axes. With an axis of draws in front,
(S, N, C), they give one score per draw: how good the single draws, or members of an ensemble, are. The score of the
posterior is that of the mean over draws.
"""

import jax
import numpy as np
from numpy.typing import ArrayLike

from posteriax.metrics.arrays import (
    AnyArray,
    Values,
    as_numbers,
    as_probs,
    fraction_true,
    keeps_precision,
    labels_by_example,
    probs_by_example,
    score_classes,
)
from posteriax.metrics.score import Score


@keeps_precision
def accuracy(probs: ArrayLike, y: ArrayLike) -> Values:
    """The fraction of labels that got the highest probability; best is 1.

    Args:
        probs: (N, C), or (S, N, C) for one value per draw; logits do as well.
        y: labels, (N,).

    >>> accuracy([[0.9, 0.1], [0.4, 0.6]], [0, 0]).item()
    0.5
    """
    return score_classes(_accuracy, as_numbers("probs", probs, infinite=True), y)


ACCURACY = Score(
    name="accuracy",
    meaning="How often the most probable label is the right one.",
    better="higher",
    per_example=lambda predictive, y: is_right(probs_by_example(predictive), labels_by_example(predictive, y)),
    needs=("probs", "check"),
    proper=True,
)


@keeps_precision
def brier(probs: ArrayLike, y: ArrayLike) -> Values:
    """Mean squared distance of the probabilities from the one-hot label, summed over classes: from 0, the best, to 2.

        1/N sum_i sum_c (p_i[c] - 1[y_i = c])^2

    Args:
        probs: (N, C), or (S, N, C) for one value per draw.
        y: labels, (N,).

    >>> brier([[1.0, 0.0], [1.0, 0.0]], [0, 1]).item()
    1.0
    """
    return score_classes(_brier, as_probs("probs", probs), y)


BRIER = Score(
    name="brier",
    meaning="Squared distance between the predicted probabilities and the truth (1 for the right label, else 0).",
    better="lower",
    per_example=lambda predictive, y: squared_distance(
        probs_by_example(predictive).astype(np.float64), labels_by_example(predictive, y)
    ),
    needs=("probs", "check"),
    proper=True,
)


def is_right(probs: AnyArray, y: AnyArray) -> AnyArray:
    """Whether each label, (N,), got the highest probability. NumPy or JAX arrays."""
    return probs.argmax(axis=-1) == y


def squared_distance(probs: AnyArray, y: AnyArray) -> AnyArray:
    """The Brier score of each example, (N,). NumPy or JAX arrays."""
    one_hot = y[:, None] == np.arange(probs.shape[-1])
    return ((probs - one_hot) ** 2).sum(axis=-1)


@jax.jit
def _accuracy(probs: jax.Array, y: jax.Array) -> jax.Array:
    return fraction_true(is_right(probs, y))


@jax.jit
def _brier(probs: jax.Array, y: jax.Array) -> jax.Array:
    return squared_distance(probs, y).mean()
