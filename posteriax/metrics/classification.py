"""Scores of predicted class probabilities against labels.

All take ``probs`` (N, C) and labels ``y`` (N,), or one label per token and more axes. With an axis of draws in front,
(S, N, C), they give one score per draw: how good the single draws, or members of an ensemble, are. The score of the
posterior is that of the mean over draws.
"""

from typing import Any

import jax
import jax.numpy as jnp

from posteriax._internal.compiler import jit
from posteriax.metrics.inputs import as_classes as as_classes
from posteriax.metrics.inputs import as_numbers, as_probs, score_classes
from posteriax.metrics.shares import share


def accuracy(probs: Any, y: Any) -> jax.Array:
    """The fraction of labels that got the highest probability; best is 1.

    Args:
        probs: (N, C), or (S, N, C) for one value per draw; logits do as well.
        y: labels, (N,).

    >>> accuracy([[0.9, 0.1], [0.4, 0.6]], [0, 0]).item()
    0.5
    """
    return score_classes(_accuracy, as_numbers("probs", probs, infinite=True), y)


def nll(probs: Any, y: Any) -> jax.Array:
    """Log score: the mean negative log probability of the label, in nats; best is 0.

        -1/N sum_i log p_i[y_i]

    For a posterior's predictions prefer ``px.evaluate``, which forms the log of the mean over draws in the log domain:
    a probability that has underflowed to 0 scores infinity here.

    Args:
        probs: (N, C), or (S, N, C) for one value per draw.
        y: labels, (N,).

    >>> nll([[0.5, 0.5]], [1]).round(3).item()
    0.693...
    """
    return score_classes(_nll, as_probs("probs", probs), y)


def brier(probs: Any, y: Any) -> jax.Array:
    """Mean squared distance of the probabilities from the one-hot label, summed over classes: from 0, the best, to 2.

        1/N sum_i sum_c (p_i[c] - 1[y_i = c])^2

    Args:
        probs: (N, C), or (S, N, C) for one value per draw.
        y: labels, (N,).

    >>> brier([[1.0, 0.0], [1.0, 0.0]], [0, 1]).item()
    1.0
    """
    return score_classes(_brier, as_probs("probs", probs), y)


@jit
def _accuracy(probs: jax.Array, y: jax.Array) -> jax.Array:
    return share(probs.argmax(axis=-1) == y)


@jit
def _nll(probs: jax.Array, y: jax.Array) -> jax.Array:
    return -jnp.log(jnp.take_along_axis(probs, y[:, None], axis=1)).mean()


@jit
def _brier(probs: jax.Array, y: jax.Array) -> jax.Array:
    return jnp.square(probs - jax.nn.one_hot(y, probs.shape[1], dtype=probs.dtype)).sum(axis=-1).mean()
