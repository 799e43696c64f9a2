"""Checks of user input, done once, with errors that say what would be right."""

import math
import os
import warnings
from collections.abc import Iterable

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from posteriax._internal.memory import SCANNED_VALUES, Inputs, fitting

KeyLike = int | np.integer | jax.Array  # a key as users may give it
ROUNDED = 0.003  # of the range of some values: by so much, rounding to single precision changes what they say


def check_positive(name: str, value: float) -> None:
    if not (isinstance(value, (int, float, np.number)) and value > 0 and math.isfinite(value)):
        raise ValueError(f"{name} must be a positive number, got {value!r}")


def check_fraction(name: str, value: float) -> None:
    if not 0.0 < value < 1.0:
        raise ValueError(f"{name} must lie strictly between 0 and 1, got {value!r}")


def check_count(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")
    return int(value)


def check_choice(name: str, value: object, allowed: Iterable[str]) -> None:
    """Raise unless `value` is one of the allowed words.

    >>> check_choice("over", "layer", ("leaf", "network"))
    Traceback (most recent call last):
    ValueError: over must be "leaf" or "network", got 'layer'
    """
    if value not in (words := tuple(allowed)):
        *first, last = (f'"{word}"' for word in words)
        raise ValueError(f"{name} must be {', '.join(first)} or {last}, got {value!r}")


def as_key(key: KeyLike) -> jax.Array:
    """A JAX key from an int or a JAX key."""
    if isinstance(key, (int, np.integer)) and not isinstance(key, bool):
        return jax.random.key(int(key))
    if isinstance(key, jax.Array) and jnp.issubdtype(key.dtype, jax.dtypes.prng_key) and key.ndim == 0:
        return key
    if isinstance(key, jax.Array) and key.dtype == jnp.uint32 and key.shape == (2,):
        return jax.random.wrap_key_data(key)
    raise TypeError(f"key must be an int or a JAX key such as jax.random.key(0), got {key!r}")


def check_inputs(x: Inputs) -> Inputs:
    """`x` as a pytree of numeric, finite host arrays that share a leading axis of at least one example."""
    arrays = jax.tree.map(lambda leaf: _numeric("x", leaf), x)
    leaves = jax.tree.leaves(arrays)
    if not leaves:
        raise ValueError("x has no arrays")
    lengths = {leaf.shape[0] if leaf.ndim else None for leaf in leaves}
    if None in lengths or len(lengths) > 1:
        raise ValueError(
            f"x must be an array (or a tree of arrays) with a leading axis of examples, the same for all; got "
            f"{'numbers' if None in lengths else f'lengths {sorted(lengths)}'}. Turn nested lists into an array."  # type: ignore[type-var]
        )
    if lengths == {0}:
        raise ValueError("x is empty: it has 0 examples")
    for leaf in leaves:
        _check_range("x", leaf)
    return arrays


def check_targets(y: ArrayLike) -> np.ndarray:
    array = np.asarray(y)
    if array.ndim and array.dtype.kind in "OUST":  # labels as text
        raise TypeError(
            f"y must be an array of real numbers, got dtype {array.dtype}. To number labels from 0: "
            f"classes, y = np.unique(y, return_inverse=True)"
        )
    return _numeric("y", y)


def check_data(data: object) -> tuple[Inputs, np.ndarray]:
    """`(x, y)` with as many targets as inputs."""
    if not (isinstance(data, (tuple, list)) and len(data) == 2):
        given = f"{type(data).__name__} of {len(data)}" if isinstance(data, (tuple, list)) else type(data).__name__
        hint = ": give its .train" if hasattr(data, "train") else ""
        raise TypeError(f"data must be a pair (x, y), got {given}{hint}")
    x, y = check_inputs(data[0]), check_targets(data[1])
    n = jax.tree.leaves(x)[0].shape[0]
    if y.ndim == 0 or y.shape[0] != n:
        raise ValueError(f"x has {n} examples, but y has {y.shape[0] if y.ndim else 'no axis of examples'}")
    for leaf in jax.tree.leaves(x):
        warn_if_rounded("x", leaf)
    return x, y


def check_weights(weight: ArrayLike, n: int) -> np.ndarray:
    """A weight of at least 0 for each of `n` examples, not all 0, in single precision."""
    array = _numeric("weight", weight)
    if array.shape != (n,):
        raise ValueError(f"weight must have shape ({n},), one number for each example, got {array.shape}")
    with np.errstate(over="ignore"):  # checked below
        single = array.astype(np.float32)
    if not (np.isfinite(single).all() and single.min() >= 0 and single.max() > 0):
        raise ValueError(
            f"weight must be at least 0, finite in single precision, and above 0 for some example; got values from "
            f"{array.min():.3g} to {array.max():.3g}"
        )
    return single


def warn_if_rounded(name: str, array: np.ndarray) -> None:
    """Warn if float64 values, column by column, are so close together that float32 can hardly tell them apart."""
    is_kept = jax.dtypes.canonicalize_dtype(np.float64) == np.float64
    if array.dtype != np.float64 or is_kept or isinstance(array, np.memmap) or array.ndim == 0:
        return
    low, high = array.min(axis=0), array.max(axis=0)
    largest, width = np.maximum(np.abs(low), np.abs(high)), high - low
    eps = np.finfo(np.float64).eps, np.finfo(np.float32).eps
    # values that differ by the rounding of double precision are constant
    suspects = (width > 100 * eps[0] * largest) & (eps[1] / 2 * largest > ROUNDED * width)
    if not suspects.any():
        return
    with np.errstate(over="ignore"):
        rounding = np.abs(array - array.astype(np.float32)).max(axis=0)
    bad = np.argwhere(suspects & (rounding > ROUNDED * width))
    if len(bad):
        column = tuple(int(i) for i in bad[0])
        where = f" (column {', '.join(map(str, column))})" if column else ""
        warnings.warn(
            f"{name}{where} lies between {low[column]:.10g} and {high[column]:.10g}, and single precision, in which "
            f"networks compute, rounds that by up to {rounding[column]:.2g}. Subtract a constant first, such as the "
            f"mean",
            stacklevel=3,
        )


def _check_range(name: str, array: np.ndarray) -> None:
    """Raise if whole numbers would wrap around: JAX has 32 bits for them, unless ``jax_enable_x64`` is set."""
    if array.dtype.kind not in "iu" or array.dtype == jax.dtypes.canonicalize_dtype(array.dtype):
        return
    limits = np.iinfo(jax.dtypes.canonicalize_dtype(array.dtype))
    rows = fitting(SCANNED_VALUES, array[:1].size)
    for start in range(0, len(array), rows):
        part = array[start : start + rows]
        if part.size and (part.min() < limits.min or part.max() > limits.max):
            wrong = part.min() if part.min() < limits.min else part.max()
            raise ValueError(
                f"{name} has the whole number {wrong}, which does not fit into 32 bits. If it is a quantity, use "
                f"floating point and standardise it; if it is a code, number the codes from 0 "
                f"(np.unique(..., return_inverse=True))"
            )


def _numeric(name: str, value: ArrayLike) -> np.ndarray:
    if isinstance(value, (str, bytes, os.PathLike)):
        raise TypeError(f"{name} must be an array of numbers, got {type(value).__name__}")
    array = value if isinstance(value, np.memmap) else np.asarray(value)  # a memory map stays one
    # ml_dtypes' floats (bfloat16) are of kind "V": jnp knows them, NumPy's letters do not
    if not (array.dtype.kind in "biuf" or jnp.issubdtype(array.dtype, jnp.floating)):
        raise TypeError(f"{name} must be an array of real numbers, got dtype {array.dtype}")
    if array.dtype.kind not in "biu":
        _check_finite(name, array)
    return array


def _check_finite(name: str, array: np.ndarray) -> None:
    rows = fitting(SCANNED_VALUES, array[:1].size) if array.ndim else 1  # in chunks: masks are large too
    count, first = 0, None
    for start in range(0, len(array) if array.ndim else 1, rows):
        bad = ~np.isfinite(array[start : start + rows] if array.ndim else array)
        if bad.any():
            row, *rest = (int(i) for i in np.argwhere(bad)[0]) if array.ndim else (0,)
            first = first or (start + row, *rest) if array.ndim else ()
            count += int(bad.sum())
    if count:
        raise ValueError(f"{name} has {count} non-finite values, the first at index {first}")
