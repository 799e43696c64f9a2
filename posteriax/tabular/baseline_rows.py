"""The rows that baselines are fitted to: a sample of bounded size, its folds, and predictions in posteriax's terms."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from posteriax._internal.checks import check_data
from posteriax.likelihoods.classes import Categorical, ClassPredictive
from posteriax.likelihoods.normal import Normal
from posteriax.likelihoods.number_predictive import NumberPredictive
from posteriax.likelihoods.numbers import InUnits, TargetUnits

CELLS = 5_000_000  # rows times columns that a model is fitted to, at most
FEWEST_ROWS = 2_000  # however many columns there are
FOLDS, MOST_ROWS_TO_FOLD = 5, 5_000  # with more rows, one fifth is held out once
SMALLEST = 1e-9  # probability of a class that a model has seen

Task = Literal["classification", "regression"]


@dataclass(frozen=True)
class BaselineRows:
    """The rows that all models are fitted to.

    Args:
        x, y: columns in float64, and targets.
        classes: how many there are; 0 for numbers.
        given: the number of rows of which these are a sample.
        seed: of sample, folds and models.

    >>> rows = BaselineRows.sampled(np.zeros((9, 2)), np.arange(9) % 3, "classification", None, 100, seed=0)
    >>> rows.all_classes(np.array([[0.5, 0.5]]), labels=np.array([0, 2])).round(3).tolist()
    [[0.458, 0.083, 0.458]]
    """

    x: np.ndarray
    y: np.ndarray
    classes: int
    given: int
    seed: int

    @classmethod
    def sampled(cls, x: Any, y: Any, task: Task, classes: int | None, most: int, seed: int) -> "BaselineRows":
        """At most so many rows, and fewer of many columns: at random, but at least one of every class."""
        x, y = check_data((x, y))
        x, y = flat(x), one_target(y, task)
        count = max(classes or 0, int(y.max()) + 1) if task == "classification" else 0
        most = min(most, max(FEWEST_ROWS, CELLS // (x.shape[1] * max(1, count // 2))))
        if len(x) <= most:
            return cls(x.astype(np.float64), y, count, len(x), seed)
        chosen = np.random.default_rng(seed).choice(len(x), most, replace=False)
        if count:
            chosen = np.union1d(chosen, np.unique(y, return_index=True)[1])
        return cls(x[chosen].astype(np.float64), y[chosen], count, len(x), seed)

    def folds(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Rows to fit and rows to hold out: five folds, or one fifth of many rows; of every class the same share."""
        from sklearn.model_selection import KFold, ShuffleSplit, StratifiedKFold, StratifiedShuffleSplit

        if len(self.x) > MOST_ROWS_TO_FOLD:
            stratified = self.classes and np.bincount(self.y)[np.unique(self.y)].min() > 1
            once = StratifiedShuffleSplit if stratified else ShuffleSplit
            yield from once(1, test_size=1 / FOLDS, random_state=self.seed).split(self.x, self.y)
        elif self.classes:
            most = min(FOLDS, int(np.bincount(self.y).max()))
            yield from StratifiedKFold(most, shuffle=True, random_state=self.seed).split(self.x, self.y)
        else:
            yield from KFold(min(FOLDS, len(self.x)), shuffle=True, random_state=self.seed).split(self.x)

    @property
    def how_held_out(self) -> str:
        return "on a fifth of the rows, held out" if len(self.x) > MOST_ROWS_TO_FOLD else f"in {FOLDS}-fold validation"

    @property
    def note(self) -> str:
        """A sentence if there were more rows than were used."""
        return f" Fitted to {len(self.x):,} of {self.given:,} rows." if len(self.x) < self.given else ""

    def predict_classes(self, probs: Callable[[np.ndarray], np.ndarray], labels: np.ndarray) -> Callable[[Any], Any]:
        """A predictor, from a model's probabilities of those labels that it has seen."""

        def predictor(x: Any) -> ClassPredictive:
            found = self.all_classes(probs(flat(x)), labels)
            return ClassPredictive(Categorical(), np.log(found).astype(np.float32)[None])

        return predictor

    def all_classes(self, probs: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """(N, C): a class that the model has not seen has the probability 1 / (rows + C)."""
        unseen = 1 / (len(self.x) + self.classes)
        found = np.full((len(probs), self.classes), unseen)
        seen = np.maximum(probs, SMALLEST)
        found[:, labels] = seen / seen.sum(axis=1, keepdims=True) * (1 - unseen * (self.classes - len(labels)))
        return found

    def predict_numbers(self, mean: Callable[[np.ndarray], np.ndarray], spread: float) -> Callable[[Any], Any]:
        """A predictor, from a model's predictions and the spread of its errors, in the target's units."""
        scale = float(self.y.std()) or 1.0
        units = TargetUnits(float(self.y.mean()), scale)
        likelihood = InUnits(Normal(scale=max(spread / scale, 1e-6)), units.offset, units.scale)

        def predictor(x: Any) -> NumberPredictive:
            outputs = units.standardise(mean(flat(x))).astype(np.float32)
            return likelihood.predictive(outputs[None, :, None], {})

        return predictor


def flat(x: Any) -> np.ndarray:
    """Inputs as rows of columns."""
    x = np.asarray(x)
    return x.reshape(len(x), -1)


def one_target(y: np.ndarray, task: Task) -> np.ndarray:
    """(N,): whole numbers for classes, else float64."""
    if y.size != len(y):
        raise ValueError(f"y must have one target per row, got shape {y.shape}")
    if task == "regression":
        return y.reshape(-1).astype(np.float64)
    if y.dtype.kind not in "iub" or y.min() < 0:
        raise TypeError(f"y must be labels 0, 1, ... of a whole-number dtype for a classification, got {y.dtype}")
    return y.reshape(-1).astype(np.int64)
