"""A shared matrix with factors on its inputs and outputs, as an array type."""

import dataclasses
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
        factors: each (examples, length of one of the kernel's axes), or (1, length) if all examples share it.
        axes: the kernel's axis that each of them scales.
        example_axis: the axis of examples in the array that this one will meet.
        of_component: whether the factors are those of one component, of several that are vmapped over.
        additive: the factors are added to inputs and outputs instead; then there is no such array, only its products.
    """

    kernel: jax.Array
    factors: tuple[jax.Array, ...]
    axes: tuple[int, ...] = eqx.field(static=True)
    example_axis: int | None = eqx.field(static=True)
    of_component: bool = eqx.field(static=True, default=False)
    additive: bool = eqx.field(static=True, default=False)

    def aval(self) -> jax.core.ShapedArray:
        return jax.core.ShapedArray(self.kernel.shape, self.kernel.dtype)

    def materialise(self) -> jax.Array:
        if self.additive:
            raise TypeError("a leaf with additive factors can only be multiplied with data")
        return self._multiply(self.axes)

    def _multiply(self, axes: Any) -> jax.Array:
        """The kernel with its factors along some axes: those of the first example, if they differ; still one draw."""
        kernel = self.kernel
        for factor, axis in zip(self.factors, self.axes, strict=True):
            if axis in axes:
                kernel = kernel * along(axis, factor[0], kernel.ndim)
        return kernel

    def contract(self, contraction: Contraction) -> Any:
        examples = (None, None) if contraction.examples is None else contraction.examples
        before, after, others = [], [], []
        for factor, axis in zip(self.factors, self.axes, strict=True):
            known = factor.shape[0] == 1 or contraction.examples is not None
            if known and axis in contraction.inputs:
                before.append((factor, contraction.inputs[axis], axis))
            elif known and axis in contraction.outputs:
                after.append((factor, contraction.outputs[axis]))
            else:
                others.append(axis)
        if others and self.additive:
            raise TypeError("additive factors need a product over the leaf's input axis")
        kernel, x = self._multiply(others), contraction.x
        # what is merged over components cannot be differentiated without any: their factors must be on the data
        merges = self.of_component and before
        if merges and len(before) == 1 and not self.additive and before[0][0].shape[0] == 1:
            factor, axis, own_axis = before[0]
            out = _scaled_product(contraction, own_axis, axis)(x, kernel, factor)
        else:
            for factor, axis, _ in before:
                x = self._combine(x, _beside(factor, axis, examples[0], jnp.ndim(x), contraction.groups))
            out = (_over_components(contraction) if merges else contraction.apply)(x, kernel)
        for factor, axis in after:
            out = self._combine(out, _beside(factor, axis, examples[1], out.ndim, 1))
        return out

    def _combine(self, data: Any, factor: jax.Array) -> Any:
        return data + factor if self.additive else data * factor

    def move(self, primitive: Any, params: dict[str, Any]) -> Any:
        if primitive is lax.transpose_p:
            order = tuple(params["permutation"])
            axes = tuple(order.index(axis) for axis in self.axes)
            return dataclasses.replace(self, kernel=self.kernel.transpose(order), axes=axes)
        if primitive is lax.convert_element_type_p:
            dtype = params["new_dtype"]
            factors = tuple(factor.astype(dtype) for factor in self.factors)
            return dataclasses.replace(self, kernel=self.kernel.astype(dtype), factors=factors)
        return super().move(primitive, params)


def along(axis: int, vector: jax.Array, rank: int) -> jax.Array:
    """A vector as an array of a rank, along one of its axes.

    >>> along(0, jnp.ones(3), rank=2).shape
    (3, 1)
    """
    shape = [1] * rank
    shape[axis] = -1
    return vector.reshape(shape)


def _beside(factor: jax.Array, axis: int, example: int | None, rank: int, groups: int) -> jax.Array:
    """A factor (examples, length) as it broadcasts against data: along `axis`, and examples along `example`."""
    factor = jnp.tile(factor, (1, groups))  # each group of a convolution has the same factors
    if factor.shape[0] == 1:
        return along(axis, factor[0], rank)
    assert example is not None
    shape = [1] * rank
    shape[example], shape[axis] = factor.shape
    return (factor if example < axis else factor.T).reshape(shape)


def _scaled_product(contraction: Contraction, own_axis: int, axis: int) -> Callable[[Any, Any, Any], Any]:
    """The contraction with a factor on the data, shared by the examples of a component.

    Where all components see the same data, as a network's first layer does, the factors' gradient comes by way of the
    weights. By way of the data it would take one more product, for a gradient by the data that nothing else asks for.
    """

    def scaled(x: Any, kernel: Any, factor: Any) -> Any:
        return _over_components(contraction)(x * _beside(factor, axis, None, jnp.ndim(x), contraction.groups), kernel)

    merged = jax.custom_batching.custom_vmap(scaled)

    @merged.def_vmap
    def _(size: int, batched: Any, x: Any, kernel: Any, factor: Any) -> tuple[Any, bool]:
        if batched == [False, False, True] and contraction.groups == 1:
            return _same_data(contraction, own_axis, scaled)(x, kernel, factor), True
        return jax.vmap(scaled, [0 if b else None for b in batched])(x, kernel, factor), True

    return merged


def _same_data(
    contraction: Contraction, own_axis: int, scaled: Callable[[Any, Any, Any], Any]
) -> Callable[[Any, Any, Any], Any]:
    """`scaled` of the same data, for factors (components, 1, length) of all components."""
    all_components = jax.vmap(scaled, (None, None, 0))
    product = jax.custom_vjp(all_components)

    def forward(x: Any, kernel: Any, factors: Any) -> Any:
        return all_components(x, kernel, factors), (x, kernel, factors)

    def backward(saved: Any, gradient: Any) -> Any:
        x, kernel, factors = saved
        by_weights = jax.vmap(lambda g: jax.linear_transpose(lambda w: contraction.apply(x, w), kernel)(g)[0])(gradient)
        others = tuple(1 + axis for axis in range(kernel.ndim) if axis != own_axis)
        by_factors = (by_weights * kernel).sum(axis=others)[:, None]
        on_kernel = jax.vmap(lambda factor: along(own_axis, factor, kernel.ndim))(factors[:, 0])
        (by_x,) = jax.linear_transpose(lambda x: all_components(x, kernel, factors), x)(gradient)
        return by_x, (by_weights * on_kernel).sum(axis=0), by_factors

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
