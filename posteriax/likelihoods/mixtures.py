"""Equally weighted mixtures of any continuous distributions, by their distribution functions.

Quantiles are found by bisection. Integrals over probabilities, int_0^1 f(u) du, are sums over LEVELS: the trapezoidal
rule after u = 1 / (1 + exp(-t)), which reaches far into both tails.

Integrals over equally weighted mixtures of Gaussians, one mixture per target: entropies and distances.

    H = -int p log p dy                 p: the mean of all components' densities, formed in the log domain
    W1 = int |F - G| dy                 F, G: distribution functions of two mixtures

by the trapezoidal rule with steps of half the narrowest component's standard deviation, whose error for entropies is
far below float32 precision. If the widths of the components differ so much that this would take more points than MOST,
the points are those of every component's own grid. All draws are used, and a few targets are processed at a time.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp, ndtr
from jax.scipy.stats import norm

from posteriax._internal.memory import DENSITY_VALUES, fitting

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


FEWEST, MOST = 64, 2**14  # points for one target
FEWEST_OF_DISTANCES = 256  # |F - G| has kinks
REACH = 6.5  # standard deviations; a component has 1e-10 of its probability beyond
OWN_STEP = 0.25  # of a component's own grid, in its standard deviations
BLOCK = 64  # points at once


def normal_mixture_entropy(mean: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Differential entropy in nats of every target's mixture.

    Args:
        mean, scale: of every component, (S, ...).

    >>> round(normal_mixture_entropy(np.zeros((2, 1)), np.ones((2, 1))).item(), 4)  # log(2 pi e) / 2
    1.4189
    """
    return _by_targets(_entropy_at, FEWEST, (mean, scale))


def normal_mixture_distance(
    mean: np.ndarray, scale: np.ndarray, other_mean: np.ndarray, other_scale: np.ndarray
) -> Any:
    """1-Wasserstein distance of every target's two mixtures.

    Args:
        mean, scale: of the components of one mixture, (S, ...).
        other_mean, other_scale: of the other mixture, (T, ...).

    >>> one = np.ones((1, 1))
    >>> round(normal_mixture_distance(0 * one, one, 0 * one, 2 * one).item(), 3)  # sqrt(2 / pi)
    0.798
    """
    return _by_targets(_difference_at, FEWEST_OF_DISTANCES, (mean, scale), (other_mean, other_scale))


def _by_targets(integrand: Callable[..., Any], fewest: int, *mixtures: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """An integral for every target; targets that need about as many points are batched together."""
    shape = np.shape(mixtures[0][0])[1:]
    flat = [[np.asarray(a, np.float64).reshape(len(a), -1) for a in np.broadcast_arrays(*pair)] for pair in mixtures]
    centre = flat[0][0].mean(axis=0)
    moved = [(mean - centre, scale) for mean, scale in flat]  # a large common offset would cost digits in float32
    low = np.min([(mean - REACH * scale).min(axis=0) for mean, scale in moved], axis=0)
    high = np.max([(mean + REACH * scale).max(axis=0) for mean, scale in moved], axis=0)
    narrowest = np.min([scale.min(axis=0) for _, scale in moved], axis=0)
    wanted = np.maximum(2 * (high - low) / narrowest, fewest)
    counts = np.minimum(2 ** np.ceil(np.log2(wanted)).astype(int), 2 * MOST)
    result = np.empty(centre.size)
    for count in np.unique(counts):
        chosen = np.flatnonzero(counts == count)
        padded = chosen[np.arange(2 ** int(np.ceil(np.log2(len(chosen))))) % len(chosen)]  # few sizes to compile for
        chosen_ones = [tuple(jnp.asarray(a[:, padded].T, jnp.float32) for a in pair) for pair in moved]
        ends = (jnp.asarray(a[padded], jnp.float32) for a in (low, high))
        points = 0 if count > MOST else int(count)
        result[chosen] = np.asarray(_integrals(integrand, points, chosen_ones, *ends))[: len(chosen)]
    return result.reshape(shape).astype(np.float32)


def _entropy_at(mixtures: Any, places: jax.Array) -> jax.Array:
    ((mean, scale),) = mixtures
    log_density = logsumexp(norm.logpdf(places[:, None], mean, scale), axis=1) - np.log(mean.size)
    return -jnp.exp(log_density) * log_density


def _difference_at(mixtures: Any, places: jax.Array) -> jax.Array:
    one, other = (ndtr((places[:, None] - mean) / scale).mean(axis=1) for mean, scale in mixtures)
    return jnp.abs(one - other)


@partial(jax.jit, static_argnames=("integrand", "points"))
def _integrals(integrand: Any, points: int, mixtures: Any, low: jax.Array, high: jax.Array) -> jax.Array:
    """The integral of every target, in the first axis; `points` is 0 for the components' own grids."""

    def of_target(target: Any) -> jax.Array:
        own, low, high = target
        places = low + (high - low) * jnp.arange(points) / (points - 1) if points else _own_grids(own)
        values = jax.lax.map(partial(integrand, own), places.reshape(-1, BLOCK)).reshape(-1)
        return jnp.trapezoid(values, places)

    together = fitting(DENSITY_VALUES, BLOCK * sum(mean.shape[1] for mean, _ in mixtures))
    return jax.lax.map(of_target, (mixtures, low, high), batch_size=together)


def _own_grids(mixtures: Any) -> jax.Array:
    steps = np.arange(-REACH, REACH + OWN_STEP / 2, OWN_STEP)
    places = jnp.sort(
        jnp.concatenate([(mean[:, None] + scale[:, None] * steps).reshape(-1) for mean, scale in mixtures])
    )
    return jnp.pad(places, (0, -len(places) % BLOCK), mode="edge")
