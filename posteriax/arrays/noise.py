"""Gaussian noise that is computed once, and random signs.

Noise is used twice in a step: by the draw, and by the gradient of its scale. XLA's CPU compiler fuses the inverse error
function that makes it into every reader, so that it would be computed four times over, by Adam's three updates too. It
does not fuse across a conditional.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp


def computed_once(make: Callable[[], jax.Array], unless_nan: jax.Array) -> jax.Array:
    """`make()`, or zeros if the first entry of `unless_nan` is not finite.

    `unless_nan` is what the noise will be added to or multiplied with: if that is not finite the result is not either,
    whatever the noise. It is there so that the compiler cannot settle the condition.
    """
    spec = jax.eval_shape(make)
    return jax.lax.cond(jnp.isfinite(unless_nan.reshape(-1)[0]), make, lambda: jnp.zeros(spec.shape, spec.dtype))


def standard_normal(key: jax.Array, shape: Sequence[int], dtype: Any, unless_nan: jax.Array) -> jax.Array:
    """N(0, 1) draws of a shape, computed once.

    >>> standard_normal(jax.random.key(0), (2, 3), jnp.float32, unless_nan=jnp.zeros(())).shape
    (2, 3)
    """
    return computed_once(lambda: jax.random.normal(key, shape, dtype), unless_nan)


def signs(key: jax.Array, shape: Sequence[int], dtype: Any) -> jax.Array:
    """Random +1 and -1, thirty-two from each random word."""
    count = math.prod(shape)
    words = jax.random.bits(key, (-(-count // 32), 1), jnp.uint32)
    bits = (words >> jnp.arange(32, dtype=jnp.uint32)) & 1
    return (1 - 2 * bits.reshape(-1)[:count].astype(dtype)).reshape(shape)
