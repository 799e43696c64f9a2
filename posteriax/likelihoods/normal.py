"""Real numbers with Gaussian noise: the likelihood, and the mixture of one Gaussian per draw that it predicts."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from posteriax.likelihoods.likelihood import LikelihoodLatents
from posteriax.likelihoods.mixtures import (
    normal_mixture_distance,
    normal_mixture_entropy,
    normal_mixture_quantiles,
    traced_normal_mixture_entropy,
    traced_normal_mixture_quantiles,
)
from posteriax.likelihoods.noise_scale import (
    WIDTH_OF_LEARNED_SCALE,
    Scale,
    ScalePrior,
    check_scale,
    check_scale_prior,
    check_two_outputs,
    location_and_scale,
    log_scale_prior,
)
from posteriax.likelihoods.number_predictive import NumberPredictive
from posteriax.likelihoods.numbers import NumberLikelihood


@dataclass(frozen=True)
class Normal(NumberLikelihood):
    """A real number (or D of them) with Gaussian noise.

        log p(y | f) = -log(2 pi sigma^2) / 2 - (y - f)^2 / (2 sigma^2)

    Args:
        scale: the standard deviation sigma of the noise, in the units of y. A number fixes it. ``"learned"`` infers it
            with the weights. ``"predicted"`` reads it from the network, which then has 2 D outputs for D targets: the
            means, then values whose softplus is sigma, at least 1e-6: standardise targets of such a size.
        scale_prior: of a learned scale, as a pair ``(median, width)``: log sigma ~ N(log median, width^2). By default
            the median is the standard deviation of the targets, which :func:`px.fit` reads, and the width 3, so that
            the posterior does not depend on the units of y.

    >>> import jax.numpy as jnp
    >>> Normal(scale=1.0).log_prob({}, jnp.array([[0.0]]), jnp.array([[0.0]])).round(3).tolist()
    [-0.919...]
    >>> Normal("learned", scale_prior=(0.5, 1.0)).latents()["log_scale"].round(3).item()  # log 0.5
    -0.693...
    """

    scale: Scale = "learned"
    scale_prior: ScalePrior | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        check_scale(self.scale)
        object.__setattr__(self, "scale_prior", check_scale_prior(self.scale, self.scale_prior))

    def priors(self) -> dict[str, dist.Distribution]:
        return {"log_scale": log_scale_prior(self.scale_prior)} if self.scale == "learned" else {}

    @property
    def outputs_per_target(self) -> int:
        return 2 if self.scale == "predicted" else 1

    @property
    def needs_target_scale(self) -> bool:
        return self.scale == "learned" and self.scale_prior is None

    def for_target_scale(self, scale: float) -> "Normal":
        return replace(self, scale_prior=(scale, WIDTH_OF_LEARNED_SCALE)) if self.needs_target_scale else self

    @property
    def log_noise(self) -> str | None:
        return "log_scale" if self.scale == "learned" else None

    @property
    def noise(self) -> float | None:
        return None if isinstance(self.scale, str) else float(self.scale)

    def with_noise(self, scale: float) -> "Normal":
        return Normal(scale)

    def check(self, outputs: jax.ShapeDtypeStruct, y: np.ndarray) -> np.ndarray:
        if self.scale == "predicted":
            check_two_outputs("Normal", outputs.shape)
        return super().check(outputs, y)

    def distribution(self, latents: LikelihoodLatents, outputs: jax.Array) -> dist.Normal:
        return dist.Normal(*location_and_scale(self.scale, latents, outputs))

    def predictive(self, outputs: np.ndarray, latents: dict[str, Any]) -> "NormalPredictive":
        return NormalPredictive(self, outputs, latents)

    def _shape_of_mixture(
        self, latents: LikelihoodLatents, outputs: jax.Array, levels: Sequence[float]
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        mean, scale = jax.vmap(lambda u, o: _mean_and_scale(self.distribution(u, o)))(latents, outputs)
        noise = 0.5 * math.log(2 * math.pi * math.e) + jnp.log(scale).mean(axis=0)
        quantiles = traced_normal_mixture_quantiles(mean, scale, levels)
        return quantiles, traced_normal_mixture_entropy(mean, scale), noise


@dataclass(frozen=True, eq=False)
class NormalPredictive(NumberPredictive):
    """Predictions of real numbers: a mixture of one Gaussian per draw, with precise integrals and faster quantiles.

    Arguments and units are those of :class:`NumberPredictive`.

    >>> from posteriax.likelihoods import Normal, NormalPredictive
    >>> predictive = NormalPredictive(Normal(scale=1.0), np.zeros((5, 4, 1)), {})
    >>> predictive.std[0].item(), predictive.quantile(0.5)[0].round(3).item()
    (1.0, ...0.0)
    """

    @cached_property
    def standard_moments(self) -> tuple[jax.Array, jax.Array]:
        """Mean and noise scale of every draw, (S, N, D), in the network's units."""
        return self._map_distributions(_mean_and_scale)

    def entropy(self) -> np.ndarray:
        return normal_mixture_entropy(*map(np.asarray, self.standard_moments)) + self.likelihood.units.log_scale

    def mutual_information(self) -> np.ndarray:
        """Between each target and the weights, in nats, (N, D): the mixture's entropy minus the mean over draws.

        I(y; w | x) = H[mean_s N(mu_s, sigma_s^2)] - mean_s log(2 pi e sigma_s^2) / 2
        """
        mean, scale = map(np.asarray, self.standard_moments)
        noise = 0.5 * np.log(2 * np.pi * np.e) + np.log(scale).mean(axis=0, dtype=np.float64)
        return np.maximum(normal_mixture_entropy(mean, scale) - noise, 0.0).astype(np.float32)

    def distance(self, other: NumberPredictive) -> np.ndarray:
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
        return units.restore_spread(normal_mixture_distance(*map(np.asarray, (*ours, *theirs))))

    def _standard_quantiles(self, levels: np.ndarray) -> jax.Array:
        return normal_mixture_quantiles(*self.standard_moments, jnp.asarray(levels))


def _mean_and_scale(distribution: dist.Normal) -> tuple[jax.Array, jax.Array]:
    return distribution.loc, distribution.scale
