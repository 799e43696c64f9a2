"""The covariance of a network's inputs, or of the patches of a convolution, in double precision."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from posteriax._internal.checks import check_choice, check_inputs
from posteriax._internal.memory import PATCH_VALUES, fitting
from posteriax._internal.running_moments import mean_and_covariance


def covariance_of_inputs(x: Any, largest: int) -> np.ndarray:
    """The covariance of flattened examples, for up to `largest` inputs.

    >>> covariance_of_inputs(np.array([[0.0, 1.0], [2.0, 1.0]]), 10).tolist()
    [[2.0, 0.0], [0.0, 0.0]]
    """
    array = _inputs(x)
    inputs = math.prod(array.shape[1:])
    check_inputs_of_unit(inputs, largest)
    return mean_and_covariance(_examples(array, inputs))[1]


def covariance_of_patches(
    x: Any, kernel: int | Sequence[int], padding: int | Sequence[int], channels: str, largest: int
) -> tuple[tuple[int, ...], np.ndarray]:
    """The kernel size, and the covariance of all patches of that size, flattened with channels last.

    >>> covariance_of_patches(np.ones((2, 3, 1)), kernel=1, padding=1, channels="last", largest=10)
    ((1,), array([[0.2666...]]))
    """
    images = _channels_last(_inputs(x), channels)
    kernel = _per_axis("kernel", kernel, images.ndim - 2, least=1)
    pads = _per_axis("padding", padding, images.ndim - 2, least=0)
    check_inputs_of_unit(math.prod(kernel) * images.shape[-1], largest)
    return kernel, mean_and_covariance(_patches(images, kernel, pads))[1]


def check_inputs_of_unit(inputs: int, largest: int) -> None:
    """Raise if a unit has no inputs, or too many for their covariance."""
    if not 1 <= inputs <= largest:
        raise ValueError(
            f"p.EmpCov needs the covariance of all {inputs:,} inputs of a unit, but supports 1 to {largest:,}: use a "
            f"convolution (kernel=...), or inputs with fewer dimensions"
        )


def _inputs(x: Any) -> np.ndarray:
    array = check_inputs(x)
    if not isinstance(array, np.ndarray):
        raise TypeError(f"x must be one array of inputs, got a {type(x).__name__}: pass the one that enters the leaf")
    if array.shape[0] < 2:
        raise ValueError("x must have at least 2 examples for a covariance, got 1")
    return array


def _channels_last(x: np.ndarray, channels: str) -> np.ndarray:
    check_choice("channels", channels, ("first", "last"))
    if x.ndim < 3:
        raise ValueError(
            f"x must be images with a channel axis, (examples, height, width, channels) or (examples, channels, "
            f"height, width); got shape {x.shape}"
        )
    return np.moveaxis(x, 1, -1) if channels == "first" else x


def _per_axis(name: str, value: int | Sequence[int], axes: int, least: int) -> tuple[int, ...]:
    values = (value,) * axes if isinstance(value, int | np.integer) else tuple(value)
    if len(values) != axes or any(not isinstance(v, int | np.integer) or v < least for v in values):
        raise ValueError(
            f"{name} must be a whole number of at least {least}, or one for each of the {axes} axes of an image, got "
            f"{value!r} (images have an axis of examples and one of channels besides)"
        )
    return tuple(int(v) for v in values)


def _examples(x: np.ndarray, inputs: int) -> Iterator[np.ndarray]:
    """Flattened inputs, some rows at a time."""
    rows = fitting(PATCH_VALUES, inputs)
    for start in range(0, len(x), rows):
        yield np.asarray(x[start : start + rows], np.float64).reshape(-1, inputs)


def _patches(images: np.ndarray, kernel: tuple[int, ...], padding: tuple[int, ...]) -> Iterator[np.ndarray]:
    """All patches of the kernel's size, flattened with their channels last, of some images at a time."""
    sides = [n + 2 * pad for n, pad in zip(images.shape[1:-1], padding, strict=True)]
    if any(size > side for size, side in zip(kernel, sides, strict=True)):
        raise ValueError(f"kernel {kernel} is larger than the padded images {tuple(sides)}")
    inputs = math.prod(kernel) * images.shape[-1]
    positions = math.prod(side - size + 1 for side, size in zip(sides, kernel, strict=True))
    rows = fitting(PATCH_VALUES, positions * inputs)
    axes = tuple(range(1, 1 + len(kernel)))
    for start in range(0, len(images), rows):
        some = np.asarray(images[start : start + rows], np.float64)
        padded = np.pad(some, ((0, 0), *((pad, pad) for pad in padding), (0, 0)))
        windows = np.lib.stride_tricks.sliding_window_view(padded, kernel, axis=axes)
        yield np.moveaxis(windows, 1 + len(kernel), -1).reshape(-1, inputs)
