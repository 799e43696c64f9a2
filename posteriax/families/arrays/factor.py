"""A shared matrix with factors on its inputs and outputs, as an array type."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import Primitive

from posteriax.distributed.meshes import is_divided
from posteriax.families.arrays.random_array import Contraction, RandomArray

ScaledProduct = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]  # of data, kernel and factors


class FactorArray(RandomArray):
    """kernel * factor * factor, never formed: data are scaled before and after the product with the kernel.

    The factors are already drawn, so unlike other random arrays it may be used any number of times.

    Args:
        kernel: the shared array.
        factors: each (examples, product of the lengths of its axes), or (1, ...) if all examples share it.
        axes: the axes of the kernel that each factor scales.
        example_axis: the axis of examples in the array it will be multiplied with.
        of_component: whether the factors belong to one of several components that are vmapped over.
        additive: add the factors to inputs and outputs instead; then only products with data are defined.
    """

    kernel: jax.Array
    factors: tuple[jax.Array, ...]
    axes: tuple[tuple[int, ...], ...] = eqx.field(static=True)
    example_axis: int | None = eqx.field(static=True)
    of_component: bool = eqx.field(static=True, default=False)
    additive: bool = eqx.field(static=True, default=False)

    def aval(self) -> jax.core.ShapedArray:
        return jax.core.ShapedArray(self.kernel.shape, self.kernel.dtype)

    def materialise(self) -> jax.Array:
        if self.additive:
            raise TypeError("a leaf with additive factors can only be multiplied with data")
        return self._multiply(self.axes)

    def _multiply(self, chosen: Sequence[tuple[int, ...]]) -> jax.Array:
        """The kernel with its factors along some axes; if they differ by example, those of the first."""
        kernel = self.kernel
        for factor, axes in zip(self.factors, self.axes, strict=True):
            if axes in chosen:
                kernel = kernel * along(axes, factor[0], kernel.shape)
        return kernel

    def contract(self, contraction: Contraction) -> jax.Array:
        examples = (None, None) if contraction.examples is None else contraction.examples
        before, after, others = [], [], []
        for factor, axes in zip(self.factors, self.axes, strict=True):
            known = factor.shape[0] == 1 or contraction.examples is not None
            if known and all(axis in contraction.inputs for axis in axes):
                before.append((factor, tuple(contraction.inputs[axis] for axis in axes), axes))
            elif known and all(axis in contraction.outputs for axis in axes):
                after.append((factor, tuple(contraction.outputs[axis] for axis in axes)))
            else:
                others.append(axes)
        if others and self.additive:
            raise TypeError("additive factors need a product over the leaf's input axis")
        kernel, x = self._multiply(others), contraction.x
        # merging over components needs factors on the data
        merges = self.of_component and before
        if merges and len(before) == 1 and not self.additive and before[0][0].shape[0] == 1:
            factor, data_axes, kernel_axes = before[0]
            out = _scaled_product(contraction, kernel_axes, data_axes)(x, kernel, factor)
        else:
            for factor, data_axes, _ in before:
                x = self._combine(x, _beside(factor, data_axes, examples[0], jnp.shape(x), contraction.groups))
            out = (_over_components(contraction) if merges else contraction.apply)(x, kernel)
        for factor, output_axes in after:
            out = self._combine(out, _beside(factor, output_axes, examples[1], out.shape, 1))
        return out

    def _combine(self, data: jax.Array, factor: jax.Array) -> jax.Array:
        return data + factor if self.additive else data * factor

    def move(self, primitive: Primitive, params: dict[str, Any]) -> jax.Array | RandomArray:
        if primitive is lax.transpose_p:
            order = tuple(params["permutation"])
            axes = tuple(tuple(order.index(axis) for axis in scaled) for scaled in self.axes)
            return dataclasses.replace(self, kernel=self.kernel.transpose(order), axes=axes)
        if primitive is lax.convert_element_type_p:
            dtype = params["new_dtype"]
            factors = tuple(factor.astype(dtype) for factor in self.factors)
            return dataclasses.replace(self, kernel=self.kernel.astype(dtype), factors=factors)
        return super().move(primitive, params)


def along(axes: tuple[int, ...], vector: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Reshape a vector over some axes of an array, raveled in their order, so that it broadcasts against the array.

    >>> along((0,), jnp.ones(3), (3, 2)).shape
    (3, 1)
    >>> along((0, 2), jnp.ones(12), (3, 2, 4)).shape
    (3, 1, 4)
    """
    if len(axes) == 1:
        return vector.reshape([-1 if axis in axes else 1 for axis in range(len(shape))])
    parts = vector.reshape([shape[axis] for axis in axes]).transpose(np.argsort(axes))
    return parts.reshape([n if axis in axes else 1 for axis, n in enumerate(shape)])


def _beside(
    factor: jax.Array, axes: tuple[int, ...], example: int | None, shape: tuple[int, ...], groups: int
) -> jax.Array:
    """Reshape a factor (examples, length) to broadcast against data: along `axes`, and `example` for examples."""
    factor = jnp.tile(factor, (1, groups))  # each group of a convolution has the same factors
    if factor.shape[0] == 1:
        return along(axes, factor[0], shape)
    assert example is not None
    examples_here = [factor.shape[0] if axis == example else n for axis, n in enumerate(shape)]
    return along((example, *axes), factor.reshape(-1), tuple(examples_here))


def _scaled_product(
    contraction: Contraction, kernel_axes: tuple[int, ...], data_axes: tuple[int, ...]
) -> ScaledProduct:
    """The contraction with a factor on the data that is shared by the examples of a component.

    If all components see the same data, as in the first layer, the gradient of the factors is computed through the
    weights; going through the data would take one more product, for a gradient that is not needed otherwise.
    """

    def scaled(x: jax.Array, kernel: jax.Array, factor: jax.Array) -> jax.Array:
        return _over_components(contraction)(
            x * _beside(factor, data_axes, None, jnp.shape(x), contraction.groups), kernel
        )

    merged = jax.custom_batching.custom_vmap(scaled)

    @merged.def_vmap
    def _(size: int, batched: list[bool], x: jax.Array, kernel: jax.Array, factor: jax.Array) -> tuple[jax.Array, bool]:
        if batched == [False, False, True] and contraction.groups == 1:
            return _same_data(contraction, kernel_axes, scaled)(x, kernel, factor), True
        return jax.vmap(scaled, [0 if b else None for b in batched])(x, kernel, factor), True

    return merged


def _same_data(contraction: Contraction, kernel_axes: tuple[int, ...], scaled: ScaledProduct) -> ScaledProduct:
    """`scaled` for the factors (components, 1, length) of all components and the same data."""
    all_components = jax.vmap(scaled, (None, None, 0))
    product = jax.custom_vjp(all_components)

    def forward(x: jax.Array, kernel: jax.Array, factors: jax.Array) -> tuple[jax.Array, tuple[jax.Array, ...]]:
        return all_components(x, kernel, factors), (x, kernel, factors)

    def backward(saved: tuple[jax.Array, ...], gradient: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        x, kernel, factors = saved
        by_weights = jax.vmap(lambda g: jax.linear_transpose(lambda w: contraction.apply(x, w), kernel)(g)[0])(gradient)
        others = tuple(1 + axis for axis in range(kernel.ndim) if axis not in kernel_axes)
        summed = (by_weights * kernel).sum(axis=others)  # the factor's axes, in the kernel's order
        by_factors = summed.transpose(0, *(1 + sorted(kernel_axes).index(axis) for axis in kernel_axes)).reshape(
            factors.shape
        )
        on_kernel = jax.vmap(lambda factor: along(kernel_axes, factor, kernel.shape))(factors[:, 0])
        (by_x,) = jax.linear_transpose(lambda x: all_components(x, kernel, factors), x)(gradient)
        return by_x, (by_weights * on_kernel).sum(axis=0), by_factors

    product.defvjp(forward, backward)
    return product


def _over_components(contraction: Contraction) -> Callable[[jax.Array, jax.Array], jax.Array]:
    """The contraction, with the components merged into the axis of examples.

    With a separate axis, XLA would transpose a copy of the data for the gradient of the shared kernel. Where the
    compiler splits the examples over devices, they come first in the merged axis, which can then be split as they are.
    """
    apply = contraction.apply
    if contraction.examples is None:
        return apply
    into, out_of = contraction.examples
    merged = jax.custom_batching.custom_vmap(apply)

    @merged.def_vmap
    def _(size: int, batched: list[bool], x: jax.Array, kernel: jax.Array) -> tuple[jax.Array, bool]:
        if not batched[0] or batched[1]:
            return jax.vmap(apply, [0 if b else None for b in batched])(x, kernel), True
        after = int(is_divided())
        rows = jnp.moveaxis(x, 0, into + after)
        out = apply(rows.reshape(*x.shape[1 : into + 1], -1, *x.shape[into + 2 :]), kernel)
        sizes = (-1, size) if after else (size, -1)
        split = out.reshape(*out.shape[:out_of], *sizes, *out.shape[out_of + 1 :])
        return jnp.moveaxis(split, out_of + after, 0), True

    return merged
