"""A Gaussian that is independent in a rotated basis of a matrix's rows and columns.

    W = M + Q (S * E) R',   Q (m x m) and R (n x n) orthogonal, S (m x n) positive, E standard normal

Its covariance is diag(S^2) in the basis R (x) Q. The inverse of a Kronecker-factored curvature A (x) B plus a multiple
of the identity has this form; a matrix normal does not. (George et al. 2018, Daxberger et al. 2021)
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from posteriax._internal.checks import check_positive
from posteriax.families.arrays.noise import standard_normal
from posteriax.families.family import Gaussian, Units, Variational, gaussian_entropy
from posteriax.families.normal import Normal
from posteriax.networks.leaf import Leaf


@dataclass(frozen=True)
class RotatedNormal(Gaussian):
    """Independent Gaussians along rotated axes of each weight matrix; biases stay mean-field.

    ``px.Laplace(structure="kronecker")`` gives posteriors of this family, with the rotations of the curvature.
    Variational inference keeps the rotations that it starts with, the identity, so that it is ``q.Normal()`` there.

    Args:
        scale: initial standard deviation of each weight.

    >>> from posteriax import families as q
    >>> q.RotatedNormal()
    RotatedNormal(scale=0.01)
    """

    scale: float = 0.01

    def __post_init__(self) -> None:
        check_positive("scale", self.scale)

    def for_leaf(self, leaf: Leaf) -> "Gaussian":
        return Normal(self.scale) if leaf.is_bias else self

    def init(self, key: jax.Array, value: jax.Array, leaf: Leaf) -> Variational:
        rows, columns = leaf.matrix_shape
        return {
            "mean": value,
            "log_scale": jnp.full((rows, columns), jnp.log(self.scale), value.dtype),
            "left": jnp.eye(rows, dtype=value.dtype),
            "right": jnp.eye(columns, dtype=value.dtype),
        }

    def variance(self, variational: Variational) -> jax.Array:
        left, right = rotations(variational)
        along = jnp.exp(2 * variational["log_scale"])
        return (jnp.square(left) @ along @ jnp.square(right).T).reshape(variational["mean"].shape)

    def covariance(self, variational: Variational) -> jax.Array:
        basis = jnp.kron(*rotations(variational))
        return (basis * jnp.exp(2 * variational["log_scale"]).reshape(-1)) @ basis.T

    def noise(self, variational: Variational, key: jax.Array) -> jax.Array:
        mean, log_scale = variational["mean"], variational["log_scale"]
        left, right = rotations(variational)
        noise = standard_normal(key, log_scale.shape, mean.dtype, unless_nan=mean)
        return (left @ (jnp.exp(log_scale) * noise) @ right.T).reshape(mean.shape)

    def entropy(self, variational: Variational) -> jax.Array:
        # rotations have determinant 1; with any other matrices, leaving these terms out would silently be wrong
        left, right = (jnp.linalg.slogdet(matrix)[1] for matrix in rotations(variational))
        rows, columns = variational["log_scale"].shape
        return gaussian_entropy(variational["log_scale"]) + columns * left + rows * right

    def units(self, variational: Variational) -> Units:
        scale = jnp.sqrt(self.variance(variational))
        return Units({"mean": scale}, {"log_scale": 1.0}, {"log_scale": 2.0})


def rotations(variational: Variational) -> tuple[jax.Array, jax.Array]:
    """Q and R, which are not learned: a step of an optimiser would leave them no longer orthogonal."""
    return jax.lax.stop_gradient(variational["left"]), jax.lax.stop_gradient(variational["right"])
