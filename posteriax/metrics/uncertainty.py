"""Where uncertainty comes from. Entropy and mutual information are methods of every predictive."""

from typing import NamedTuple

import jax.numpy as jnp
from numpy.typing import ArrayLike

from posteriax.metrics.arrays import Values, as_numbers, keeps_precision, scales_like


class VarianceParts(NamedTuple):
    """The two parts of :func:`variance_parts`; their sum is the variance of y.

    Args:
        noise: what would remain if the weights were known.
        weights: the disagreement of the draws, which more data could remove.

    >>> VarianceParts(noise=jnp.ones(2), weights=jnp.zeros(2)).noise.tolist()
    [1.0, 1.0]
    """

    noise: Values
    weights: Values


@keeps_precision
def variance_parts(mean: ArrayLike, scale: ArrayLike) -> VarianceParts:
    """The variance of y as noise and disagreement of the draws, by the law of total variance, (N, ...) each.

        Var[y] = mean_s sigma_s^2 + Var_s[mu_s]

    For a predictive of real numbers, ``variance_parts(*predictive.moments_per_draw)``. For classes, the one-hot label
    has ``mean=probs`` and ``scale=sqrt(probs * (1 - probs))``, (S, N, C).

    Args:
        mean: of every draw, (S, N, ...).
        scale: standard deviation of the noise, of the same shape or one that broadcasts to it.

    >>> parts = variance_parts(mean=[[0.0], [2.0]], scale=3.0)
    >>> parts.noise.item(), parts.weights.item()
    (9.0, 1.0)
    """
    mean, scale = as_numbers("mean", mean), as_numbers("scale", scale)
    if mean.ndim == 0:
        raise ValueError("mean must have a first axis of draws, got a number")
    return VarianceParts(jnp.square(scales_like(mean, scale)).mean(axis=0), mean.var(axis=0))
