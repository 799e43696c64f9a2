"""The share of examples for which something holds."""

import jax
import jax.numpy as jnp


def share(holds: jax.Array) -> jax.Array:
    """The fraction of True, over the last axis; exactly 1 where all are.

    XLA divides by multiplying with a rounded 1 / N, so that the mean of 41 ones is less than 1.

    >>> share(jnp.ones(41, bool)).item()
    1.0
    """
    count, size = holds.sum(axis=-1, dtype=jnp.int32), holds.shape[-1]
    return jnp.where(count == size, 1.0, count / size)
