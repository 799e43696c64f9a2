"""A data set of images from its arrays of bytes, checked."""

from collections.abc import Mapping
from typing import Literal

import numpy as np

from posteriax.data.sets.data_set import DataSet
from posteriax.data.sets.fetching import DataError

Dtype = Literal["float32", "uint8"]


def check_dtype(dtype: str) -> None:
    """Called first, before anything is read."""
    if dtype not in ("float32", "uint8"):
        raise ValueError(f'dtype must be "float32", for values from 0 to 1, or "uint8", got {dtype!r}')


def as_images(
    name: str, arrays: Mapping[str, np.ndarray], shape: tuple[int, ...], classes: tuple[str, ...], dtype: Dtype
) -> DataSet:
    """The data set in the arrays x_train, y_train, x_test and y_test, with x from 0 to 1, or as bytes."""
    parts = {}
    for part in ("train", "test"):
        x, y = arrays[f"x_{part}"], arrays[f"y_{part}"]
        if x.dtype != np.uint8 or x.shape[1:] != shape:
            expected = ", ".join(["N", *map(str, shape)])
            raise DataError(f"x_{part} of {name} must be bytes (uint8) of shape ({expected}), got {x.dtype} {x.shape}")
        if y.shape != x.shape[:1] or y.dtype.kind not in "iu":
            raise DataError(f"y_{part} of {name} must be {len(x)} whole numbers, got {y.dtype} {y.shape}")
        if len(y) == 0 or y.min() < 0 or y.max() >= len(classes):
            raise DataError(f"y_{part} of {name} must have labels from 0 to {len(classes) - 1}")
        x = x if dtype == "uint8" else x.astype(np.float32) * np.float32(1 / 255)
        parts[part] = (x, y.astype(np.int32))
    return DataSet(name, parts["train"], parts["test"], classes)
