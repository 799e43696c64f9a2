"""Predicted intervals: how often the target lies inside, and how wide they had to be for that."""

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from posteriax._internal.checks import check_fraction
from posteriax.likelihoods.predictive import mean_per_example
from posteriax.metrics.arrays import (
    Values,
    as_numbers,
    check_same_shape,
    fraction_true,
    is_concrete,
    keeps_precision,
)
from posteriax.metrics.score import Score


@keeps_precision
def interval(draws: ArrayLike, level: float = 0.9) -> tuple[Values, Values]:
    """The central interval that holds a fraction `level` of the draws: lower and upper ends, (N, ...) each.

    The draws must be of the target, including its noise. For a predictive of real numbers use
    ``predictive.quantile([0.05, 0.95])``, which is exact; a few draws cannot show the tails.

    Args:
        draws: (S, N, ...).
        level: strictly between 0 and 1.

    >>> lower, upper = interval([[0.0], [1.0], [2.0], [3.0], [4.0]], level=0.5)
    >>> lower.item(), upper.item()
    (1.0, 3.0)
    """
    draws = as_numbers("draws", draws)
    check_fraction("level", level)
    if draws.ndim == 0:
        raise ValueError("draws must have a first axis of draws, got a number")
    lower, upper = jnp.quantile(draws, jnp.array([(1 - level) / 2, (1 + level) / 2]), axis=0)
    return lower, upper


@keeps_precision
def interval_coverage(lower: ArrayLike, upper: ArrayLike, y: ArrayLike) -> Values:
    """The fraction of targets inside their intervals, ends included; best is the level the intervals were made for.

    Args:
        lower, upper, y: of the same shape.

    >>> interval_coverage(lower=[0.0, 0.0], upper=[1.0, 1.0], y=[0.5, 2.0]).item()
    0.5
    """
    lower, upper = _ends(lower, upper)
    y = as_numbers("y", y)
    check_same_shape(lower=lower, upper=upper, y=y)
    return fraction_true(((lower <= y) & (y <= upper)).reshape(-1))


COVERAGE_90 = Score(
    name="coverage_90",
    meaning="How often the central 90 % interval holds the target: 0.9 if the uncertainty is honest.",
    better=0.9,
    per_example=lambda predictive, y: mean_per_example(predictive.share_inside(y, 0.9)),
    needs=("share_inside",),
)


@keeps_precision
def interval_width(lower: ArrayLike, upper: ArrayLike) -> Values:
    """The mean width of intervals, in the units of y; with equal coverage, narrower is better.

    Args:
        lower, upper: of the same shape.

    >>> interval_width(lower=[0.0, 0.0], upper=[1.0, 2.0]).item()
    1.5
    """
    lower, upper = _ends(lower, upper)
    return (upper - lower).mean()


def _ends(lower: ArrayLike, upper: ArrayLike) -> tuple[jax.Array, jax.Array]:
    low, high = as_numbers("lower", lower, infinite=True), as_numbers("upper", upper, infinite=True)
    check_same_shape(lower=low, upper=high)
    if is_concrete(lower) and is_concrete(upper) and (np.asarray(lower) > np.asarray(upper)).any():
        raise ValueError("lower must not be above upper; were they swapped?")
    return low, high
