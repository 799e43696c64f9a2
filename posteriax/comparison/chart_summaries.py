"""Chart summaries: the few numbers behind each chart, so that a comparison need not keep all predictions."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from posteriax.comparison.class_ranking import ClassRanking, class_ranking, confusion_matrix
from posteriax.comparison.uncertainty_tenths import Tenths, tenths_of_classes, tenths_of_numbers
from posteriax.metrics import calibration_bins
from posteriax.posterior import Predictive

FEW = 6  # examples to show of each kind
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
        tenths: the error by tenth of the predicted uncertainty.
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
    tenths: Tenths = field(default_factory=Tenths)
    confusion: np.ndarray = field(default_factory=lambda: np.zeros((0, 0), int))
    auroc: np.ndarray = field(default_factory=lambda: np.zeros(0))
    average_precision: np.ndarray = field(default_factory=lambda: np.zeros(0))
    attack: Mapping[str, np.ndarray] = field(default_factory=dict)


def chart_summary(predictive: Predictive, x: Any, y: Any, bins: int = 15, by_class: bool = True) -> ChartSummary:
    """The summary of a predictive on a test set; without targets (`y` None), only what needs none.

    Args:
        predictive: the predictions.
        x, y: the test set.
        bins: of the reliability diagram.
        by_class: rank the examples by the probability of every class, which takes a moment for each.
    """
    confidence, predicted = predictive.confidence(), predictive.point()
    if confidence is None:
        return _of_numbers(predictive, x, y)
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
        tenths=tenths_of_classes(confidence, right),
        confusion=confusion_matrix(labels, predicted, predictive.mean.shape[-1]),
        auroc=ranking.auroc,
        average_precision=ranking.average_precision,
    )


def _of_numbers(predictive: Any, x: Any, y: Any) -> ChartSummary:
    spread = predictive.std.reshape(len(predictive.std), -1).mean(axis=1)
    if y is None:
        return ChartSummary(entropies=spread)
    targets = predictive.targets(y)
    tails = np.concatenate([(1 - COVERAGE_LEVELS) / 2, (1 + COVERAGE_LEVELS) / 2])
    quantiles = predictive.quantile(tails)
    low, high = quantiles[: len(COVERAGE_LEVELS)], quantiles[len(COVERAGE_LEVELS) :]
    inside = (low <= targets) & (targets <= high)
    mean, y_flat = (np.asarray(a).reshape(len(spread), -1).mean(axis=1) for a in (predictive.point(), targets))
    off = np.abs(mean - y_flat) / spread
    deviation = np.sqrt(np.square(np.asarray(predictive.std, np.float64)).reshape(len(spread), -1).mean(axis=1))
    held = inside[np.argmin(np.abs(COVERAGE_LEVELS - 0.9))].reshape(len(spread), -1).mean(axis=1)
    squared = np.square(np.asarray(predictive.point(), np.float64) - targets).reshape(len(spread), -1).mean(axis=1)
    return ChartSummary(
        entropies=spread,
        levels=COVERAGE_LEVELS,
        coverage=inside.reshape(len(COVERAGE_LEVELS), -1).mean(axis=1),
        surest_wrong=_examples(np.argsort(-off, kind="stable"), x, mean, y_flat, spread),
        surest=_examples(np.argsort(spread, kind="stable"), x, mean, y_flat, spread),
        tenths=tenths_of_numbers(deviation, np.sqrt(squared), held),
    )


def _examples(rows: Any, x: Any, predicted: Any, true: Any, certainty: Any) -> tuple[Example, ...]:
    """The first few of these rows."""
    first = jax.tree.leaves(x)[0]
    return tuple(
        Example(int(i), np.asarray(first[i]), float(predicted[i]), float(true[i]), float(certainty[i]))
        for i in rows[:FEW]
    )
