"""Predictions of numbers, real or counted: an equally weighted mixture of one distribution per draw.

p(y | x, D) ~ 1/S sum_s p(y | x, w_s)       mean, quantiles, entropies and distances are those of the mixture
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.scipy.special import xlogy
from numpy.typing import ArrayLike
from scipy.special import entr

from posteriax._internal.checks import check_count
from posteriax._internal.memory import DENSITY_VALUES, fitting
from posteriax.likelihoods.mixtures import LEVEL_WEIGHTS, LEVELS, check_levels, draw_entropies, mixture_quantiles
from posteriax.likelihoods.predictive import (
    Predictive,
    Reduced,
    check_against,
    log_mean,
    mean_per_example,
    needs_draws,
)

if TYPE_CHECKING:
    from posteriax.likelihoods.likelihood import LikelihoodLatents
    from posteriax.likelihoods.numbers import NumberLikelihood


DEVIATIONS = 12  # standard deviations above a mean; larger counts have negligible probability
LONGEST_TABLE = 2**14  # counts; larger ones are treated as real numbers


class NumberSums(NamedTuple):
    """Sums over any number of draws, (N, D) each, from which mean and variance of numbers follow.

    Means and summed squared deviations are combined as in Chan, Golub and LeVeque (1979): a difference of large sums
    would lose a small spread of large numbers to rounding.
    """

    count: Any
    mean: Any  # of the draws' means
    squares: Any  # sum_s (mu_s - mean)^2
    variance: Any  # mean_s sigma_s^2

    @classmethod
    def from_draw(cls, distribution: dist.Distribution) -> "NumberSums":
        """The sums of a single draw, with this distribution of the targets."""
        mean = distribution.mean
        return cls(jnp.ones(()), mean, jnp.zeros_like(mean), jnp.broadcast_to(distribution.variance, mean.shape))

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


class PredictsNumbers(Predictive):
    """What predictions of numbers share, whether or not their draws were kept."""

    scores: ClassVar[tuple[str, ...]] = ("rmse", "nll", "crps", "coverage_90")

    likelihood: "NumberLikelihood"

    @abstractmethod
    def shape_of_outputs(self) -> tuple[int, ...]:
        """The shape of one draw's outputs, (N, ...)."""

    def check(self, y: ArrayLike) -> np.ndarray:
        """The targets as the likelihood takes them, checked against the predictions."""
        return check_against(self.likelihood, self.shape_of_outputs(), y)

    def targets(self, y: ArrayLike) -> np.ndarray:
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

    >>> from posteriax.likelihoods import NumberPredictive, StudentT
    >>> predictive = NumberPredictive(StudentT(df=4.0, scale=1.0), np.zeros((5, 4, 1), np.float32), {})
    >>> predictive.std[0].round(3).item(), predictive.quantile(0.95)[0].round(3).item()
    (1.41..., 2.13...)
    """

    likelihood: "NumberLikelihood"
    outputs: np.ndarray
    latents: dict[str, Any]

    @cached_property
    def standard_moments(self) -> tuple[jax.Array, jax.Array]:
        """Mean and standard deviation of y under every draw, (S, N, D), in the network's units."""
        return self._map_distributions(_mean_and_std)

    @property
    def moments_per_draw(self) -> tuple[jax.Array | np.ndarray, jax.Array | np.ndarray]:
        """Mean and standard deviation of y under every draw, (S, N, D)."""
        mean, scale = self.standard_moments
        units = self.likelihood.units
        return (mean, scale) if units.are_standard else (units.restore(mean), units.restore_spread(scale))

    @property
    def noise(self) -> np.ndarray:
        """The standard deviation of y that is left when the weights are known, (N, D): sqrt(mean_s sigma_s^2)."""
        scale = np.asarray(self.standard_moments[1])
        noise = np.sqrt(np.square(scale).mean(axis=0, dtype=np.float64)).astype(scale.dtype)
        return self.likelihood.units.restore_spread(noise)

    @property
    def knowledge(self) -> np.ndarray:
        """Standard deviation of the draws' means, (N, D), which more data could remove: std² = noise² + knowledge²."""
        mean = np.asarray(self.standard_moments[0])
        return self.likelihood.units.restore_spread(mean.std(axis=0, dtype=np.float64).astype(mean.dtype))

    @property
    def mean(self) -> np.ndarray:
        """E[y | x, D], (N, D)."""
        draw_means = np.asarray(self.standard_moments[0])
        mean = draw_means.mean(axis=0, dtype=np.float64).astype(draw_means.dtype)
        return self.likelihood.units.restore(mean)

    @property
    def std(self) -> np.ndarray:
        """Standard deviation of y, (N, D): noise and disagreement of the draws together.

        Var[y] = mean_s sigma_s^2 + Var_s[mu_s]
        """
        # NumPy: every operation outside a program would be compiled for every new shape
        mean, scale = map(np.asarray, self.standard_moments)
        variance = np.square(scale).mean(axis=0, dtype=np.float64) + mean.var(axis=0, dtype=np.float64)
        return self.likelihood.units.restore_spread(np.sqrt(variance).astype(mean.dtype))

    def quantile(self, q: ArrayLike) -> np.ndarray:
        """Quantiles of y, (len(q), N, D), or (N, D) for one q: of the exact mixture, found by bisection."""
        levels = check_levels(q)
        quantiles = np.asarray(self._standard_quantiles(levels.reshape(-1)))
        return self.likelihood.units.restore(quantiles.reshape(*levels.shape, *quantiles.shape[1:]))

    def cdf(self, y: ArrayLike) -> np.ndarray:
        """The probability of a target up to y, (N, D): uniform on 0 to 1 if the predictions are calibrated."""
        return np.asarray(self._map_distributions(_cdf, self.check(y))).mean(axis=0)

    def entropy(self) -> np.ndarray:
        """Differential entropy of each target's mixture over all draws, in nats, (N, D).

        If an example has several targets, each has the entropy of its marginal distribution: their sum is the joint
        entropy only if they are independent under the mixture, and larger otherwise.
        """
        log_density = log_density_at(self.likelihood, self.latents, self.outputs, self._standard_quantiles(LEVELS))
        return -np.tensordot(LEVEL_WEIGHTS, np.asarray(log_density, np.float64), 1) + self.likelihood.units.log_scale

    def mutual_information(self) -> np.ndarray:
        """Between each target and the weights, in nats, (N, D): the mixture's entropy minus the mean over draws.

            I(y; w | x) = H[mean_s p_s] - mean_s H[p_s]

        If an example has several targets, each by itself, as for :meth:`entropy`.
        """
        noise = np.mean(draw_entropies(self.likelihood, self.latents, jnp.asarray(self.outputs)), axis=0)
        return np.maximum(self.entropy() - self.likelihood.units.log_scale - noise, 0.0)

    def distance(self, other: "NumberPredictive") -> np.ndarray:
        """1-Wasserstein distance of every target's mixture from another prediction's, in the target's units, (N, D).

        W1 = int_0^1 |Q(u) - Q'(u)| du        Q, Q': quantile functions
        """
        return np.tensordot(LEVEL_WEIGHTS, np.abs(self.quantile(LEVELS) - other.quantile(LEVELS)), 1)

    def log_prob(self, y: ArrayLike) -> np.ndarray:
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

    def _standard_quantiles(self, levels: np.ndarray) -> jax.Array:
        """(levels, N, D), in the network's units."""
        return mixture_quantiles(self.likelihood, self.latents, jnp.asarray(self.outputs), jnp.asarray(levels))

    def _map_distributions(self, function: Callable[..., Any], *arguments: np.ndarray) -> Any:
        """function(distribution, *arguments) for every draw. A function of a module, not a closure: it is compiled."""
        return _map_distributions(self.likelihood, function, self.latents, self.outputs, *arguments)


@dataclass(frozen=True, eq=False)
class CountPredictive(NumberPredictive):
    """Predictions of counts: a mixture of one distribution over 0, 1, 2, ... per draw.

    Args:
        likelihood: the noise model.
        outputs: the network's outputs for every draw, (S, N, ...).
        latents: the likelihood's own latent variables for every draw.

    >>> from posteriax.likelihoods import CountPredictive, Poisson
    >>> predictive = CountPredictive(Poisson(), np.log(np.full((1, 1, 1), 2.0, np.float32)), {})
    >>> predictive.pmf(3)[0, 0].round(3).tolist(), predictive.quantile(0.9).item()
    ([0.135, 0.271, 0.271, 0.18], 4.0)
    """

    whole_numbers: ClassVar[bool] = True

    def pmf(self, largest: int) -> np.ndarray:
        """The probability of every count from 0 to `largest`, (N, D, largest + 1)."""
        tables = self._tables(check_count("largest", largest) + 1)
        return np.concatenate([np.moveaxis(probs, 0, -1) for probs, _ in tables])

    def quantile(self, q: ArrayLike) -> np.ndarray:
        """Quantiles of y, (len(q), N, D), or (N, D) for one q: the smallest counts whose cdf reaches q."""
        levels = check_levels(q)
        if self._counts > LONGEST_TABLE:
            return np.round(super().quantile(q)).astype(np.float64)
        tables = self._tables(self._counts)
        quantiles = np.concatenate([_smallest_counts(probs, levels.reshape(-1)) for probs, _ in tables], axis=1)
        return quantiles.reshape(*levels.shape, *quantiles.shape[1:]).astype(np.float64)

    def share_inside(self, y: ArrayLike, level: ArrayLike = 0.9) -> np.ndarray:
        """How much of each target lies in the central interval, (N, D) or (len(level), N, D).

        A count takes up a range of probability, from F(y - 1) to F(y). The share of it between (1 - level) / 2 and
        (1 + level) / 2 is `level` on average if the predictions are right (Czado, Gneiting and Held 2009). An interval
        between whole counts holds more than that: 99 % of the targets instead of 90 % if the mean count is 0.5.
        """
        targets = self.check(y)
        upto = lambda count: np.asarray(self._map_distributions(_cdf, count), np.float64).mean(axis=0)  # noqa: E731
        after, before = upto(targets), np.where(targets > 0, upto(np.maximum(targets - 1, 0)), 0.0)
        levels = np.asarray(level, np.float64).reshape(*np.shape(level), *[1] * after.ndim)
        low, high = (1 - levels) / 2, (1 + levels) / 2
        overlap = np.maximum(np.minimum(after, high) - np.maximum(before, low), 0.0)
        width = after - before  # 0 far out, where only the side is known
        return np.where(width > 0, overlap / np.where(width > 0, width, 1.0), (low <= after) & (after <= high))

    def entropy(self) -> np.ndarray:
        """Entropy of each target's mixture over all draws, in nats, (N, D)."""
        if self._counts > LONGEST_TABLE:
            return super().entropy()
        return np.concatenate([entr(probs).sum(axis=0) for probs, _ in self._tables(self._counts)])

    def mutual_information(self) -> np.ndarray:
        """Between each target and the weights, in nats, (N, D): the mixture's entropy minus the mean over draws."""
        if self._counts > LONGEST_TABLE:
            return super().mutual_information()
        tables = self._tables(self._counts)
        return np.concatenate([np.maximum((entr(probs) - noise).sum(axis=0), 0.0) for probs, noise in tables])

    def distance(self, other: NumberPredictive) -> np.ndarray:
        """1-Wasserstein distance of every target's mixture from another prediction's, (N, D): sum_k |F(k) - F'(k)|."""
        if not isinstance(other, CountPredictive) or max(self._counts, other._counts) > LONGEST_TABLE:
            return super().distance(other)
        both = zip(*(p._tables(max(self._counts, other._counts)) for p in (self, other)), strict=True)
        return np.concatenate([np.abs((a - b).cumsum(axis=0)).sum(axis=0) for (a, _), (b, _) in both])

    @cached_property
    def _counts(self) -> int:
        """How many counts have non-negligible probability under any draw."""
        largest = float(_largest_count(*self.standard_moments))
        return 2 ** int(np.ceil(np.log2(largest + 2)))  # few sizes to compile for

    def _tables(self, counts: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """For every count below `counts`, the mixture's probability and the mean over draws of -p log p.

        A few examples at a time: (counts, rows, D) each.
        """
        outputs, n = jnp.asarray(self.outputs), self.outputs.shape[1]
        rows = fitting(DENSITY_VALUES, counts * int(np.prod(self.outputs.shape[2:])), n)
        for start in range(0, n, rows):
            index = np.minimum(np.arange(start, start + rows), n - 1)
            tables = _tabulate(self.likelihood, counts, self.latents, outputs[:, index])
            probs, entropies = (np.asarray(table, np.float64)[:, : n - start] for table in tables)
            yield probs, entropies


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

    def log_prob(self, y: ArrayLike) -> np.ndarray:
        raise needs_draws("log_prob")


@partial(jax.jit, static_argnums=(0, 1))
def _map_distributions(
    likelihood: "NumberLikelihood",
    function: Callable[..., Any],
    latents: "LikelihoodLatents",
    outputs: jax.Array,
    *arguments: jax.Array,
) -> Any:
    return jax.vmap(lambda u, o: function(likelihood.distribution(u, o), *arguments))(latents, outputs)


def _mean_and_std(distribution: dist.Distribution) -> tuple[jax.Array, jax.Array]:
    return distribution.mean, jnp.sqrt(jnp.broadcast_to(distribution.variance, distribution.mean.shape))


def _cdf(distribution: dist.Distribution, y: jax.Array) -> jax.Array:
    return distribution.cdf(y)


@partial(jax.jit, static_argnums=0)
def _log_prob(
    likelihood: "NumberLikelihood", latents: "LikelihoodLatents", outputs: jax.Array, y: jax.Array
) -> jax.Array:
    return log_mean(jax.vmap(lambda u, o: likelihood.log_prob(u, o, y))(latents, outputs))


@partial(jax.jit, static_argnums=0)
def log_density_at(
    likelihood: "NumberLikelihood", latents: "LikelihoodLatents", outputs: jax.Array, values: jax.Array
) -> jax.Array:
    """The log density of the mixture at values (values, N, D)."""

    def at(y: jax.Array) -> jax.Array:
        return log_mean(jax.vmap(lambda u, o: likelihood.distribution(u, o).log_prob(y))(latents, outputs))

    return jax.lax.map(at, values)


def _smallest_counts(probs: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """For every level, the smallest count whose distribution function reaches it, (levels, rows, D)."""
    below = probs.cumsum(axis=0)  # (counts, rows, D)
    below /= below[-1]  # float32 sums to 1 only nearly, and a level above the sum would be the end of the table
    return np.stack([(below < level - 1e-7).sum(axis=0) for level in levels])  # float32 was rounded


def _largest_count(mean: jax.Array, std: jax.Array) -> jax.Array:
    """No larger count has more than a negligible probability under any draw."""
    return (mean + DEVIATIONS * jnp.maximum(std, 1.0)).max()


def count_mixture(
    likelihood: "NumberLikelihood", latents: "LikelihoodLatents", outputs: jax.Array, levels: Sequence[float]
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Quantiles of a mixture of counts, (levels, N, D), its entropy, and the mean entropy of a draw, (N, D).

    One count after another, up to the largest with a probability, at most `LONGEST_TABLE`.
    """
    distributions = jax.vmap(likelihood.distribution)(latents, outputs)
    moments = jax.vmap(_mean_and_std)(distributions)
    last = jnp.minimum(_largest_count(*moments), LONGEST_TABLE - 1).astype(jnp.int32)
    wanted = jnp.asarray(levels, jnp.float32).reshape(-1, *[1] * (moments[0].ndim - 1))
    zeros = jnp.zeros_like(moments[0][0])
    start = (zeros, jnp.zeros_like(wanted * zeros), zeros, zeros)

    def add(count: jax.Array, sums: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        below, quantiles, entropy, noise = sums
        probs = jnp.exp(jax.vmap(lambda distribution: distribution.log_prob(count))(distributions))
        mean = probs.mean(axis=0)
        below = below + mean
        quantiles = quantiles + (below < wanted - 1e-6)  # float32 sums to 1 only nearly
        return below, quantiles, entropy - xlogy(mean, mean), noise - xlogy(probs, probs).mean(axis=0)

    _, quantiles, entropy, noise = jax.lax.fori_loop(0, last + 1, add, start)
    return quantiles, entropy, noise


@partial(jax.jit, static_argnums=(0, 1))
def _tabulate(
    likelihood: "NumberLikelihood", counts: int, latents: "LikelihoodLatents", outputs: jax.Array
) -> tuple[jax.Array, jax.Array]:
    def at(count: jax.Array) -> tuple[jax.Array, jax.Array]:
        probs = jax.vmap(lambda u, o: jnp.exp(likelihood.distribution(u, o).log_prob(count)))(latents, outputs)
        return probs.mean(axis=0), -xlogy(probs, probs).mean(axis=0)

    return jax.lax.map(at, jnp.arange(counts))  # one after another: all at once would hold every draw for each
