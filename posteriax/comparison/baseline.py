"""Baseline: a model that is not a posterior, as a row of a comparison."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from posteriax.posterior import Predictive


@dataclass(frozen=True, eq=False)
class Baseline:
    """A fitted model that posteriors are compared with, such as a random forest. :func:`px.compare` takes it as a row.

    Args:
        predictor: from inputs, as the posteriors take them, to predictions.
        description: one sentence: what it is, and where its probabilities or its spread come from.
        seconds: how long it took to fit.

    >>> import numpy as np, posteriax as px
    >>> always_even = lambda x: px.ClassPredictive(px.Categorical(), np.zeros((1, len(x), 2), np.float32))
    >>> coin = px.Baseline(always_even, "Both classes are equally probable.")
    >>> x, y = np.zeros((4, 1), np.float32), np.array([0, 1, 1, 1])
    >>> px.compare({"coin": coin}, (x, y), scores=["nll"])["coin"]["nll"]
    0.693...
    """

    predictor: Callable[[Any], Predictive]
    description: str = ""
    seconds: float = math.nan

    def predict(self, x: Any, draws: int | None = None) -> Predictive:
        """Predictions for new inputs; `draws` is ignored, since there are none."""
        return self.predictor(x)
