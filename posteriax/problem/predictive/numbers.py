"""Predictions of numbers: a mixture of one distribution per draw."""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from posteriax.problem.predictive.mixtures import LEVEL_WEIGHTS, LEVELS, check_levels, each_entropy, mixture_quantiles
from posteriax.problem.predictive.predictive import (
    Predictive,
    Reduced,
    check_against,
    log_mean,
    mean_per_example,
    needs_draws,
)

if TYPE_CHECKING:
    from posteriax.problem.likelihoods.numbers import NumberLikelihood


class NumberSums(NamedTuple):
    """Sums over any number of draws, (N, D) each, from which mean and variance of numbers follow.

    Means and summed squared deviations are combined as in Chan, Golub and LeVeque (1979): a difference of large sums
    would lose a small spread of large numbers to rounding.
    """

    count: Any
    mean: Any  # of the draws' means
    squares: Any  # sum_s (mu_s - mean)^2
    variance: Any  # mean_s sigma_s^2

    def join(self, other: "NumberSums") -> "NumberSums":
        """The sums over both sets of draws."""
        count = self.count + other.count
        share, difference = other.count / count, other.mean - self.mean
        return NumberSums(
            count,
            self.mean + share * difference,
            self.squares + other.squares + self.count * share * jnp.square(difference),
            self.variance + share * (other.variance - self.variance),
        )


def sum_numbers(distribution: Any) -> NumberSums:
    """The sums of one draw."""
    mean = distribution.mean
    return NumberSums(jnp.ones(()), mean, jnp.zeros_like(mean), jnp.broadcast_to(distribution.variance, mean.shape))


class PredictsNumbers(Predictive):
    """What predictions of numbers share, whether or not their draws were kept."""

    scores: ClassVar[tuple[str, ...]] = ("rmse", "nll", "crps", "coverage_90")

    likelihood: "NumberLikelihood"

    @abstractmethod
    def shape_of_outputs(self) -> tuple[int, ...]:
        """The shape of one draw's outputs, (N, ...)."""

    def check(self, y: Any) -> np.ndarray:
        """The targets as the likelihood takes them, checked against the predictions."""
        return check_against(self.likelihood, self.shape_of_outputs(), y)

    def targets(self, y: Any) -> np.ndarray:
        """The targets as they were given, in float64 and the shape of `mean`, checked against the predictions."""
        return np.asarray(y, np.float64).reshape(self.check(y).shape)

    def uncertainties(self) -> dict[str, np.ndarray]:
        """Values of "std": the root mean square over several targets."""
        return {"std": np.sqrt(mean_per_example(np.square(self.std)))}


@dataclass(frozen=True, eq=False)
class NumberPredictive(PredictsNumbers):
    """Predictions of numbers: an equally weighted mixture of one distribution per draw.

    If the network was trained on standardised targets (:class:`InUnits`), results are in the target's own units,
    restored in float64.

    Args:
        likelihood: the noise model.
        outputs: the network's outputs for every draw, (S, N, ...).
        latents: the likelihood's own latent variables for every draw.

    >>> import posteriax as px
    >>> predictive = px.NumberPredictive(px.StudentT(df=4.0, scale=1.0), np.zeros((5, 4, 1), np.float32), {})
    >>> predictive.std[0].round(3).item(), predictive.quantile(0.95)[0].round(3).item()
    (1.41..., 2.13...)
    """

    likelihood: "NumberLikelihood"
    outputs: np.ndarray
    latents: dict[str, Any]

    @cached_property
    def standard_moments(self) -> tuple[jax.Array, jax.Array]:
        """Mean and standard deviation of y under every draw, (S, N, D), in the network's units."""
        return self._each(_mean_and_std)

    @property
    def moments_per_draw(self) -> tuple[Any, Any]:
        """Mean and standard deviation of y under every draw, (S, N, D)."""
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
        # NumPy: every operation outside a program would be compiled for every new shape
        mean, scale = map(np.asarray, self.standard_moments)
        variance = np.square(scale).mean(axis=0, dtype=np.float64) + mean.var(axis=0, dtype=np.float64)
        return self.likelihood.units.restore_spread(np.sqrt(variance).astype(mean.dtype))

    def quantile(self, q: Any) -> np.ndarray:
        """Quantiles of y, (len(q), N, D), or (N, D) for one q: of the exact mixture, found by bisection."""
        levels = check_levels(q)
        found = np.asarray(self._standard_quantiles(levels.reshape(-1)))
        return self.likelihood.units.restore(found.reshape(*levels.shape, *found.shape[1:]))

    def cdf(self, y: Any) -> np.ndarray:
        """The probability of a target up to y, (N, D): uniform on 0 to 1 if the predictions are calibrated."""
        return np.asarray(self._each(_cdf, self.check(y))).mean(axis=0)

    def entropy(self) -> np.ndarray:
        """Differential entropy of each target's mixture over all draws, in nats, (N, D).

        If an example has several targets, each has the entropy of its marginal distribution: their sum is the joint
        entropy only if they are independent under the mixture, and larger otherwise.
        """
        log_density = _log_density_at(self.likelihood, self.latents, self.outputs, self._standard_quantiles(LEVELS))
        return -np.tensordot(LEVEL_WEIGHTS, np.asarray(log_density, np.float64), 1) + self.likelihood.units.log_scale

    def mutual_information(self) -> np.ndarray:
        """Between each target and the weights, in nats, (N, D): the mixture's entropy minus the mean over draws.

            I(y; w | x) = H[mean_s p_s] - mean_s H[p_s]

        If an example has several targets, each by itself, as for :meth:`entropy`.
        """
        own = np.mean(each_entropy(self.likelihood, self.latents, jnp.asarray(self.outputs)), axis=0)
        return np.maximum(self.entropy() - self.likelihood.units.log_scale - own, 0.0)

    def distance(self, other: "NumberPredictive") -> np.ndarray:
        """1-Wasserstein distance of every target's mixture from another prediction's, in the target's units, (N, D).

        W1 = int_0^1 |Q(u) - Q'(u)| du        Q, Q': quantile functions
        """
        return np.tensordot(LEVEL_WEIGHTS, np.abs(self.quantile(LEVELS) - other.quantile(LEVELS)), 1)

    def log_prob(self, y: Any) -> np.ndarray:
        """log p(y_i | x_i, D) of every example, (N,): the log of the mean over draws, formed in the log domain."""
        return np.asarray(_log_prob(self.likelihood, self.latents, self.outputs, self.check(y)))

    def per_draw(self) -> np.ndarray:
        """The draws' means, (S, N, D), in the network's units."""
        mean = np.asarray(self.standard_moments[0])
        return mean.reshape(*mean.shape[:2], -1)

    def means_per_draw(self) -> np.ndarray:
        """The draws' means, (S, N, D), in the target's units."""
        return self.likelihood.units.restore(self.per_draw())

    def shape_of_outputs(self) -> tuple[int, ...]:
        return self.outputs.shape[1:]

    def _standard_quantiles(self, levels: Any) -> jax.Array:
        """(levels, N, D), in the network's units."""
        return mixture_quantiles(self.likelihood, self.latents, jnp.asarray(self.outputs), jnp.asarray(levels))

    def _each(self, function: Callable[..., Any], *given: Any) -> Any:
        """A function of every draw's distribution, and of what is given besides. One of a module: it is compiled."""
        return _of_each(self.likelihood, function, self.latents, self.outputs, *given)


class ReducedNumberPredictive(Reduced, PredictsNumbers):
    """Predictions of numbers for which only mean and variance were kept."""

    scores: ClassVar[tuple[str, ...]] = ("rmse",)  # the others need every draw

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

    def entropy(self) -> np.ndarray:
        raise needs_draws("entropy")

    def mutual_information(self) -> np.ndarray:
        raise needs_draws("mutual_information")

    def log_prob(self, y: Any) -> np.ndarray:
        raise needs_draws("log_prob")


@partial(jax.jit, static_argnums=(0, 1))
def _of_each(likelihood: Any, function: Callable[..., Any], latents: Any, outputs: jax.Array, *given: Any) -> Any:
    return jax.vmap(lambda u, o: function(likelihood.distribution(u, o), *given))(latents, outputs)


def _mean_and_std(distribution: Any) -> tuple[jax.Array, jax.Array]:
    return distribution.mean, jnp.sqrt(jnp.broadcast_to(distribution.variance, distribution.mean.shape))


def _cdf(distribution: Any, y: jax.Array) -> jax.Array:
    return distribution.cdf(y)


@partial(jax.jit, static_argnums=0)
def _log_prob(likelihood: Any, latents: Any, outputs: jax.Array, y: jax.Array) -> jax.Array:
    return log_mean(jax.vmap(lambda u, o: likelihood.log_prob(u, o, y))(latents, outputs))


@partial(jax.jit, static_argnums=0)
def _log_density_at(likelihood: Any, latents: Any, outputs: jax.Array, places: jax.Array) -> jax.Array:
    """The log density of the mixture at the places in the first axis."""

    def at(y: jax.Array) -> jax.Array:
        return log_mean(jax.vmap(lambda u, o: likelihood.distribution(u, o).log_prob(y))(latents, outputs))

    return jax.lax.map(at, places)
