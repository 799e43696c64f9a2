"""Elastic transform: a random affine map, given by three moved points, then a smooth random displacement.

    1. three corners of the inner square move by U(-jitter, jitter) along each axis, and the plane with them
    2. pixel p shows what is at p + displacement (G * u)(p),   u ~ U(-1, 1) for each pixel and axis, G a Gaussian

All lengths are multiples of the shorter side. Both steps interpolate linearly.
"""

import jax
import jax.numpy as jnp

from posteriax.data.corruptions.axis_maps import gaussian_matrix, on_both_axes
from posteriax.data.corruptions.pixel_scale import SIDE
from posteriax.data.corruptions.uniforms import between, cut


def elastic_transform(
    u: jax.Array, image: jax.Array, displacement: float, smoothing: float, jitter: float
) -> jax.Array:
    """See the module docstring. With zero displacement only the affine step remains."""
    height, width = image.shape[-2:]
    for_corners, for_pixels = cut(u, (3, 2, 1, 1), (2, height, width))
    side = min(height, width)
    grid = jnp.stack(jnp.meshgrid(jnp.arange(height), jnp.arange(width), indexing="ij")).astype(jnp.float32)

    corners = between(for_corners, -jitter * side, jitter * side)
    half = max(side // 3, 1)
    down, right = (grid[0] - height // 2 + half) / (2 * half), (grid[1] - width // 2 + half) / (2 * half)
    image = looked_up(image, grid + corners[0] + down * (corners[1] - corners[0]) + right * (corners[2] - corners[0]))
    if displacement == 0:
        return image

    # averaging over more pixels shrinks the noise: the factor side / SIDE makes displacements scale with the image
    noise = between(for_pixels, -1.0, 1.0) * (side / SIDE)
    rows, columns = (gaussian_matrix(n, smoothing * side, truncate=3.0, border="reflect") for n in (height, width))
    return looked_up(image, grid + displacement * side * on_both_axes(rows, columns, noise))


def looked_up(image: jax.Array, places: jax.Array) -> jax.Array:
    """The image (channels, height, width) at positions (2, height, width), interpolated linearly, mirrored at borders.

    >>> looked_up(jnp.array([[[0.0, 1.0], [2.0, 3.0]]]), jnp.full((2, 1, 1), 0.5)).item()
    1.5
    """
    whole = jnp.floor(places)
    fraction = places - whole
    total = jnp.zeros((len(image), *places.shape[1:]))
    for down in (0, 1):
        for right in (0, 1):
            weight = jnp.abs(1 - down - fraction[0]) * jnp.abs(1 - right - fraction[1])
            row = _mirrored(whole[0].astype(jnp.int32) + down, image.shape[1])
            column = _mirrored(whole[1].astype(jnp.int32) + right, image.shape[2])
            total += weight * image.at[:, row, column].get(mode="promise_in_bounds")
    return total


def _mirrored(index: jax.Array, size: int) -> jax.Array:
    # once at either border, which is as far as pixels move; without the slow division of mirroring for ever
    last = size - 1
    return jnp.clip(last - jnp.abs(last - jnp.abs(index)), 0, last)
