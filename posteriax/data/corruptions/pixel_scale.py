"""Lengths in pixels: the suite's constants are for images of 32 x 32.

Larger images stretch every length in proportion to their shorter side. Smaller ones keep it: most of the lengths are
about a pixel, and a blur of less than a pixel is none.
"""

import jax

SIDE = 32


def stretch_of(image: jax.Array) -> float:
    """By how much the lengths of the constants grow for an image (channels, height, width).

    >>> import jax.numpy as jnp
    >>> stretch_of(jnp.zeros((3, 64, 96))), stretch_of(jnp.zeros((1, 28, 28)))
    (2.0, 1.0)
    """
    return max(1.0, min(image.shape[-2:]) / SIDE)
