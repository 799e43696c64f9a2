"""Predictions of real numbers with Gaussian noise."""

from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm

from posteriax.problem.predictive.mixtures import bisect
from posteriax.problem.predictive.normal_mixtures import mixture_distance, mixture_entropy
from posteriax.problem.predictive.numbers import NumberPredictive


@dataclass(frozen=True, eq=False)
class NormalPredictive(NumberPredictive):
    """Predictions of real numbers: a mixture of one Gaussian per draw.

    If the network was trained on standardised targets (:class:`InUnits`), results are in the target's own units,
    restored in float64.

    Args:
        likelihood: the noise model.
        outputs: the network's outputs for every draw, (S, N, ...).
        latents: the likelihood's own latent variables for every draw.

    >>> import posteriax as px
    >>> predictive = px.NormalPredictive(px.Normal(scale=1.0), np.zeros((5, 4, 1)), {})
    >>> predictive.std[0].item(), predictive.quantile(0.5)[0].round(3).item()
    (1.0, ...0.0)
    """

    @cached_property
    def standard_moments(self) -> tuple[jax.Array, jax.Array]:
        """Mean and noise scale of every draw, (S, N, D), in the network's units."""
        return self._each(_mean_and_scale)

    def entropy(self) -> np.ndarray:
        """Differential entropy of each target's mixture over all draws, in nats, (N, D).

        If an example has several targets, each has the entropy of its marginal distribution: their sum is the joint
        entropy only if they are independent under the mixture, and larger otherwise.
        """
        return mixture_entropy(*map(np.asarray, self.standard_moments)) + self.likelihood.units.log_scale

    def mutual_information(self) -> np.ndarray:
        """Between each target and the weights, in nats, (N, D): the mixture's entropy minus the mean over draws.

            I(y; w | x) = H[mean_s N(mu_s, sigma_s^2)] - mean_s log(2 pi e sigma_s^2) / 2

        If an example has several targets, each by itself, as for :meth:`entropy`.
        """
        mean, scale = map(np.asarray, self.standard_moments)
        own = 0.5 * np.log(2 * np.pi * np.e) + np.log(scale).mean(axis=0, dtype=np.float64)
        return np.maximum(mixture_entropy(mean, scale) - own, 0.0).astype(np.float32)

    def distance(self, other: NumberPredictive) -> np.ndarray:
        """1-Wasserstein distance of every target's mixture from another prediction's, in the target's units, (N, D)."""
        if not isinstance(other, NormalPredictive):  # the exact integral is of Gaussians
            return super().distance(other)
        if other is self:
            return np.zeros(self.standard_moments[0].shape[1:])  # exactly: the integral would have rounding errors
        units = self.likelihood.units
        ours: tuple[Any, Any] = self.standard_moments
        theirs: tuple[Any, Any] = other.standard_moments
        if other.likelihood.units != units:
            mean, scale = other.moments_per_draw
            theirs = (units.standardise(mean), np.asarray(scale, np.float64) / units.scale)
        return units.restore_spread(mixture_distance(*map(np.asarray, (*ours, *theirs))))

    def _standard_quantiles(self, levels: Any) -> jax.Array:
        return _mixture_quantiles(*self.standard_moments, jnp.asarray(levels))


def _mean_and_scale(distribution: Any) -> tuple[jax.Array, jax.Array]:
    return distribution.loc, distribution.scale


@jax.jit
def _mixture_quantiles(mean: jax.Array, scale: jax.Array, levels: jax.Array) -> jax.Array:
    # one level after another: all at once would hold a copy of all draws for each
    return jax.lax.map(partial(_mixture_quantile, mean, scale), levels)


def _mixture_quantile(mean: jax.Array, scale: jax.Array, level: jax.Array) -> jax.Array:
    components = mean + scale * norm.ppf(level)

    def below(value: jax.Array) -> jax.Array:
        return norm.cdf((value - mean) / scale).mean(axis=0)

    # the mixture's quantile lies between the smallest and the largest of its components'
    return bisect(below, level, components.min(axis=0), components.max(axis=0), 24)  # to float32's precision
