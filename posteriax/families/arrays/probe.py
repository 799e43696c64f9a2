"""A leaf whose product with data can be perturbed: for derivatives with respect to the pre-activations of a layer."""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.core
from jax import lax

from posteriax.families.arrays.random_array import Contraction, RandomArray


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
