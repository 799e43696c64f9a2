"""A shared matrix with factors on its inputs and outputs, as an array type."""

import dataclasses
import math
from collections.abc import Callable
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
        return _multiply(self.kernel, self.factors)

    def contract(self, contraction: Contraction) -> Any:
        x, kernel, before, after = contraction.x, self.kernel, [], []
        out_rank = jax.eval_shape(contraction.apply, x, kernel).ndim
        for factor in self.factors:
            axes = {axis - 1 for axis in range(1, factor.ndim) if factor.shape[axis] > 1}
            known = factor.shape[0] == 1 or contraction.examples is not None
            example = (None, None) if contraction.examples is None else contraction.examples
            if known and axes <= set(contraction.inputs):
                before.append((factor, example[0]))
            elif known and axes <= set(contraction.outputs):
                after.append(_place(factor, contraction.outputs, example[1], out_rank, 1))
            elif self.additive:
                raise TypeError("additive factors need a product over the leaf's input axis")
            else:
                kernel = kernel * factor[0]
        if len(before) == 1 and not self.additive and before[0][0].shape[0] == 1:
            out = _scaled_product(contraction)(x, kernel, before[0][0])
        else:
            for factor, axis in before:
                placed = _place(factor, contraction.inputs, axis, jnp.ndim(x), contraction.groups)
                x = x + placed if self.additive else x * placed
            out = _over_components(contraction)(x, kernel)
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


def _scaled_product(contraction: Contraction) -> Callable[[Any, Any, Any], Any]:
    """The contraction with a factor on the data, shared by the examples of a component.

    Where all components see the same data, as a network's first layer does, the factors' gradient comes by way of the
    weights. By way of the data it would take one more product, for a gradient by the data that nothing else asks for.
    """

    def scaled(x: Any, kernel: Any, factor: Any) -> Any:
        placed = _place(factor, contraction.inputs, None, jnp.ndim(x), contraction.groups)
        return _over_components(contraction)(x * placed, kernel)

    merged = jax.custom_batching.custom_vmap(scaled)

    @merged.def_vmap
    def _(size: int, batched: Any, x: Any, kernel: Any, factor: Any) -> tuple[Any, bool]:
        if batched == [False, False, True] and contraction.groups == 1:
            return _same_data(contraction, scaled)(x, kernel, factor), True
        return jax.vmap(scaled, [0 if b else None for b in batched])(x, kernel, factor), True

    return merged


def _same_data(contraction: Contraction, scaled: Callable[[Any, Any, Any], Any]) -> Callable[[Any, Any, Any], Any]:
    """`scaled` of the same data for factors (components, 1, ...) of all components."""
    all_components = jax.vmap(scaled, (None, None, 0))
    product = jax.custom_vjp(all_components)

    def forward(x: Any, kernel: Any, factors: Any) -> Any:
        return all_components(x, kernel, factors), (x, kernel, factors)

    def backward(saved: Any, gradient: Any) -> Any:
        x, kernel, factors = saved
        by_weights = jax.vmap(lambda g: jax.linear_transpose(lambda w: contraction.apply(x, w), kernel)(g)[0])(gradient)
        own = factors[:, 0]
        summed = tuple(axis for axis in range(1, own.ndim) if own.shape[axis] == 1)
        by_factors = (by_weights * kernel).sum(axis=summed, keepdims=True)[:, None]
        (by_x,) = jax.linear_transpose(lambda x: all_components(x, kernel, factors), x)(gradient)
        return by_x, (by_weights * own).sum(axis=0), by_factors

    product.defvjp(forward, backward)
    return product


def _over_components(contraction: Contraction) -> Callable[[Any, Any], Any]:
    """The contraction, with components of data merged into their axis of examples.

    As an axis of its own, XLA would transpose a copy of the data for the gradient of the shared kernel.
    """
    apply = contraction.apply
    if contraction.examples is None:
        return apply
    into, out_of = contraction.examples
    merged = jax.custom_batching.custom_vmap(apply)

    @merged.def_vmap
    def _(size: int, batched: Any, x: Any, kernel: Any) -> tuple[Any, bool]:
        if not batched[0] or batched[1]:
            return jax.vmap(apply, [0 if b else None for b in batched])(x, kernel), True
        rows = jnp.moveaxis(x, 0, into)
        out = apply(rows.reshape(*x.shape[1 : into + 1], -1, *x.shape[into + 2 :]), kernel)
        split = out.reshape(*out.shape[:out_of], size, -1, *out.shape[out_of + 1 :])
        return jnp.moveaxis(split, out_of, 0), True

    return merged


def _multiply(kernel: jax.Array, factors: tuple[jax.Array, ...]) -> jax.Array:
    """kernel * factor * factor; of the first example, if they differ: still one draw."""
    for factor in factors:
        kernel = kernel * factor[0]
    return kernel


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
