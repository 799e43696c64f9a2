"""Predicted intervals: how often the target lies inside, and how wide they had to be for that."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from posteriax.metrics.inputs import as_numbers, check_same_shape, known
from posteriax.metrics.shares import share


def interval(draws: Any, level: float = 0.9) -> tuple[jax.Array, jax.Array]:
    """The central interval that holds a share `level` of the draws: lower and upper ends, (N, ...) each.

    The draws must be of the target, with its noise. Of a predictive with Gaussian noise take
    ``predictive.quantile([0.05, 0.95])``, which is exact; draws cannot show tails they are too few for.

    Args:
        draws: (S, N, ...).
        level: strictly between 0 and 1.

    >>> lower, upper = interval([[0.0], [1.0], [2.0], [3.0], [4.0]], level=0.5)
    >>> lower.item(), upper.item()
    (1.0, 3.0)
    """
    draws = as_numbers("draws", draws)
    if not 0.0 < level < 1.0:
        raise ValueError(f"level must lie strictly between 0 and 1, got {level}")
    if draws.ndim == 0:
        raise ValueError("draws must have a first axis of draws, got a number")
    lower, upper = jnp.quantile(draws, jnp.array([(1 - level) / 2, (1 + level) / 2]), axis=0)
    return lower, upper


def interval_coverage(lower: Any, upper: Any, y: Any) -> jax.Array:
    """The share of targets inside their intervals, ends included; best is the level the intervals were made for.

    Args:
        lower, upper, y: of the same shape.

    >>> interval_coverage(lower=[0.0, 0.0], upper=[1.0, 1.0], y=[0.5, 2.0]).item()
    0.5
    """
    lower, upper = _ends(lower, upper)
    y = as_numbers("y", y)
    check_same_shape(lower=lower, upper=upper, y=y)
    return share(((lower <= y) & (y <= upper)).reshape(-1))


def interval_width(lower: Any, upper: Any) -> jax.Array:
    """The mean width of intervals, in the units of y; of two with the right coverage the narrower is better.

    Args:
        lower, upper: of the same shape.

    >>> interval_width(lower=[0.0, 0.0], upper=[1.0, 2.0]).item()
    1.5
    """
    lower, upper = _ends(lower, upper)
    return (upper - lower).mean()


def _ends(lower: Any, upper: Any) -> tuple[jax.Array, jax.Array]:
    low, high = as_numbers("lower", lower, infinite=True), as_numbers("upper", upper, infinite=True)
    check_same_shape(lower=low, upper=high)
    if known(lower) and known(upper) and (np.asarray(lower) > np.asarray(upper)).any():
        raise ValueError("lower must not be above upper; were they exchanged?")
    return low, high
