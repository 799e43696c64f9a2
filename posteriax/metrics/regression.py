"""Scores of predicted real numbers: of means, and of Gaussian densities."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm

from posteriax.metrics.inputs import as_numbers, check_draws, check_same_shape, known
from posteriax.posterior import log_mean


def rmse(mean: Any, y: Any) -> jax.Array:
    """Root of the mean squared error of the predicted means, in the units of y; best is 0.

    Args:
        mean, y: of the same shape.

    >>> rmse([1.0, 2.0], [1.0, 4.0]).round(3).item()
    1.414...
    """
    mean, y = as_numbers("mean", mean), as_numbers("y", y)
    check_same_shape(mean=mean, y=y)
    return jnp.sqrt(jnp.square(mean - y).mean())


def normal_nll(mean: Any, scale: Any, y: Any) -> jax.Array:
    """Mean negative log density of y under a Gaussian, or a mixture of one Gaussian per draw, in nats per example.

        -1/N sum_i log 1/S sum_s prod_d N(y_id; mu_sid, sigma_sid^2)

    Lower is better; a density has no best value, and it changes with the units of y. What ``px.evaluate`` gives for a
    predictive.

    Args:
        mean: (N, ...) for one Gaussian, (S, N, ...) for a mixture.
        scale: standard deviations, of the same shape or one that broadcasts to it.
        y: (N, ...).

    >>> normal_nll(mean=[0.0, 0.0], scale=1.0, y=[0.0, 0.0]).round(3).item()
    0.919...
    """
    mean, scale, y = as_gaussians(mean, scale, y)
    log_density = norm.logpdf(y, mean, scale)
    return -log_mean(log_density.reshape(*log_density.shape[:2], -1).sum(axis=-1)).mean()


def as_gaussians(mean: Any, scale: Any, y: Any) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Means and scales as (S, N, ...), one Gaussian being a mixture of one, and y as (N, ...)."""
    if known(scale) and not (np.asarray(scale) > 0).all():
        raise ValueError(f"scale must be positive, got values from {np.min(scale):.3g}")
    mean, scale, y = as_numbers("mean", mean), as_numbers("scale", scale), as_numbers("y", y)
    if y.ndim == 0:
        raise ValueError("y must have an axis of examples, got a number")
    if mean.shape == y.shape:
        mean = mean[None]
    check_draws("mean", mean, y)
    try:
        return mean, jnp.broadcast_to(scale, mean.shape), y
    except ValueError:
        raise ValueError(f"scale must broadcast to the shape of mean, got {scale.shape} and {mean.shape}") from None
