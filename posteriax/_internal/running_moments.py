"""Running moments: of values that arrive one at a time inside a program, and of rows that arrive in blocks.

Neither subtracts a squared mean from a mean of squares: nothing cancels when the spread is small beside the mean, and
an entry that never changes has a variance of exactly 0. Blocks are summed in double precision, relative to the first
row.
"""

from collections.abc import Callable, Iterable
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np

T = TypeVar("T")  # a pytree of arrays


def add_value(mean: T, variance: T, value: T, share: jax.Array) -> tuple[T, T]:
    """Mean and variance with one more value, by Welford's update; trees of arrays, for programs that JAX traces.

        d = value - mean,   mean <- mean + share d,   variance <- (1 - share) (variance + share d^2)

    Args:
        mean: so far.
        variance: so far, around that mean; it divides by the sum of the weights.
        value: the new value.
        share: its weight among all values including it: 1 / n if the n values so far count alike, 1 for the first.

    >>> mean, variance = jnp.zeros(()), jnp.zeros(())
    >>> for n, value in enumerate([1.0, 3.0, 5.0], 1):
    ...     mean, variance = add_value(mean, variance, value, jnp.asarray(1 / n))
    >>> float(mean), round(float(variance), 3)
    (3.0, 2.667)
    """
    difference = jax.tree.map(jnp.subtract, value, mean)
    new_mean = jax.tree.map(lambda m, d: m + share.astype(m.dtype) * d, mean, difference)

    def updated(v: jax.Array, d: jax.Array) -> jax.Array:
        s = share.astype(v.dtype)
        return (1 - s) * (v + s * d * d)

    return new_mean, jax.tree.map(updated, variance, difference)


def mean_and_variance(blocks: Iterable[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of every entry, in the shape of a row. The variance divides by the number of rows.

    Args:
        blocks: arrays (rows, ...), each with any number of rows.

    >>> mean, variance = mean_and_variance([np.array([[1.0, 5.0]]), np.array([[3.0, 5.0], [5.0, 5.0]])])
    >>> mean.tolist(), variance.round(3).tolist()
    ([3.0, 5.0], [2.667, 0.0])
    """
    shape, count, origin, sums, squares = _accumulate(blocks, lambda rows: np.square(rows).sum(axis=0))
    shift = sums / count
    variance = np.maximum(squares / count - np.square(shift), 0.0)
    return (origin + shift).reshape(shape), variance.reshape(shape)


def mean_and_covariance(blocks: Iterable[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Mean in the shape of a row, and the unbiased covariance (entries, entries) of flattened rows.

    Args:
        blocks: arrays (rows, ...), at least two rows in all.

    >>> mean, covariance = mean_and_covariance([np.array([[0.0, 1.0]]), np.array([[2.0, 1.0]])])
    >>> mean.tolist(), covariance.tolist()
    ([1.0, 1.0], [[2.0, 0.0], [0.0, 0.0]])
    """
    shape, count, origin, sums, products = _accumulate(blocks, lambda rows: rows.T @ rows)
    if count < 2:
        raise ValueError("a covariance needs at least two draws")
    products -= np.outer(sums, sums) / count  # in place: this is the largest array there is
    products /= count - 1
    return (origin + sums / count).reshape(shape), products


def _accumulate(
    blocks: Iterable[np.ndarray], second: Callable[[np.ndarray], np.ndarray]
) -> tuple[tuple[int, ...], int, np.ndarray, np.ndarray, np.ndarray]:
    """Shape of a row, number of rows, first row, and the sums of what the others differ by and of `second` of that."""
    shape: tuple[int, ...] = ()
    count, origin, sums, seconds = 0, np.zeros(()), np.zeros(()), np.zeros(())
    for block in blocks:
        rows = block.reshape(len(block), -1).astype(np.float64)
        if count == 0:
            shape, origin = block.shape[1:], rows[0].copy()
            sums, seconds = np.zeros_like(origin), np.zeros_like(second(rows[:1]))
        rows -= origin
        count += len(rows)
        sums += rows.sum(axis=0)
        seconds += second(rows)
    return shape, count, origin, sums, seconds
