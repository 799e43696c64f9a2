"""What a check is, and the bounds on rounding errors that its results must stay within.

A sum of n products in float32, in any order, is within n u sum |a b| of the exact one, with u = 2^-24 (Higham, Accuracy
and Stability of Numerical Algorithms, 2002, section 3.1). Such bounds hold for every correct compiler, whatever it
fuses or reorders, and a wrong number usually exceeds them by orders of magnitude.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

U = 2.0**-24  # the unit roundoff of float32
SLACK = 8  # for operations not counted one by one, and elementary functions, which are accurate to a few u


class Truth(NamedTuple):
    """The float64 result, and how far from it a correct float32 result can be, per entry; 0 if it must be exact."""

    value: np.ndarray
    bound: np.ndarray | float


class Check(NamedTuple):
    """A small program and its exact result.

    Args:
        name: as the report shows it.
        program: in JAX, a function of arrays.
        truth: in NumPy, a function of the same arrays.
        inputs: makes the arrays.
    """

    name: str
    program: Callable[..., Any]
    truth: Callable[..., Truth]
    inputs: Callable[[np.random.Generator], tuple[np.ndarray, ...]]


def normals(*shapes: tuple[int, ...]) -> Callable[[np.random.Generator], tuple[np.ndarray, ...]]:
    """Inputs of these shapes, N(0, 1)."""
    return lambda rng: tuple(rng.normal(size=shape).astype(np.float32) for shape in shapes)


def sums_of_products(exact: Callable[..., np.ndarray], terms: int) -> Callable[..., Truth]:
    """The truth of a program that is linear in each of its inputs and sums so many products of them.

    >>> sums_of_products(np.dot, 2)(np.float32([1, 1]), np.float32([1, -1])).value.item()
    0.0
    """

    def truth(*inputs: np.ndarray) -> Truth:
        wide = [array.astype(np.float64) for array in inputs]
        return Truth(exact(*wide), terms * U * exact(*map(np.abs, wide)))

    return truth


def excess(result: Any, truth: Truth) -> float:
    """The largest error over its bound: at most 1 if correct, infinite for what should be exact and is not.

    >>> excess(np.float32([1.0, 2.0]), Truth(np.array([1.0, 2.5]), 0.25))
    2.0
    """
    result = np.asarray(result)
    if result.shape != truth.value.shape:
        return float("inf")
    error = np.abs(result.astype(np.float64) - truth.value)
    bound = np.broadcast_to(truth.bound, error.shape)
    ratio = np.divide(error, bound, out=np.where(error == 0, 0.0, np.inf), where=bound > 0)
    return float(np.where(np.isnan(ratio), np.inf, ratio).max())  # a NaN is an infinite error
