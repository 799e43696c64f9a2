"""Digital corruptions: contrast, pixelation, saturation."""

import jax

from posteriax.data.corruptions.axis_maps import box_matrix, on_both_axes
from posteriax.data.corruptions.colour import with_saturation


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
