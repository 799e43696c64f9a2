"""A shared matrix with factors on its inputs and outputs, as an array type."""

import dataclasses
import math
from typing import Any

import equinox as eqx
import jax
import jax.core
import jax.numpy as jnp
from jax import lax

from posteriax.arrays.random_array import Contraction, RandomArray


class FactorArray(RandomArray):
    """kernel * factor * factor, without ever forming it: data are scaled before and after the product with the kernel.

    The factors are drawn already, so unlike other random arrays it may be used any number of times.

    Args:
        kernel: the shared array.
        factors: each broadcasts against (examples, *kernel.shape), with length 1 along examples if all share it.
        example_axis: the axis of examples in the array that this one will meet.
        additive: the factors are added to inputs and outputs instead; then there is no such array, only its products.
    """

    kernel: jax.Array
    factors: tuple[jax.Array, ...]
    example_axis: int | None = eqx.field(static=True)
    additive: bool = eqx.field(static=True, default=False)

    def aval(self) -> jax.core.ShapedArray:
        return jax.core.ShapedArray(self.kernel.shape, self.kernel.dtype)

    def materialise(self) -> jax.Array:
        if self.additive:
            raise TypeError("a leaf with additive factors can only be multiplied with data")
        product = self.kernel
        for factor in self.factors:  # of the first example, if they differ: still one draw
            product = product * factor[0]
        return product

    def contract(self, contraction: Contraction) -> Any:
        x, kernel, after = contraction.x, self.kernel, []
        out_rank = jax.eval_shape(contraction.apply, x, kernel).ndim
        for factor in self.factors:
            axes = {axis - 1 for axis in range(1, factor.ndim) if factor.shape[axis] > 1}
            known = factor.shape[0] == 1 or contraction.examples is not None
            example = (None, None) if contraction.examples is None else contraction.examples
            if known and axes <= set(contraction.inputs):
                placed = _place(factor, contraction.inputs, example[0], jnp.ndim(x), contraction.groups)
                x = x + placed if self.additive else x * placed
            elif known and axes <= set(contraction.outputs):
                after.append(_place(factor, contraction.outputs, example[1], out_rank, 1))
            elif self.additive:
                raise TypeError("additive factors need a product over the leaf's input axis")
            else:
                kernel = kernel * factor[0]
        out = contraction.apply(x, kernel)
        for placed in after:
            out = out + placed if self.additive else out * placed
        return out

    def move(self, primitive: Any, params: dict[str, Any]) -> Any:
        if primitive is lax.transpose_p:
            order = params["permutation"]
            moved = tuple(factor.transpose(0, *(1 + axis for axis in order)) for factor in self.factors)
            return dataclasses.replace(self, kernel=self.kernel.transpose(order), factors=moved)
        if primitive is lax.convert_element_type_p:
            dtype = params["new_dtype"]
            factors = tuple(factor.astype(dtype) for factor in self.factors)
            return dataclasses.replace(self, kernel=self.kernel.astype(dtype), factors=factors)
        return super().move(primitive, params)


def _place(factor: jax.Array, places: Any, example: int | None, rank: int, groups: int) -> jax.Array:
    """A factor, reshaped to broadcast against data of a rank: its axes put at `places`, examples at `example`."""
    shape = [1] * rank
    order = [0, *(1 + own for own in sorted(places, key=lambda own: places[own]))]
    for own, axis in places.items():
        shape[axis] = factor.shape[1 + own]
    if factor.shape[0] > 1:
        assert example is not None
        shape[example] = factor.shape[0]
        before = sum(1 for axis in places.values() if axis < example)
        order.insert(before, order.pop(0))
    rest = [axis for axis in range(factor.ndim) if axis not in order]  # all of length 1
    placed = factor.transpose(*order, *rest).reshape(shape)
    if groups > 1 and math.prod(factor.shape[1:]) > 1:  # each group has the same factors
        (axis,) = places.values()
        placed = jnp.concatenate([placed] * groups, axis=axis)
    return placed
