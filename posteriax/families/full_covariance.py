"""A Gaussian with a full covariance over the weights of a leaf, or of the network.

    q(w) = N(mu, L L'),   L lower triangular

Parameters: D + D (D + 1) / 2 for D weights, so for small leaves and networks. (Barber and Bishop 1998)
"""

import math
from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from posteriax._internal import triangular
from posteriax._internal.checks import check_choice, check_positive
from posteriax.families.arrays.noise import standard_normal
from posteriax.families.family import Gaussian, Units, Variational, gaussian_entropy
from posteriax.networks.leaf import Leaf

SMALL = 64  # up to here q is whitened and log q evaluated at a draw; larger noisy triangles are too ill-conditioned
LARGEST = 10_000  # weights in one covariance: the triangle takes 200 MB, and Adam keeps three


@dataclass(frozen=True)
class FullCovariance(Gaussian):
    """A Gaussian with a full covariance.

    Args:
        over: "leaf", a covariance for each leaf, or "network", one across all leaves of this family.
        scale: initial standard deviation of each weight.

    >>> from posteriax import families as q
    >>> q.FullCovariance(over="network")
    FullCovariance(over='network', scale=0.01)
    """

    over: Literal["leaf", "network"] = "leaf"
    scale: float = 0.01

    def __post_init__(self) -> None:
        check_choice("over", self.over, ("leaf", "network"))
        check_positive("scale", self.scale)

    @property
    def joint(self) -> bool:  # type: ignore[override]
        return self.over == "network"

    def init(self, key: jax.Array, value: jax.Array, leaf: Leaf) -> Variational:
        if value.size > LARGEST:
            raise ValueError(
                f"q.FullCovariance for {leaf.path} would need the covariances of {value.size:,} weights "
                f"({value.size * (value.size + 1) // 2:,} numbers); above {LARGEST:,} weights use q.LowRank() or "
                f"q.MatrixNormal()"
            )
        log_diagonal, lower = triangular.start(value.size, self.scale, value.dtype)
        return {"mean": value, "log_diagonal": log_diagonal, "lower": lower}

    def spread(self, variational: Variational, variance: jax.Array, covariance: jax.Array | None) -> Variational:
        if covariance is None:
            return {**variational, "log_diagonal": 0.5 * jnp.log(variance).reshape(-1)}
        scale = jnp.sqrt(jnp.diag(covariance))
        factor = jnp.linalg.cholesky(
            covariance / scale[:, None] / scale
        )  # of the correlations, so that units do not matter
        diagonal = jnp.diag(factor)
        lower = (factor / diagonal[:, None])[np.tril_indices(scale.size, -1)]
        return {**variational, "log_diagonal": jnp.log(scale * diagonal), "lower": lower}

    def log_density(self, variational: Variational, value: jax.Array) -> jax.Array | None:
        if value.size > SMALL:
            return None
        offset = (value - variational["mean"]).reshape(-1)
        # rows scaled to a unit diagonal, so that the units of the weights do not affect the solve
        log_diagonal = variational["log_diagonal"]
        unit = triangular.factor(jnp.zeros_like(log_diagonal), variational["lower"])
        noise = jax.scipy.linalg.solve_triangular(unit, offset * jnp.exp(-log_diagonal), lower=True, unit_diagonal=True)
        return -0.5 * jnp.vdot(noise, noise) - log_diagonal.sum() - 0.5 * math.log(2 * math.pi) * noise.size

    def units(self, variational: Variational) -> Units:
        log_diagonal = variational["log_diagonal"]
        return Units(
            {"mean": jnp.exp(log_diagonal).reshape(variational["mean"].shape)},
            {"log_diagonal": 1.0, "lower": triangular.rate(log_diagonal.size)},
            {"log_diagonal": 2.0},
            joint=("mean", "log_diagonal", "lower") if log_diagonal.size <= SMALL else None,
        )

    def variance(self, variational: Variational) -> jax.Array:
        return jnp.square(_factor(variational)).sum(axis=1).reshape(variational["mean"].shape)

    def covariance(self, variational: Variational) -> jax.Array:
        factor = _factor(variational)
        return factor @ factor.T

    def noise(self, variational: Variational, key: jax.Array) -> jax.Array:
        mean = variational["mean"]
        noise = standard_normal(key, (mean.size,), mean.dtype, unless_nan=mean)
        return (_factor(variational) @ noise).reshape(mean.shape)

    def entropy(self, variational: Variational) -> jax.Array:
        return gaussian_entropy(variational["log_diagonal"])


def _factor(variational: Variational) -> jax.Array:
    return triangular.factor(variational["log_diagonal"], variational["lower"])
