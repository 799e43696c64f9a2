"""Corrupting images: one corruption of a set of images, or a test set with all of its corruptions.

Images are corrupted in chunks of bounded size, with a separate key for each image.
"""

import os
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from posteriax._internal.checks import KeyLike, as_key, check_choice, check_count, check_data
from posteriax._internal.memory import IMAGE_VALUES, SCANNED_VALUES, fitting
from posteriax.data.batches import Inputs
from posteriax.data.corruptions.suite import CORRUPTIONS, EXTRA_CORRUPTIONS, NEEDS_COLOUR, SEVERITIES, SUITE
from posteriax.data.corruptions.uniforms import uniforms

Channels = Literal["first", "last"]

SMALLEST = 4  # pixels along a side: below that, blocks and borders make no sense


def corrupt(
    images: ArrayLike, kind: str, severity: int, key: KeyLike, *, channels: Channels = "last", first: int = 0
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
    >>> dim = px.data.corrupt(images[:8], "contrast", severity=3, key=0)
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
    corrupted = jax.vmap(lambda image_u, image: SUITE[kind].function(image_u, image, *given, *fixed))
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


def check_corruption(kind: str, severity: int) -> None:
    """Raise if there is no such corruption."""
    if kind not in SUITE:
        raise ValueError(
            f"kind must be one of {', '.join(CORRUPTIONS)}, or one of the extras {', '.join(EXTRA_CORRUPTIONS)}; "
            f"got {kind!r}"
        )
    if isinstance(severity, bool) or severity not in SEVERITIES:
        raise ValueError(f"severity must be 1, 2, 3, 4 or 5, got {severity!r}")


def as_images(images: ArrayLike, channels: Channels) -> np.ndarray:
    """`images` as an array of (N, height, width) or with 1 or 3 channels, uint8 or floats in [0, 1].

    >>> as_images(np.zeros((2, 3, 8, 8), np.uint8), "first").shape
    (2, 3, 8, 8)
    """
    check_choice("channels", channels, ("first", "last"))
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
        advice = " For one image, give images[None]." if len(shape) == 2 else ""
        raise ValueError(f"images must have the axes (N, height, width) or {form}, got shape {shape}.{advice}")
    if 0 in shape:
        raise ValueError(f"images are empty: shape {shape}")
    if len(shape) == 4 and shape[-1 if last else 1] not in (1, 3):
        other = "first" if last else "last"
        swapped = shape[1 if last else -1] in (1, 3)
        advice = f'. Are the channels {other}? Give channels="{other}"' if swapped else ""
        raise ValueError(f"images must have 1 or 3 channels, got shape {shape}, read as {form}{advice}")
    height, width = shape[1:3] if len(shape) == 3 or last else shape[2:]
    if min(height, width) < SMALLEST:
        advice = f" For one colour image {shape}, give images[None]." if len(shape) == 3 and shape[-1] in (1, 3) else ""
        raise ValueError(f"images must be at least {SMALLEST} x {SMALLEST} pixels, got {height} x {width}.{advice}")


def _check_range(array: np.ndarray) -> None:
    rows = fitting(SCANNED_VALUES, array[0].size)  # in chunks: the set may be a memory map
    for start in range(0, len(array), rows):
        part = array[start : start + rows].astype(np.float32)
        low, high = float(part.min()), float(part.max())
        if not np.isfinite([low, high]).all():
            first, *rest = (int(i) for i in np.argwhere(~np.isfinite(part))[0])
            index = (first + start, *rest)
            raise ValueError(f"images have non-finite values, the first at index {index}")
        if low < 0 or high > 1:
            advice = " Divide by 255, or give uint8." if high > 2 and low >= 0 else ""
            raise ValueError(f"images of floats must lie in [0, 1], got values from {low:.4g} to {high:.4g}.{advice}")


class Corruption(NamedTuple):
    """What was done to a test set.

    >>> Corruption("fog", 3).severity
    3
    """

    kind: str
    severity: int


class CorruptedSet(tuple[Inputs, np.ndarray]):
    """A corrupted test set ``(x, y)``: :func:`px.compare` averages such sets by severity.

    ``px.data.corrupted`` makes them; make your own for other corruptions. :func:`px.compare` goes by this type, not by
    the name of a test set.

    Args:
        x, y: inputs as the network takes them, and targets.
        kind: the corruption.
        severity: from 1; 0 is the main test set.

    >>> x, y = worse = CorruptedSet(np.zeros((5, 2)), np.zeros(5, int), kind="fog", severity=3)
    >>> worse.corruption, x.shape
    (Corruption(kind='fog', severity=3), (5, 2))
    """

    corruption: Corruption

    def __new__(cls, x: Inputs, y: np.ndarray, *, kind: str, severity: int) -> "CorruptedSet":
        made = super().__new__(cls, (x, y))
        made.corruption = Corruption(str(kind), check_count("severity", severity))
        return made


@dataclass(frozen=True, eq=False)
class Corrupted(Mapping[str, tuple[Inputs, np.ndarray]]):
    """Test sets by name: "clean", and a :class:`CorruptedSet` "kind severity" for each kind and severity.

    Made by :func:`corrupted`.
    """

    images: np.ndarray
    y: np.ndarray
    kinds: tuple[str, ...]
    severities: tuple[int, ...]
    key: KeyLike
    prepare: Callable[[np.ndarray], Inputs]
    channels: Channels = "last"

    def __getitem__(self, name: str) -> tuple[Inputs, np.ndarray]:
        if name == "clean":
            return self.prepare(self.images), self.y
        kind, _, severity = name.rpartition(" ")
        if kind not in self.kinds or severity not in map(str, self.severities):
            raise KeyError(name)
        x = self.prepare(corrupt(self.images, kind, int(severity), self.key, channels=self.channels))
        return CorruptedSet(x, self.y, kind=kind, severity=int(severity))

    def __iter__(self) -> Iterator[str]:
        yield "clean"
        yield from (f"{kind} {severity}" for kind in self.kinds for severity in self.severities)

    def __len__(self) -> int:
        return 1 + len(self.kinds) * len(self.severities)


def corrupted(
    data: tuple[ArrayLike, ArrayLike],
    kinds: Sequence[str] = CORRUPTIONS,
    severities: Sequence[int] = (1, 2, 3, 4, 5),
    *,
    key: KeyLike = 0,
    prepare: Callable[[np.ndarray], Inputs] | None = None,
    channels: Channels = "last",
) -> Corrupted:
    """A test set of images, clean and corrupted, for :func:`px.compare`.

    Args:
        data: ``(images, y)`` with images as :func:`corrupt` takes them.
        kinds, severities: which corruptions.
        key: for the random part of corruptions.
        prepare: preprocessing of the images for the network (scaling, flattening); none by default.
        channels: "first" for images (N, channels, height, width).

    >>> import posteriax as px
    >>> _, test = px.data.fashion_small()
    >>> sets = px.data.corrupted(test, ["contrast"], [1, 5], prepare=lambda images: images.reshape(len(images), -1))
    >>> list(sets), sets["contrast 5"][0].shape
    (['clean', 'contrast 1', 'contrast 5'], (1000, 784))
    """
    images, y = check_data(data)
    sets = Corrupted(images, y, tuple(kinds), tuple(severities), key, prepare or (lambda a: a), channels)
    for kind in sets.kinds:  # a wrong name should fail now, not after minutes of predictions
        for severity in sets.severities:
            check_corruption(kind, severity)
    return sets
