"""The product of a layer's weights with its inputs, recorded, and perturbed to differentiate by pre-activations.

A leaf is replaced by a probe, which behaves as the leaf, records the product in which the network contracts it with
data, and adds a perturbation to that product.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.core
import jax.numpy as jnp
import quax
from jax import lax
from jax.extend.core import Primitive
from jaxtyping import PyTree

from posteriax._internal.leaf_paths import leaf_paths
from posteriax.families.arrays.random_array import Contraction, RandomArray
from posteriax.networks.network import Params
from posteriax.networks.tracing.uses import Use

Perturbations = Mapping[int, jax.Array | None]  # by the index of the leaf: what to add to its product


class ProbeArray(RandomArray):
    """A plain leaf that adds a perturbation to its product with data, and reports that product.

    Args:
        value: the leaf.
        perturbation: in the shape of the product, or None.
        entries: the index of each entry in the raveled leaf, since the leaf may be transposed before it is used.
        on_contract: called with the contraction and this array.
        example_axis: the axis of examples in the array it will be multiplied with.
    """

    value: jax.Array
    perturbation: jax.Array | None
    entries: jax.Array
    on_contract: Callable[[Contraction, "ProbeArray"], None] = eqx.field(static=True)
    example_axis: int | None = eqx.field(static=True)

    def aval(self) -> jax.core.ShapedArray:
        return jax.core.ShapedArray(self.value.shape, self.value.dtype)

    def materialise(self) -> jax.Array:
        return self.value

    def contract(self, contraction: Contraction) -> jax.Array:
        self.on_contract(contraction, self)
        out = contraction.apply(contraction.x, self.value)
        return out if self.perturbation is None else out + self.perturbation

    def move(self, primitive: Primitive, params: dict[str, Any]) -> "ProbeArray":
        entries = self.entries if primitive is lax.convert_element_type_p else primitive.bind(self.entries, **params)
        return dataclasses.replace(self, value=primitive.bind(self.value, **params), entries=entries)


class LayerProduct(NamedTuple):
    """The product of a leaf with data, and the leaf in the layout that the product uses."""

    contraction: Contraction
    array: ProbeArray

    @property
    def axis(self) -> int:
        """The array's channel axis."""
        return next(iter(self.contraction.outputs))

    @property
    def channels(self) -> int:
        return self.array.value.shape[self.axis]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the product."""
        return jax.eval_shape(self.contraction.apply, self.contraction.x, self.array.value).shape

    @property
    def is_layer(self) -> bool:
        """Whether each input contributes to every output of its example, and to no other."""
        product = self.contraction
        return product.groups == 1 and len(product.outputs) == 1 and product.examples is not None

    def by_position(self, out: jax.Array) -> jax.Array:
        """The product, or an array of its shape, as (examples, positions, channels)."""
        moved = jnp.moveaxis(out, self._example_and_channel_axes, (0, -1))
        return moved.reshape(moved.shape[0], -1, moved.shape[-1])

    def as_product(self, values: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        """The inverse of `by_position`."""
        axes = self._example_and_channel_axes
        between = [length for axis, length in enumerate(shape) if axis not in axes]
        return jnp.moveaxis(values.reshape(shape[axes[0]], *between, shape[axes[1]]), (0, -1), axes)

    @property
    def _example_and_channel_axes(self) -> tuple[int, int]:
        """Of the product."""
        return self.contraction.examples[1], self.contraction.outputs[self.axis]  # type: ignore[index]

    def patches(self) -> jax.Array:
        """a_npk: the inputs of the layer, (examples, positions, inputs).

        Computed as the layer's own product with an identity kernel, one channel for each input.
        """
        shape = list(self.array.value.shape)
        shape.pop(self.axis)
        inputs = math.prod(shape)
        identity = jnp.moveaxis(jnp.eye(inputs, dtype=self.array.value.dtype).reshape(*shape, inputs), -1, self.axis)
        return self.by_position(self.contraction.apply(self.contraction.x, identity))

    def entries(self) -> jax.Array:
        """The index in the raveled leaf of the weight from each input to each channel, (inputs, channels)."""
        return jnp.moveaxis(self.array.entries, self.axis, -1).reshape(-1, self.channels)


def apply_with_perturbations(
    apply: Callable[[Params, PyTree], PyTree],
    params: Params,
    x: PyTree,
    uses: Mapping[int, Use],
    perturbations: Perturbations,
) -> tuple[PyTree, dict[int, LayerProduct]]:
    """The network's outputs with perturbed products of some leaves with data, and these products.

    Args:
        apply: the network.
        params: its params.
        x: a batch of inputs.
        uses: the leaves to follow, by index, and how the network uses each.
        perturbations: what to add to their products; None, or no entry, adds nothing.
    """
    leaves, treedef = jax.tree.flatten(params)
    products: dict[int, LayerProduct] = {}
    for index, use in uses.items():
        leaf = leaves[index]

        def on_contract(contraction: Contraction, array: ProbeArray, index: int = index) -> None:
            if index in products:
                raise ValueError(f"leaf {leaf_paths(params)[index]} is contracted with data more than once")
            products[index] = LayerProduct(contraction, array)

        entries = jnp.arange(leaf.size).reshape(leaf.shape)
        leaves[index] = ProbeArray(leaf, perturbations.get(index), entries, on_contract, use.example_axis)
    outputs = quax.quaxify(apply)(jax.tree.unflatten(treedef, leaves), x)
    return outputs, products
