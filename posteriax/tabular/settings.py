"""What a user says about a file's data."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from posteriax.tabular.messages import TableError
from posteriax.tabular.targets import TASKS, Task


@dataclass(frozen=True, kw_only=True)
class DataSettings:
    """How the data of a file are used.

    Args:
        target: the column to predict; for arrays it is ``y``.
        task: "classification", "regression" or "counts"; inferred from the target if not given.
        drop: columns to leave out.
        keep: columns to use even if they look like IDs, or group or order the rows.
        categories: columns of numbers to treat as categories.
        test_fraction: the fraction of rows, or of each class, to hold out for testing.
        folds: test every row once, in this many parts; 1 is a single split. By default 1, or several if there are few
            rows.
        group: a column: rows with the same value are never both in training and in test.
        time: a column: the test rows are the latest.
        test: a file with the test rows; then all rows of the first file are training rows.
        seed: of the split, and of whatever is fitted.
    """

    target: str | None = None
    task: Task | None = None
    drop: Sequence[str] = ()
    keep: Sequence[str] = ()
    categories: Sequence[str] = ()
    test_fraction: float = 0.2
    folds: int | None = None
    group: str | None = None
    time: str | None = None
    test: Path | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0.0 < self.test_fraction < 1.0:
            raise TableError(f"--test-fraction must lie between 0 and 1, got {self.test_fraction}")
        if self.task not in (None, *TASKS):
            raise TableError(f"--task must be {', '.join(TASKS[:-1])} or {TASKS[-1]}, got {self.task!r}")
        if not 0 <= self.seed < 2**32:
            raise TableError(f"--seed must be a whole number from 0 to {2**32 - 1}, got {self.seed}")
        if self.folds is not None and self.folds < 1:
            raise TableError(f"--folds must be a whole number from 1 on, got {self.folds}")
        if self.target is not None and self.target in self.drop:
            raise TableError(f"column {self.target!r} is the target and cannot be left out as well")
        if self.target is not None and self.target in (self.group, self.time):
            raise TableError(f"column {self.target!r} is the target and cannot group or order the rows as well")
        if self.group is not None and self.time is not None:
            raise TableError("--group and --time cannot be combined: say which of them decides about the test rows")
        if self.test is not None and (self.group or self.time or (self.folds or 1) > 1):
            raise TableError("--test FILE gives the test rows, so that --folds, --group and --time have nothing to do")
