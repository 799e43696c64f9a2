"""Images as users hold them, checked: which axes they have, and which values."""

import os
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np

from posteriax._internal.memory import SCANNED_VALUES, fitting

Channels = Literal["first", "last"]

SMALLEST = 4  # pixels along a side: below that, blocks and borders make no sense


def as_images(images: Any, channels: Channels) -> np.ndarray:
    """`images` as an array of (N, height, width) or with 1 or 3 channels, uint8 or floats in [0, 1].

    >>> as_images(np.zeros((2, 3, 8, 8), np.uint8), "first").shape
    (2, 3, 8, 8)
    """
    if channels not in ("first", "last"):
        raise ValueError(f'channels must be "first" or "last", got {channels!r}')
    if isinstance(images, (str, bytes, os.PathLike)):
        raise TypeError(f"images must be an array of numbers, got {type(images).__name__}")
    array = images if isinstance(images, np.ndarray) else np.asarray(images)
    is_float = jnp.issubdtype(array.dtype, jnp.floating)
    if not (is_float or array.dtype == np.uint8):
        advice = ": use .astype(np.uint8) if the values are 0 to 255" if array.dtype.kind in "iu" else ""
        raise TypeError(f"images must be uint8 (0 to 255) or floats in [0, 1], got dtype {array.dtype}{advice}")
    _check_shape(array.shape, channels)
    if is_float:
        _check_range(array)
    return array


def _check_shape(shape: tuple[int, ...], channels: Channels) -> None:
    last = channels == "last"
    form = "(N, height, width, channels)" if last else "(N, channels, height, width)"
    if len(shape) not in (3, 4):
        one = " For one image, give images[None]." if len(shape) == 2 else ""
        raise ValueError(f"images must have the axes (N, height, width) or {form}, got shape {shape}.{one}")
    if 0 in shape:
        raise ValueError(f"images are empty: shape {shape}")
    if len(shape) == 4 and shape[-1 if last else 1] not in (1, 3):
        other = "first" if last else "last"
        swapped = shape[1 if last else -1] in (1, 3)
        advice = f'. Are the channels {other}? Give channels="{other}"' if swapped else ""
        raise ValueError(f"images must have 1 or 3 channels, got shape {shape}, read as {form}{advice}")
    height, width = shape[1:3] if len(shape) == 3 or last else shape[2:]
    if min(height, width) < SMALLEST:
        one = f" For one colour image {shape}, give images[None]." if len(shape) == 3 and shape[-1] in (1, 3) else ""
        raise ValueError(f"images must be at least {SMALLEST} x {SMALLEST} pixels, got {height} x {width}.{one}")


def _check_range(array: np.ndarray) -> None:
    rows = fitting(SCANNED_VALUES, array[0].size)  # in chunks: the set may be a memory map
    for start in range(0, len(array), rows):
        part = array[start : start + rows].astype(np.float32)
        low, high = float(part.min()), float(part.max())
        if not np.isfinite([low, high]).all():
            place = np.argwhere(~np.isfinite(part))[0]
            index = (int(place[0]) + start, *(int(i) for i in place[1:]))
            raise ValueError(f"images have non-finite values, the first at index {index}")
        if low < 0 or high > 1:
            advice = " Divide by 255, or give uint8." if high > 2 and low >= 0 else ""
            raise ValueError(f"images of floats must lie in [0, 1], got values from {low:.4g} to {high:.4g}.{advice}")
