"""Corrupting a set of images: in chunks of bounded size, with a separate key for each image."""

import zlib
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from posteriax._internal.checks import as_key
from posteriax._internal.memory import IMAGE_VALUES, fitting
from posteriax.data.corruptions.images import Channels, as_images
from posteriax.data.corruptions.suite import CORRUPTIONS, EXTRA_CORRUPTIONS, NEEDS_COLOUR, SEVERITIES, SUITE
from posteriax.data.corruptions.uniforms import uniforms


def check_corruption(kind: str, severity: int) -> None:
    """Raise if there is no such corruption."""
    if kind not in SUITE:
        raise ValueError(
            f"kind must be one of {', '.join(CORRUPTIONS)}, or one of the extras {', '.join(EXTRA_CORRUPTIONS)}; "
            f"got {kind!r}"
        )
    if isinstance(severity, bool) or severity not in SEVERITIES:
        raise ValueError(f"severity must be 1, 2, 3, 4 or 5, got {severity!r}")


def corrupt(
    images: Any, kind: str, severity: int, key: int | jax.Array, *, channels: Channels = "last", first: int = 0
) -> np.ndarray:
    """Apply one common corruption to images, which keep their dtype: uint8, or floats in [0, 1].

    The same key gives the same images. The noise of an image depends on the key, the kind and its index only, not on
    the other images or the severity, so severities differ in strength alone.

    Args:
        images: (N, height, width) in grey, or (N, height, width, channels) with 1 or 3 channels; uint8, or floats in
            [0, 1]. At least 4 x 4 pixels.
        kind: one of ``px.data.CORRUPTIONS`` or ``px.data.EXTRA_CORRUPTIONS``.
        severity: 1 to 5.
        key: an int or a JAX key.
        channels: "first" for (N, channels, height, width).
        first: the index of the first image, for a large set that is corrupted in parts.

    Returns:
        A NumPy array with the shape and dtype of `images`.

    >>> import posteriax as px
    >>> _, (images, labels) = px.data.fashion_small()
    >>> dim = px.corrupt(images[:8], "contrast", severity=3, key=0)
    >>> dim.shape, dim.dtype, (dim.std() / images[:8].std() < 0.5).item()
    ((8, 28, 28), dtype('float32'), True)
    """
    check_corruption(kind, severity)
    if isinstance(first, bool) or not isinstance(first, (int, np.integer)) or first < 0:
        raise ValueError(f"first must be a whole number of at least 0, got {first!r}")
    array = as_images(images, channels)
    out = np.empty(array.shape, array.dtype)
    # transpose here: fused with the arithmetic, the transpose would prevent vectorisation
    planes, out_planes = _channels_first(array, channels), _channels_first(out, channels)
    if kind in NEEDS_COLOUR and planes.shape[1] == 1:
        raise ValueError(f"{kind} needs 3 channels, but images are grey: shape {array.shape}")

    # always threefry: other generators give different numbers under vmap
    words = jax.random.bits(as_key(key), (2,), jnp.uint32)
    kind_key = jax.random.fold_in(jax.random.wrap_key_data(words, impl="threefry2x32"), zlib.crc32(kind.encode()))
    numbers = SUITE[kind].numbers(*planes.shape[1:])
    size = _chunk_size(len(planes), max(planes[0].size, numbers))
    program = _program(kind, int(severity))
    top = np.float32(255 if array.dtype == np.uint8 else 1)
    for start in range(0, len(planes), size):
        chunk = planes[start : start + size]
        rows = np.minimum(np.arange(size), len(chunk) - 1)  # padded, so that all chunks share a program
        u = uniforms(kind_key, first + start, size, numbers)
        result = np.asarray(program(u, chunk[rows].astype(np.float32) / top))[: len(chunk)]
        out_planes[start : start + size] = np.rint(255 * result) if top == 255 else result
    return out


def _program(kind: str, severity: int) -> Callable[[jax.Array, np.ndarray], jax.Array]:
    constants = SUITE[kind].at(severity)
    given, fixed = (constants, ()) if SUITE[kind].arithmetic else ((), constants)
    return partial(_corrupted, kind=kind, given=given, fixed=fixed)


@partial(jax.jit, static_argnames=("kind", "fixed"))
def _corrupted(
    u: jax.Array, images: jax.Array, *, kind: str, given: tuple[jax.Array, ...], fixed: tuple[float, ...]
) -> jax.Array:
    corrupted = jax.vmap(lambda own, image: SUITE[kind].function(own, image, *given, *fixed))
    return jnp.clip(corrupted(u, images), 0.0, 1.0)


def _channels_first(images: np.ndarray, channels: Channels) -> np.ndarray:
    """A view (N, channels, height, width)."""
    if images.ndim == 3:
        return images[:, None]
    return images if channels == "first" else np.moveaxis(images, -1, 1)


def _chunk_size(count: int, values: int) -> int:
    """A power of 2, so that sets of different sizes share programs."""
    most = fitting(IMAGE_VALUES, values)
    return min(1 << (most.bit_length() - 1), 1 << (count - 1).bit_length())
