"""Operations on images that several corruptions share: separable linear maps, colour, and the scale of lengths.

    image -> R image C',   R (height_out x height), C (width_out x width)

Gaussian blurs, zooms and resizing are of this form, with one matrix for each axis, built with NumPy. For small images
two matrix products beat a convolution, and the matrix takes care of the border.
"""

from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from scipy import ndimage

Matrix = np.ndarray | jax.Array
SIDE = 32  # pixels: the constants of the suite are for images of 32 x 32
LUMINANCE = np.array([0.299, 0.587, 0.114], np.float32)  # of red, green and blue

Border = Literal["nearest", "mirror", "reflect"]  # beyond it: a a a | a b c, c b | a b c, b a | a b c


def on_both_axes(rows: Matrix, columns: Matrix, image: jax.Array) -> jax.Array:
    """`rows` along the height and `columns` along the width of an image (..., height, width).

    >>> on_both_axes(np.ones((1, 2)), np.ones((1, 3)), jnp.ones((2, 3))).item()
    6.0
    """
    # full float32: accelerators would use less precision by default
    along_width = jnp.einsum("...jk,lk->...jl", image, columns.astype(np.float32), precision="highest")
    return jnp.einsum("ij,...jl->...il", rows.astype(np.float32), along_width, precision="highest")


def filter_matrix(size: int, weights: np.ndarray, border: Border) -> np.ndarray:
    """The weighted sum of an odd number of neighbours around each pixel.

    >>> filter_matrix(3, np.array([1.0, 0.0, 0.0]), "nearest")  # the left neighbour
    array([[1., 0., 0.],
           [1., 0., 0.],
           [0., 1., 0.]])
    """
    return ndimage.correlate1d(np.eye(size), weights, axis=0, mode=border)


def gaussian_matrix(size: int, sigma: float, truncate: float = 4.0, border: Border = "nearest") -> np.ndarray:
    """A Gaussian blur, cut off at `truncate` standard deviations.

    >>> gaussian_matrix(5, 1.0).sum(axis=1).round(6)
    array([1., 1., 1., 1., 1.])
    """
    return ndimage.gaussian_filter1d(np.eye(size), sigma, axis=0, truncate=truncate, mode=border)


def interpolation_matrix(positions: np.ndarray, size: int) -> np.ndarray:
    """Linear interpolation at positions between 0 and size - 1.

    >>> interpolation_matrix(np.array([0.25]), 3)
    array([[0.75, 0.25, 0.  ]])
    """
    return np.maximum(0.0, 1.0 - np.abs(positions[:, None] - np.arange(size)))


def zoom_matrix(size: int, zoom: float) -> np.ndarray:
    """The centre of the axis, enlarged by `zoom` >= 1 with linear interpolation.

    The part that is kept has a whole number of pixels, rounded up; its ends map to the ends.

    >>> zoom_matrix(4, 1.0).diagonal()
    array([1., 1., 1., 1.])
    """
    kept = int(np.ceil(size / zoom - 1e-9))
    enlarged = max(size, round(kept * zoom))
    positions = np.linspace(0, kept - 1, enlarged)[(enlarged - size) // 2 :][:size]
    return interpolation_matrix(positions + (size - kept) // 2, size)


def enlarge_matrix(size_out: int, size: int) -> np.ndarray:
    """`size` pixels resized to `size_out` with linear interpolation, keeping the ends.

    >>> enlarge_matrix(3, 2)[1]
    array([0.5, 0.5])
    """
    return interpolation_matrix(np.linspace(0, size - 1, size_out), size)


def box_matrix(size_out: int, size: int) -> np.ndarray:
    """Resizing by averaging the pixels whose centre falls within each new pixel (Pillow's BOX filter).

    >>> box_matrix(2, 4)
    array([[0.5, 0.5, 0. , 0. ],
           [0. , 0. , 0.5, 0.5]])
    """
    scale = size / size_out
    middle = (np.arange(size_out) + 0.5) * scale
    half = 0.5 * max(scale, 1.0)
    first, last = np.floor(middle - half + 0.5), np.floor(middle + half + 0.5)
    pixels = np.arange(size)
    inside = (pixels >= first[:, None]) & (pixels < last[:, None])
    return inside / inside.sum(axis=1, keepdims=True)


def luminance(image: jax.Array) -> jax.Array:
    """(3 or 1, height, width) to (1, height, width).

    >>> luminance(jnp.ones((3, 1, 1))).round(3).item()
    1.0
    """
    return image if len(image) == 1 else jnp.tensordot(LUMINANCE, image, 1, precision="highest")[None]


# Value and saturation (HSV) change without computing hue angles. A pixel with largest channel v (value), smallest
# channel m and saturation s = (v - m) / v equals v (1 - s t), where t = (v - x) / (v - m) in [0, 1] encodes its hue by
# channel. New v and s with the same t keep the hue. Grey pixels have the hue of red. A single-channel image has a
# value but no saturation.


def with_value(image: jax.Array, shift: float) -> jax.Array:
    """Add `shift` to the value, keeping hue and saturation.

    >>> with_value(jnp.array([0.5, 0.25, 0.0]).reshape(3, 1, 1), 0.5).ravel().tolist()
    [1.0, 0.5, 0.0]
    """
    value = image.max(axis=0)
    shifted = jnp.clip(value + shift, 0.0, 1.0)
    return jnp.where(value > 0, image * shifted / jnp.where(value > 0, value, 1.0), shifted)


def with_saturation(image: jax.Array, scale: float, shift: float) -> jax.Array:
    """Map the saturation s to scale s + shift, keeping hue and value.

    >>> with_saturation(jnp.array([0.5, 0.25, 0.25]).reshape(3, 1, 1), 2.0, 0.0).ravel().tolist()
    [0.5, 0.0, 0.0]
    """
    value, smallest = image.max(axis=0), image.min(axis=0)
    spread = value - smallest
    saturation = spread / jnp.where(value > 0, value, 1.0)
    red = jnp.array([0.0, 1.0, 1.0])[:, None, None]
    hue = jnp.where(spread > 0, (value - image) / jnp.where(spread > 0, spread, 1.0), red)
    return value * (1 - jnp.clip(saturation * scale + shift, 0.0, 1.0) * hue)


def length_scale(image: jax.Array) -> float:
    """The factor by which lengths grow for an image (channels, height, width).

    They grow in proportion to the shorter side. For images smaller than 32 x 32 they stay the same: most are about a
    pixel, and a blur of less than a pixel has no effect.

    >>> length_scale(jnp.zeros((3, 64, 96))), length_scale(jnp.zeros((1, 28, 28)))
    (2.0, 1.0)
    """
    return max(1.0, min(image.shape[-2:]) / SIDE)
