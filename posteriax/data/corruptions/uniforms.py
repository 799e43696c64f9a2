"""Randomness: uniform numbers, one row per image, from a key and the index of the image alone.

A separate program generates them, with a width that is a power of 2 and enough for colour images of 32 x 32, so that
many corruptions share it: random numbers take longer to compile than the corruption itself.
"""

import math
from functools import partial

import jax
import jax.numpy as jnp

LEAST = 4096


def uniforms(key: jax.Array, first: int, images: int, count: int) -> jax.Array:
    """At least `count` numbers strictly between 0 and 1 for each of `images` images, the first with index `first`.

    >>> rows = uniforms(jax.random.key(0), 0, 4, 10)
    >>> rows.shape, bool((uniforms(jax.random.key(0), 3, 1, 10)[0] == rows[3]).all())
    ((4, 4096), True)
    """
    if count == 0:
        return jnp.zeros((images, 0))
    return _uniforms(key, jnp.uint32(first), images, max(LEAST, 1 << (count - 1).bit_length()))


@partial(jax.jit, static_argnums=(2, 3))
def _uniforms(key: jax.Array, first: jax.Array, images: int, count: int) -> jax.Array:
    keys = jax.vmap(partial(jax.random.fold_in, key))(first + jnp.arange(images, dtype=jnp.uint32))
    # from [0, 1) in steps of 2^-23 to the midpoints of the steps
    return jax.vmap(lambda image_key: jax.random.uniform(image_key, (count,)))(keys) + 2.0**-24


def normal(u: jax.Array) -> jax.Array:
    """Standard normal numbers from uniform ones.

    >>> normal(jnp.array([0.5, 0.975])).round(2).tolist()
    [0.0, 1.9...]
    """
    return jnp.sqrt(2.0) * jax.scipy.special.erfinv(2 * u - 1)


def between(u: jax.Array, low: float, high: float) -> jax.Array:
    """Uniform numbers between `low` and `high`.

    >>> between(jnp.array(0.25), -1.0, 1.0).item()
    -0.5
    """
    return low + (high - low) * u


def cut(u: jax.Array, *shapes: tuple[int, ...]) -> list[jax.Array]:
    """The first numbers of `u`, in arrays of these shapes.

    >>> [part.shape for part in cut(jnp.zeros(16), (2, 3), ())]
    [(2, 3), ()]
    """
    parts = []
    for shape in shapes:
        size = math.prod(shape)
        parts.append(u[:size].reshape(shape))
        u = u[size:]
    return parts
