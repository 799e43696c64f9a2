"""Mean-field: every weight an independent Gaussian.

    q(w) = prod_ij N(w_ij; mu_ij, sigma_ij^2),   sigma = exp(rho)

Two parameters per weight. The scale is learned in the log domain, where one step size suits scales of any size.
(Hinton and van Camp 1993, Blundell et al. 2015)
"""

import math
from dataclasses import dataclass, fields

import jax
import jax.numpy as jnp

from posteriax._internal.checks import check_positive
from posteriax.families.family import DiagonalGaussian, Rate, Variational
from posteriax.networks.leaf import Leaf


@dataclass(frozen=True)
class Normal(DiagonalGaussian):
    """An independent Gaussian for every weight (mean-field).

    Args:
        scale: initial standard deviation of each weight; its mean starts at the value in the network.
        scatter: standard deviation of the initial log scales around log `scale`; 0.1 in Swiatkowski et al. 2020.
        largest: upper bound on the standard deviations, enforced after every step; none by default. The ResNet-18 of
            Swiatkowski et al. 2020 (scale=1.2e-4, scatter=0.1) keeps them below 0.18.

    >>> import posteriax as px
    >>> from posteriax import families as q
    >>> px.VI(q.Normal(scale=0.05)).family
    Normal(scale=0.05)
    """

    scale: float = 0.01
    scatter: float = 0.0
    largest: float | None = None
    natural = True

    def __post_init__(self) -> None:
        check_positive("scale", self.scale)
        if not 0.0 <= self.scatter < math.inf:
            raise ValueError(f"scatter must be a number of at least 0, got {self.scatter}")
        if self.largest is not None and not self.largest >= self.scale:
            raise ValueError(f"largest must be at least the initial scale, {self.scale}, got {self.largest}")

    def __repr__(self) -> str:
        settings = {field.name: getattr(self, field.name) for field in fields(self)}
        named = (
            f"{f.name}={settings[f.name]}" for f in fields(self) if f.name == "scale" or settings[f.name] != f.default
        )
        return f"Normal({', '.join(named)})"

    def init(self, key: jax.Array, value: jax.Array, leaf: Leaf) -> Variational:
        log_scale = jnp.full_like(value, math.log(self.scale))
        if self.scatter:
            log_scale += self.scatter * jax.random.normal(key, value.shape, value.dtype)
        return self.project({"mean": value, "log_scale": log_scale})

    def spread(self, variational: Variational, variance: jax.Array, covariance: jax.Array | None) -> Variational:
        return self.project({**variational, "log_scale": 0.5 * jnp.log(variance)})

    def project(self, variational: Variational) -> Variational:
        if self.largest is None:
            return variational
        return {**variational, "log_scale": jnp.minimum(variational["log_scale"], math.log(self.largest))}

    def moments(self, variational: Variational) -> tuple[jax.Array, jax.Array]:
        return variational["mean"], jnp.exp(variational["log_scale"])

    def log_scale(self, variational: Variational) -> jax.Array:
        return variational["log_scale"]

    def natural_step(
        self, variational: Variational, gradient: Variational, mean_rate: Rate, precision_rate: Rate
    ) -> Variational:
        log_scale, t = variational["log_scale"], precision_rate * gradient["log_scale"]
        # half of the log of the factor that the precision grows by
        step = -0.5 * jnp.log1p(t + 0.5 * t * t)
        return {"mean": -mean_rate * jnp.exp(2 * log_scale) * gradient["mean"], "log_scale": step}
