"""Plasma fractals: clouds by the diamond-square algorithm, on a torus.

A grid of corners gets the centre of each square (mean of 4 corners + noise), then the midpoint of each edge (mean of
its 2 corners and the 2 adjacent centres + noise). The new grid has twice the side, and the noise shrinks by decay^2,
since the benchmark applies its decay to both a factor and the range of the noise. In matrices, for a grid c:

    g = E c E' + S E c E' S' + noise at middles            E: spreads a line of pixels over every second one
    c <- g + (S g + g S') / 2 + noise at edges             S: the mean of the two neighbours

(Matrix products compile ten times as fast as the equivalent shifts and interleaving.)
"""

import jax
import jax.numpy as jnp
import numpy as np

from posteriax.data.corruptions.axis_maps import on_both_axes
from posteriax.data.corruptions.uniforms import between, cut


def plasma_numbers(height: int, width: int) -> int:
    """How many uniform numbers a cloud of this size needs.

    >>> plasma_numbers(28, 28)  # 4 + 16 + ... + 32^2
    1364
    """
    return sum(_grids(height, width))


def plasma(u: jax.Array, height: int, width: int, decay: float) -> jax.Array:
    """A cloud (height, width), cut from a square whose side is a power of 2 and whose values span [0, 1].

    >>> cloud = plasma(jnp.sin(jnp.arange(340.0)) ** 2, 16, 16, decay=2.0)
    >>> cloud.shape, cloud.min().item(), cloud.max().item()
    ((16, 16), 0.0, 1.0)
    """
    grid = jnp.zeros((1, 1))
    parts = cut(u, *((size,) for size in _grids(height, width)))
    for level, numbers in enumerate(parts):
        side = 2 ** (level + 1)
        noise = between(numbers.reshape(side, side), -1.0, 1.0) * decay ** (-2 * level)
        spread = np.eye(side)[:, ::2]
        beside = (np.roll(np.eye(side), 1, axis=0) + np.roll(np.eye(side), -1, axis=0)) / 2
        odd = np.arange(side) % 2
        middles, edges = odd[:, None] & odd, odd[:, None] ^ odd
        grid = on_both_axes(spread, spread, grid) + on_both_axes(beside @ spread, beside @ spread, grid)
        grid = grid + middles * noise
        along = on_both_axes(beside, np.eye(side), grid) + on_both_axes(np.eye(side), beside, grid)
        grid = grid + along / 2 + edges * noise
    cloud = grid - grid.min()
    return (cloud / cloud.max())[:height, :width]


def _grids(height: int, width: int) -> list[int]:
    doublings = (max(height, width) - 1).bit_length()
    return [4 ** (level + 1) for level in range(doublings)]
