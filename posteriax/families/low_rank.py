"""Gaussians with a diagonal S and a few directions F (D x rank): wider along them, or narrower.

    LowRank            q(w) = N(mu, S (I + F F') S)          covariance diagonal plus low rank (Ong et al. 2018)
    LowRankPrecision   q(w) = N(mu, S (I + F F')^-1 S)       precision diagonal plus low rank (Spantini et al. 2015)

Parameters: D (2 + rank). The second is what a prior of scales S becomes once data have determined `rank` directions.
Its draws are S (a - F (I + F'F)^-1 (F'a + b)) from standard normals a (D) and b (rank) (Bhattacharya, Chakraborty and
Mallick 2016); those of the first, S (a + F b). Both entropies need a rank x rank determinant.
"""

from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp

from posteriax._internal.checks import check_choice, check_count, check_positive
from posteriax.families.arrays.noise import standard_normal
from posteriax.families.family import Gaussian, Units, Variational, gaussian_entropy
from posteriax.networks.leaf import Leaf


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
        key_weights, key_directions = jax.random.split(key)
        per_weight = standard_normal(key_weights, mean.shape, mean.dtype, unless_nan=mean)
        per_direction = jax.random.normal(key_directions, directions.shape[-1:], mean.dtype)
        return jnp.exp(variational["log_scale"]) * (per_weight + directions @ per_direction)

    def entropy(self, variational: Variational) -> jax.Array:
        flat = variational["directions"].reshape(-1, variational["directions"].shape[-1])
        inner = jnp.eye(flat.shape[1], dtype=flat.dtype) + flat.T @ flat
        return gaussian_entropy(variational["log_scale"]) + 0.5 * jnp.linalg.slogdet(inner)[1]


@dataclass(frozen=True)
class LowRankPrecision(WithDirections):
    """Independent weights, except along a few directions in which they are narrower.

    ``px.Laplace(structure="low-rank")`` gives posteriors of this family: the prior's scales, and the leading directions
    of the curvature.

    Args:
        rank: number of directions.
        over: "leaf", directions within each leaf, or "network", across all leaves of this family.
        scale: initial standard deviation of each weight.

    >>> from posteriax import families as q
    >>> q.LowRankPrecision(4)
    LowRankPrecision(rank=4, over='leaf', scale=0.01)
    """

    def variance(self, variational: Variational) -> jax.Array:
        flat, factor = _directions(variational)
        lost = jnp.square(jax.scipy.linalg.solve_triangular(factor, flat.T, lower=True)).sum(axis=0)
        left = jnp.maximum(1 - lost, jnp.finfo(lost.dtype).eps)  # rounding must not make it negative
        return jnp.exp(2 * variational["log_scale"]) * left.reshape(variational["mean"].shape)

    def covariance(self, variational: Variational) -> jax.Array:
        flat, factor = _directions(variational)
        along = jax.scipy.linalg.solve_triangular(factor, flat.T, lower=True)
        scale = jnp.exp(variational["log_scale"]).reshape(-1)
        return scale[:, None] * (jnp.eye(scale.size, dtype=scale.dtype) - along.T @ along) * scale

    def noise(self, variational: Variational, key: jax.Array) -> jax.Array:
        mean = variational["mean"]
        flat, factor = _directions(variational)
        key_weights, key_directions = jax.random.split(key)
        per_weight = standard_normal(key_weights, (mean.size,), mean.dtype, unless_nan=mean)
        per_direction = jax.random.normal(key_directions, flat.shape[1:], mean.dtype)
        taken = flat @ jax.scipy.linalg.cho_solve((factor, True), flat.T @ per_weight + per_direction)
        return jnp.exp(variational["log_scale"]) * (per_weight - taken).reshape(mean.shape)

    def entropy(self, variational: Variational) -> jax.Array:
        _, factor = _directions(variational)
        return gaussian_entropy(variational["log_scale"]) - jnp.log(jnp.diag(factor)).sum()


def _directions(variational: Variational) -> tuple[jax.Array, jax.Array]:
    """F as a matrix, and the Cholesky factor of I + F'F."""
    flat = variational["directions"].reshape(-1, variational["directions"].shape[-1])
    return flat, jnp.linalg.cholesky(jnp.eye(flat.shape[1], dtype=flat.dtype) + flat.T @ flat)
