"""Mean-field: every weight an independent Gaussian.

    q(w) = prod_ij N(w_ij; mu_ij, sigma_ij^2),   sigma = exp(rho)

Two parameters a weight. The scale is learned in the log domain, where one step size suits scales of any size.
"""

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from posteriax.checks import check_positive
from posteriax.families.family import DiagonalGaussian, Variational
from posteriax.priors import Leaf


@dataclass(frozen=True)
class Normal(DiagonalGaussian):
    """An independent Gaussian for every weight (mean-field).

    Args:
        scale: the standard deviation that every weight starts with; its mean starts at the network's own value.

    >>> import posteriax as px
    >>> from posteriax import families as q
    >>> px.VI(q.Normal(scale=0.05)).family
    Normal(scale=0.05)
    """

    scale: float = 0.01

    def __post_init__(self) -> None:
        check_positive("scale", self.scale)

    def init(self, key: jax.Array, value: jax.Array, leaf: Leaf) -> Variational:
        return {"mean": value, "log_scale": jnp.full_like(value, math.log(self.scale))}

    def moments(self, variational: Variational) -> tuple[jax.Array, jax.Array]:
        return variational["mean"], jnp.exp(variational["log_scale"])

    def log_scale(self, variational: Variational) -> jax.Array:
        return variational["log_scale"]
