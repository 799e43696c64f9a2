"""Scores of predicted real numbers, in the units of y; best is 0.

The root mean squared error is that of the predicted means. The continuous ranked probability score (CRPS) is how far
the predicted distribution is from what happened; for a point prediction it is the absolute error.

    CRPS(F, y) = int (F(x) - 1[x >= y])^2 dx = E|X - y| - E|X - X'| / 2        X, X' ~ F independent

(Gneiting and Raftery 2007)
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm
from numpy.typing import ArrayLike

from posteriax.likelihoods.predictive import Predictive, mean_per_example
from posteriax.metrics.arrays import (
    AnyArray,
    Values,
    as_gaussians,
    as_numbers,
    check_draws,
    check_same_shape,
    keeps_precision,
    targets_like,
)
from posteriax.metrics.score import RootMean, Score


@keeps_precision
def rmse(mean: ArrayLike, y: ArrayLike) -> Values:
    """Root of the mean squared error of the predicted means, in the units of y; best is 0.

    Args:
        mean, y: of the same shape.

    >>> rmse([1.0, 2.0], [1.0, 4.0]).round(3).item()
    1.414...
    """
    mean, y = as_numbers("mean", mean), as_numbers("y", y)
    check_same_shape(mean=mean, y=y)
    return jnp.sqrt(((mean - y) ** 2).mean())


def _squared_errors(predictive: Predictive, y: ArrayLike) -> np.ndarray:
    mean = predictive.mean
    return mean_per_example((mean.astype(np.float64) - targets_like(mean, y)) ** 2)


RMSE = Score(
    name="rmse",
    meaning="Root mean squared error of the predicted mean, in the unit of the target.",
    better="lower",
    per_example=_squared_errors,
    reduction=RootMean(),
    needs=("mean",),
    proper=True,
)


@keeps_precision
def crps(draws: ArrayLike, y: ArrayLike) -> Values:
    """Mean CRPS of the distributions that put equal weight on every draw, exactly, in S log S. Best is 0.

        2 / S sum_s (x_s - y) (1[x_s > y] - (s - 1/2) / S)        x_1 <= ... <= x_S

    The draws must be of the target, with its noise, not of the network's mean. With few draws it is larger than that of
    the distribution they come from, by E|X - X'| / (2 S): compare with equal numbers of draws.

    Args:
        draws: (S, N, ...).
        y: (N, ...).

    >>> crps(draws=[[0.0], [2.0]], y=[1.0]).item()
    0.5
    """
    draws, y = as_numbers("draws", draws), as_numbers("y", y)
    check_draws("draws", draws, y)
    return _crps_of_draws(draws, y)


QUANTILE_LEVELS = (np.arange(32) + 0.5) / 32  # 32 evenly spaced quantiles stand for the distribution


def _from_quantiles(predictive: Predictive, y: ArrayLike) -> np.ndarray:
    quantiles = predictive.quantile(QUANTILE_LEVELS).astype(np.float64)
    return mean_per_example(crps_of_ordered(quantiles, targets_like(quantiles[0], y)))


CRPS = Score(
    name="crps",
    meaning="Continuous ranked probability score: how far the predicted distribution is from what happened, in the "
    "unit of the target. For a prediction without spread it is the absolute error.",
    better="lower",
    per_example=_from_quantiles,
    needs=("quantile",),
    proper=True,
)


def crps_of_ordered(draws: AnyArray, y: AnyArray) -> AnyArray:
    """The CRPS of each target, (N, ...), from draws in ascending order, (S, N, ...). NumPy or JAX arrays.

    It is also twice the mean pinball loss of the draws as quantiles at the levels (s - 1/2) / S.
    """
    level = ((np.arange(len(draws)) + 0.5) / len(draws)).astype(draws.dtype).reshape(-1, *[1] * y.ndim)
    beyond = draws - y
    # no term is negative, so nothing cancels
    return (2.0 * beyond * ((beyond > 0) - level)).mean(axis=0)


@keeps_precision
def crps_normal(mean: ArrayLike, scale: ArrayLike, y: ArrayLike) -> Values:
    """Mean CRPS of Gaussians, or of mixtures of one Gaussian per draw, in closed form. Best is 0.

        1/S sum_s A(y - mu_s, sigma_s) - 1/(2 S^2) sum_st A(mu_s - mu_t, sqrt(sigma_s^2 + sigma_t^2))
        A(m, s) = E|m + s Z| = m (2 Phi(m / s) - 1) + 2 s phi(m / s)

    A mixture takes S^2 / 2 terms per target. For a predictive:
    ``crps_normal(*predictive.moments_per_draw, y)``, y in the shape of its mean.

    Args:
        mean: (N, ...) for one Gaussian, (S, N, ...) for a mixture.
        scale: standard deviations, of the same shape or one that broadcasts to it.
        y: (N, ...).

    >>> crps_normal(mean=[0.0], scale=1.0, y=[0.0]).round(3).item()
    0.234...
    """
    return _crps_of_mixture(*as_gaussians(mean, scale, y))


@jax.jit
def _crps_of_draws(draws: jax.Array, y: jax.Array) -> jax.Array:
    return crps_of_ordered(jnp.sort(draws, axis=0), y).mean()


@jax.jit
def _crps_of_mixture(mean: jax.Array, scale: jax.Array, y: jax.Array) -> jax.Array:
    count = len(mean)

    def add_pairs(shift: jax.Array, total: jax.Array) -> jax.Array:
        others = jnp.roll(mean, shift, axis=0), jnp.roll(scale, shift, axis=0)
        pairs = _mean_absolute(mean - others[0], jnp.hypot(scale, others[1])).sum(axis=0)
        # every shift stands for its opposite too, except the one that is its own
        return total + jnp.where(2 * shift == count, 1.0, 2.0) * pairs

    with_themselves = _mean_absolute(jnp.zeros_like(scale), jnp.sqrt(2.0) * scale).sum(axis=0)
    spread = jax.lax.fori_loop(1, count // 2 + 1, add_pairs, with_themselves) / count**2
    return (_mean_absolute(y - mean, scale).mean(axis=0) - spread / 2).mean()


def _mean_absolute(mean: jax.Array, scale: jax.Array) -> jax.Array:
    """E|x| of a Gaussian."""
    z = mean / scale
    return mean * jax.lax.erf(z / jnp.sqrt(2.0)) + 2.0 * scale * norm.pdf(z)
