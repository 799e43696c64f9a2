"""Variance layers: Gaussians whose means are exactly zero.

    q(w) = prod_ij N(w_ij; 0, sigma_ij^2)

All that the network has learned is in the variances; a single draw knows little, an average over draws knows it all.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from posteriax.checks import check_positive
from posteriax.families.family import DiagonalGaussian, Variational
from posteriax.families.normal import Normal
from posteriax.priors import Leaf


@dataclass(frozen=True)
class ZeroMeanNormal(DiagonalGaussian):
    """A zero-mean Gaussian for every weight; biases and normalisation scales stay mean-field.

    Args:
        smallest: the scales start at the sizes of the network's own weights, but not below this.

    >>> from posteriax import families as q
    >>> q.ZeroMeanNormal()
    ZeroMeanNormal(smallest=0.01)
    """

    smallest: float = 0.01

    def __post_init__(self) -> None:
        check_positive("smallest", self.smallest)

    def for_leaf(self, leaf: Leaf) -> DiagonalGaussian:  # type: ignore[override]
        return Normal() if leaf.is_bias else self

    def init(self, key: jax.Array, value: jax.Array, leaf: Leaf) -> Variational:
        return {"log_scale": jnp.log(jnp.maximum(jnp.abs(value), self.smallest))}

    def moments(self, variational: Variational) -> tuple[jax.Array, jax.Array]:
        scale = jnp.exp(variational["log_scale"])
        return jnp.zeros_like(scale), scale

    def log_scale(self, variational: Variational) -> jax.Array:
        return variational["log_scale"]
