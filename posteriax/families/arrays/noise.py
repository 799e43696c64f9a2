"""Gaussian noise that is computed once, and random signs.

A step uses its noise twice: in the draw and in the gradient of the scale. XLA's CPU compiler would fuse the inverse
error function into each consumer, including Adam's three updates, and compute it four times. It does not fuse across a
conditional.

On CPUs JAX compiles its generator, Threefry, as a loop of five rounds that each read and write all words: quick to
compile, but slower for large arrays than all twenty rounds in one kernel.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

UNROLLED_FROM = 2**14  # entries
ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


def computed_once(make: Callable[[], jax.Array], unless_nan: jax.Array) -> jax.Array:
    """`make()`, or zeros if the first entry of `unless_nan` is not finite.

    `unless_nan` is what the noise will be added to or multiplied with: if it is not finite, neither is the result,
    whatever the noise. The condition only exists so that the compiler cannot evaluate it in advance.
    """
    spec = jax.eval_shape(make)
    return jax.lax.cond(jnp.isfinite(unless_nan.reshape(-1)[0]), make, lambda: jnp.zeros(spec.shape, spec.dtype))


def standard_normal(key: jax.Array, shape: Sequence[int], dtype: Any, unless_nan: jax.Array) -> jax.Array:
    """N(0, 1) draws of a shape, computed once.

    >>> standard_normal(jax.random.key(0), (2, 3), jnp.float32, unless_nan=jnp.zeros(())).shape
    (2, 3)
    """
    count = math.prod(shape)

    def make() -> jax.Array:
        large = UNROLLED_FROM <= count < 2**32
        if large and dtype == jnp.float32 and jax.random.key_impl(key) == "threefry2x32":
            return _normal_of(unrolled_bits(key, shape), dtype)
        return jax.random.normal(key, shape, dtype)

    return computed_once(make, unless_nan)


def unrolled_bits(key: jax.Array, shape: Sequence[int]) -> jax.Array:
    """`jax.random.bits(key, shape)`, to the bit, as one kernel: Threefry-2x32 of every entry's index.

    >>> bool((unrolled_bits(jax.random.key(0), (5,)) == jax.random.bits(jax.random.key(0), (5,))).all())
    True
    """
    first, second = jax.random.key_data(key)
    schedule = (first, second, first ^ second ^ jnp.uint32(0x1BD11BDA))
    # the counter has 64 bits; arrays of this size only need the lower half
    index = jax.lax.iota(jnp.uint32, math.prod(shape)).reshape(shape)
    a, b = jnp.broadcast_to(first, index.shape), index + second
    for turn in range(5):
        for distance in ROTATIONS[turn % 2]:
            a = a + b
            b = a ^ ((b << distance) | (b >> (32 - distance)))
        a = a + schedule[(turn + 1) % 3]
        b = b + schedule[(turn + 2) % 3] + jnp.uint32(turn + 1)
    return a ^ b


def signs(key: jax.Array, shape: Sequence[int], dtype: Any) -> jax.Array:
    """Random +1 and -1, thirty-two from each random word."""
    return _signs_of(jax.random.bits(key, (_words_for(shape),), jnp.uint32), shape, dtype)


def normal_and_signs(
    key: jax.Array, shape: Sequence[int], sign_shape: Sequence[int], dtype: Any, unless_nan: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """`standard_normal` and `signs` from one call of the generator, which is slow to compile.

    The noise has the resolution of single precision whatever its dtype.
    """
    count = math.prod(shape)
    words = jax.random.bits(key, (count + _words_for(sign_shape),), jnp.uint32)
    noise = computed_once(lambda: _normal_of(words[:count], dtype).reshape(shape), unless_nan)
    return noise, _signs_of(words[count:], sign_shape, dtype)


def _words_for(shape: Sequence[int]) -> int:
    return -(-math.prod(shape) // 32)


def _signs_of(words: jax.Array, shape: Sequence[int], dtype: Any) -> jax.Array:
    bits = (words[:, None] >> jnp.arange(32, dtype=jnp.uint32)) & 1
    return (1 - 2 * bits.reshape(-1)[: math.prod(shape)].astype(dtype)).reshape(shape)


def _normal_of(words: jax.Array, dtype: Any) -> jax.Array:
    """N(0, 1) by inverting its distribution function at the midpoints of 2^23 equal parts of (-1, 1)."""
    part = jnp.finfo(jnp.float32).eps  # 2^-23
    uniform = ((words >> 9).astype(jnp.float32) + 0.5) * (2 * part) - 1
    return (math.sqrt(2) * jax.lax.erf_inv(uniform)).astype(dtype)
