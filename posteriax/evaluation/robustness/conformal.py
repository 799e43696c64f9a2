"""Split-conformal prediction: intervals and sets that hold their level for any predictive, right or wrong.

    s_i = score of held-out example i,  i = 1 ... n      q = the k-th smallest of them,  k = ceil((n + 1) level)
    P(score of a new example <= q) >= level              if it is exchangeable with the held-out ones

The "stretch" score of a number is how far it lies from the predictive median m, in units of the distance to the end of
the predictive's own interval [a, b] on that side: q is by how much intervals are stretched.

    s(y) = (m - y) / max(m - a, w)   if y < m            interval: [m - q max(m - a, w), m + q max(b - m, w)]
           (y - m) / max(b - m, w)   otherwise

The floor w lets an interval of zero width grow. It is 1 for counts, the distance from one to the next, and next to
nothing for real numbers. The "cqr" score, max(a - y, y - b), moves both ends by the same q (Romano et al. 2019). The
score of a label is by default s(y) = 1 - p(y | x), which gives the smallest sets; "aps" sums the probabilities of all
labels that are at least as probable, which gives larger sets where the model is unsure (Romano et al. 2020), and "raps"
adds 0.01 for each label beyond the fifth (Angelopoulos et al. 2021). A set holds every label whose score is at most q.
The guarantee is on average over examples, not for each of them (Vovk et al. 2005, Lei et al. 2018); with `groups` it
holds on average over each group, with a threshold of its own ("Mondrian", Vovk et al. 2003). Over time, where later
examples are not exchangeable with earlier ones, :func:`adaptive_intervals` moves the level after every miss.

A comparison scores the predictive's own intervals or sets beside the conformal ones: the share of targets they hold,
and their width or size. The former hold their level only if the model is right, the latter in any case, so that
narrower is better.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from posteriax._internal.checks import check_choice, check_fraction, check_positive
from posteriax.likelihoods.predictive import Predictive, mean_per_example
from posteriax.metrics.score import Score

SCORES_OF_NUMBERS, SCORES_OF_LABELS = ("stretch", "cqr"), ("probability", "aps", "raps")
FREE_LABELS, PENALTY = 5, 0.01  # of "raps"
STEP = 0.02  # of the level of adaptive intervals, after each example
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
            1 - the smallest probability of a class in a set; of all groups together.
        examples: how many were held out.
        classes: whether the predictions are of classes.
        score: by its name.
        by_group: the threshold of each group, if there are any.
    """

    level: float
    threshold: float
    examples: int
    classes: bool
    score: str = ""
    by_group: Mapping[Any, float] = field(default_factory=dict)

    def interval(self, predictive: Predictive, groups: ArrayLike | None = None) -> tuple[np.ndarray, np.ndarray]:
        """The ends of an interval for every target, both included; those of counts are whole numbers from 0 on.

        Args:
            predictive: of new examples.
            groups: of each of them, if the scores were held out by group.
        """
        if self.classes:
            raise TypeError("classes have sets, not intervals: use .sets(predictive)")
        middle, below, above = _median_and_widths(predictive, self.level)
        threshold = self._thresholds(len(middle), groups).reshape(-1, *[1] * (middle.ndim - 1))
        if self.score == "cqr":
            low, high = predictive.interval(self.level)
            grown = threshold + ROUNDING * np.abs(threshold)
            low, high = np.minimum(low - grown, middle), np.maximum(high + grown, middle)
        else:
            stretch = threshold * (1 + ROUNDING)
            low, high = middle - stretch * below, middle + stretch * above
        # the same counts, in fewer digits: none lies between an end and the next whole number inside
        return (np.maximum(np.ceil(low), 0.0), np.floor(high)) if predictive.whole_numbers else (low, high)

    def sets(self, predictive: Predictive, groups: ArrayLike | None = None) -> np.ndarray:
        """Which classes belong to the set of every target, (..., classes); the most probable one always does.

        Args:
            predictive: of new examples.
            groups: of each of them, if the scores were held out by group.
        """
        if not self.classes:
            raise TypeError("numbers have intervals, not sets: use .interval(predictive)")
        probs = np.asarray(predictive.mean)
        threshold = self._thresholds(len(probs), groups).reshape(-1, *[1] * (probs.ndim - 1))
        chosen = _class_scores(probs, self.score) <= threshold + ROUNDING * np.abs(1 - threshold)
        return chosen | (probs == probs.max(axis=-1, keepdims=True))

    def _thresholds(self, examples: int, groups: ArrayLike | None) -> np.ndarray:
        """Of each example."""
        if not self.by_group:
            if groups is not None:
                raise ValueError("groups= is for scores that were held out by group: conformal(..., groups=...)")
            return np.full(examples, self.threshold)
        if groups is None:
            raise ValueError("the scores were held out by group: say groups=, the group of each example")
        names = np.asarray(groups).reshape(-1)
        if len(names) != examples:
            raise ValueError(f"groups has {len(names)} entries, but there are {examples} examples")
        unknown = [name for name in np.unique(names).tolist() if name not in self.by_group]
        if unknown:
            raise ValueError(f"no held-out example is of the group {unknown[0]!r}")
        return np.array([self.by_group[name] for name in names.tolist()])


def conformal(
    predictive: Predictive,
    y: ArrayLike,
    level: float = 0.9,
    *,
    score: str | None = None,
    groups: ArrayLike | None = None,
) -> Conformal:
    """Intervals or sets with a guarantee, from predictions of held-out examples.

    Args:
        predictive: predictions for examples that were used neither in training nor in any choice.
        y: their targets.
        level: the share of new targets that intervals or sets are to hold.
        score: of numbers "stretch" (the default) or "cqr"; of classes "probability" (the default), "aps" or "raps".
        groups: of each example: the level then holds in each group, which needs as many examples as all would.

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
    known = SCORES_OF_LABELS if classes else SCORES_OF_NUMBERS
    score = score or known[0]
    check_choice("score", score, known)
    scores = _label_scores(predictive, y, score) if classes else _number_scores(predictive, y, level, score)
    threshold = _threshold(scores.reshape(-1), level)
    by_group: dict[Any, float] = {}
    if groups is not None:
        names = np.asarray(groups).reshape(-1)
        if len(names) != len(scores):
            raise ValueError(f"groups has {len(names)} entries, but there are {len(scores)} held-out examples")
        for name in np.unique(names).tolist():
            by_group[name] = _threshold(scores[names == name].reshape(-1), level, f" of the group {name!r}")
    return Conformal(float(level), threshold, scores.size, classes, score, by_group)


def adaptive_intervals(
    held_out: Predictive, y_held_out: ArrayLike, later: Predictive, y: ArrayLike, level: float = 0.9, step: float = STEP
) -> tuple[np.ndarray, np.ndarray]:
    """Intervals of numbers in the order of time, whose level follows what happened to those before.

        a_{t+1} = a_t + step [(1 - level) - (1 if y_t was missed, else 0)]        threshold: the 1 - a_t quantile of the
                                                                                 scores so far

    Each interval uses only targets before it. The share that is held tends to `level` whatever happens to the data, at
    the price of intervals that are infinite for a while after many misses (Gibbs and Candes 2021).

    Args:
        held_out, y_held_out: predictions of rows before all others, and their targets, one number each.
        later, y: predictions of rows in the order of time, and their targets.
        level: the share of targets that intervals are to hold.
        step: by how much the level moves; larger follows faster, and swings more.

    Returns:
        the ends, (N,) each.
    """
    check_fraction("level", level)
    check_positive("step", step)
    scores = _number_scores(held_out, y_held_out, level, SCORES_OF_NUMBERS[0]).reshape(-1)
    own = _number_scores(later, y, level, SCORES_OF_NUMBERS[0]).reshape(-1)
    middle, below, above = (values.reshape(-1) for values in _median_and_widths(later, level))
    so_far, missed = np.sort(scores), 1 - level
    stretch = np.empty(len(own))
    for t, new in enumerate(own):
        rank = math.ceil((len(so_far) + 1) * (1 - missed) - 1e-9)
        stretch[t] = math.inf if rank > len(so_far) else so_far[rank - 1] if rank > 0 else 0.0
        missed += step * ((1 - level) - float(new > stretch[t]))
        so_far = np.insert(so_far, np.searchsorted(so_far, new), new)
    return middle - stretch * below, middle + stretch * above


def _threshold(scores: np.ndarray, level: float, of: str = "") -> float:
    """The smallest score that at least the share `level` of exchangeable ones, a new one included, does not exceed."""
    rank = math.ceil((len(scores) + 1) * level - 1e-9)
    if rank > len(scores):
        needed = math.ceil(level / (1 - level) - 1e-9)
        raise ValueError(f"level={level:g} needs at least {needed} held-out targets{of}, got {len(scores)}")
    return float(np.sort(scores)[rank - 1])


def _label_scores(predictive: Predictive, y: ArrayLike, score: str) -> np.ndarray:
    labels = predictive.check(y)
    return np.take_along_axis(_class_scores(np.asarray(predictive.mean), score), labels[..., None], axis=-1)[..., 0]


def _class_scores(probs: np.ndarray, score: str) -> np.ndarray:
    """The score that each class would have as the label. In float64, where 1 - p does not depend on float32's steps."""
    probs = np.asarray(probs, np.float64)
    if score not in ("aps", "raps"):
        return 1 - probs
    order = np.argsort(-probs, axis=-1, kind="stable")
    summed = np.cumsum(np.take_along_axis(probs, order, axis=-1), axis=-1)
    if score == "raps":
        summed += PENALTY * np.maximum(np.arange(1, probs.shape[-1] + 1) - FREE_LABELS, 0)
    scores = np.empty_like(summed)
    np.put_along_axis(scores, order, summed, axis=-1)
    return scores


def _number_scores(predictive: Predictive, y: ArrayLike, level: float, score: str) -> np.ndarray:
    target = predictive.targets(y)
    if score == "cqr":
        low, high = predictive.interval(level)
        return np.maximum(np.asarray(low, np.float64) - target, target - np.asarray(high, np.float64))
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
