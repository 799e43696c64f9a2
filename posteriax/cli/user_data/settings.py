"""What a user says about a file's data, and the target and split that follow from it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from posteriax.cli.user_data.messages import DataError
from posteriax.cli.user_data.targets import Target, Task, check_classes, infer_task, make_target, split_rows

Split = tuple[np.ndarray, np.ndarray]  # training and test rows


@dataclass(frozen=True, kw_only=True)
class DataSettings:
    """How the data of a file are used.

    Args:
        target: the column to predict; for arrays it is ``y``.
        task: "classification" or "regression"; inferred from the target if not given.
        drop: columns to leave out.
        keep: columns to use even if they look like IDs.
        categories: columns of numbers to treat as categories.
        test_fraction: the fraction of rows, or of each class, to hold out for testing.
        seed: of the split, and of whatever is fitted.
    """

    target: str | None = None
    task: Task | None = None
    drop: Sequence[str] = ()
    keep: Sequence[str] = ()
    categories: Sequence[str] = ()
    test_fraction: float = 0.2
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0.0 < self.test_fraction < 1.0:
            raise DataError(f"--test-fraction must lie between 0 and 1, got {self.test_fraction}")
        if self.task not in (None, "classification", "regression"):
            raise DataError(f"--task must be classification or regression, got {self.task!r}")
        if not 0 <= self.seed < 2**32:
            raise DataError(f"--seed must be a whole number from 0 to {2**32 - 1}, got {self.seed}")
        if self.target in self.drop:
            raise DataError(f"column {self.target!r} is the target and cannot be left out as well")


class Prepared(NamedTuple):
    """Data prepared for training, and how new data are prepared alike. Targets are labels or standardised numbers."""

    preparation: Any  # Preparation or ImagePreparation
    train: tuple[np.ndarray, np.ndarray]
    test: tuple[np.ndarray, np.ndarray]
    notes: tuple[str, ...] = ()


def split_by_target(
    name: str, values: Any, settings: DataSettings, split: Split | None
) -> tuple[Target, np.ndarray, np.ndarray]:
    """The target, the training rows and the test rows; these are drawn at random unless `split` gives them."""
    task = infer_task(name, values, settings.task)
    classes = check_classes(name, values) if task == "classification" else None
    train, test = split or split_rows(len(values), classes, settings.test_fraction, settings.seed)
    return make_target(name, values, task, train), train, test
