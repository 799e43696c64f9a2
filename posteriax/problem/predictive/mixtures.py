"""Equally weighted mixtures of any continuous distributions, by their distribution functions.

Quantiles are found by bisection. Integrals over probabilities, int_0^1 f(u) du, are sums over LEVELS: the trapezoidal
rule after u = 1 / (1 + exp(-t)), which reaches far into both tails.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

_T = np.linspace(-14.0, 14.0, 113)
LEVELS = 1 / (1 + np.exp(-_T))
LEVEL_WEIGHTS = LEVELS * (1 - LEVELS)
LEVEL_WEIGHTS /= LEVEL_WEIGHTS.sum()
DOUBLINGS, HALVINGS = 60, 30  # of the interval that holds a quantile


def check_levels(q: Any) -> np.ndarray:
    levels = np.asarray(q)
    if ((levels <= 0) | (levels >= 1)).any():
        raise ValueError(f"q must lie strictly between 0 and 1, got {q}")
    return levels


@partial(jax.jit, static_argnums=0)
def mixture_quantiles(likelihood: Any, latents: Any, outputs: jax.Array, levels: jax.Array) -> jax.Array:
    """Quantiles of the mixture over draws, (levels, N, D)."""
    each = jax.vmap(likelihood.distribution)(latents, outputs)  # once, not at every bisection step

    def below(value: jax.Array) -> jax.Array:
        return jax.vmap(lambda distribution: _cdf(distribution, value))(each).mean(axis=0)

    moments = jax.vmap(_moments)(each)
    # one level after another: all at once would hold a copy of all draws for each
    return jax.lax.map(partial(_quantile, below, *_mixture_moments(*moments)), levels)


@partial(jax.jit, static_argnums=0)
def each_entropy(likelihood: Any, latents: Any, outputs: jax.Array) -> jax.Array:
    """The entropy of every draw's own distribution, (S, N, D), by its quantiles."""

    def of_draw(draw: Any) -> jax.Array:
        distribution = likelihood.distribution(*draw)
        quantile = partial(_quantile, partial(_cdf, distribution), *_moments(distribution))
        log_density = jax.lax.map(lambda level: distribution.log_prob(quantile(level)), jnp.asarray(LEVELS))
        return -jnp.tensordot(jnp.asarray(LEVEL_WEIGHTS, log_density.dtype), log_density, 1)

    return jax.lax.map(of_draw, (latents, outputs))


def _cdf(distribution: Any, value: jax.Array) -> jax.Array:
    found = distribution.cdf(value)
    # NumPyro's cdf is NaN outside the support: use 0 below it, 1 above
    return jnp.where(jnp.isnan(found), (value > distribution.mean).astype(found.dtype), found)


def _moments(distribution: Any) -> tuple[jax.Array, jax.Array]:
    return distribution.mean, jnp.broadcast_to(distribution.variance, distribution.mean.shape)


def _mixture_moments(mean: jax.Array, variance: jax.Array) -> tuple[jax.Array, jax.Array]:
    return mean.mean(axis=0), variance.mean(axis=0) + mean.var(axis=0)


def _quantile(below: Any, middle: jax.Array, variance: jax.Array, level: jax.Array) -> jax.Array:
    # an infinite variance, as of a Student t with two degrees of freedom: any initial width will do
    width = jnp.where(jnp.isfinite(variance), jnp.sqrt(variance), 1.0)

    def widen(state: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        low, high, width, count = state
        low = jnp.where(below(low) > level, low - width, low)
        high = jnp.where(below(high) < level, high + width, high)
        return low, high, 2 * width, count + 1

    def too_narrow(state: tuple[jax.Array, ...]) -> jax.Array:
        low, high, _, count = state
        return (count < DOUBLINGS) & ((below(low) > level) | (below(high) < level)).any()

    start: tuple[jax.Array, ...] = (middle - width, middle + width, width, jnp.zeros((), jnp.int32))
    low, high, *_ = jax.lax.while_loop(too_narrow, widen, start)
    return bisect(below, level, low, high, HALVINGS)


def bisect(below: Any, level: jax.Array, low: jax.Array, high: jax.Array, halvings: int) -> jax.Array:
    """Where the distribution function `below` reaches the level, between `low` and `high`."""

    def halve(_: Any, ends: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        low, high = ends
        centre = low + (high - low) / 2
        is_below = below(centre) < level
        return jnp.where(is_below, centre, low), jnp.where(is_below, high, centre)

    low, high = jax.lax.fori_loop(0, halvings, halve, (low, high))
    return low + (high - low) / 2
