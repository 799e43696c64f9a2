"""Scores of intervals and sets: how many targets they hold, and how wide they had to be for that.

Of a predictive's own intervals, which hold their level if the model is right, and of conformal ones, which hold it
anyway: with these, narrower is better.
"""

from typing import NamedTuple

import numpy as np

from posteriax.comparison.conformal_prediction import Conformal
from posteriax.metrics import Score
from posteriax.posterior import Predictive


class Held(NamedTuple):
    """By example, whether the target was held, and the width of the interval or the size of the set."""

    inside: np.ndarray
    size: np.ndarray


def held_by_own(predictive: Predictive, y: np.ndarray, level: float) -> Held:
    """Of the predictive's central intervals, or of the smallest sets that have the probability `level`.

    >>> import posteriax as px
    >>> unsure = px.ClassPredictive(px.Categorical(), np.log([[[0.6, 0.3, 0.1]]]))
    >>> held_by_own(unsure, np.array([2]), level=0.8)
    Held(inside=array([0.]), size=array([2.]))
    """
    if predictive.confidence() is None:
        return _of_intervals(predictive, y, *predictive.interval(level))
    probs = np.asarray(predictive.mean, np.float64)
    order = np.argsort(-probs, axis=-1, kind="stable")
    before = np.cumsum(np.take_along_axis(probs, order, axis=-1), axis=-1) - np.take_along_axis(probs, order, axis=-1)
    sets = np.zeros(probs.shape, bool)
    np.put_along_axis(sets, order, before < level - 1e-9, axis=-1)
    return _of_sets(predictive, y, sets)


def held_by_conformal(found: Conformal, predictive: Predictive, y: np.ndarray) -> Held:
    """Of conformal intervals or sets."""
    if found.classes:
        return _of_sets(predictive, y, found.sets(predictive))
    return _of_intervals(predictive, y, *found.interval(predictive))


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


def interval_values(found: Conformal, predictive: Predictive, y: np.ndarray) -> dict[str, np.ndarray]:
    """The values per example of these columns."""
    size = "size" if found.classes else "width"
    own, conformal = held_by_own(predictive, y, found.level), held_by_conformal(found, predictive, y)
    return {
        "own_coverage": own.inside,
        f"own_{size}": own.size,
        "conformal_coverage": conformal.inside,
        f"conformal_{size}": conformal.size,
    }


def _of_intervals(predictive: Predictive, y: np.ndarray, low: np.ndarray, high: np.ndarray) -> Held:
    targets = predictive.targets(y)
    return Held(_each((low <= targets) & (targets <= high)), _each(high - low))


def _of_sets(predictive: Predictive, y: np.ndarray, sets: np.ndarray) -> Held:
    labels = predictive.check(y)
    return Held(_each(np.take_along_axis(sets, labels[..., None], axis=-1)[..., 0]), _each(sets.sum(axis=-1)))


def _each(values: np.ndarray) -> np.ndarray:
    """The mean over an example's targets, (N,)."""
    return np.asarray(values, np.float64).reshape(len(values), -1).mean(axis=1)
