"""What Gaussians with a few directions F (D x rank) beside a diagonal S have in common: their parameters."""

from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp

from posteriax._internal.checks import check_choice, check_count, check_positive
from posteriax.families.family import Gaussian, Variational
from posteriax.families.units import Units
from posteriax.priors import Leaf


@dataclass(frozen=True)
class WithDirections(Gaussian):
    """Means, log scales (the diagonal of log S) and directions F, in units of the scales."""

    rank: int = 4
    over: Literal["leaf", "network"] = "leaf"
    scale: float = 0.01

    def __post_init__(self) -> None:
        check_count("rank", self.rank)
        check_choice("over", self.over, ("leaf", "network"))
        check_positive("scale", self.scale)

    @property
    def joint(self) -> bool:  # type: ignore[override]
        return self.over == "network"

    def init(self, key: jax.Array, value: jax.Array, leaf: Leaf) -> Variational:
        # more directions than weights are redundant: a bias of 2 gets 2
        rank = min(self.rank, value.size)
        return {
            "mean": value,
            "log_scale": jnp.full_like(value, jnp.log(self.scale)),
            "directions": 0.1 * jax.random.normal(key, (*value.shape, rank), value.dtype),
        }

    def spread(self, variational: Variational, variance: jax.Array, covariance: jax.Array | None) -> Variational:
        return {**variational, "log_scale": 0.5 * jnp.log(variance)}

    def units(self, variational: Variational) -> Units:
        scale = jnp.exp(variational["log_scale"])
        return Units({"mean": scale}, {"log_scale": 1.0, "directions": 1.0}, {"log_scale": 2.0})
