"""Predictions of real numbers."""

from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm

from posteriax.compiler import jit
from posteriax.likelihoods import Normal
from posteriax.predictive.protocol import check_against, log_mean, needs_draws


class NormalSums(NamedTuple):
    """What predictions of real numbers need to know of any number of draws: sums over them, (N, D) each."""

    count: Any
    mean: Any
    mean_squares: Any
    variance: Any
    log_scale: Any

    def plus(self, other: "NormalSums") -> "NormalSums":
        """The sums over both sets of draws."""
        return jax.tree.map(jnp.add, self, other)


def sum_normals(likelihood: Normal, unknowns: Any, outputs: jax.Array) -> NormalSums:
    """The sums of one draw."""
    mean, scale = likelihood.moments(unknowns, outputs)
    return NormalSums(jnp.ones(()), mean, jnp.square(mean), jnp.square(scale), jnp.log(scale))


class FromNormalSums:
    """What follows from the sums over draws alone."""

    likelihood: Normal
    sums: Any  # NormalSums, kept or computed

    @property
    def mean(self) -> np.ndarray:
        """E[y | x, D], (N, D)."""
        return np.asarray(self.sums.mean / self.sums.count)

    @property
    def std(self) -> np.ndarray:
        """Standard deviation of y, (N, D): noise and disagreement of the draws together.

        Var[y] = mean_s sigma_s^2 + Var_s[mu_s]
        """
        between = np.asarray(self.sums.mean_squares / self.sums.count) - np.square(self.mean)
        return np.sqrt(np.asarray(self.sums.variance / self.sums.count) + np.maximum(between, 0.0))


@dataclass(frozen=True, eq=False)
class NormalPredictive(FromNormalSums):
    """Predictions of real numbers: a mixture of one Gaussian per draw.

    Args:
        likelihood: the noise model.
        outputs: the network's outputs for every draw, (S, N, ...).
        unknowns: the likelihood's own unknowns for every draw.

    >>> import posteriax as px
    >>> predictive = px.NormalPredictive(px.Normal(scale=1.0), np.zeros((5, 4, 1)), {})
    >>> predictive.std[0].item(), predictive.quantile(0.5)[0].round(3).item()
    (1.0, ...0.0)
    """

    likelihood: Normal
    outputs: np.ndarray
    unknowns: dict[str, Any]

    @cached_property
    def moments_per_draw(self) -> tuple[jax.Array, jax.Array]:
        """Mean and noise scale of every draw, (S, N, D)."""
        return jax.vmap(self.likelihood.moments)(self.unknowns, jnp.asarray(self.outputs))

    @cached_property
    def sums(self) -> NormalSums:
        each = jax.vmap(partial(sum_normals, self.likelihood))(self.unknowns, jnp.asarray(self.outputs))
        return jax.tree.map(lambda leaf: leaf.sum(axis=0), each)

    @property
    def std(self) -> np.ndarray:
        """Standard deviation of y, (N, D): noise and disagreement of the draws together.

        Var[y] = mean_s sigma_s^2 + Var_s[mu_s]
        """
        mean, scale = self.moments_per_draw  # the draws are at hand: no difference of large sums
        return np.asarray(jnp.sqrt(jnp.square(scale).mean(axis=0) + mean.var(axis=0)))

    def quantile(self, q: Any) -> np.ndarray:
        """Quantiles of y, (len(q), N, D), or (N, D) for one q: of the exact mixture, found by bisection."""
        levels = jnp.asarray(q)
        if bool(((levels <= 0) | (levels >= 1)).any()):
            raise ValueError(f"q must lie strictly between 0 and 1, got {q}")
        mean, scale = self.moments_per_draw
        return np.asarray(_mixture_quantiles(mean, scale, levels.reshape(-1))).reshape(*levels.shape, *mean.shape[1:])

    def entropy(self) -> np.ndarray:
        """Differential entropy of each target's mixture, in nats, (N, D)."""
        return np.asarray(_mixture_entropy(*self.moments_per_draw))

    def mutual_information(self) -> np.ndarray:
        """Between target and weights, in nats, (N, D): the mixture's entropy less the draws' own."""
        own = 0.5 * np.log(2 * np.pi * np.e) + np.asarray(self.sums.log_scale / self.sums.count)
        return np.maximum(self.entropy() - own, 0.0)

    def log_prob(self, y: Any) -> np.ndarray:
        """log p(y_i | x_i, D) of every example, (N,): the log of the mean over draws, formed in the log domain."""
        targets = jnp.asarray(self.check(y))
        per_draw = jax.vmap(lambda u, outputs: self.likelihood.log_prob(u, outputs, targets))(
            self.unknowns, jnp.asarray(self.outputs)
        )
        return np.asarray(log_mean(per_draw))

    def check(self, y: Any) -> np.ndarray:
        """The targets, checked against the predictions."""
        return check_against(self.likelihood, self.outputs.shape[1:], y)


@dataclass(frozen=True, eq=False)
class ReducedNormalPredictive(FromNormalSums):
    """Predictions of real numbers of which only mean and variance were kept."""

    likelihood: Normal
    sums: NormalSums
    output_shape: tuple[int, ...]

    def quantile(self, q: Any) -> np.ndarray:
        raise needs_draws("quantile")

    def entropy(self) -> np.ndarray:
        raise needs_draws("entropy")

    def mutual_information(self) -> np.ndarray:
        raise needs_draws("mutual_information")

    def log_prob(self, y: Any) -> np.ndarray:
        raise needs_draws("log_prob")

    def check(self, y: Any) -> np.ndarray:
        """The targets, checked against the predictions."""
        return check_against(self.likelihood, self.output_shape, y)


@jit
def _mixture_quantiles(mean: jax.Array, scale: jax.Array, levels: jax.Array) -> jax.Array:
    # one level after another: all at once would hold a copy of all draws for each
    return jax.lax.map(partial(_mixture_quantile, mean, scale), levels)


def _mixture_quantile(mean: jax.Array, scale: jax.Array, level: jax.Array) -> jax.Array:
    components = mean + scale * norm.ppf(level)
    # the mixture's quantile lies between the smallest and the largest of its components'
    low, high = components.min(axis=0), components.max(axis=0)

    def halve(_: Any, bounds: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        low, high = bounds
        middle = (low + high) / 2
        below = norm.cdf((middle - mean) / scale).mean(axis=0) < level
        return jnp.where(below, middle, low), jnp.where(below, high, middle)

    low, high = jax.lax.fori_loop(0, 24, halve, (low, high))  # to float32's precision
    return (low + high) / 2


@jit
def _mixture_entropy(mean: jax.Array, scale: jax.Array) -> jax.Array:
    """-E[log p] with Gauss-Hermite nodes at each component; of many draws, 64 spread evenly serve as centres."""
    nodes, weights = np.polynomial.hermite.hermgauss(8)
    centres = np.linspace(0, mean.shape[0] - 1, min(mean.shape[0], 64)).round().astype(int)

    def of_centre(centre: tuple[jax.Array, jax.Array]) -> jax.Array:
        points = centre[0] + np.sqrt(2.0) * centre[1] * nodes.reshape(-1, *[1] * centre[0].ndim)
        log_density = log_mean(norm.logpdf(points[None], mean[:, None], scale[:, None]))
        return -jnp.tensordot(weights / np.sqrt(np.pi), log_density, axes=1)

    return jax.lax.map(of_centre, (mean[centres], scale[centres])).mean(axis=0)
