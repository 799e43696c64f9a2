"""The matrix normal: a covariance for the rows and one for the columns.

    q(W) = MN(M, A A', B B'),   W = M + A E B',   Cov(W_ab, W_cd) = (A A')_ac (B B')_bd

A and B lower triangular. Parameters: m n + m (m + 1) / 2 + n (n + 1) / 2. (Louizos and Welling 2016)
"""

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive

from posteriax._internal import triangular
from posteriax._internal.checks import check_positive
from posteriax.families.arrays.estimators import EstimatorPlan
from posteriax.families.arrays.gaussian import TINY
from posteriax.families.arrays.noise import standard_normal
from posteriax.families.arrays.random_array import Contraction, RandomArray
from posteriax.families.family import (
    DiagonalGaussian,
    Draw,
    Gaussian,
    Rate,
    Units,
    Variational,
    gaussian_entropy,
    rows_and_columns,
)
from posteriax.families.normal import Normal
from posteriax.networks.leaf import Leaf

LARGEST = 10_000  # rows or columns of one factor


@dataclass(frozen=True)
class MatrixNormal(Gaussian):
    """A Kronecker-factored covariance for each weight matrix; biases stay mean-field.

    A convolution kernel is treated as a matrix of inputs (positions and channels) by output channels.

    Args:
        scale: initial standard deviation of each weight.

    >>> from posteriax import families as q
    >>> q.MatrixNormal()
    MatrixNormal(scale=0.01)
    """

    scale: float = 0.01
    natural = True

    def __post_init__(self) -> None:
        check_positive("scale", self.scale)

    def for_leaf(self, leaf: Leaf) -> "Gaussian | DiagonalGaussian":
        return Normal(self.scale) if leaf.is_bias else self

    def init(self, key: jax.Array, value: jax.Array, leaf: Leaf) -> Variational:
        rows, columns = leaf.matrix_shape
        if max(rows, columns) > LARGEST:
            raise ValueError(
                f"q.MatrixNormal for {leaf.path} {leaf.shape} would need a covariance of {max(rows, columns):,} rows; "
                f"the limit is {LARGEST:,}: give this leaf another family by path"
            )
        left, right = (triangular.start(n, self.scale**0.5, value.dtype) for n in (rows, columns))
        return {"mean": value, "log_left": left[0], "left": left[1], "log_right": right[0], "right": right[1]}

    def spread(self, variational: Variational, variance: jax.Array, covariance: jax.Array | None) -> Variational:
        shape = (variational["log_left"].size, variational["log_right"].size)
        log_left, log_right = rows_and_columns(variance, shape)
        return {**variational, "log_left": log_left, "log_right": log_right}

    def units(self, variational: Variational) -> Units:
        log_left, log_right = variational["log_left"], variational["log_right"]
        # the diagonals of the factors stand for their rows
        scale = jnp.exp(log_left[:, None] + log_right).reshape(variational["mean"].shape)
        rates = {"left": triangular.rate(log_left.size), "right": triangular.rate(log_right.size)}
        fisher = {"log_left": 2.0 * log_right.size, "log_right": 2.0 * log_left.size}
        return Units({"mean": scale}, {"log_left": 0.5, "log_right": 0.5, **rates}, fisher)

    def variance(self, variational: Variational) -> jax.Array:
        left, right = (jnp.square(factor).sum(axis=1) for factor in factors(variational))
        return jnp.outer(left, right).reshape(variational["mean"].shape)

    def covariance(self, variational: Variational) -> jax.Array:
        left, right = factors(variational)
        return jnp.kron(left @ left.T, right @ right.T)

    def noise(self, variational: Variational, key: jax.Array) -> jax.Array:
        mean = variational["mean"]
        left, right = factors(variational)
        noise = standard_normal(key, (left.shape[0], right.shape[0]), mean.dtype, unless_nan=mean)
        return (left @ noise @ right.T).reshape(mean.shape)

    def entropy(self, variational: Variational) -> jax.Array:
        log_left, log_right = variational["log_left"], variational["log_right"]
        # log determinant of a Kronecker product: the sum over all pairs of row and column scales
        return gaussian_entropy(log_left[:, None] + log_right)

    def array(self, variational: Variational, keys: jax.Array, plan: EstimatorPlan, examples: int) -> Draw:
        mean = variational["mean"]
        if plan.estimator != "local" or mean.ndim != 2 or plan.example_axis is None:
            return self.sample(variational, keys[0])
        return KroneckerArray(mean, *factors(variational), keys, plan.example_axis)

    def plan_note(self, plan: EstimatorPlan) -> str:
        return plan.note

    def natural_step(
        self, variational: Variational, gradient: Variational, mean_rate: Rate, precision_rate: Rate
    ) -> Variational:
        """The mean by (A A') g (B B'), as K-FAC does with its two factors, and each factor along its own gradient."""
        left, right = factors(variational)
        rows, columns = left.shape[0], right.shape[0]
        matrix = gradient["mean"].reshape(rows, columns)
        preconditioned = left @ (left.T @ matrix @ right) @ right.T
        updates = {"mean": -mean_rate * preconditioned.reshape(gradient["mean"].shape)}
        for side, factor, others in (("left", left, columns), ("right", right, rows)):
            rate = precision_rate / others
            log_update, update = _natural_factor_step(factor, gradient[f"log_{side}"], gradient[side], rate)
            updates |= {f"log_{side}": log_update, side: update}
        return updates


def factors(variational: Variational) -> tuple[jax.Array, jax.Array]:
    """A and B."""
    left = triangular.factor(variational["log_left"], variational["left"])
    return left, triangular.factor(variational["log_right"], variational["right"])


def _natural_factor_step(
    factor: jax.Array, by_log: jax.Array, by_lower: jax.Array, rho: Rate
) -> tuple[jax.Array, jax.Array]:
    """Steps of log_diagonal and S of L = diag(e^d) (I + S) (see _internal/triangular.py), for L <- L T.

    T is lower triangular, with -rho L' (gradient by L) below its diagonal, and on it the square root of what the
    Normal's variance is multiplied by: for a 1 x 1 factor the two are the same.
    """
    diagonal, below = jnp.diag(factor), np.tril_indices(factor.shape[0], -1)
    natural = triangular.whitened_gradient(factor, by_log, by_lower)
    t = rho * jnp.diag(natural)
    turn = jnp.diag(jax.lax.rsqrt(1 + t + 0.5 * t * t)) - rho * jnp.tril(natural, -1)
    new = factor @ turn
    unit = new / jnp.diag(new)[:, None]
    return jnp.log(jnp.diag(new) / diagonal), (unit - factor / diagonal[:, None])[below]


class KroneckerArray(RandomArray):
    """Behaves as one draw of mean + left E right', with E standard normal.

    For one example x the noise of x W is |x left| e' right', a Gaussian of known covariance: it is drawn per example,
    and the matrix is never formed.

    Args:
        mean: a matrix (m, n).
        left, right: factors (m, m) and (n, n) of the row and column covariance.
        keys: for the noise.
        example_axis: the axis of examples in the array it will be multiplied with.
    """

    mean: jax.Array
    left: jax.Array
    right: jax.Array
    keys: jax.Array
    example_axis: int | None = eqx.field(static=True)

    def aval(self) -> jax.core.ShapedArray:
        return jax.core.ShapedArray(self.mean.shape, self.mean.dtype)

    def materialise(self) -> jax.Array:
        noise = standard_normal(self.keys[0], self.mean.shape, self.mean.dtype, unless_nan=self.mean)
        return self.mean + self.left @ noise @ self.right.T

    def contract(self, contraction: Contraction) -> jax.Array:
        if len(contraction.inputs) != 1 or len(contraction.outputs) != 1:
            return super().contract(contraction)
        (summed, (free, axis)) = (next(iter(contraction.inputs)), next(iter(contraction.outputs.items())))
        along_inputs, along_outputs = (self.left, self.right.T) if summed == 0 else (self.right.T, self.left)
        mean = contraction.apply(contraction.x, self.mean)
        projected = contraction.apply(contraction.x, along_inputs)
        square = jnp.sum(jnp.square(projected), axis=axis, keepdims=True)
        length = jnp.sqrt(square + TINY)
        noise = standard_normal(self.keys[0], mean.shape, mean.dtype, unless_nan=mean)
        mixed = jnp.moveaxis(jnp.tensordot(noise, along_outputs, (axis, 1 - free)), -1, axis)
        return mean + length * mixed

    def move(self, primitive: Primitive, params: dict[str, Any]) -> jax.Array | RandomArray:
        if primitive is jax.lax.transpose_p and tuple(params["permutation"]) == (1, 0):
            return KroneckerArray(self.mean.T, self.right, self.left, self.keys, self.example_axis)
        if primitive is jax.lax.convert_element_type_p:
            mean, left, right = (a.astype(params["new_dtype"]) for a in (self.mean, self.left, self.right))
            return KroneckerArray(mean, left, right, self.keys, self.example_axis)
        return super().move(primitive, params)
