"""Scores of predicted real numbers: of their means."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from posteriax.metrics.inputs import (
    Values,
    as_numbers,
    check_same_shape,
    keeps_precision,
    mean_per_example,
    targets_like,
)
from posteriax.metrics.reductions import RootMean
from posteriax.metrics.score import Score


@keeps_precision
def rmse(mean: Any, y: Any) -> Values:
    """Root of the mean squared error of the predicted means, in the units of y; best is 0.

    Args:
        mean, y: of the same shape.

    >>> rmse([1.0, 2.0], [1.0, 4.0]).round(3).item()
    1.414...
    """
    mean, y = as_numbers("mean", mean), as_numbers("y", y)
    check_same_shape(mean=mean, y=y)
    return jnp.sqrt(((mean - y) ** 2).mean())


def _squared_errors(predictive: Any, y: Any) -> np.ndarray:
    mean = predictive.mean
    return mean_per_example((mean.astype(np.float64) - targets_like(mean, y)) ** 2)


RMSE = Score(
    name="rmse",
    meaning="Root mean squared error of the predicted mean, in the unit of the target.",
    better="lower",
    per_example=_squared_errors,
    reduction=RootMean(),
    needs=("mean",),
)
