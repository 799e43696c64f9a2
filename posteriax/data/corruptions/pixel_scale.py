"""Scaling lengths in pixels: the constants of the suite are for images of 32 x 32.

For larger images, lengths grow in proportion to the shorter side. For smaller ones they stay the same: most are about a
pixel, and a blur of less than a pixel has no effect.
"""

import jax

SIDE = 32


def stretch_of(image: jax.Array) -> float:
    """The factor by which lengths grow for an image (channels, height, width).

    >>> import jax.numpy as jnp
    >>> stretch_of(jnp.zeros((3, 64, 96))), stretch_of(jnp.zeros((1, 28, 28)))
    (2.0, 1.0)
    """
    return max(1.0, min(image.shape[-2:]) / SIDE)
