"""Predictions of real numbers."""

from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm

from posteriax._internal.compiler import jit
from posteriax.posterior.predictive.mixtures import mixture_distance, mixture_entropy
from posteriax.posterior.predictive.protocol import check_against, log_mean, needs_draws
from posteriax.problem import Normal


class NormalSums(NamedTuple):
    """What predictions of real numbers need to know of any number of draws, (N, D) each.

    Means and summed squares of deviations from them, joined as Chan, Golub and LeVeque (1979) do: a difference of
    large sums would lose a small spread of large numbers to rounding.
    """

    count: Any
    mean: Any  # of the draws' means
    squares: Any  # sum_s (mu_s - mean)^2
    variance: Any  # mean_s sigma_s^2

    def plus(self, other: "NormalSums") -> "NormalSums":
        """Of both sets of draws."""
        count = self.count + other.count
        share, difference = other.count / count, other.mean - self.mean
        return NormalSums(
            count,
            self.mean + share * difference,
            self.squares + other.squares + self.count * share * jnp.square(difference),
            self.variance + share * (other.variance - self.variance),
        )


def sum_normals(likelihood: Normal, unknowns: Any, outputs: jax.Array) -> NormalSums:
    """The sums of one draw."""
    mean, scale = likelihood.moments(unknowns, outputs)
    return NormalSums(jnp.ones(()), mean, jnp.zeros_like(mean), jnp.square(scale))


@dataclass(frozen=True, eq=False)
class NormalPredictive:
    """Predictions of real numbers: a mixture of one Gaussian per draw.

    Where the likelihood has units of its own (a network that learned standardised targets), results are in these
    units, restored in float64.

    Args:
        likelihood: the noise model.
        outputs: the network's outputs for every draw, (S, N, ...).
        unknowns: the likelihood's own unknowns for every draw.

    >>> import posteriax as px
    >>> predictive = px.NormalPredictive(px.Normal(scale=1.0), np.zeros((5, 4, 1)), {})
    >>> predictive.std[0].item(), predictive.quantile(0.5)[0].round(3).item()
    (1.0, ...0.0)
    """

    scores: ClassVar[tuple[str, ...]] = ("rmse", "nll", "crps", "coverage_90")
    likelihood: Normal
    outputs: np.ndarray
    unknowns: dict[str, Any]

    @cached_property
    def standard_moments(self) -> tuple[jax.Array, jax.Array]:
        """Mean and noise scale of every draw, (S, N, D), in the network's units."""
        return jax.vmap(self.likelihood.moments)(self.unknowns, jnp.asarray(self.outputs))

    @property
    def sums(self) -> NormalSums:
        """What ``reduce=True`` would have kept, in the network's units."""
        mean, scale = self.standard_moments
        middle = mean.mean(axis=0)
        squares = jnp.square(mean - middle).sum(axis=0)
        return NormalSums(jnp.float32(len(mean)), middle, squares, jnp.square(scale).mean(axis=0))

    @property
    def moments_per_draw(self) -> tuple[Any, Any]:
        """Mean and noise scale of every draw, (S, N, D)."""
        mean, scale = self.standard_moments
        units = self.likelihood.units
        return (mean, scale) if units.are_standard else (units.restore(mean), units.restore_spread(scale))

    @property
    def mean(self) -> np.ndarray:
        """E[y | x, D], (N, D)."""
        each = np.asarray(self.standard_moments[0])
        return self.likelihood.units.restore(each.mean(axis=0, dtype=np.float64).astype(each.dtype))

    @property
    def std(self) -> np.ndarray:
        """Standard deviation of y, (N, D): noise and disagreement of the draws together.

        Var[y] = mean_s sigma_s^2 + Var_s[mu_s]
        """
        mean, scale = self.standard_moments
        return self.likelihood.units.restore_spread(jnp.sqrt(jnp.square(scale).mean(axis=0) + mean.var(axis=0)))

    def quantile(self, q: Any) -> np.ndarray:
        """Quantiles of y, (len(q), N, D), or (N, D) for one q: of the exact mixture, found by bisection."""
        levels = jnp.asarray(q)
        if bool(((levels <= 0) | (levels >= 1)).any()):
            raise ValueError(f"q must lie strictly between 0 and 1, got {q}")
        mean, scale = self.standard_moments
        found = np.asarray(_mixture_quantiles(mean, scale, levels.reshape(-1)))
        return self.likelihood.units.restore(found.reshape(*levels.shape, *mean.shape[1:]))

    def entropy(self) -> np.ndarray:
        """Differential entropy of each target's mixture over all draws, in nats, (N, D).

        Of an example with several targets, each one's own (its marginal distribution's): their sum is the joint
        entropy only if the draws do not tie them together, and else above it.
        """
        return mixture_entropy(*map(np.asarray, self.standard_moments)) + self.likelihood.units.log_scale

    def mutual_information(self) -> np.ndarray:
        """Between each target and the weights, in nats, (N, D): the mixture's entropy less the draws' own.

            I(y; w | x) = H[mean_s N(mu_s, sigma_s^2)] - mean_s log(2 pi e sigma_s^2) / 2

        Of an example with several targets, each one's by itself, as for :meth:`entropy`.
        """
        mean, scale = map(np.asarray, self.standard_moments)
        own = 0.5 * np.log(2 * np.pi * np.e) + np.log(scale).mean(axis=0, dtype=np.float64)
        return np.maximum(mixture_entropy(mean, scale) - own, 0.0).astype(np.float32)

    def distance(self, other: "NormalPredictive") -> np.ndarray:
        """1-Wasserstein distance of every target's mixture from another prediction's, in the target's units, (N, D)."""
        units = self.likelihood.units
        ours: tuple[Any, Any] = self.standard_moments
        theirs: tuple[Any, Any] = other.standard_moments
        if other.likelihood.units != units:
            mean, scale = other.moments_per_draw
            theirs = (units.standardise(mean), np.asarray(scale, np.float64) / units.scale)
        return units.restore_spread(mixture_distance(*map(np.asarray, (*ours, *theirs))))

    def log_prob(self, y: Any) -> np.ndarray:
        """log p(y_i | x_i, D) of every example, (N,): the log of the mean over draws, formed in the log domain."""
        targets = jnp.asarray(self.check(y))
        per_draw = jax.vmap(lambda u, outputs: self.likelihood.log_prob(u, outputs, targets))(
            self.unknowns, jnp.asarray(self.outputs)
        )
        return np.asarray(log_mean(per_draw))

    def check(self, y: Any) -> np.ndarray:
        """The targets as the likelihood takes them, checked against the predictions."""
        return check_against(self.likelihood, self.outputs.shape[1:], y)

    def targets(self, y: Any) -> np.ndarray:
        """The targets as they were given, in float64 and the shape of `mean`, checked against the predictions."""
        return np.asarray(y, np.float64).reshape(self.check(y).shape)


@dataclass(frozen=True, eq=False)
class ReducedNormalPredictive:
    """Predictions of real numbers of which only mean and variance were kept."""

    scores: ClassVar[tuple[str, ...]] = NormalPredictive.scores
    likelihood: Normal
    sums: NormalSums
    output_shape: tuple[int, ...]

    @property
    def mean(self) -> np.ndarray:
        """E[y | x, D], (N, D)."""
        return self.likelihood.units.restore(self.sums.mean)

    @property
    def std(self) -> np.ndarray:
        """Standard deviation of y, (N, D): noise and disagreement of the draws together.

        Var[y] = mean_s sigma_s^2 + Var_s[mu_s]
        """
        return self.likelihood.units.restore_spread(np.sqrt(self.sums.variance + self.sums.squares / self.sums.count))

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
