"""The random numbers of estimators: Gaussian noise that is computed once, and signs.

What is done here for CPUs alone has a switch in :mod:`posteriax._internal.cpu_tuning`.
"""

import math
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from posteriax._internal.cpu_tuning import MERGED_NOISE, NOISE_ONCE, UNROLLED_BITS, in_use
from posteriax._internal.merged_calls import mergeable
from posteriax.distributed.meshes import is_divided, replicated

LARGE = 2**14  # entries of an array whose random bits are worth a kernel of their own
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


def standard_normal(key: jax.Array, shape: Sequence[int], dtype: DTypeLike, unless_nan: jax.Array) -> jax.Array:
    """N(0, 1) draws of a shape, computed once.

    Lower precisions are rounded from single: their own uniform numbers are too few to have the tails of a normal.

    >>> standard_normal(jax.random.key(0), (2, 3), jnp.float32, unless_nan=jnp.zeros(())).shape
    (2, 3)
    """
    shape, dtype, unrolled = tuple(shape), jnp.dtype(dtype), in_use(UNROLLED_BITS)
    if _merges():
        return _normal_if(key, _is_finite(unless_nan), shape=shape, dtype=dtype, unrolled=unrolled)
    return computed_once(lambda: _normal(key, shape=shape, dtype=dtype, unrolled=unrolled), key, unless_nan)


def signs(key: jax.Array, shape: Sequence[int], dtype: DTypeLike) -> jax.Array:
    """Random +1 and -1, thirty-two from each random word."""
    draw = _mergeable_signs if _merges() else _signs
    return draw(key, shape=tuple(shape), dtype=jnp.dtype(dtype))


def normal_and_signs(
    key: jax.Array, shape: Sequence[int], sign_shape: Sequence[int], dtype: DTypeLike, unless_nan: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """`standard_normal` and `signs` from one call of the generator, which is slow to compile.

    The noise has the resolution of single precision whatever its dtype. Where the compiler splits a batch over devices,
    each of them draws all words: the signs, of which it needs a part, would otherwise have the noise split as well, and
    then the parameters that it is multiplied by, and the optimiser's state, to be collected again at every step.
    """
    shape, sign_shape, dtype = tuple(shape), tuple(sign_shape), jnp.dtype(dtype)
    if _merges():
        return _normal_if_and_signs(key, _is_finite(unless_nan), shape=shape, sign_shape=sign_shape, dtype=dtype)
    once = lambda make: computed_once(make, key, unless_nan)  # noqa: E731
    return _normal_and_signs(key, once, shape=shape, sign_shape=sign_shape, dtype=dtype)


def _merges() -> bool:
    """Whether equal draws are marked, so that a program makes them together."""
    return in_use(MERGED_NOISE) and in_use(NOISE_ONCE) and not is_divided()


def _normal(key: jax.Array, *, shape: tuple[int, ...], dtype: jnp.dtype, unrolled: bool) -> jax.Array:
    wide = jnp.promote_types(dtype, jnp.float32)
    if wide == jnp.float32 and is_large(key, shape):
        return _normal_from(random_bits(key, shape, unrolled=unrolled), dtype)
    return jax.random.normal(key, shape, wide).astype(dtype)


def _signs(key: jax.Array, *, shape: tuple[int, ...], dtype: jnp.dtype) -> jax.Array:
    return _signs_from(jax.random.bits(key, (_words_for(shape),), jnp.uint32), shape, dtype)


def _normal_and_signs(
    key: jax.Array,
    once: Callable[[Callable[[], jax.Array]], jax.Array],
    *,
    shape: tuple[int, ...],
    sign_shape: tuple[int, ...],
    dtype: jnp.dtype,
) -> tuple[jax.Array, jax.Array]:
    count = math.prod(shape)
    words = replicated(jax.random.bits(key, (count + _words_for(sign_shape),), jnp.uint32))
    noise = once(lambda: _normal_from(words[:count], dtype).reshape(shape))
    return noise, _signs_from(words[count:], sign_shape, dtype)


@mergeable("shape", "dtype", "unrolled")
def _normal_if(
    key: jax.Array, finite: jax.Array, *, shape: tuple[int, ...], dtype: jnp.dtype, unrolled: bool
) -> jax.Array:
    return _zeros_unless(finite, lambda: _normal(key, shape=shape, dtype=dtype, unrolled=unrolled))


@mergeable("shape", "sign_shape", "dtype")
def _normal_if_and_signs(
    key: jax.Array, finite: jax.Array, *, shape: tuple[int, ...], sign_shape: tuple[int, ...], dtype: jnp.dtype
) -> tuple[jax.Array, jax.Array]:
    once = lambda make: _zeros_unless(finite, make)  # noqa: E731
    return _normal_and_signs(key, once, shape=shape, sign_shape=sign_shape, dtype=dtype)


_mergeable_signs = mergeable("shape", "dtype")(_signs)


def _words_for(shape: Sequence[int]) -> int:
    return -(-math.prod(shape) // 32)


def _signs_from(words: jax.Array, shape: Sequence[int], dtype: DTypeLike) -> jax.Array:
    bits = (words[:, None] >> jnp.arange(32, dtype=jnp.uint32)) & 1
    # a word may have signs of examples on two devices
    taken = replicated(bits.reshape(-1)[: math.prod(shape)])
    return (1 - 2 * taken.astype(dtype)).reshape(shape)


def _normal_from(words: jax.Array, dtype: DTypeLike) -> jax.Array:
    """N(0, 1) by inverting its distribution function at the midpoints of 2^23 equal parts of (-1, 1)."""
    part = jnp.finfo(jnp.float32).eps  # 2^-23
    uniform = ((words >> 9).astype(jnp.float32) + 0.5) * (2 * part) - 1
    return (math.sqrt(2) * jax.lax.erf_inv(uniform)).astype(dtype)


def computed_once(make: Callable[[], jax.Array], key: jax.Array, unless_nan: jax.Array) -> jax.Array:
    """`make()`, noise of a key; on a CPU, computed once although several operations read it.

    A step reads its noise twice: in the draw and in the gradient of the scale. XLA would fuse the inverse error
    function into each reader, including Adam's three updates, and compute it four times. It does not fuse across a
    conditional. This one gives zeros if the first entry of `unless_nan` is not finite: that is what the noise will be
    added to or multiplied with, so the result is then not finite either way, which the compiler cannot know.

    Draws that are merged share the condition of all of them: the step is then not finite either.

    In a program that the compiler divides, devices would have to tell each other that entry. There the condition is
    that the product of two consecutive numbers, one of them from the key, is even: true, which it does not know either.
    """
    if not in_use(NOISE_ONCE):
        return make()
    if is_divided():
        word = jax.random.key_data(key).reshape(-1)[0]
        condition = (word * (word + 1)) & 1 == 0
    else:
        condition = _is_finite(unless_nan)
    return _zeros_unless(condition, make)


def _is_finite(array: jax.Array) -> jax.Array:
    return jnp.isfinite(jax.lax.stop_gradient(array).reshape(-1)[0])


def _zeros_unless(condition: jax.Array, make: Callable[[], jax.Array]) -> jax.Array:
    spec = jax.eval_shape(make)
    return jax.lax.cond(condition, make, lambda: jnp.zeros(spec.shape, spec.dtype))


def is_large(key: jax.Array, shape: Sequence[int]) -> bool:
    """Whether `random_bits` may do better than JAX, for a key of JAX's default generator."""
    return LARGE <= math.prod(shape) < 2**32 and jax.random.key_impl(key) == "threefry2x32"


def random_bits(key: jax.Array, shape: Sequence[int], *, unrolled: bool) -> jax.Array:
    """`jax.random.bits(key, shape)`, to the bit; large arrays in one kernel on a CPU.

    JAX compiles its generator, Threefry, as a loop of five rounds there, each of which reads and writes all words:
    quick to compile, but slower for large arrays than all twenty rounds in one kernel.
    """
    if is_large(key, shape) and unrolled:
        return unrolled_bits(key, shape)
    return jax.random.bits(key, shape, jnp.uint32)


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
        for distance in _ROTATIONS[turn % 2]:
            a = a + b
            b = a ^ ((b << distance) | (b >> (32 - distance)))
        a = a + schedule[(turn + 1) % 3]
        b = b + schedule[(turn + 2) % 3] + jnp.uint32(turn + 1)
    return a ^ b
