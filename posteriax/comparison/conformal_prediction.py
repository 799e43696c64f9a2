"""Split-conformal prediction: intervals and sets that hold their level for any predictive, right or wrong.

    s_i = score of held-out example i,  i = 1 ... n      q = the k-th smallest of them,  k = ceil((n + 1) level)
    P(score of a new example <= q) >= level              if it is exchangeable with the held-out ones

The score of a number is how far it lies from the predictive median m, in units of the distance to the end of the
predictive's own interval [a, b] on that side: q is by how much intervals are stretched.

    s(y) = (m - y) / max(m - a, w)   if y < m            interval: [m - q max(m - a, w), m + q max(b - m, w)]
           (y - m) / max(b - m, w)   otherwise

The floor w lets an interval of zero width grow. It is 1 for counts, the distance from one to the next, and next to
nothing for real numbers. The score of a label is s(y) = 1 - p(y | x), and the set holds every label whose score is at
most q. The guarantee is on average over examples, not for each of them. (Vovk et al. 2005, Lei et al. 2018)
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from posteriax._internal.checks import check_fraction
from posteriax.posterior import Predictive

NARROWEST = 1e-30  # half an interval of real numbers, in any unit that is in use; float64 can divide by it
# Equal inputs have equal scores only up to the rounding of a network in float32, which depends on the size of the
# batch. By this much, relative to the stretch or to the probability, intervals and sets are larger than they need be.
ROUNDING = 1e-5


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
        """The ends of an interval for every target, both included; those of counts are whole numbers from 0 on."""
        if self.classes:
            raise TypeError("classes have sets, not intervals: use .sets(predictive)")
        middle, below, above = _median_and_widths(predictive, self.level)
        stretch = self.threshold * (1 + ROUNDING)
        low, high = middle - stretch * below, middle + stretch * above
        # the same counts, in fewer digits: none lies between an end and the next whole number inside
        return (np.maximum(np.ceil(low), 0.0), np.floor(high)) if predictive.whole_numbers else (low, high)

    def sets(self, predictive: Predictive) -> np.ndarray:
        """Which classes belong to the set of every target, (..., classes); the most probable one always does."""
        if not self.classes:
            raise TypeError("numbers have intervals, not sets: use .interval(predictive)")
        probs = np.asarray(predictive.mean)
        chosen = _class_scores(probs) <= self.threshold + ROUNDING * (1 - self.threshold)
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
    scores = _label_scores(predictive, y) if classes else _number_scores(predictive, y, level)
    flat = np.sort(scores.reshape(-1))
    place = math.ceil((len(flat) + 1) * level - 1e-9)
    if place > len(flat):
        raise ValueError(
            f"level={level:g} needs at least {math.ceil(level / (1 - level) - 1e-9)} held-out targets, got {len(flat)}"
        )
    return Conformal(float(level), float(flat[place - 1]), len(flat), classes)


def _label_scores(predictive: Predictive, y: Any) -> np.ndarray:
    labels = predictive.check(y)
    return np.take_along_axis(_class_scores(np.asarray(predictive.mean)), labels[..., None], axis=-1)[..., 0]


def _class_scores(probs: np.ndarray) -> np.ndarray:
    """The score that each class would have as the label. In float64, where 1 - p does not depend on float32's steps."""
    return 1 - np.asarray(probs, np.float64)


def _number_scores(predictive: Predictive, y: Any, level: float) -> np.ndarray:
    target = predictive.targets(y)
    middle, below, above = _median_and_widths(predictive, level)
    return np.maximum((middle - target) / below, (target - middle) / above)


def _median_and_widths(predictive: Predictive, level: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The median, and the widths of the predictive's interval below and above it: of scores and intervals alike."""
    quantiles = predictive.quantile(np.array([(1 - level) / 2, 0.5, (1 + level) / 2]))
    low, middle, high = np.asarray(quantiles, np.float64)
    floor = 1.0 if predictive.whole_numbers else NARROWEST
    return middle, np.maximum(middle - low, floor), np.maximum(high - middle, floor)
