"""Gaussian noise that is computed once, and random signs."""

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from posteriax._internal.cpu_tuning import computed_once, is_large, random_bits
from posteriax._internal.layouts import whole_everywhere


def standard_normal(key: jax.Array, shape: Sequence[int], dtype: DTypeLike, unless_nan: jax.Array) -> jax.Array:
    """N(0, 1) draws of a shape, computed once.

    Lower precisions are rounded from single: their own uniform numbers are too few to have the tails of a normal.

    >>> standard_normal(jax.random.key(0), (2, 3), jnp.float32, unless_nan=jnp.zeros(())).shape
    (2, 3)
    """

    def make() -> jax.Array:
        wide = jnp.promote_types(dtype, jnp.float32)
        if wide == jnp.float32 and is_large(key, shape):
            return _normal_of(random_bits(key, shape), dtype)
        return jax.random.normal(key, shape, wide).astype(dtype)

    return computed_once(make, key, unless_nan)


def signs(key: jax.Array, shape: Sequence[int], dtype: DTypeLike) -> jax.Array:
    """Random +1 and -1, thirty-two from each random word."""
    return _signs_of(jax.random.bits(key, (_words_for(shape),), jnp.uint32), shape, dtype)


def normal_and_signs(
    key: jax.Array, shape: Sequence[int], sign_shape: Sequence[int], dtype: DTypeLike, unless_nan: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """`standard_normal` and `signs` from one call of the generator, which is slow to compile.

    The noise has the resolution of single precision whatever its dtype. Where the compiler splits a batch over devices,
    each of them draws all words: the signs, of which it needs a part, would otherwise have the noise split as well, and
    then the parameters that it is multiplied by, and the optimiser's state, to be collected again at every step.
    """
    count = math.prod(shape)
    words = whole_everywhere(jax.random.bits(key, (count + _words_for(sign_shape),), jnp.uint32))
    noise = computed_once(lambda: _normal_of(words[:count], dtype).reshape(shape), key, unless_nan)
    return noise, _signs_of(words[count:], sign_shape, dtype)


def _words_for(shape: Sequence[int]) -> int:
    return -(-math.prod(shape) // 32)


def _signs_of(words: jax.Array, shape: Sequence[int], dtype: DTypeLike) -> jax.Array:
    bits = (words[:, None] >> jnp.arange(32, dtype=jnp.uint32)) & 1
    # a word may have signs of examples on two devices
    taken = whole_everywhere(bits.reshape(-1)[: math.prod(shape)])
    return (1 - 2 * taken.astype(dtype)).reshape(shape)


def _normal_of(words: jax.Array, dtype: DTypeLike) -> jax.Array:
    """N(0, 1) by inverting its distribution function at the midpoints of 2^23 equal parts of (-1, 1)."""
    part = jnp.finfo(jnp.float32).eps  # 2^-23
    uniform = ((words >> 9).astype(jnp.float32) + 0.5) * (2 * part) - 1
    return (math.sqrt(2) * jax.lax.erf_inv(uniform)).astype(dtype)
