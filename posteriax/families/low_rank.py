"""A Gaussian with diagonal plus low-rank covariance.

    q(w) = N(mu, S (I + F F') S),   S diagonal, F (D x rank)

Parameters: D (2 + rank). The noise is S (e1 + F e2); the entropy needs a rank x rank determinant. (Ong et al. 2018)
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from posteriax.families.arrays.noise import standard_normal
from posteriax.families.directions import WithDirections
from posteriax.families.family import Variational, gaussian_entropy


@dataclass(frozen=True)
class LowRank(WithDirections):
    """Diagonal plus low rank.

    Args:
        rank: number of directions.
        over: "leaf", directions within each leaf, or "network", across all leaves of this family.
        scale: initial standard deviation of each weight.

    >>> from posteriax import families as q
    >>> q.LowRank(4)
    LowRank(rank=4, over='leaf', scale=0.01)
    """

    def variance(self, variational: Variational) -> jax.Array:
        along = jnp.square(variational["directions"]).sum(axis=-1)
        return jnp.exp(2 * variational["log_scale"]) * (1 + along)

    def covariance(self, variational: Variational) -> jax.Array:
        scale = jnp.exp(variational["log_scale"]).reshape(-1)
        flat = variational["directions"].reshape(scale.size, -1)
        return scale[:, None] * (jnp.eye(scale.size, dtype=scale.dtype) + flat @ flat.T) * scale

    def noise(self, variational: Variational, key: jax.Array) -> jax.Array:
        mean, directions = variational["mean"], variational["directions"]
        key_own, key_common = jax.random.split(key)
        own = standard_normal(key_own, mean.shape, mean.dtype, unless_nan=mean)
        common = jax.random.normal(key_common, directions.shape[-1:], mean.dtype)
        return jnp.exp(variational["log_scale"]) * (own + directions @ common)

    def entropy(self, variational: Variational) -> jax.Array:
        flat = variational["directions"].reshape(-1, variational["directions"].shape[-1])
        inner = jnp.eye(flat.shape[1], dtype=flat.dtype) + flat.T @ flat
        return gaussian_entropy(variational["log_scale"]) + 0.5 * jnp.linalg.slogdet(inner)[1]
