"""Split-conformal prediction: intervals and sets that hold their level for any predictive, right or wrong.

    s_i = score of held-out example i,  i = 1 ... n      q = the k-th smallest of them,  k = ceil((n + 1) level)
    P(score of a new example <= q) >= level              if it is exchangeable with the held-out ones

The score of a number is how far it lies from the predictive median, in units of the distance to the end of the
predictive's own interval on that side: q is by how much intervals are stretched. That of a label is 1 - p(y | x).
The guarantee is on average over examples, not for each of them. (Vovk et al. 2005, Lei et al. 2018)
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from posteriax._internal.checks import check_fraction
from posteriax.posterior import Predictive

TINY = 1e-12


@dataclass(frozen=True)
class Conformal:
    """Held-out scores turned into intervals or sets; built by :func:`conformal`.

    Args:
        level: the share of new targets that intervals or sets hold, at least.
        threshold: the largest score that is still held: by how much the predictive's intervals are stretched, or
            1 - the smallest probability of a class in a set.
        examples: how many were held out.
        classes: whether the predictions are of classes.
    """

    level: float
    threshold: float
    examples: int
    classes: bool

    def interval(self, predictive: Predictive) -> tuple[np.ndarray, np.ndarray]:
        """The ends of an interval for every target."""
        if self.classes:
            raise TypeError("classes have sets, not intervals: use .sets(predictive)")
        low, middle, high = _quantiles(predictive, self.level)
        return middle - self.threshold * (middle - low), middle + self.threshold * (high - middle)

    def sets(self, predictive: Predictive) -> np.ndarray:
        """Which classes belong to the set of every target, (..., classes); the most probable one always does."""
        if not self.classes:
            raise TypeError("numbers have intervals, not sets: use .interval(predictive)")
        probs = np.asarray(predictive.mean)
        chosen = probs >= 1 - self.threshold
        return chosen | (probs == probs.max(axis=-1, keepdims=True))


def conformal(predictive: Predictive, y: Any, level: float = 0.9) -> Conformal:
    """Intervals or sets with a guarantee, from predictions of held-out examples.

    Args:
        predictive: predictions for examples that were used neither in training nor in any choice.
        y: their targets.
        level: the share of new targets that intervals or sets are to hold.

    >>> import equinox as eqx, jax, posteriax as px
    >>> (x, y), (x_test, y_test) = px.data.two_moons()
    >>> problem = px.Problem(eqx.nn.MLP(2, 2, 8, 1, key=jax.random.key(0)), px.Categorical())
    >>> posterior = px.fit(problem, (x, y), px.MAP(), steps=50, key=0)
    >>> calibrated = px.conformal(posterior.predict(x_test[:250]), y_test[:250], level=0.9)
    >>> calibrated.sets(posterior.predict(x_test[250:])).shape
    (250, 2)
    """
    check_fraction("level", level)
    classes = predictive.confidence() is not None
    scores = _scores_of_labels(predictive, y) if classes else _scores_of_numbers(predictive, y, level)
    flat = np.sort(scores.reshape(-1))
    place = math.ceil((len(flat) + 1) * level - 1e-9)
    if place > len(flat):
        raise ValueError(
            f"level={level:g} needs at least {math.ceil(level / (1 - level) - 1e-9)} held-out targets, got {len(flat)}"
        )
    return Conformal(float(level), float(flat[place - 1]), len(flat), classes)


def _scores_of_labels(predictive: Predictive, y: Any) -> np.ndarray:
    labels = predictive.check(y)
    return 1 - np.take_along_axis(np.asarray(predictive.mean), labels[..., None], axis=-1)[..., 0]


def _scores_of_numbers(predictive: Predictive, y: Any, level: float) -> np.ndarray:
    target = predictive.targets(y)
    low, middle, high = _quantiles(predictive, level)
    below = (middle - target) / np.maximum(middle - low, TINY)
    above = (target - middle) / np.maximum(high - middle, TINY)
    return np.maximum(below, above)


def _quantiles(predictive: Predictive, level: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    low, middle, high = predictive.quantile(np.array([(1 - level) / 2, 0.5, (1 + level) / 2]))
    return low, middle, high
