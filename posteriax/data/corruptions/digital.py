"""Digital corruptions: contrast, pixelation, saturation, elastic transform, JPEG compression."""

import jax
import jax.numpy as jnp
import numpy as np
from scipy import fft

from posteriax.data.corruptions.image_operations import SIDE, box_matrix, gaussian_matrix, on_both_axes, with_saturation
from posteriax.data.corruptions.uniforms import between, cut


def contrast(u: jax.Array, image: jax.Array, factor: float) -> jax.Array:
    """(x - m) factor + m, with the mean m of each channel of each image."""
    mean = image.mean(axis=(1, 2), keepdims=True)
    return (image - mean) * factor + mean


def pixelate(u: jax.Array, image: jax.Array, factor: float) -> jax.Array:
    """Downsample to a fraction of the pixels along each axis and back, with box filters."""
    rows, columns = (
        box_matrix(size, small) @ box_matrix(small, size)
        for size, small in ((size, max(1, int(size * factor))) for size in image.shape[-2:])
    )
    return on_both_axes(rows, columns, image)


def saturate(u: jax.Array, image: jax.Array, scale: float, shift: float) -> jax.Array:
    """Map the HSV saturation s to scale s + shift. Colour images only."""
    return with_saturation(image, scale, shift)


def elastic_transform(
    u: jax.Array, image: jax.Array, displacement: float, smoothing: float, jitter: float
) -> jax.Array:
    """A random affine map, given by three points that move, then a smooth random displacement.

        1. three corners of the inner square move by U(-jitter, jitter) along each axis, and the plane with them
        2. pixel p shows what is at p + displacement (G * u)(p),   u ~ U(-1, 1) for each pixel and axis, G a Gaussian

    All lengths are multiples of the shorter side. Both steps interpolate linearly. With zero displacement only the
    affine step remains.
    """
    height, width = image.shape[-2:]
    for_corners, for_pixels = cut(u, (3, 2, 1, 1), (2, height, width))
    side = min(height, width)
    grid = jnp.stack(jnp.meshgrid(jnp.arange(height), jnp.arange(width), indexing="ij")).astype(jnp.float32)

    corners = between(for_corners, -jitter * side, jitter * side)
    half = max(side // 3, 1)
    down, right = (grid[0] - height // 2 + half) / (2 * half), (grid[1] - width // 2 + half) / (2 * half)
    moved = grid + corners[0] + down * (corners[1] - corners[0]) + right * (corners[2] - corners[0])
    image = interpolated(image, moved)
    if displacement == 0:
        return image

    # averaging over more pixels shrinks the noise: the factor side / SIDE makes displacements scale with the image
    noise = between(for_pixels, -1.0, 1.0) * (side / SIDE)
    rows, columns = (gaussian_matrix(n, smoothing * side, truncate=3.0, border="reflect") for n in (height, width))
    return interpolated(image, grid + displacement * side * on_both_axes(rows, columns, noise))


def interpolated(image: jax.Array, positions: jax.Array) -> jax.Array:
    """The image (channels, height, width) at positions (2, height, width), interpolated linearly, mirrored at borders.

    >>> interpolated(jnp.array([[[0.0, 1.0], [2.0, 3.0]]]), jnp.full((2, 1, 1), 0.5)).item()
    1.5
    """
    corner = jnp.floor(positions)
    fraction = positions - corner
    total = jnp.zeros((len(image), *positions.shape[1:]))
    for down in (0, 1):
        for right in (0, 1):
            weight = jnp.abs(1 - down - fraction[0]) * jnp.abs(1 - right - fraction[1])
            row = _mirrored(corner[0].astype(jnp.int32) + down, image.shape[1])
            column = _mirrored(corner[1].astype(jnp.int32) + right, image.shape[2])
            total += weight * image.at[:, row, column].get(mode="promise_in_bounds")
    return total


def _mirrored(index: jax.Array, size: int) -> jax.Array:
    # once at either border, which is as far as pixels move; without the slow division of mirroring for ever
    last = size - 1
    return jnp.clip(last - jnp.abs(last - jnp.abs(index)), 0, last)


# ITU-T T.81, tables K.1 and K.2
LUMA_DIVISORS = np.array(
    [
        [16, 11, 10, 16, 24, 40, 51, 61],
        [12, 12, 14, 19, 26, 58, 60, 55],
        [14, 13, 16, 24, 40, 57, 69, 56],
        [14, 17, 22, 29, 51, 87, 80, 62],
        [18, 22, 37, 56, 68, 109, 103, 77],
        [24, 35, 55, 64, 81, 104, 113, 92],
        [49, 64, 78, 87, 103, 121, 120, 101],
        [72, 92, 95, 98, 112, 100, 103, 99],
    ]
)
CHROMA_DIVISORS = np.full((8, 8), 99)
CHROMA_DIVISORS[:4, :4] = [[17, 18, 24, 47], [18, 21, 26, 66], [24, 26, 56, 99], [47, 66, 99, 99]]

TO_YCBCR = np.array(
    [[0.299, 0.587, 0.114], [-0.168735892, -0.331264108, 0.5], [0.5, -0.418687589, -0.081312411]], np.float32
)
FROM_YCBCR = np.array([[1, 0, 1.402], [1, -0.344136286, -0.714136286], [1, 1.772, 0]], np.float32)
MIDDLE = np.array([0.0, 128.0, 128.0], np.float32)[:, None, None]  # chroma is stored with an offset

DCT = fft.dct(np.eye(8), axis=0, norm="ortho")


def jpeg_compression(u: jax.Array, image: jax.Array, quality: int) -> jax.Array:
    """An image (1 or 3, height, width) in [0, 1] after compression at quality 1 to 100.

        blocks of 8 x 8 -> DCT -> round(coefficient / q) q -> inverse DCT,   q: standard tables, scaled by the quality

    Only rounding loses information, so no file is written and entropy coding is omitted. Colour is converted to YCbCr
    with chroma at half the resolution on both axes (4:2:0): downsampled by 2 x 2 means, upsampled by linear
    interpolation (3/4 and 1/4), the defaults of libjpeg and Pillow. Images are rounded to 8 bits first.
    """
    height, width = image.shape[-2:]
    levels = jnp.round(255 * image)
    if len(image) == 1:
        return quantised(levels, scaled(LUMA_DIVISORS, quality)) / 255
    planes = jnp.round(jnp.tensordot(TO_YCBCR, levels, 1, precision="highest") + MIDDLE)
    luma = quantised(planes[:1], scaled(LUMA_DIVISORS, quality))
    even = jnp.pad(planes[1:], ((0, 0), (0, height % 2), (0, width % 2)), mode="edge")
    halves = jnp.round(on_both_axes(_halving(height), _halving(width), even))
    halves = quantised(halves, scaled(CHROMA_DIVISORS, quality))
    chroma = jnp.round(on_both_axes(_doubling(height), _doubling(width), halves))
    planes = jnp.concatenate([luma, chroma]) - MIDDLE
    return jnp.round(jnp.tensordot(FROM_YCBCR, planes, 1, precision="highest")) / 255


def scaled(table: np.ndarray, quality: int) -> np.ndarray:
    """The divisors for a quality: the table itself at 50, half at 75, all 1 at 100, double at 25.

    >>> scaled(LUMA_DIVISORS, 50)[0, 0].item(), scaled(LUMA_DIVISORS, 75)[0, 0].item()
    (16, 8)
    >>> scaled(LUMA_DIVISORS, 100).max().item()
    1
    """
    percent = 5000 // quality if quality < 50 else 200 - 2 * quality
    return np.clip((table * percent + 50) // 100, 1, 255)


def quantised(planes: jax.Array, divisors: np.ndarray) -> jax.Array:
    """Planes (n, height, width) of 0..255 with their DCT coefficients rounded to multiples of the divisors.

    >>> quantised(jnp.full((1, 8, 8), 128.0), np.full((8, 8), 50)).mean().item()
    128.0
    """
    count, height, width = planes.shape
    padded = jnp.pad(planes, ((0, 0), (0, -height % 8), (0, -width % 8)), mode="edge") - 128.0
    blocks = padded.reshape(count, padded.shape[1] // 8, 8, padded.shape[2] // 8, 8).swapaxes(2, 3)
    coefficients = on_both_axes(DCT, DCT, blocks)
    divisors = divisors.astype(np.float32)
    blocks = on_both_axes(DCT.T, DCT.T, jnp.round(coefficients / divisors) * divisors)
    return jnp.clip(jnp.round(blocks.swapaxes(2, 3).reshape(padded.shape)[:, :height, :width] + 128.0), 0.0, 255.0)


def _halving(size: int) -> np.ndarray:
    half = (size + 1) // 2
    return np.repeat(np.eye(half), 2, axis=1) / 2


def _doubling(size: int) -> np.ndarray:
    half = (size + 1) // 2
    pixels = np.arange(size)
    beside = np.clip(pixels // 2 + np.where(pixels % 2, 1, -1), 0, half - 1)
    return 0.75 * np.eye(half)[pixels // 2] + 0.25 * np.eye(half)[beside]
