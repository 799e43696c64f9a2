"""What a program does with a Gaussian array: the rules that Quax dispatches to.

Only what lowers the noise or only moves entries about has a rule; any other operation takes one draw of the array,
which is always right. A rule may assume that the array is used once: :mod:`posteriax.arrays.uses` saw to it.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import quax
from jax import lax
from jaxtyping import ArrayLike

from posteriax.arrays.gaussian import GaussianArray
from posteriax.arrays.noise import standard_normal
from posteriax.arrays.uses import is_row_lookup


def signs(key: jax.Array, shape: Sequence[int], dtype: Any) -> jax.Array:
    """Random +1 and -1, thirty-two from each random word."""
    count = math.prod(shape)
    words = jax.random.bits(key, (-(-count // 32), 1), jnp.uint32)
    bits = (words >> jnp.arange(32, dtype=jnp.uint32)) & 1
    return (1 - 2 * bits.reshape(-1)[:count].astype(dtype)).reshape(shape)


# --- products and convolutions: the same three estimators around one bilinear contraction ---


def _contract(
    array: GaussianArray,
    x: Any,
    contract: Callable[[Any, Any], Any],
    sign_axes: Callable[[tuple[int, ...]], tuple[list[int], list[int]]],
) -> Any:
    """`contract(x, array)` with the array's estimator.

    `sign_axes(out_shape)` gives the shapes of flipout's two sets of signs, which broadcast against x and the output.
    """
    if array.is_broadcast:
        return contract(x, array.materialise())
    mean = contract(x, array.mean)
    if array.estimator == "local":
        variance = contract(jnp.square(x), jnp.square(array.scale))
        # the square root's slope is infinite at 0, where an example is all zeros
        scale = jnp.where(variance > 0, jnp.sqrt(jnp.where(variance > 0, variance, 1)), 0)
        return mean + scale * standard_normal(array.key, mean.shape, mean.dtype, unless_nan=mean)
    key_noise, key_in, key_out = jax.random.split(array.key, 3)
    noise = dataclasses.replace(array, key=key_noise).noise()
    in_shape, out_shape = sign_axes(mean.shape)
    perturbation = contract(x * signs(key_in, in_shape, mean.dtype), noise)
    return mean + perturbation * signs(key_out, out_shape, mean.dtype)


@quax.register(lax.dot_general_p)
def _(lhs: ArrayLike, rhs: GaussianArray, **params: Any) -> Any:
    (contracted, _), _ = params["dimension_numbers"]

    def sign_axes(out: tuple[int, ...]) -> tuple[list[int], list[int]]:
        shape, axis = jnp.shape(lhs), rhs.example_axis
        free = [a for a in range(len(shape)) if a not in contracted]
        in_shape = [n if a == axis or a in contracted else 1 for a, n in enumerate(shape)]
        return in_shape, [n if i >= len(free) or free[i] == axis else 1 for i, n in enumerate(out)]

    return _contract(rhs, lhs, lambda x, w: lax.dot_general_p.bind(x, w, **params), sign_axes)


@quax.register(lax.dot_general_p)
def _(lhs: GaussianArray, rhs: ArrayLike, **params: Any) -> Any:
    (_, contracted), _ = params["dimension_numbers"]

    def sign_axes(out: tuple[int, ...]) -> tuple[list[int], list[int]]:
        shape, axis = jnp.shape(rhs), lhs.example_axis
        free = [a for a in range(len(shape)) if a not in contracted]
        own = len(out) - len(free)  # the array's own axes come first in the output
        in_shape = [n if a == axis or a in contracted else 1 for a, n in enumerate(shape)]
        return in_shape, [n if i < own or free[i - own] == axis else 1 for i, n in enumerate(out)]

    return _contract(lhs, rhs, lambda x, w: lax.dot_general_p.bind(w, x, **params), sign_axes)


@quax.register(lax.conv_general_dilated_p)
def _(lhs: ArrayLike, rhs: GaussianArray, **params: Any) -> Any:
    numbers = params["dimension_numbers"]

    def sign_axes(out: tuple[int, ...]) -> tuple[list[int], list[int]]:
        keep_in, keep_out = numbers.lhs_spec[:2], numbers.out_spec[:2]  # examples and channels; constant over space
        in_shape = [n if a in keep_in else 1 for a, n in enumerate(jnp.shape(lhs))]
        return in_shape, [n if a in keep_out else 1 for a, n in enumerate(out)]

    return _contract(rhs, lhs, lambda x, w: lax.conv_general_dilated_p.bind(x, w, **params), sign_axes)


# --- embeddings ---


@quax.register(lax.gather_p)
def _(table: GaussianArray, indices: ArrayLike, **params: Any) -> Any:
    if table.is_broadcast or not is_row_lookup(params, table.shape):
        return lax.gather_p.bind(table.materialise(), indices, **params)
    mean = lax.gather_p.bind(table.mean, indices, **params)
    row_axes = params["dimension_numbers"].offset_dims  # where a looked-up row lies in the output
    kept = [a for a in range(mean.ndim) if a not in row_axes]  # the output's axes that come from the indices'
    axis = kept[table.example_axis]  # type: ignore[index]
    if table.estimator == "flipout":
        key_noise, key_signs = jax.random.split(table.key)
        noise = lax.gather_p.bind(dataclasses.replace(table, key=key_noise).noise(), indices, **params)
        shape = [n if a in (axis, row_axes[-1]) else 1 for a, n in enumerate(mean.shape)]
        return mean + noise * signs(key_signs, shape, mean.dtype)
    # a row's noise comes from (example, row): the same token twice in one example is the same draw, and rows that
    # nobody looks up are never drawn
    scale = lax.gather_p.bind(table.scale, indices, **params)
    rows = jnp.clip(jnp.asarray(indices)[..., 0], 0, table.shape[0] - 1)
    examples = lax.broadcasted_iota(jnp.int32, rows.shape, table.example_axis or 0)

    def draw(example: jax.Array, row: jax.Array) -> jax.Array:
        key = jax.random.fold_in(jax.random.fold_in(table.key, example), row)
        return jax.random.normal(key, (table.shape[1],), mean.dtype)

    noise = jax.vmap(draw)(examples.reshape(-1), rows.reshape(-1))
    noise = noise.reshape(*rows.shape, *[1] * (len(row_axes) - 1), table.shape[1])
    return mean + scale * jnp.moveaxis(noise, range(-len(row_axes), 0), row_axes)


# --- additions: biases ---


def _add(x: Any, array: GaussianArray) -> Any:
    axis = array.example_axis
    if axis is None or array.mean.ndim == 0 or array.mean.shape[axis] != 1:
        return jnp.add(x, array.materialise())
    shape = list(array.mean.shape)
    shape[axis] = jnp.shape(x)[axis]  # the draws differ between examples, and nowhere else
    if array.estimator == "local":
        noise = array.scale * standard_normal(array.key, shape, array.mean.dtype, unless_nan=array.mean)
    else:
        key_noise, key_signs = jax.random.split(array.key)
        noise = dataclasses.replace(array, key=key_noise).noise() * signs(key_signs, shape, array.mean.dtype)
    return jnp.add(x, array.mean + noise)


@quax.register(lax.add_p)
def _(x: ArrayLike, y: GaussianArray) -> Any:
    return _add(x, y)


@quax.register(lax.add_p)
def _(x: GaussianArray, y: ArrayLike) -> Any:
    return _add(y, x)


# --- moving entries about: the entries are independent, so any rearrangement is again a Gaussian array ---


def _rearrange(array: GaussianArray, move: Callable[[Any], Any]) -> Any:
    if array.is_broadcast:
        return move(array.materialise())
    mean, scale = move(array.mean), move(array.scale)
    return dataclasses.replace(array, mean=mean, scale=scale, broadcast_shape=mean.shape)


def _register_rearrangement(primitive: Any) -> None:
    @quax.register(primitive)
    def _(x: GaussianArray, **params: Any) -> Any:
        return _rearrange(x, lambda a: primitive.bind(a, **params))


for _primitive in (lax.transpose_p, lax.reshape_p, lax.squeeze_p, lax.convert_element_type_p, lax.copy_p):
    _register_rearrangement(_primitive)


@quax.register(lax.broadcast_in_dim_p)
def _(x: GaussianArray, **params: Any) -> Any:
    if x.is_broadcast:
        return lax.broadcast_in_dim_p.bind(x.materialise(), **params)
    compact = [1] * len(params["shape"])
    for own, axis in enumerate(params["broadcast_dimensions"]):
        compact[axis] = x.shape[own]
    return dataclasses.replace(
        x, mean=x.mean.reshape(compact), scale=x.scale.reshape(compact), broadcast_shape=tuple(params["shape"])
    )
