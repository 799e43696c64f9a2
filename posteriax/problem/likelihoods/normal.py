"""Gaussian noise."""

from dataclasses import dataclass, field, replace
from typing import Any, Self

import jax
import numpy as np
import numpyro.distributions as dist

from posteriax.problem.likelihoods.likelihood import LikelihoodLatents
from posteriax.problem.likelihoods.numbers import (
    WIDTH_OF_LEARNED_SCALE,
    NumberLikelihood,
    Scale,
    ScalePrior,
    check_scale,
    check_two_outputs,
    checked_scale_prior,
    location_and_scale,
    prior_of_log_scale,
    with_stored_prior,
)
from posteriax.problem.predictive.normals import NormalPredictive


@dataclass(frozen=True)
class Normal(NumberLikelihood):
    """A real number (or D of them) with Gaussian noise.

        log p(y | f) = -log(2 pi sigma^2) / 2 - (y - f)^2 / (2 sigma^2)

    Args:
        scale: the standard deviation sigma of the noise, in the units of y. A number fixes it. ``"learned"`` infers it
            with the weights. ``"predicted"`` reads it from the network, which then has 2 D outputs for D targets: the
            means, then values whose softplus is sigma.
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
        object.__setattr__(self, "scale_prior", checked_scale_prior(self.scale, self.scale_prior))

    def priors(self) -> dict[str, dist.Distribution]:
        return {"log_scale": prior_of_log_scale(self.scale_prior)} if self.scale == "learned" else {}

    @property
    def needs_target_scale(self) -> bool:
        return self.scale == "learned" and self.scale_prior is None

    def for_target_scale(self, scale: float) -> "Normal":
        return replace(self, scale_prior=(scale, WIDTH_OF_LEARNED_SCALE)) if self.needs_target_scale else self

    @classmethod
    def from_settings(cls, **settings: Any) -> Self:
        return cls(**with_stored_prior(settings))

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
