"""Random arrays: leaves that behave as one draw of themselves, and the primitives that they have a better rule for.

Quax calls the array's own methods for products, convolutions, lookups, additions and rearrangements. Any other
operation uses one draw of the array, which is always correct. A Gaussian array may assume that it is used once:
:mod:`posteriax.networks.tracing` has checked.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import jax
import jax.numpy as jnp
import quax
from jax import lax
from jax.extend.core import Primitive
from jaxtyping import ArrayLike

from posteriax.networks.tracing.uses import is_row_lookup

KEYS_PER_LEAF = 3  # all keys of a step come from one split, because each separate hash is compiled separately


@dataclass(frozen=True)
class Contraction:
    """A product or convolution of data x with an array w of the leaf's shape.

    Args:
        apply: ``apply(x, w)``, linear in both. w may have other lengths along its output axes.
        x: the data.
        inputs: for each contracted axis of w, the matching axis of x.
        outputs: for each free axis of w, its axis in the result.
        examples: the axis of examples in x and in the result; None if unknown.
        groups: of a grouped convolution: x has this many times the channels of w.
    """

    apply: Callable[[jax.Array, jax.Array], jax.Array]
    x: jax.Array
    inputs: Mapping[int, int]
    outputs: Mapping[int, int]
    examples: tuple[int, int] | None
    groups: int = 1


class RandomArray(quax.ArrayValue):
    """Behaves as one draw of a leaf. Operations that a subclass does not improve on use the draw."""

    @abstractmethod
    def materialise(self) -> jax.Array:
        """The draw, as a plain array."""

    def contract(self, contraction: Contraction) -> jax.Array:
        """The array's product with data, `contraction.apply(x, draw)` or better."""
        return contraction.apply(contraction.x, self.materialise())

    def move(self, primitive: Primitive, params: dict[str, Any]) -> "jax.Array | RandomArray":
        """The array after an operation that only rearranges its entries."""
        return primitive.bind(self.materialise(), **params)

    def broadcast(self, primitive: Primitive, params: dict[str, Any]) -> "jax.Array | RandomArray":
        return primitive.bind(self.materialise(), **params)

    def look_up(self, primitive: Primitive, indices: ArrayLike, params: dict[str, Any]) -> jax.Array:
        """Rows of the array, as an embedding takes them."""
        return primitive.bind(self.materialise(), indices, **params)

    def add_to(self, x: ArrayLike) -> jax.Array:
        return jax.numpy.add(x, self.materialise())


def _product(array: Any, x: Any, params: dict[str, Any], *, array_first: bool) -> jax.Array:
    """dot_general of data and an array, in either order."""
    contracted, batch = params["dimension_numbers"]
    array_axes, x_axes = contracted if array_first else contracted[::-1]

    def apply(x: jax.Array, w: jax.Array) -> jax.Array:
        return lax.dot_general_p.bind(w, x, **params) if array_first else lax.dot_general_p.bind(x, w, **params)

    if batch[0]:
        return apply(x, array.materialise())
    free_x = [axis for axis in range(jnp.ndim(x)) if axis not in x_axes]
    free_array = [axis for axis in range(len(array.shape)) if axis not in array_axes]
    first_x, first_array = (len(free_array), 0) if array_first else (0, len(free_x))
    axis = array.example_axis
    examples = (axis, first_x + free_x.index(axis)) if axis in free_x else None
    outputs = {axis: first_array + i for i, axis in enumerate(free_array)}
    return array.contract(Contraction(apply, x, dict(zip(array_axes, x_axes, strict=True)), outputs, examples))


@quax.register(lax.dot_general_p)
def _(lhs: ArrayLike, rhs: RandomArray, **params: Any) -> Any:
    return _product(rhs, lhs, params, array_first=False)


@quax.register(lax.dot_general_p)
def _(lhs: RandomArray, rhs: ArrayLike, **params: Any) -> Any:
    return _product(lhs, rhs, params, array_first=True)


@quax.register(lax.conv_general_dilated_p)
def _(lhs: ArrayLike, rhs: RandomArray, **params: Any) -> Any:
    numbers = params["dimension_numbers"]

    def apply(x: ArrayLike, w: ArrayLike) -> jax.Array:
        return lax.conv_general_dilated_p.bind(x, w, **params)

    if params["batch_group_count"] != 1:
        return apply(lhs, rhs.materialise())
    (examples, channels), (out, into) = numbers.lhs_spec[:2], numbers.rhs_spec[:2]
    return rhs.contract(
        Contraction(
            apply,
            cast("jax.Array", lhs),
            inputs={into: channels},
            outputs={out: numbers.out_spec[1]},
            examples=(examples, numbers.out_spec[0]),
            groups=params["feature_group_count"],
        )
    )


@quax.register(lax.gather_p)
def _(table: RandomArray, indices: ArrayLike, **params: Any) -> Any:
    if not is_row_lookup(params, table.shape):
        return lax.gather_p.bind(table.materialise(), indices, **params)
    return table.look_up(lax.gather_p, indices, params)


@quax.register(lax.add_p)
def _(x: ArrayLike, y: RandomArray) -> Any:
    return y.add_to(x)


@quax.register(lax.add_p)
def _(x: RandomArray, y: ArrayLike) -> Any:
    return x.add_to(y)


def _register_movement(primitive: Primitive) -> None:
    @quax.register(primitive)
    def _(x: RandomArray, **params: Any) -> Any:
        return x.move(primitive, params)


for _primitive in (lax.transpose_p, lax.reshape_p, lax.squeeze_p, lax.convert_element_type_p, lax.copy_p):
    _register_movement(_primitive)


@quax.register(lax.broadcast_in_dim_p)
def _(x: RandomArray, **params: Any) -> Any:
    return x.broadcast(lax.broadcast_in_dim_p, params)
