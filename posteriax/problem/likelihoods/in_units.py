"""Targets in their own units, for a network that was trained on standardised targets."""

import math
from dataclasses import dataclass, replace
from typing import Any, Self

import jax
import numpy as np
import numpyro.distributions as dist

from posteriax._internal.settings import from_plain, to_plain
from posteriax.problem.likelihoods.likelihood import LikelihoodLatents
from posteriax.problem.likelihoods.numbers import NumberLikelihood
from posteriax.problem.likelihoods.target_units import Units
from posteriax.problem.predictive.numbers import NumberPredictive


@dataclass(frozen=True)
class InUnits(NumberLikelihood):
    """A likelihood of real numbers in their own units: y = offset + scale (standardised y).

    Args:
        standard: the likelihood of standardised targets, with which the network was trained.
        offset, scale: of the targets' units.

    >>> import posteriax as px
    >>> likelihood = InUnits(px.Normal(scale=1.0), offset=1e7, scale=2.0)
    >>> likelihood.check(jax.ShapeDtypeStruct((1, 1), np.float32), np.array([1e7 + 1.0])).item()
    0.5
    """

    standard: NumberLikelihood
    offset: float = 0.0
    scale: float = 1.0

    @property
    def units(self) -> Units:
        return Units(self.offset, self.scale)

    def latents(self) -> LikelihoodLatents:
        return self.standard.latents()

    def priors(self) -> dict[str, dist.Distribution]:
        return self.standard.priors()

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
        return standard - math.prod(y.shape[1:]) * self.units.log_scale

    def predictive(self, outputs: np.ndarray, latents: dict[str, Any]) -> NumberPredictive:
        return replace(self.standard.predictive(outputs, latents), likelihood=self)

    def to_plain(self) -> dict[str, Any]:
        return super().to_plain() | {"standard": to_plain(self.standard)}

    @classmethod
    def from_settings(cls, **settings: Any) -> Self:
        return cls(**settings | {"standard": from_plain(settings["standard"])})
