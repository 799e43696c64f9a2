"""Fidelity: how close a posterior's predictions are to a reference posterior's, usually HMC's. Labels play no part."""

from typing import Any

import jax
import jax.numpy as jnp


def agreement(probs: Any, reference: Any) -> jax.Array:
    """The fraction of examples for which both predict the same class.

    >>> agreement([[0.9, 0.1], [0.4, 0.6]], [[0.6, 0.4], [0.7, 0.3]]).item()
    0.5
    """
    probs, reference = _same_shape(probs, reference)
    return (probs.argmax(axis=-1) == reference.argmax(axis=-1)).mean()


def total_variation(probs: Any, reference: Any) -> jax.Array:
    """Mean total variation distance, 1/2 sum_c |p_c - q_c|: 0 for the same predictions, 1 for disjoint ones.

    >>> total_variation([[0.9, 0.1]], [[0.6, 0.4]]).round(3).item()
    0.3...
    """
    probs, reference = _same_shape(probs, reference)
    return 0.5 * jnp.abs(probs - reference).sum(axis=-1).mean()


def wasserstein(quantiles: Any, reference: Any) -> jax.Array:
    """Mean 1-Wasserstein distance of predicted real numbers, in their units, from evenly spaced quantiles.

        W1 = int_0^1 |F^-1(u) - G^-1(u)| du

    Args:
        quantiles, reference: the same levels (2 k - 1) / (2 K) in the first axis, as from `predictive.quantile`.

    >>> wasserstein([[0.0], [1.0]], [[1.0], [2.0]]).item()
    1.0
    """
    quantiles, reference = _same_shape(quantiles, reference)
    return jnp.abs(quantiles - reference).mean()


def _same_shape(a: Any, b: Any) -> tuple[jax.Array, jax.Array]:
    a, b = jnp.asarray(a), jnp.asarray(b)
    if a.shape != b.shape:
        raise ValueError(f"both predictions must have the same shape, got {a.shape} and {b.shape}")
    return a, b
