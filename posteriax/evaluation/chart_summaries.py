"""Chart summaries: the few numbers behind each chart, so that a comparison need not keep all predictions.

By posterior and test set: reliability, coverage, uncertainties, classes one by one, and examples to show. And over all
posteriors, the examples about which they disagree most.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import PyTree
from numpy.typing import ArrayLike

from posteriax.evaluation.uncertainty_deciles import Deciles, class_deciles, number_deciles
from posteriax.likelihoods.predictive import Predictive, mean_per_example
from posteriax.metrics.calibration import calibration_bins
from posteriax.metrics.ranking import auroc, average_precision

MOST_EXAMPLES = 6  # to show of each kind
MOST_DISAGREEMENTS = 8  # examples to keep
MOST_CLASSES = 20  # to rank; with more, only the confusion matrix is made
COVERAGE_LEVELS = np.arange(1, 20) / 20


@dataclass(frozen=True, eq=False)
class Example:
    """A test example on which a posterior is confident."""

    index: int
    x: np.ndarray
    predicted: float  # a label, or a mean
    true: float
    certainty: float  # a probability, or a standard deviation


@dataclass(frozen=True, eq=False)
class ChartSummary:
    """What the charts show of one posterior on one test set.

    Args:
        confidence, right, count: by bin of the reliability diagram, means and number of examples (classes).
        entropies: of every prediction in nats (classes), or its standard deviation (numbers), for histograms.
        levels, coverage: nominal and observed coverage of central intervals (numbers).
        surest_wrong: the wrong predictions it was most confident about.
        surest: the predictions it was most confident about.
        deciles: the error by decile of the predicted uncertainty.
        confusion: how many examples of each class (rows) were predicted as each class (columns).
        auroc, average_precision: by class, how well its probability tells it from the others; NaN if all or none of the
            examples are of the class.
        attack: by iteration, success rate, accuracy and mean entropy, if the set was attacked.
    """

    confidence: np.ndarray = field(default_factory=lambda: np.zeros(0))
    right: np.ndarray = field(default_factory=lambda: np.zeros(0))
    count: np.ndarray = field(default_factory=lambda: np.zeros(0, int))
    entropies: np.ndarray = field(default_factory=lambda: np.zeros(0))
    levels: np.ndarray = field(default_factory=lambda: np.zeros(0))
    coverage: np.ndarray = field(default_factory=lambda: np.zeros(0))
    surest_wrong: tuple[Example, ...] = ()
    surest: tuple[Example, ...] = ()
    deciles: Deciles = field(default_factory=Deciles)
    confusion: np.ndarray = field(default_factory=lambda: np.zeros((0, 0), int))
    auroc: np.ndarray = field(default_factory=lambda: np.zeros(0))
    average_precision: np.ndarray = field(default_factory=lambda: np.zeros(0))
    attack: Mapping[str, np.ndarray] = field(default_factory=dict)


def chart_summary(
    predictive: Predictive, x: PyTree, y: ArrayLike | None, bins: int = 15, by_class: bool = True
) -> ChartSummary:
    """The summary of a predictive on a test set; without targets (`y` None), only what needs none.

    Args:
        predictive: the predictions.
        x, y: the test set.
        bins: of the reliability diagram.
        by_class: rank the examples by the probability of every class, which takes a moment for each.
    """
    confidence, predicted = predictive.confidence(), predictive.point()
    if confidence is None:
        return _number_summary(predictive, x, y)
    entropies = np.asarray(predictive.entropy()).reshape(len(predicted), -1).mean(axis=1)
    if y is None or predicted.ndim > 1:
        return ChartSummary(entropies=entropies)
    labels = np.asarray(predictive.check(y))
    right = predicted == labels
    summed = jax.device_get(calibration_bins(predictive.mean, labels, bins))
    filled = summed.examples > 0
    order = np.argsort(-confidence, kind="stable")
    ranking = class_ranking(predictive.mean, labels) if by_class else ClassRanking(np.zeros(0), np.zeros(0))
    return ChartSummary(
        confidence=((summed.right - summed.excess) / np.maximum(summed.examples, 1))[filled],
        right=(summed.right / np.maximum(summed.examples, 1))[filled],
        count=summed.examples[filled].astype(int),
        entropies=entropies,
        surest_wrong=_examples(order[~right[order]], x, predicted, labels, confidence),
        surest=_examples(order[right[order]], x, predicted, labels, confidence),
        deciles=class_deciles(confidence, right),
        confusion=confusion_matrix(labels, predicted, predictive.mean.shape[-1]),
        auroc=ranking.auroc,
        average_precision=ranking.average_precision,
    )


def _number_summary(predictive: Predictive, x: PyTree, y: ArrayLike | None) -> ChartSummary:
    spread = predictive.std.reshape(len(predictive.std), -1).mean(axis=1)
    if y is None:
        return ChartSummary(entropies=spread)
    targets = predictive.targets(y)
    inside = predictive.share_inside(y, COVERAGE_LEVELS)
    mean, y_flat = (np.asarray(a).reshape(len(spread), -1).mean(axis=1) for a in (predictive.point(), targets))
    off = np.abs(mean - y_flat) / spread
    deviation = np.sqrt(mean_per_example(np.square(np.asarray(predictive.std, np.float64))))
    known = getattr(predictive, "observed", None)
    if known is not None:  # an error needs a time that was observed to its end
        seen: np.ndarray = np.all(np.asarray(known(y)).reshape(len(spread), -1), axis=1)
        return ChartSummary(
            entropies=spread,
            levels=COVERAGE_LEVELS,
            coverage=inside.reshape(len(COVERAGE_LEVELS), -1).mean(axis=1),
            surest_wrong=_examples(_only(np.argsort(-off, kind="stable"), seen), x, mean, y_flat, spread),
            surest=_examples(_only(np.argsort(spread, kind="stable"), seen), x, mean, y_flat, spread),
        )
    one = targets.size == len(targets)  # examples are shown by their one target
    held = mean_per_example(inside[np.argmin(np.abs(COVERAGE_LEVELS - 0.9))])
    squared = mean_per_example(np.square(np.asarray(predictive.point(), np.float64) - targets))
    return ChartSummary(
        entropies=spread,
        levels=COVERAGE_LEVELS,
        coverage=inside.reshape(len(COVERAGE_LEVELS), -1).mean(axis=1),
        surest_wrong=_examples(np.argsort(-off, kind="stable"), x, mean, y_flat, spread) if one else (),
        surest=_examples(np.argsort(spread, kind="stable"), x, mean, y_flat, spread) if one else (),
        deciles=number_deciles(deviation, np.sqrt(squared), held),
    )


def _only(rows: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    return rows[chosen[rows]]


def _examples(
    rows: np.ndarray, x: PyTree, predicted: np.ndarray, true: np.ndarray, certainty: np.ndarray
) -> tuple[Example, ...]:
    """The first few of these rows."""
    first = jax.tree.leaves(x)[0]
    return tuple(
        Example(int(i), np.asarray(first[i]), float(predicted[i]), float(true[i]), float(certainty[i]))
        for i in rows[:MOST_EXAMPLES]
    )


class ClassRanking(NamedTuple):
    """By class, how well its probability tells its examples from the others; NaN if all or none are of the class."""

    auroc: np.ndarray
    average_precision: np.ndarray


def class_ranking(probs: np.ndarray, labels: np.ndarray) -> ClassRanking:
    """Each class against the rest.

    Args:
        probs: (N, C).
        labels: (N,).

    >>> class_ranking(np.array([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7]]), np.array([0, 1, 1])).auroc.tolist()
    [1.0, 1.0]
    """
    classes = probs.shape[-1]
    ranks = np.full((2, classes), np.nan)
    for c in range(classes if classes <= MOST_CLASSES else 0):
        is_class = labels == c
        if is_class.any() and not is_class.all():
            ranks[:, c] = auroc(probs[:, c], is_class), average_precision(probs[:, c], is_class)
    return ClassRanking(*ranks)


def confusion_matrix(true: np.ndarray, predicted: np.ndarray, classes: int) -> np.ndarray:
    """How many examples of each class (rows) were predicted as each class (columns), (C, C).

    >>> confusion_matrix(np.array([0, 0, 1]), np.array([0, 1, 1]), classes=2).tolist()
    [[1, 1], [0, 1]]
    """
    cells = np.bincount(np.asarray(true, np.int64) * classes + predicted, minlength=classes**2)
    return cells.reshape(classes, classes)


@dataclass(frozen=True, eq=False)
class Disagreement:
    """A test example about which methods disagree.

    Args:
        index: its row in the test set.
        x: its inputs, or the first of several arrays.
        true: its label or number.
        predicted: by method, a label or a mean.
        certainty: by method, the probability of the label, or a standard deviation.
        censored: whether `true` is a time that is only known to be longer.
    """

    index: int
    x: np.ndarray
    true: float
    predicted: Mapping[str, float] = field(default_factory=dict)
    certainty: Mapping[str, float] = field(default_factory=dict)
    censored: bool = False


def find_disagreements(predictives: Mapping[str, Predictive], x: PyTree, y: ArrayLike) -> tuple[Disagreement, ...]:
    """The examples about which the methods disagree most, by the median distance of their answers from the middle.

    The distance is that of probabilities (summed over classes, plus the share of methods that do not predict the most
    frequent label), or of means. The median, so that one method that is off everywhere does not decide.

    >>> import posteriax as px
    >>> logits = np.zeros((2, 1, 3, 2), np.float32)
    >>> logits[0, 0, 1] = [4.0, -4.0]  # one is sure of the first label of the second example, the other undecided
    >>> two = {name: px.likelihoods.ClassPredictive(px.Categorical(), values) for name, values in zip("ab", logits)}
    >>> find_disagreements(two, np.zeros((3, 1)), np.array([0, 0, 0]))[0].index
    1
    """
    first, *others = predictives.values()
    if not others or (first.point().ndim > 1 and first.point()[0].size > 1):
        return ()
    answers = np.stack([np.asarray(p.mean, np.float64).reshape(len(p.mean), -1) for p in predictives.values()])
    distances = np.abs(answers - np.median(answers, axis=0)).sum(axis=2)  # by method and example
    # of two or three methods, the median is one of them, at the distance 0
    spread = np.median(distances, axis=0) if len(answers) >= 4 else distances.mean(axis=0)
    if first.confidence() is not None:
        spread = spread + _minority(np.stack([predictive.point() for predictive in predictives.values()]))
    spread = np.where(np.isfinite(spread), spread, -1.0)
    chosen = [int(i) for i in np.argsort(-spread, kind="stable")[:MOST_DISAGREEMENTS] if spread[i] > 0]
    true = np.asarray(first.check(y) if first.confidence() is not None else first.targets(y)).reshape(len(spread), -1)
    known = getattr(first, "observed", None)
    observed = np.ones(true.shape, bool) if known is None else np.asarray(known(y)).reshape(true.shape)
    inputs = jax.tree.leaves(x)[0]
    points = {name: predictive.point().reshape(len(spread), -1)[:, 0] for name, predictive in predictives.items()}
    sure = {name: _certainty(predictive) for name, predictive in predictives.items()}
    return tuple(
        Disagreement(
            i,
            np.asarray(inputs[i]),
            float(true[i, 0]),
            {name: float(values[i]) for name, values in points.items()},
            {name: float(values[i]) for name, values in sure.items()},
            censored=not observed[i, 0],
        )
        for i in chosen
    )


def _minority(labels: np.ndarray) -> np.ndarray:
    """Of methods' labels, (methods, N), the share that differ from the most frequent one, (N,).

    >>> _minority(np.array([[0, 1], [0, 1], [1, 1]])).round(2).tolist()
    [0.33, 0.0]
    """
    agreeing = (labels[:, None] == labels[None]).sum(axis=1).max(axis=0)
    return 1 - agreeing / len(labels)


def _certainty(predictive: Predictive) -> np.ndarray:
    confidence = predictive.confidence()
    return np.asarray(predictive.std).reshape(len(predictive.std), -1)[:, 0] if confidence is None else confidence
