"""The k-tied Normal: mean-field whose standard deviations form a matrix of rank k.

    q(W) = prod_ij N(W_ij; M_ij, A_ij^2),   A = U V',   U (m x k) and V (n x k) positive, learned in the log domain

Parameters: m n + k (m + n) instead of 2 m n. (METHODS E.1)
"""

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from posteriax.checks import check_count, check_positive
from posteriax.families.family import DiagonalGaussian, Variational
from posteriax.families.normal import Normal
from posteriax.priors import Leaf


@dataclass(frozen=True)
class KTied(DiagonalGaussian):
    """Mean-field with the scales of each weight matrix tied to rank k; leaves without two axes stay mean-field.

    A convolution kernel is taken as a matrix of its inputs (positions and channels) by its output channels.

    Args:
        k: the rank; 2 is usually as good as untied.
        scale: the standard deviation that every weight starts with, up to the factors' small random start.

    >>> from posteriax import families as q
    >>> q.KTied(2)
    KTied(k=2, scale=0.01)
    """

    k: int = 2
    scale: float = 0.01

    def __post_init__(self) -> None:
        check_count("k", self.k)
        check_positive("scale", self.scale)

    def for_leaf(self, leaf: Leaf) -> DiagonalGaussian:  # type: ignore[override]
        return Normal(self.scale) if leaf.is_bias else self

    def init(self, key: jax.Array, value: jax.Array, leaf: Leaf) -> Variational:
        outputs_first = leaf.out_axis == 0
        rows = leaf.shape[0] if outputs_first else math.prod(leaf.shape[:-1])
        columns = value.size // rows
        start = 0.5 * (math.log(self.scale) - math.log(self.k))  # k products of two factors sum to `scale`
        key_u, key_v = jax.random.split(key)
        return {
            "mean": value,
            "log_u": start + 0.1 * jax.random.normal(key_u, (rows, self.k), value.dtype),
            "log_v": start + 0.1 * jax.random.normal(key_v, (columns, self.k), value.dtype),
        }

    def moments(self, variational: Variational) -> tuple[jax.Array, jax.Array]:
        mean = variational["mean"]
        scale = jnp.exp(variational["log_u"]) @ jnp.exp(variational["log_v"]).T
        return mean, scale.reshape(mean.shape)
