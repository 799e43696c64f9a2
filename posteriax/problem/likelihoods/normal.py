"""Gaussian noise."""

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import numpyro.distributions as dist

from posteriax.problem.likelihoods.likelihood import LikelihoodLatents
from posteriax.problem.likelihoods.numbers import (
    NumberLikelihood,
    Scale,
    check_scale,
    check_two_outputs,
    location_and_scale,
)
from posteriax.problem.predictive.normals import NormalPredictive


@dataclass(frozen=True)
class Normal(NumberLikelihood):
    """A real number (or D of them) with Gaussian noise.

        log p(y | f) = -log(2 pi sigma^2) / 2 - (y - f)^2 / (2 sigma^2)

    Args:
        scale: the standard deviation sigma of the noise, in the units of y. A number fixes it. ``"learned"`` infers it
            with the weights, under the prior log sigma ~ N(0, 1) (standardise y first). ``"predicted"`` reads it from
            the network, which then has 2 D outputs for D targets: the means, then values whose softplus is sigma.

    >>> import jax.numpy as jnp
    >>> Normal(scale=1.0).log_prob({}, jnp.array([[0.0]]), jnp.array([[0.0]])).round(3).tolist()
    [-0.919...]
    """

    scale: Scale = "learned"

    def __post_init__(self) -> None:
        check_scale(self.scale)

    def priors(self) -> dict[str, dist.Distribution]:
        return {"log_scale": dist.Normal(0.0, 1.0)} if self.scale == "learned" else {}

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

    def predictive(self, outputs: np.ndarray, latents: dict[str, Any]) -> NormalPredictive:
        return NormalPredictive(self, outputs, latents)
