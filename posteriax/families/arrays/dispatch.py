"""Dispatch rules: the primitives for which Quax calls a random array's own methods.

Any other operation uses one draw of the array, which is always correct. A Gaussian array may assume that it is used
once: :mod:`posteriax.families.arrays.uses` has checked.
"""

from typing import Any

import jax.numpy as jnp
import quax
from jax import lax
from jaxtyping import ArrayLike

from posteriax.families.arrays.random_array import Contraction, RandomArray
from posteriax.families.arrays.uses import is_row_lookup


def _product(array: Any, x: Any, params: dict[str, Any], *, array_first: bool) -> Any:
    """dot_general of data and an array, in either order."""
    contracted, batch = params["dimension_numbers"]
    of_array, of_x = contracted if array_first else contracted[::-1]

    def apply(x: Any, w: Any) -> Any:
        return lax.dot_general_p.bind(w, x, **params) if array_first else lax.dot_general_p.bind(x, w, **params)

    if batch[0]:
        return apply(x, array.materialise())
    free_x = [axis for axis in range(jnp.ndim(x)) if axis not in of_x]
    free_array = [axis for axis in range(len(array.shape)) if axis not in of_array]
    first_x, first_array = (len(free_array), 0) if array_first else (0, len(free_x))
    axis = array.example_axis
    examples = (axis, first_x + free_x.index(axis)) if axis in free_x else None
    outputs = {own: first_array + i for i, own in enumerate(free_array)}
    return array.contract(Contraction(apply, x, dict(zip(of_array, of_x, strict=True)), outputs, examples))


@quax.register(lax.dot_general_p)
def _(lhs: ArrayLike, rhs: RandomArray, **params: Any) -> Any:
    return _product(rhs, lhs, params, array_first=False)


@quax.register(lax.dot_general_p)
def _(lhs: RandomArray, rhs: ArrayLike, **params: Any) -> Any:
    return _product(lhs, rhs, params, array_first=True)


@quax.register(lax.conv_general_dilated_p)
def _(lhs: ArrayLike, rhs: RandomArray, **params: Any) -> Any:
    numbers = params["dimension_numbers"]

    def apply(x: Any, w: Any) -> Any:
        return lax.conv_general_dilated_p.bind(x, w, **params)

    if params["batch_group_count"] != 1:
        return apply(lhs, rhs.materialise())
    (examples, channels), (out, into) = numbers.lhs_spec[:2], numbers.rhs_spec[:2]
    return rhs.contract(
        Contraction(
            apply,
            lhs,
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


def _register_movement(primitive: Any) -> None:
    @quax.register(primitive)
    def _(x: RandomArray, **params: Any) -> Any:
        return x.move(primitive, params)


for _primitive in (lax.transpose_p, lax.reshape_p, lax.squeeze_p, lax.convert_element_type_p, lax.copy_p):
    _register_movement(_primitive)


@quax.register(lax.broadcast_in_dim_p)
def _(x: RandomArray, **params: Any) -> Any:
    return x.broadcast(lax.broadcast_in_dim_p, params)
