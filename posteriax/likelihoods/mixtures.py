"""Equally weighted mixtures, one per target: quantiles, entropies and distances.

Mixtures of any continuous distributions are handled by their distribution functions: quantiles by bisection, and
integrals over probabilities, int_0^1 f(u) du, as sums over LEVELS, the trapezoidal rule after u = 1 / (1 + exp(-t)),
which reaches far into both tails.

Mixtures of Gaussians have faster quantiles, and more precise integrals of densities and distribution functions:

    H = -int p log p dy                 p: the mean of all components' densities, formed in the log domain
    W1 = int |F - G| dy                 F, G: distribution functions of two mixtures

by the trapezoidal rule with steps of half the narrowest component's standard deviation, whose error for entropies is
far below float32 precision. If the widths of the components differ so much that this would take more points than MOST,
the points are the union of a grid for every component. All draws are used, and a few targets are processed at a time.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.scipy.special import logsumexp, ndtr
from jax.scipy.stats import norm
from numpy.typing import ArrayLike
from scipy.special import ndtri

from posteriax._internal.memory import DENSITY_VALUES, fitting

if TYPE_CHECKING:
    from posteriax.likelihoods.likelihood import LikelihoodLatents
    from posteriax.likelihoods.numbers import NumberLikelihood

DistributionFunction = Callable[[jax.Array], jax.Array]
NormalMixture = tuple[jax.Array, jax.Array]  # means and standard deviations of the components

_T = np.linspace(-14.0, 14.0, 113)
LEVELS = 1 / (1 + np.exp(-_T))
LEVEL_WEIGHTS = LEVELS * (1 - LEVELS)
LEVEL_WEIGHTS /= LEVEL_WEIGHTS.sum()
DOUBLINGS, HALVINGS = 60, 30  # of the interval that holds a quantile

# for mixtures of Gaussians
FEWEST, MOST = 64, 2**14  # points for one target
FEWEST_OF_DISTANCES = 256  # |F - G| has kinks
# share of a mixture's components that a grid for a distance may be too coarse for: as jumps of the distribution
# function, they change its integral by at most half a grid step times their share, 1 % of the others' deviation
UNRESOLVED = 0.04
REACH = 6.5  # standard deviations; 1e-10 of a component's probability lies beyond
GRID_STEP = 0.25  # of the grid of a component, in its standard deviations
BLOCK = 64  # points at once


def check_levels(q: ArrayLike) -> np.ndarray:
    levels = np.asarray(q)
    if ((levels <= 0) | (levels >= 1)).any():
        raise ValueError(f"q must lie strictly between 0 and 1, got {levels.tolist()}")
    return levels


@partial(jax.jit, static_argnums=0)
def mixture_quantiles(
    likelihood: "NumberLikelihood", latents: "LikelihoodLatents", outputs: jax.Array, levels: jax.Array
) -> jax.Array:
    """Quantiles of the mixture over draws, (levels, N, D)."""
    components = jax.vmap(likelihood.distribution)(latents, outputs)  # once, not at every bisection step

    def below(value: jax.Array) -> jax.Array:
        return jax.vmap(lambda distribution: _cdf(distribution, value))(components).mean(axis=0)

    moments = jax.vmap(mean_and_variance)(components)
    # one level after another: all at once would hold a copy of all draws for each
    return jax.lax.map(partial(_quantile, below, *_mixture_moments(*moments)), levels)


@partial(jax.jit, static_argnums=0)
def draw_entropies(likelihood: "NumberLikelihood", latents: "LikelihoodLatents", outputs: jax.Array) -> jax.Array:
    """The entropy of every draw's distribution, (S, N, D), by its quantiles."""

    def entropy(draw: "tuple[LikelihoodLatents, jax.Array]") -> jax.Array:
        distribution = likelihood.distribution(*draw)
        quantile = partial(_quantile, partial(_cdf, distribution), *mean_and_variance(distribution))
        log_density = jax.lax.map(lambda level: distribution.log_prob(quantile(level)), jnp.asarray(LEVELS))
        return -jnp.tensordot(jnp.asarray(LEVEL_WEIGHTS, log_density.dtype), log_density, 1)

    return jax.lax.map(entropy, (latents, outputs))


def _cdf(distribution: dist.Distribution, value: jax.Array) -> jax.Array:
    probability = distribution.cdf(value)
    # NumPyro's cdf is NaN outside the support: use 0 below it, 1 above
    return jnp.where(jnp.isnan(probability), (value > distribution.mean).astype(probability.dtype), probability)


def mean_and_variance(distribution: dist.Distribution) -> tuple[jax.Array, jax.Array]:
    return distribution.mean, jnp.broadcast_to(distribution.variance, distribution.mean.shape)


def _mixture_moments(mean: jax.Array, variance: jax.Array) -> tuple[jax.Array, jax.Array]:
    return mean.mean(axis=0), variance.mean(axis=0) + mean.var(axis=0)


def _quantile(below: DistributionFunction, middle: jax.Array, variance: jax.Array, level: jax.Array) -> jax.Array:
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


def bisect(below: DistributionFunction, level: jax.Array, low: jax.Array, high: jax.Array, halvings: int) -> jax.Array:
    """Where the distribution function `below` reaches the level, between `low` and `high`."""

    def halve(_: int, ends: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        low, high = ends
        centre = low + (high - low) / 2
        is_below = below(centre) < level
        return jnp.where(is_below, centre, low), jnp.where(is_below, high, centre)

    low, high = jax.lax.fori_loop(0, halvings, halve, (low, high))
    return low + (high - low) / 2


@jax.jit
def normal_mixture_quantiles(mean: jax.Array, scale: jax.Array, levels: jax.Array) -> jax.Array:
    """Quantiles of every target's mixture of Gaussians, (levels, ...), from means and scales (S, ...)."""
    # one level after another: all at once would hold a copy of all draws for each
    return jax.lax.map(partial(_normal_mixture_quantile, mean, scale), levels)


def traced_normal_mixture_quantiles(mean: jax.Array, scale: jax.Array, levels: Sequence[float]) -> jax.Array:
    """The same at levels that are known when a program is traced, with fewer kinds of operations.

    >>> traced_normal_mixture_quantiles(jnp.zeros((2, 1)), jnp.ones((2, 1)), (0.5, 0.975))[:, 0].round(3).tolist()
    [0.0, 1.96...]
    """

    def below(value: jax.Array) -> jax.Array:
        return 0.5 * jax.lax.erfc((mean - value) * (math.sqrt(0.5) / scale)).mean(axis=0)

    def quantile(level_and_score: tuple[jax.Array, jax.Array]) -> jax.Array:
        level, score = level_and_score
        components = mean + scale * score
        return bisect(below, level, components.min(axis=0), components.max(axis=0), 24)

    return jax.lax.map(quantile, (jnp.asarray(levels, mean.dtype), jnp.asarray(ndtri(levels), mean.dtype)))


def _normal_mixture_quantile(mean: jax.Array, scale: jax.Array, level: jax.Array) -> jax.Array:
    components = mean + scale * norm.ppf(level)

    def below(value: jax.Array) -> jax.Array:
        return norm.cdf((value - mean) / scale).mean(axis=0)

    # the mixture's quantile lies between the smallest and the largest of its components'
    return bisect(below, level, components.min(axis=0), components.max(axis=0), 24)  # to float32's precision


def normal_mixture_entropy(mean: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Differential entropy in nats of every target's mixture.

    Args:
        mean, scale: of every component, (S, ...).

    >>> round(normal_mixture_entropy(np.zeros((2, 1)), np.ones((2, 1))).item(), 4)  # log(2 pi e) / 2
    1.4189
    """
    return _by_targets(_entropy_at, FEWEST, (mean, scale))


def traced_normal_mixture_entropy(mean: jax.Array, scale: jax.Array) -> jax.Array:
    """The same inside a program, for batches of any size: all targets with the points that one of them needs most.

    >>> traced_normal_mixture_entropy(jnp.zeros((2, 1)), jnp.ones((2, 1))).round(4).tolist()
    [1.418...]
    """
    centre = mean.mean(axis=0)
    mean = mean - centre  # a large common offset would cost digits
    low, high = (mean - REACH * scale).min(axis=0), (mean + REACH * scale).max(axis=0)
    points = jnp.clip((2 * (high - low) / scale.min(axis=0)).max(), FEWEST, MOST).astype(jnp.int32)
    step = (high - low) / (points - 1)
    log_scale = jnp.log(scale) + 0.5 * math.log(2 * math.pi)

    def add(point: jax.Array, total: jax.Array) -> jax.Array:
        deviation = (low + step * point - mean) / scale
        log_density = logsumexp(-0.5 * jnp.square(deviation) - log_scale, axis=0) - math.log(mean.shape[0])
        return total - jnp.exp(log_density) * log_density

    # the trapezoidal rule: the integrand vanishes at both ends
    return step * jax.lax.fori_loop(0, points, add, jnp.zeros_like(low))


def normal_mixture_distance(
    mean: np.ndarray, scale: np.ndarray, other_mean: np.ndarray, other_scale: np.ndarray
) -> np.ndarray:
    """1-Wasserstein distance of every target's two mixtures.

    Args:
        mean, scale: of the components of one mixture, (S, ...).
        other_mean, other_scale: of the other mixture, (T, ...).

    >>> unit = np.ones((1, 1))
    >>> round(normal_mixture_distance(0 * unit, unit, 0 * unit, 2 * unit).item(), 3)  # sqrt(2 / pi)
    0.798
    """
    pairs = (mean, scale), (other_mean, other_scale)
    return _by_targets(_difference_at, FEWEST_OF_DISTANCES, *pairs, unresolved=UNRESOLVED)


def _by_targets(
    integrand: Callable[..., Any],
    fewest: int,
    *mixtures: tuple[np.ndarray, np.ndarray],
    unresolved: float = 0.0,
) -> np.ndarray:
    """An integral for every target; targets that need about as many points are batched together.

    The points are half as far apart as the components are wide, but for a share `unresolved` of narrower ones.
    """
    shape = np.shape(mixtures[0][0])[1:]
    flat = [[np.asarray(a, np.float64).reshape(len(a), -1) for a in np.broadcast_arrays(*pair)] for pair in mixtures]
    centre = flat[0][0].mean(axis=0)
    moved = [(mean - centre, scale) for mean, scale in flat]  # a large common offset would cost digits in float32
    low = np.min([(mean - REACH * scale).min(axis=0) for mean, scale in moved], axis=0)
    high = np.max([(mean + REACH * scale).max(axis=0) for mean, scale in moved], axis=0)
    narrowest = np.min([np.quantile(scale, unresolved, axis=0, method="lower") for _, scale in moved], axis=0)
    points = np.maximum(2 * (high - low) / narrowest, fewest)
    counts = np.minimum(2 ** np.ceil(np.log2(points)).astype(int), 2 * MOST)
    result = np.empty(centre.size)
    for count in np.unique(counts):
        chosen = np.flatnonzero(counts == count)
        padded = chosen[np.arange(2 ** int(np.ceil(np.log2(len(chosen))))) % len(chosen)]  # few sizes to compile for
        chosen_mixtures = [tuple(jnp.asarray(a[:, padded].T, jnp.float32) for a in pair) for pair in moved]
        ends = (jnp.asarray(a[padded], jnp.float32) for a in (low, high))
        grid = 0 if count > MOST else int(count)
        result[chosen] = np.asarray(_integrals(integrand, grid, chosen_mixtures, *ends))[: len(chosen)]
    return result.reshape(shape).astype(np.float32)


def _entropy_at(mixtures: Sequence[NormalMixture], values: jax.Array) -> jax.Array:
    ((mean, scale),) = mixtures
    log_density = logsumexp(norm.logpdf(values[:, None], mean, scale), axis=1) - np.log(mean.size)
    return -jnp.exp(log_density) * log_density


def _difference_at(mixtures: Sequence[NormalMixture], values: jax.Array) -> jax.Array:
    ours, theirs = (ndtr((values[:, None] - mean) / scale).mean(axis=1) for mean, scale in mixtures)
    return jnp.abs(ours - theirs)


@partial(jax.jit, static_argnames=("integrand", "points"))
def _integrals(
    integrand: Callable[..., jax.Array],
    points: int,
    mixtures: Sequence[NormalMixture],
    low: jax.Array,
    high: jax.Array,
) -> jax.Array:
    """The integral of every target, in the first axis; if `points` is 0, over the grids of all components."""

    def integral(target: tuple[Sequence[NormalMixture], jax.Array, jax.Array]) -> jax.Array:
        target_mixtures, low, high = target
        values = low + (high - low) * jnp.arange(points) / (points - 1) if points else _grids(target_mixtures)
        integrands = jax.lax.map(partial(integrand, target_mixtures), values.reshape(-1, BLOCK)).reshape(-1)
        return jnp.trapezoid(integrands, values)

    together = fitting(DENSITY_VALUES, BLOCK * sum(mean.shape[1] for mean, _ in mixtures))
    return jax.lax.map(integral, (mixtures, low, high), batch_size=together)


def _grids(mixtures: Sequence[NormalMixture]) -> jax.Array:
    """The union of a grid for every component, in order."""
    steps = np.arange(-REACH, REACH + GRID_STEP / 2, GRID_STEP)
    values = jnp.sort(
        jnp.concatenate([(mean[:, None] + scale[:, None] * steps).reshape(-1) for mean, scale in mixtures])
    )
    return jnp.pad(values, (0, -len(values) % BLOCK), mode="edge")
