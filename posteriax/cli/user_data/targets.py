"""The target: the task it implies, its values as the network sees them, and the split into training and test rows."""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np

from posteriax.cli.user_data.messages import DataError, label_of, shown

Task = Literal["classification", "regression"]
FEW_NUMBERS = 20  # distinct whole numbers that are treated as classes
MOST_CLASSES = 200
FEWEST_ROWS = 10


@dataclass(frozen=True)
class Classes:
    """A target of classes, by name.

    >>> Classes("kind", ("elm", "oak")).encode(["oak", "elm"]).tolist()
    [1, 0]
    """

    name: str
    labels: tuple[str, ...]
    task: Task = field(default="classification", init=False)

    @property
    def outputs(self) -> int:
        return len(self.labels)

    def encode(self, values: Any) -> np.ndarray:
        """Labels 0 to C - 1."""
        index = {label: i for i, label in enumerate(self.labels)}
        names = [str(value) for value in _as_labels(values)]
        unknown = sorted(set(names) - set(index))
        if unknown:
            raise DataError(f"target {self.name!r} has classes that were not in the training data: {shown(unknown)}")
        return np.array([index[name] for name in names], np.int32)


@dataclass(frozen=True)
class Quantity:
    """A target of real numbers, and the mean and scale it had in the training rows.

    >>> Quantity("height", mean=10.0, scale=2.0).encode([12.0]).tolist()
    [1.0]
    """

    name: str
    mean: float
    scale: float
    task: Task = field(default="regression", init=False)
    outputs: ClassVar[int] = 1

    def encode(self, values: Any) -> np.ndarray:
        """Standardised values."""
        return ((np.asarray(values, np.float64) - self.mean) / self.scale).astype(np.float32)


Target = Classes | Quantity


def infer_task(name: str, values: Any, task: Task | None) -> Task:
    """The given task; by default classification for text and for a few distinct whole numbers, else regression.

    >>> infer_task("kind", ["oak", "elm"], None), infer_task("height", np.array([1.5, 2.0]), None)
    ('classification', 'regression')
    """
    is_text = not _is_numbers(values)
    if task is not None:
        if task == "regression" and is_text:
            raise DataError(f"target {name!r} is text, so it cannot be the target of a regression")
        return task
    if is_text:
        return "classification"
    numbers = np.asarray(values, np.float64)
    different = np.unique(numbers)
    whole = bool((different == np.round(different)).all())
    few = len(different) <= 2 or (len(different) <= FEW_NUMBERS and 3 * len(different) <= len(numbers))
    return "classification" if whole and few else "regression"


def spread(numbers: np.ndarray) -> float:
    """The standard deviation; 0 if nothing but rounding differs.

    >>> spread(np.array([1.0, 3.0])), spread(np.full(3, 0.1))
    (1.0, 0.0)
    """
    scale = float(numbers.std())
    return scale if scale > 1e-12 * max(1.0, float(np.abs(numbers).max())) else 0.0


def make_target(name: str, values: Any, task: Task, train: np.ndarray) -> Target:
    """The target of a table: its classes in all rows, or mean and scale in the training rows."""
    if task == "regression":
        numbers = np.asarray(values, np.float64)[train]
        if not spread(numbers):
            raise DataError(
                f"target {name!r} has only one value, {label_of(float(numbers[0]))}: there is nothing to learn"
            )
        return Quantity(name, float(numbers.mean()), spread(numbers))
    different = list(np.unique(np.asarray(values, np.float64))) if _is_numbers(values) else sorted(set(values))
    return Classes(name, tuple(_as_labels(different)))


def check_classes(name: str, values: Any) -> np.ndarray:
    """The class of every row as a number, for a stratified split; an error if one is too small or alone."""
    labels, classes, counts = np.unique(np.asarray(_as_labels(values)), return_inverse=True, return_counts=True)
    if len(labels) == 1:
        raise DataError(f"target {name!r} has only one class, {str(labels[0])!r}: there is nothing to distinguish")
    if len(labels) > MOST_CLASSES or 2 * len(labels) > len(classes):
        advice = "choose another target" if not _is_numbers(values) else "is it a regression (--task regression)?"
        raise DataError(f"target {name!r} has {len(labels)} different values in {len(classes)} rows: {advice}")
    if counts.min() < 2:
        alone = [str(label) for label, count in zip(labels, counts, strict=True) if count < 2]
        raise DataError(
            f"target {name!r}: {shown(alone)} occur in one row only, but training and test set need one row each"
        )
    return classes


def split_rows(rows: int, classes: np.ndarray | None, fraction: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Training and test rows, at random; of every class the same fraction, and at least one row in each part.

    >>> train, test = split_rows(100, np.arange(100) % 4, 0.2, seed=0)
    >>> len(train), np.bincount(test % 4).tolist()
    (80, [5, 5, 5, 5])
    """
    if rows < FEWEST_ROWS:
        raise DataError(
            f"{rows} rows are too few to split into training and test rows: at least {FEWEST_ROWS} are needed"
        )
    rng = np.random.default_rng(seed)
    groups = [np.arange(rows)] if classes is None else [np.flatnonzero(classes == c) for c in np.unique(classes)]
    test = []
    for group in groups:
        count = min(max(round(fraction * len(group)), 1), len(group) - 1)
        test.append(rng.permutation(group)[:count])
    chosen = np.sort(np.concatenate(test))
    return np.setdiff1d(np.arange(rows), chosen), chosen


def target_from_plain(plain: dict[str, Any]) -> Target:
    """The target that `asdict` gave."""
    if plain["task"] == "classification":
        return Classes(str(plain["name"]), tuple(map(str, plain["labels"])))
    return Quantity(str(plain["name"]), float(plain["mean"]), float(plain["scale"]))


def _is_numbers(values: Any) -> bool:
    return isinstance(values, np.ndarray) and values.dtype.kind in "biuf"


def _as_labels(values: Any) -> list[str]:
    return [value if isinstance(value, str) else label_of(float(value)) for value in values]
