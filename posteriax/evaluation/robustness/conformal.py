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

A comparison scores the predictive's own intervals or sets beside the conformal ones: the share of targets they hold,
and their width or size. The former hold their level only if the model is right, the latter in any case, so that
narrower is better.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from posteriax._internal.checks import check_fraction
from posteriax.likelihoods.predictive import Predictive, mean_per_example
from posteriax.metrics.score import Score

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


def conformal(predictive: Predictive, y: ArrayLike, level: float = 0.9) -> Conformal:
    """Intervals or sets with a guarantee, from predictions of held-out examples.

    Args:
        predictive: predictions for examples that were used neither in training nor in any choice.
        y: their targets.
        level: the share of new targets that intervals or sets are to hold.

    >>> import equinox as eqx, jax, posteriax as px
    >>> (x, y), (x_test, y_test) = px.data.two_moons()
    >>> problem = px.Problem(eqx.nn.MLP(2, 2, 8, 1, key=jax.random.key(0)), px.Categorical())
    >>> posterior = px.fit(problem, (x, y), px.MAP(), steps=50, key=0)
    >>> calibrated = px.evaluation.conformal(posterior.predict(x_test[:250]), y_test[:250], level=0.9)
    >>> calibrated.sets(posterior.predict(x_test[250:])).shape
    (250, 2)
    """
    check_fraction("level", level)
    classes = predictive.confidence() is not None
    scores = _label_scores(predictive, y) if classes else _number_scores(predictive, y, level)
    flat = np.sort(scores.reshape(-1))
    rank = math.ceil((len(flat) + 1) * level - 1e-9)
    if rank > len(flat):
        raise ValueError(
            f"level={level:g} needs at least {math.ceil(level / (1 - level) - 1e-9)} held-out targets, got {len(flat)}"
        )
    return Conformal(float(level), float(flat[rank - 1]), len(flat), classes)


def _label_scores(predictive: Predictive, y: ArrayLike) -> np.ndarray:
    labels = predictive.check(y)
    return np.take_along_axis(_class_scores(np.asarray(predictive.mean)), labels[..., None], axis=-1)[..., 0]


def _class_scores(probs: np.ndarray) -> np.ndarray:
    """The score that each class would have as the label. In float64, where 1 - p does not depend on float32's steps."""
    return 1 - np.asarray(probs, np.float64)


def _number_scores(predictive: Predictive, y: ArrayLike, level: float) -> np.ndarray:
    target = predictive.targets(y)
    middle, below, above = _median_and_widths(predictive, level)
    return np.maximum((middle - target) / below, (target - middle) / above)


def _median_and_widths(predictive: Predictive, level: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The median, and the widths of the predictive's interval below and above it: of scores and intervals alike."""
    quantiles = predictive.quantile(np.array([(1 - level) / 2, 0.5, (1 + level) / 2]))
    low, middle, high = np.asarray(quantiles, np.float64)
    floor = 1.0 if predictive.whole_numbers else NARROWEST
    return middle, np.maximum(middle - low, floor), np.maximum(high - middle, floor)


class Held(NamedTuple):
    """By example, whether the target was held, and the width of the interval or the size of the set."""

    inside: np.ndarray
    size: np.ndarray


def held_by_predictive(predictive: Predictive, y: np.ndarray, level: float) -> Held:
    """Of the predictive's central intervals, or of the smallest sets that have the probability `level`.

    >>> import posteriax as px
    >>> unsure = px.likelihoods.ClassPredictive(px.Categorical(), np.log([[[0.6, 0.3, 0.1]]]))
    >>> held_by_predictive(unsure, np.array([2]), level=0.8)
    Held(inside=array([0.]), size=array([2.]))
    """
    if predictive.confidence() is None:
        return _held_by_intervals(predictive, y, *predictive.interval(level))
    probs = np.asarray(predictive.mean, np.float64)
    order = np.argsort(-probs, axis=-1, kind="stable")
    before = np.cumsum(np.take_along_axis(probs, order, axis=-1), axis=-1) - np.take_along_axis(probs, order, axis=-1)
    sets = np.zeros(probs.shape, bool)
    np.put_along_axis(sets, order, before < level - 1e-9, axis=-1)
    return _held_by_sets(predictive, y, sets)


def held_by_conformal(calibrated: Conformal, predictive: Predictive, y: np.ndarray) -> Held:
    """Of conformal intervals or sets."""
    if calibrated.classes:
        return _held_by_sets(predictive, y, calibrated.sets(predictive))
    return _held_by_intervals(predictive, y, *calibrated.interval(predictive))


def interval_scores(level: float, classes: bool) -> dict[str, Score]:
    """The records of the columns: by name, coverage and size of the own and of the conformal ones.

    >>> [score.heading for score in interval_scores(0.9, classes=True).values()]
    ['own coverage → 0.9', 'own size', 'conformal coverage → 0.9', 'conformal size ↓']
    """
    percent = f"{100 * level:g} %"
    thing, size = ("set", "size") if classes else ("interval", "width")
    measure = "number of classes in" if classes else "width, in the unit of the target, of"
    return {
        score.name: score
        for score in (
            Score("own_coverage", f"How often the posterior's own {percent} {thing} holds the target.", float(level)),
            Score(f"own_{size}", f"Mean {measure} the posterior's own {percent} {thing}."),
            Score(
                "conformal_coverage",
                f"How often the conformal {thing} holds the target: {percent} of the time or a little more, whether or "
                f"not the posterior is right, but for the chance of a finite test set.",
                float(level),
            ),
            Score(
                f"conformal_{size}",
                f"Mean {measure} the conformal {thing}: what that guarantee costs.",
                "lower",
            ),
        )
    }


def interval_values(calibrated: Conformal, predictive: Predictive, y: np.ndarray) -> dict[str, np.ndarray]:
    """The values per example of these columns."""
    size = "size" if calibrated.classes else "width"
    plain = held_by_predictive(predictive, y, calibrated.level)
    conformal = held_by_conformal(calibrated, predictive, y)
    return {
        "own_coverage": plain.inside,
        f"own_{size}": plain.size,
        "conformal_coverage": conformal.inside,
        f"conformal_{size}": conformal.size,
    }


def _held_by_intervals(predictive: Predictive, y: np.ndarray, low: np.ndarray, high: np.ndarray) -> Held:
    targets = predictive.targets(y)
    return Held(mean_per_example((low <= targets) & (targets <= high)), mean_per_example(high - low))


def _held_by_sets(predictive: Predictive, y: np.ndarray, sets: np.ndarray) -> Held:
    labels = predictive.check(y)
    return Held(
        mean_per_example(np.take_along_axis(sets, labels[..., None], axis=-1)[..., 0]),
        mean_per_example(sets.sum(axis=-1)),
    )
