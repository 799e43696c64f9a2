"""Predictions in the target's own units, by a network that learned standardised ones.

y = mean + scale f(x, w) + scale sigma xi        xi: standard normal
"""

from dataclasses import dataclass, replace
from typing import Any

import jax

import posteriax as px
from posteriax.tables.targets import Quantity, Target


@dataclass(frozen=True)
class NormalInUnits(px.Normal):
    """Gaussian noise for outputs that are in the target's own units while the noise was learned in units of `unit`.

    >>> import jax.numpy as jnp
    >>> NormalInUnits("learned", unit=10.0).moments({"log_scale": jnp.zeros(())}, jnp.zeros((1, 1)))[1].item()
    10.0
    """

    unit: float = 1.0

    def moments(self, unknowns: Any, outputs: jax.Array) -> tuple[jax.Array, jax.Array]:
        mean, scale = super().moments(unknowns, outputs)
        return mean, self.unit * scale


def in_units_of(target: Target, posterior: px.Posterior) -> px.Posterior:
    """The posterior with predictions in the target's own units, not standardised ones. Classes have none."""
    if not isinstance(target, Quantity):
        return posterior
    problem = posterior.problem
    apply = problem.network.apply

    def apply_in_units(params: Any, x: Any, *, key: Any = None) -> Any:
        return target.mean + target.scale * apply(params, x, key=key)

    likelihood = NormalInUnits("learned", unit=target.scale)
    network = replace(problem.network, apply=apply_in_units)
    return replace(posterior, problem=replace(problem, network=network, likelihood=likelihood))
