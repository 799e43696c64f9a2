"""Plasma fractals: clouds by the diamond-square recursion, on a torus.

A grid of corners gets the middle of each square (mean of 4 corners + noise), then the middle of each edge (mean of its
2 corners and of the 2 middles beside it + noise). The new grid has twice the side, and the noise falls by decay^2:
the benchmark's decay multiplies both a factor and the range of its noise.
"""

import jax
import jax.numpy as jnp

from posteriax.data.corruptions.uniforms import between, cut


def plasma_numbers(height: int, width: int) -> int:
    """How many uniform numbers a cloud of this size takes.

    >>> plasma_numbers(28, 28)
    1024
    """
    return 4 ** _doublings(height, width)


def plasma(u: jax.Array, height: int, width: int, decay: float | jax.Array) -> jax.Array:
    """A cloud (height, width); the square with a side of a power of 2 that it is cut from spans [0, 1].

    >>> cloud = plasma(jnp.sin(jnp.arange(256.0)) ** 2, 16, 16, decay=2.0)
    >>> cloud.shape, cloud.min().item(), cloud.max().item()
    ((16, 16), 0.0, 1.0)
    """
    corners = jnp.zeros((1, 1))
    for level in range(_doublings(height, width)):
        side = 2**level
        (v,) = cut(u[side**2 :], (3, side, side))  # the levels before took side^2 - 1 numbers
        noise = between(v, -1.0, 1.0) * decay ** (-2.0 * level)
        right, below = jnp.roll(corners, -1, axis=1), jnp.roll(corners, -1, axis=0)
        middles = (corners + right + below + jnp.roll(right, -1, axis=0)) / 4 + noise[0]
        edges_right = (corners + right + middles + jnp.roll(middles, 1, axis=0)) / 4 + noise[1]
        edges_below = (corners + below + middles + jnp.roll(middles, 1, axis=1)) / 4 + noise[2]
        upper, lower = jnp.stack([corners, edges_right], axis=-1), jnp.stack([edges_below, middles], axis=-1)
        corners = jnp.stack([upper, lower], axis=1).reshape(2 * side, 2 * side)
    cloud = corners - corners.min()
    return (cloud / cloud.max())[:height, :width]


def _doublings(height: int, width: int) -> int:
    return (max(height, width) - 1).bit_length()
