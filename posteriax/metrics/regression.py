"""Scores of predicted real numbers."""

from typing import Any

import jax
import jax.numpy as jnp


def rmse(mean: Any, y: Any) -> jax.Array:
    """Root of the mean squared error of the predicted means, in the units of y.

    >>> rmse([1.0, 2.0], [1.0, 4.0]).round(3).item()
    1.414...
    """
    mean, y = jnp.asarray(mean), jnp.asarray(y)
    if mean.shape != y.shape:
        raise ValueError(f"mean and y must have the same shape, got {mean.shape} and {y.shape}")
    return jnp.sqrt(jnp.square(mean - y).mean())
