"""Predictions in the target's own units, by a network that learned standardised ones.

y = mean + scale f(x, w) + scale sigma xi        xi: standard normal
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

import posteriax as px
from posteriax.cli.user_data.targets import Quantity, Target
from posteriax.problem import Units, Unknown


@dataclass(frozen=True)
class NormalInUnits(px.Normal):
    """Gaussian noise of targets in their own units, for a network and noise in standardised ones.

    Args:
        offset, unit: the target is offset + unit (standardised target).

    >>> likelihood = NormalInUnits(scale=1.0, offset=1e7, unit=2.0)
    >>> likelihood.check(jax.ShapeDtypeStruct((1, 1), np.float32), np.array([1e7 + 1.0])).item()
    0.5
    """

    offset: float = 0.0
    unit: float = 1.0

    @property
    def units(self) -> Units:
        return Units(self.offset, self.unit)

    def check(self, outputs: jax.ShapeDtypeStruct, y: np.ndarray) -> np.ndarray:
        return super().check(outputs, self.units.standardise(y))

    def log_prob(self, unknowns: Unknown, outputs: jax.Array, y: jax.Array) -> jax.Array:
        # a density per unit of the target; y is standardised
        return super().log_prob(unknowns, outputs, y) - math.prod(y.shape[1:]) * self.units.log_scale


def in_units_of(target: Target, posterior: px.Posterior) -> px.Posterior:
    """The posterior with predictions in the target's own units, not standardised ones. Classes have none."""
    if not isinstance(target, Quantity):
        return posterior
    scale: Any = posterior.problem.likelihood.scale  # type: ignore[attr-defined]
    likelihood = NormalInUnits(scale, target.mean, target.scale)
    return replace(posterior, problem=replace(posterior.problem, likelihood=likelihood))
