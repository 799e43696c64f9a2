"""Likelihoods of numbers, real or counted: one NumPyro distribution for every target, in the target's own units.

Networks are best trained on standardised targets. :class:`InUnits` then restores the units in predictions and
densities, in float64.
"""

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpy.typing import ArrayLike

from posteriax._internal.checks import warn_if_rounded
from posteriax._internal.settings import from_plain, to_plain
from posteriax.likelihoods.likelihood import Likelihood, LikelihoodLatents, check_shape, sum_per_example
from posteriax.likelihoods.mixtures import LEVEL_WEIGHTS, LEVELS, draw_entropies, mean_and_variance, mixture_quantiles
from posteriax.likelihoods.number_predictive import (
    CountPredictive,
    NumberPredictive,
    NumberSums,
    ReducedNumberPredictive,
    count_mixture,
    log_density_at,
)


@dataclass(frozen=True)
class TargetUnits:
    """The units of a target on which a network was trained in standardised form: y = offset + scale (standardised y).

    Computed in float64, on the host: float32 would lose precision if the offset is large relative to the scale. Several
    targets have an offset and a scale each, along the last axis.

    >>> TargetUnits(offset=1e7, scale=2.0).restore(np.float32([0.25])).item()
    10000000.5
    >>> TargetUnits((0.0, 10.0), (1.0, 2.0)).standardise([[1.0, 14.0]]).tolist()
    [[1.0, 2.0]]
    """

    offset: float | tuple[float, ...] = 0.0
    scale: float | tuple[float, ...] = 1.0

    @property
    def are_standard(self) -> bool:
        return self.offset == 0.0 and self.scale == 1.0

    @property
    def log_scale(self) -> Any:
        """A number, or an array of one for each of several targets."""
        return np.log(self.scale) if isinstance(self.scale, tuple) else math.log(self.scale)

    @property
    def total_log_scale(self) -> float:
        """Of one number, or summed over several targets with a scale each."""
        return float(np.sum(self.log_scale))

    def restore(self, values: ArrayLike) -> np.ndarray:
        """Values in the target's units."""
        return np.asarray(values) if self.are_standard else self._offset + self._scale * np.asarray(values, np.float64)

    def restore_spread(self, values: ArrayLike) -> np.ndarray:
        """Differences, standard deviations or distances in the target's units."""
        return np.asarray(values) if self.are_standard else self._scale * np.asarray(values, np.float64)

    def standardise(self, y: ArrayLike) -> np.ndarray:
        """Targets as the network was trained on them, in float64."""
        return (np.asarray(y, np.float64) - self._offset) / self._scale

    @property
    def _offset(self) -> np.ndarray:
        return np.asarray(self.offset, np.float64)

    @property
    def _scale(self) -> np.ndarray:
        return np.asarray(self.scale, np.float64)


class NumberLikelihood(Likelihood, namespace="likelihoods"):
    """A number (or D of them) per example: a subclass defines the distribution of each.

    Moments, quantiles, intervals, densities, scores and reports follow from :meth:`distribution`, which needs `mean`,
    `variance`, `log_prob` and `cdf`. A discrete one is assumed to have support 0, 1, 2, ...

    >>> from dataclasses import dataclass
    >>> import posteriax as px
    >>> @dataclass(frozen=True)
    ... class Exponential(px.likelihoods.NumberLikelihood):
    ...     '''Waiting times; the network gives the log rate.'''
    ...     def distribution(self, latents, outputs):
    ...         return dist.Exponential(jnp.exp(outputs))
    >>> predictive = Exponential().predictive(np.zeros((1, 1, 1), np.float32), {})
    >>> predictive.mean.item(), predictive.quantile(0.5).round(3).item()  # 1 and log(2)
    (1.0, 0.693...)
    """

    @abstractmethod
    def distribution(self, latents: LikelihoodLatents, outputs: jax.Array) -> dist.Distribution:
        """The distribution of the targets, in their shape (N, D); parameters may broadcast to it."""

    @property
    def units(self) -> TargetUnits:
        """The units of the target, if they differ from those of the outputs."""
        return TargetUnits()

    def check(self, outputs: jax.ShapeDtypeStruct, y: np.ndarray) -> np.ndarray:
        shape = jax.eval_shape(lambda o: self.distribution(self.latents(), o).mean, outputs).shape
        warn_if_rounded("y", y.astype(np.float64) if y.dtype.kind in "iu" else y)
        targets = y.astype(jax.dtypes.canonicalize_dtype(np.float64))
        # (N,) against (N, 1) would broadcast to (N, N) later on: reshape here, where the meaning is clear
        if targets.ndim != len(shape) and targets.size == targets.shape[0] and math.prod(shape[1:]) == 1:
            targets = targets.reshape(targets.shape[0], *shape[1:])
        check_shape("targets", targets, shape)
        self._check_support(self._for_one_example(outputs.shape[1:]), targets)
        return targets

    def log_prob(self, latents: LikelihoodLatents, outputs: jax.Array, y: jax.Array) -> jax.Array:
        return sum_per_example(self.distribution(latents, outputs).log_prob(y))

    def predictive(self, outputs: np.ndarray, latents: dict[str, Any]) -> NumberPredictive:
        discrete = self._for_one_example(outputs.shape[2:]).is_discrete
        return (CountPredictive if discrete else NumberPredictive)(self, outputs, latents)

    def sums(self, latents: LikelihoodLatents, outputs: jax.Array) -> NumberSums:
        return NumberSums.from_draw(self.distribution(latents, outputs))

    def reduced_predictive(self, sums: NumberSums, output_shape: tuple[int, ...]) -> ReducedNumberPredictive:
        return ReducedNumberPredictive(self, sums, output_shape)

    def summary(self, latents: LikelihoodLatents, outputs: jax.Array, levels: Sequence[float]) -> dict[str, jax.Array]:
        """Of y, with std^2 = noise^2 + knowledge^2.

        `mean`, `std`, `noise` (the root of a draw's mean variance) and `knowledge` (the deviation of the draws' means),
        each (N, D); `quantiles`, (levels, N, D); `entropy` and `mutual_information` in nats, (N, D).
        """
        draw_means, draw_variances = jax.vmap(lambda u, o: mean_and_variance(self.distribution(u, o)))(latents, outputs)
        mean, variance = draw_means.mean(axis=0), draw_variances.mean(axis=0)
        disagreement = jnp.square(draw_means - mean).mean(axis=0)
        quantiles, entropy, noise_entropy = self._shape_of_mixture(latents, outputs, levels)
        return {
            "mean": mean,
            "std": jnp.sqrt(variance + disagreement),
            "noise": jnp.sqrt(variance),
            "knowledge": jnp.sqrt(disagreement),
            "quantiles": quantiles,
            "entropy": entropy,
            "mutual_information": jnp.maximum(entropy - noise_entropy, 0.0),
        }

    def _shape_of_mixture(
        self, latents: LikelihoodLatents, outputs: jax.Array, levels: Sequence[float]
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Quantiles of the mixture over draws, its entropy, and the mean entropy of a draw; all can be traced."""
        if self._for_one_example(outputs.shape[2:]).is_discrete:
            return count_mixture(self, latents, outputs, levels)
        quantiles = mixture_quantiles(self, latents, outputs, jnp.asarray(levels))
        at = mixture_quantiles(self, latents, outputs, jnp.asarray(LEVELS, jnp.float32))
        entropy = -jnp.tensordot(jnp.asarray(LEVEL_WEIGHTS, jnp.float32), log_density_at(self, latents, outputs, at), 1)
        return quantiles, entropy, draw_entropies(self, latents, outputs).mean(axis=0)

    def _for_one_example(self, output_shape: tuple[int, ...]) -> dist.Distribution:
        return self.distribution(self.latents(), jnp.zeros((1, *output_shape)))

    def _check_support(self, distribution: dist.Distribution, targets: np.ndarray) -> None:
        support = type(distribution).support
        if support is None or isinstance(support, property):  # it depends on the parameters
            return
        # the ends of an open interval, such as an exponential's, are allowed: next to them is inside
        near = [targets, *(np.nextafter(targets, targets.dtype.type(end)) for end in (-np.inf, np.inf))]
        outside = targets[~np.any([np.asarray(support(value)) for value in near], axis=0)]
        if outside.size:
            raise ValueError(
                f"y has the value {outside[0]:g}, but {type(self).__name__} gives it a {type(distribution).__name__} "
                f"distribution, whose support is {support}"
            )


@dataclass(frozen=True)
class InUnits(NumberLikelihood):
    """A likelihood of real numbers in their own units: y = offset + scale (standardised y).

    Args:
        standard: the likelihood of standardised targets, with which the network was trained.
        offset, scale: of the targets' units; numbers, or one for each of several targets.

    >>> import posteriax as px
    >>> likelihood = InUnits(px.Normal(scale=1.0), offset=1e7, scale=2.0)
    >>> likelihood.check(jax.ShapeDtypeStruct((1, 1), np.float32), np.array([1e7 + 1.0])).item()
    0.5
    """

    standard: NumberLikelihood
    offset: float | tuple[float, ...] = 0.0
    scale: float | tuple[float, ...] = 1.0

    @property
    def units(self) -> TargetUnits:
        return TargetUnits(self.offset, self.scale)

    def latents(self) -> LikelihoodLatents:
        return self.standard.latents()

    def priors(self) -> dict[str, dist.Distribution]:
        return self.standard.priors()

    @property
    def outputs_per_target(self) -> int:
        return self.standard.outputs_per_target

    @property
    def needs_target_scale(self) -> bool:
        return self.standard.needs_target_scale

    def for_target_scale(self, scale: float) -> "InUnits":
        """For targets of this standard deviation in standardised units, in which `check` returns them."""
        standard: Any = self.standard.for_target_scale(scale)
        return replace(self, standard=standard)

    @property
    def log_noise(self) -> str | None:
        return self.standard.log_noise

    @property
    def noise(self) -> float | None:
        return self.standard.noise

    def with_noise(self, scale: float) -> "InUnits":
        """With noise of this standard deviation in standardised units."""
        standard: Any = self.standard.with_noise(scale)
        return replace(self, standard=standard)

    def check(self, outputs: jax.ShapeDtypeStruct, y: np.ndarray) -> np.ndarray:
        return self.standard.check(outputs, self.units.standardise(y))

    def distribution(self, latents: LikelihoodLatents, outputs: jax.Array) -> dist.Distribution:
        """In standardised units, as are the network's outputs; predictives restore the units in float64."""
        return self.standard.distribution(latents, outputs)

    def log_prob(self, latents: LikelihoodLatents, outputs: jax.Array, y: jax.Array) -> jax.Array:
        # a density per unit of the target; y is standardised
        standard = self.standard.log_prob(latents, outputs, y)
        if isinstance(self.scale, tuple):
            return standard - self.units.total_log_scale
        return standard - math.prod(y.shape[1:]) * self.units.log_scale

    def predictive(self, outputs: np.ndarray, latents: dict[str, Any]) -> NumberPredictive:
        return replace(self.standard.predictive(outputs, latents), likelihood=self)

    def summary(self, latents: LikelihoodLatents, outputs: jax.Array, levels: Sequence[float]) -> dict[str, jax.Array]:
        """That of the standardised targets, in their own units."""
        standard = self.standard.summary(latents, outputs, levels)
        offset, scale = jnp.asarray(self.offset), jnp.asarray(self.scale)
        return standard | {
            **{name: offset + scale * standard[name] for name in ("mean", "quantiles")},
            **{name: scale * standard[name] for name in ("std", "noise", "knowledge")},
            "entropy": standard["entropy"] + self.units.log_scale,
        }

    def to_plain(self) -> dict[str, Any]:
        return super().to_plain() | {"standard": to_plain(self.standard)}

    @classmethod
    def from_settings(cls, **settings: Any) -> Self:
        several = {name: tuple(value) for name, value in settings.items() if isinstance(value, list | tuple)}
        return cls(**settings | several | {"standard": from_plain(settings["standard"])})
