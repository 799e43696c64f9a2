"""Blurs: Gaussian, defocus, glass, motion and zoom."""

import math

import jax
import jax.numpy as jnp
import numpy as np
from scipy import ndimage

from posteriax.data.corruptions.image_operations import (
    filter_matrix,
    gaussian_matrix,
    interpolation_matrix,
    length_scale,
    on_both_axes,
    zoom_matrix,
)
from posteriax.data.corruptions.uniforms import between, cut


def gaussian_blur(u: jax.Array, image: jax.Array, sigma: float) -> jax.Array:
    """A Gaussian of standard deviation `sigma` pixels."""
    height, width = image.shape[-2:]
    sigma = sigma * length_scale(image)
    return on_both_axes(gaussian_matrix(height, sigma), gaussian_matrix(width, sigma), image)


def defocus_blur(u: jax.Array, image: jax.Array, radius: float, alias_sigma: float) -> jax.Array:
    """The mean over a disk with an edge softened by a 3 x 3 Gaussian."""
    kernel = stretched(disk(radius, alias_sigma), length_scale(image))
    # the kernel as a sum of separable ones: as many terms as its rank
    left, strength, right = np.linalg.svd(kernel)
    height, width = image.shape[-2:]
    total = jnp.zeros_like(image)
    for column, row in zip((left * strength).T[strength > 1e-6], right[strength > 1e-6], strict=True):
        total += on_both_axes(filter_matrix(height, column, "mirror"), filter_matrix(width, row, "mirror"), image)
    return total


def disk(radius: float, alias_sigma: float) -> np.ndarray:
    """A disk of pixels, smoothed by a 3 x 3 Gaussian; its weights sum to 1.

    >>> disk(1.0, 1e-3)
    array([[0. , 0. , 0. , 0. , 0. ],
           [0. , 0. , 0.2, 0. , 0. ],
           [0. , 0.2, 0.2, 0.2, 0. ],
           [0. , 0. , 0.2, 0. , 0. ],
           [0. , 0. , 0. , 0. , 0. ]])
    """
    reach = int(radius) + 1  # one more than the disk, for the smoothing
    squares = np.arange(-reach, reach + 1) ** 2
    inside = (squares[:, None] + squares <= radius**2).astype(float)
    soften = ndimage.gaussian_filter1d(np.eye(len(squares)), alias_sigma, radius=1, mode="constant")
    return soften @ (inside / inside.sum()) @ soften.T


def stretched(kernel: np.ndarray, stretch: float) -> np.ndarray:
    """The kernel enlarged about its centre, with linear interpolation.

    >>> stretched(np.ones((1, 1)), 2.0)[1]
    array([0.125, 0.25 , 0.125])
    """
    reach = len(kernel) // 2
    reach_out = int(np.ceil((reach + 1) * stretch)) - 1
    matrix = interpolation_matrix(np.arange(-reach_out, reach_out + 1) / stretch + reach, len(kernel))
    enlarged = matrix @ kernel @ matrix.T
    return enlarged / enlarged.sum()


def glass_blur(u: jax.Array, image: jax.Array, sigma: float, shift: int, passes: int) -> jax.Array:
    """Each pixel is replaced by one up to `shift` away, `passes` times, between two Gaussian blurs.

    Offsets are uniform on -shift..shift-1 along each axis. All pixels are read before any is written, which for a shift
    of 1 is equivalent to the benchmark's loop: it never reads a pixel that it has already written.
    """
    scale = length_scale(image)
    shift = round(shift * scale)
    height, width = image.shape[-2:]
    rows, columns = jnp.arange(height)[:, None], jnp.arange(width)
    out = gaussian_blur(u, image, sigma)
    for v in cut(u, *passes * [(2, height, width)]):
        down, right = jnp.floor(between(v, -shift, shift)).astype(jnp.int32)
        out = out[:, jnp.clip(rows + down, 0, height - 1), jnp.clip(columns + right, 0, width - 1)]
    return gaussian_blur(u, out, sigma)


def motion_blur(u: jax.Array, image: jax.Array, radius: float, sigma: float) -> jax.Array:
    """Blur along a line within 45 degrees of the horizontal."""
    scale = length_scale(image)
    angle = between(u[0], -45.0, 45.0)
    return line_blur(image, angle, radius * scale, sigma * scale)


def line_blur(image: jax.Array, angle: jax.Array, radius: float, sigma: float) -> jax.Array:
    """An image (channels, height, width), blurred in the direction `angle` (degrees from the horizontal).

        out(p) = sum_i w_i image(p + round(i d)),   w_i ~ exp(-i^2 / 2 sigma^2), i = 0..2 radius,   d = (cos, sin) angle

    One-sided, like ImageMagick's motion blur: each pixel becomes a weighted mean of those ahead of it. Border pixels
    are repeated.

    >>> line_blur(jnp.ones((1, 4, 4)), 30.0, radius=2, sigma=1.0).round(6).mean().item()
    1.0
    """
    reach = min(math.ceil(2 * radius), math.ceil(4 * sigma))  # weights further away are below 0.001
    weights = np.exp(-0.5 * (np.arange(reach + 1) / sigma) ** 2)
    weights = (weights / weights.sum()).astype(np.float32)
    padded = jnp.pad(image, ((0, 0), (reach, reach), (reach, reach)), mode="edge")
    radians = jnp.deg2rad(angle)
    direction = jnp.stack([jnp.sin(radians), jnp.cos(radians)])

    def add(total: jax.Array, tap: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        step, weight = tap
        down, right = jnp.ceil(step * direction - 0.5).astype(jnp.int32) + reach
        return total + weight * jax.lax.dynamic_slice(padded, (0, down, right), image.shape), None

    return jax.lax.scan(add, jnp.zeros_like(image), (jnp.arange(reach + 1.0), weights))[0]


def zoom_blur(u: jax.Array, image: jax.Array, most: float) -> jax.Array:
    """The mean of the image and of its zooms by 1, 1.01, ..., `most`."""
    height, width = image.shape[-2:]
    zooms = 1 + 0.01 * np.arange(round((most - 1) / 0.01) + 1)
    rows = jnp.asarray(np.stack([zoom_matrix(height, zoom) for zoom in zooms]), jnp.float32)
    columns = jnp.asarray(np.stack([zoom_matrix(width, zoom) for zoom in zooms]), jnp.float32)

    def add(total: jax.Array, zoom: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        return total + on_both_axes(*zoom, image), None

    return jax.lax.scan(add, image, (rows, columns))[0] / (len(zooms) + 1)
