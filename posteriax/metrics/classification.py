"""Scores of predicted class probabilities against labels."""

from typing import Any

import jax
import jax.numpy as jnp


def as_classes(probs: Any, y: Any) -> tuple[jax.Array, jax.Array]:
    """Probabilities as (N, C) and labels as (N,); any axes before the last are examples."""
    probs, y = jnp.asarray(probs), jnp.asarray(y)
    if probs.ndim < 2 or probs.shape[:-1] != y.shape:
        raise ValueError(
            f"probs must have the shape of y and a last axis of classes, got probs {probs.shape} and y {y.shape}"
        )
    return probs.reshape(-1, probs.shape[-1]), y.reshape(-1)


def accuracy(probs: Any, y: Any) -> jax.Array:
    """The fraction of labels that got the highest probability.

    >>> accuracy([[0.9, 0.1], [0.4, 0.6]], [0, 0]).item()
    0.5
    """
    probs, y = as_classes(probs, y)
    return (probs.argmax(axis=-1) == y).mean()


def nll(probs: Any, y: Any) -> jax.Array:
    """Mean negative log probability of the label, in nats.

    For a posterior's predictions prefer ``px.evaluate``, which forms the log of the mean over draws in the log domain:
    a probability that has underflowed to 0 scores infinity here.

    >>> nll([[0.5, 0.5]], [1]).round(3).item()
    0.693...
    """
    probs, y = as_classes(probs, y)
    return -jnp.log(jnp.take_along_axis(probs, y[:, None], axis=1)).mean()


def brier(probs: Any, y: Any) -> jax.Array:
    """Mean squared distance of the probabilities from the one-hot label, summed over classes: from 0 to 2.

    >>> brier([[1.0, 0.0], [1.0, 0.0]], [0, 1]).item()
    1.0
    """
    probs, y = as_classes(probs, y)
    return jnp.square(probs - jax.nn.one_hot(y, probs.shape[1])).sum(axis=-1).mean()
