"""A leaf whose product with data can be perturbed: for derivatives with respect to the pre-activations of a layer.

Where a leaf meets data: the one product of a layer, its inputs as a matrix, and pushes on its pre-activations.
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

from posteriax.families.arrays.random_array import Contraction, RandomArray
from posteriax.networks.tracing.uses import Use


class ProbeArray(RandomArray):
    """A plain leaf that adds `push` to its product with data, and reports that product.

    Args:
        value: the leaf.
        push: in the shape of the product, or None.
        places: the position of each entry in the raveled leaf, since the leaf may be transposed before it is used.
        tell: called with the contraction and this array.
        example_axis: the axis of examples in the array it will be multiplied with.
    """

    value: jax.Array
    push: jax.Array | None
    places: jax.Array
    tell: Callable[[Contraction, "ProbeArray"], None] = eqx.field(static=True)
    example_axis: int | None = eqx.field(static=True)

    def aval(self) -> jax.core.ShapedArray:
        return jax.core.ShapedArray(self.value.shape, self.value.dtype)

    def materialise(self) -> jax.Array:
        return self.value

    def contract(self, contraction: Contraction) -> Any:
        self.tell(contraction, self)
        out = contraction.apply(contraction.x, self.value)
        return out if self.push is None else out + self.push

    def move(self, primitive: Any, params: dict[str, Any]) -> Any:
        places = self.places if primitive is lax.convert_element_type_p else primitive.bind(self.places, **params)
        return dataclasses.replace(self, value=primitive.bind(self.value, **params), places=places)


Perturbations = Mapping[int, Any]  # by the index of the leaf: what to add to its product, or None


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
        own = self.contraction
        return own.groups == 1 and len(own.outputs) == 1 and own.examples is not None

    def by_position(self, out: jax.Array) -> jax.Array:
        """The product, or an array of its shape, as (examples, positions, channels)."""
        own = (self.contraction.examples[1], self.contraction.outputs[self.axis])  # type: ignore[index]
        moved = jnp.moveaxis(out, own, (0, -1))
        return moved.reshape(moved.shape[0], -1, moved.shape[-1])

    def as_product(self, values: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        """The inverse of `by_position`."""
        own = (self.contraction.examples[1], self.contraction.outputs[self.axis])  # type: ignore[index]
        between = [length for axis, length in enumerate(shape) if axis not in own]
        return jnp.moveaxis(values.reshape(shape[own[0]], *between, shape[own[1]]), (0, -1), own)

    def patches(self) -> jax.Array:
        """a_npk: the inputs of the layer, (examples, positions, inputs).

        Computed as the layer's own product with an identity kernel, one channel for each input.
        """
        shape = list(self.array.value.shape)
        shape.pop(self.axis)
        inputs = math.prod(shape)
        each = jnp.moveaxis(jnp.eye(inputs, dtype=self.array.value.dtype).reshape(*shape, inputs), -1, self.axis)
        return self.by_position(self.contraction.apply(self.contraction.x, each))

    def places(self) -> jax.Array:
        """The position in the raveled leaf of the weight from each input to each channel, (inputs, channels)."""
        return jnp.moveaxis(self.array.places, self.axis, -1).reshape(-1, self.channels)


def apply_with_perturbations(
    apply: Callable[[Any, Any], Any], params: Any, x: Any, uses: Mapping[int, Use], pushes: Perturbations
) -> tuple[Any, dict[int, LayerProduct]]:
    """The network's outputs with something added to the products of some leaves, and where these meet data.

    Args:
        apply: the network.
        params: its params.
        x: a batch of inputs.
        uses: the leaves to follow, by index, and how the network uses each.
        pushes: what to add to their products; None, or no entry, adds nothing.
    """
    leaves, treedef = jax.tree.flatten(params)
    met: dict[int, LayerProduct] = {}
    for index, use in uses.items():
        leaf = leaves[index]

        def tell(contraction: Contraction, array: ProbeArray, index: int = index) -> None:
            if index in met:
                raise ValueError("a leaf met data twice")
            met[index] = LayerProduct(contraction, array)

        places = jnp.arange(leaf.size).reshape(leaf.shape)
        leaves[index] = ProbeArray(leaf, pushes.get(index), places, tell, use.example_axis)
    outputs = quax.quaxify(apply)(jax.tree.unflatten(treedef, leaves), x)
    return outputs, met
