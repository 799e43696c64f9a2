"""A matrix with Kronecker-factored noise, as an array type."""

from typing import Any

import equinox as eqx
import jax
import jax.core
import jax.numpy as jnp
from jax.extend.core import Primitive

from posteriax.families.arrays.gaussian import TINY
from posteriax.families.arrays.noise import standard_normal
from posteriax.families.arrays.random_array import Contraction, RandomArray


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
