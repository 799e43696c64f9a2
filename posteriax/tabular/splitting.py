"""What a user says about a file's data, and which rows are for training and which for testing.

Rows are split at random, by group or by time; once, or in several folds.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.model_selection import GroupKFold, KFold, StratifiedGroupKFold, StratifiedKFold

from posteriax.tabular.messages import TableError, counted
from posteriax.tabular.targets import TASKS, Task

Split = tuple[np.ndarray, np.ndarray]  # training and test rows

FEWEST_ROWS = 10
ENOUGH_ROWS = 60  # fewer are tested in folds by default
DEFAULT_FOLDS = 5
ENOUGH_TEST_ROWS = 20
TRIES = 50  # of splitting groups, of which the most even is taken


@dataclass(frozen=True, kw_only=True)
class DataSettings:
    """How the data of a file are used.

    Args:
        target: the column to predict, or several of real numbers, "height,age"; for arrays it is ``y``.
        task: "classification", "ordinal", "regression", "counts", "overdispersed-counts", "zero-inflated-counts",
            "fractions" or "times"; inferred from the target if not given.
        event: of times, the column that says whether the event was observed; the others are censored.
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
    event: str | None = None
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
        if self.event is None and self.task == "times":
            raise TableError(
                "--task times needs --event COLUMN, which is 1 where the event was observed and 0 elsewhere"
            )
        if self.event is not None and self.task not in (None, "times"):
            raise TableError(f"--event is for times until an event, but --task is {self.task}")
        if self.event is not None and self.event in (self.target, self.group, self.time):
            raise TableError(f"column {self.event!r} says whether the event was observed and cannot be anything else")
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


def make_splits(
    rows: int,
    settings: DataSettings,
    *,
    classes: np.ndarray | None = None,
    groups: np.ndarray | None = None,
    times: np.ndarray | None = None,
) -> list[Split]:
    """Training and test rows, one pair per fold.

    Args:
        rows: how many there are.
        settings: folds, fraction and seed.
        classes: of the rows, numbered, to have the same share of each in every part.
        groups: of the rows, numbered; a group is never split.
        times: of the rows; rows of the same time stay together, and no training row is as late as a test row.

    >>> splits = make_splits(100, DataSettings(folds=4))
    >>> [len(test) for _, test in splits], sorted(np.concatenate([test for _, test in splits])) == list(range(100))
    ([25, 25, 25, 25], True)
    >>> ((train, test),) = make_splits(100, DataSettings(time="day"), times=np.arange(100) // 3)
    >>> int(train.max()), int(test.min())  # three rows each day
    (77, 78)
    """
    if rows < FEWEST_ROWS:
        few = f"{counted(rows, 'row')} {'is' if rows == 1 else 'are'} too few to split into training and test rows"
        raise TableError(f"{few}: at least {FEWEST_ROWS} are needed")
    folds = _folds(rows, settings, groups)
    if times is not None:
        return _by_time(times, folds, settings)
    if folds > 1:
        return _in_folds(rows, folds, settings, classes, groups)
    if groups is not None:
        return [_by_group(groups, classes, settings)]
    return [split_rows(rows, classes, settings.test_fraction, settings.seed)]


def split_rows(rows: int, classes: np.ndarray | None, fraction: float, seed: int) -> Split:
    """Training and test rows, at random; of every class the same fraction, and at least one row in each part.

    >>> train, test = split_rows(100, np.arange(100) % 4, 0.2, seed=0)
    >>> len(train), np.bincount(test % 4).tolist()
    (80, [5, 5, 5, 5])
    """
    rng = np.random.default_rng(seed)
    parts = [np.arange(rows)] if classes is None else [np.flatnonzero(classes == c) for c in np.unique(classes)]
    test = [rng.permutation(part)[: min(max(round(fraction * len(part)), 1), len(part) - 1)] for part in parts]
    chosen = np.sort(np.concatenate(test))
    return np.setdiff1d(np.arange(rows), chosen), chosen


def about_splits(splits: list[Split], settings: DataSettings) -> list[str]:
    """Lines about how the rows were split, and whether too few are tested."""
    rows, tested = len(splits[0][0]) + len(splits[0][1]), sum(len(test) for _, test in splits)
    notes = []
    if len(splits) > 1:
        why = f"only {counted(rows, 'row')}: " if settings.folds is None else ""
        how = {True: f"whole groups of {settings.group!r} at a time"}.get(settings.group is not None, "each row once")
        if settings.time is not None:
            how = f"each time on rows later than the training rows, by {settings.time!r}"
        single = "; --folds 1 makes a single split instead" if settings.folds is None else ""
        notes.append(f"{why}tested in {len(splits)} folds, {how}{single}")
    elif settings.group is not None:
        notes.append(f"rows are split by {settings.group!r}: no group is both in training and in test")
    if tested < ENOUGH_TEST_ROWS or (rows < ENOUGH_ROWS and len(splits) > 1):
        advice = "" if len(splits) > 1 or settings.test else f"; --folds {DEFAULT_FOLDS} tests more of them"
        notes.append(f"only {counted(tested, 'test row')}: small differences between scores mean nothing{advice}")
    return notes


def _folds(rows: int, settings: DataSettings, groups: np.ndarray | None) -> int:
    if settings.folds is not None:
        if settings.folds > rows:
            raise TableError(f"--folds {settings.folds} is more than the {rows} rows there are")
        return settings.folds
    few = rows < ENOUGH_ROWS and settings.time is None
    most = DEFAULT_FOLDS if groups is None else min(DEFAULT_FOLDS, len(np.unique(groups)))
    return max(most, 1) if few else 1


def _in_folds(
    rows: int, folds: int, settings: DataSettings, classes: np.ndarray | None, groups: np.ndarray | None
) -> list[Split]:
    if groups is not None and len(np.unique(groups)) < folds:
        count = counted(len(np.unique(groups)), "group")
        raise TableError(f"--folds {folds} needs at least as many groups, but {settings.group!r} has {count}")
    kinds = {
        (False, False): KFold,
        (True, False): StratifiedKFold,
        (False, True): GroupKFold,
        (True, True): StratifiedGroupKFold,
    }
    splitter: Any = kinds[classes is not None, groups is not None](folds, shuffle=True, random_state=settings.seed)
    with warnings.catch_warnings(action="ignore", category=UserWarning):  # a class with fewer rows than folds is fine
        try:
            return [(train, test) for train, test in splitter.split(np.zeros(rows), classes, groups) if len(test)]
        except ValueError as error:
            raise TableError(f"--folds {folds} is too many for these rows: {error}") from error


def _by_group(groups: np.ndarray, classes: np.ndarray | None, settings: DataSettings) -> Split:
    """Whole groups, so that of all rows, and of every class, about the wanted fraction is tested."""
    numbers, members = np.unique(groups, return_inverse=True)
    if len(numbers) < 2:
        raise TableError(
            f"--group {settings.group}: all rows are in one group, but training and test set need one each"
        )
    rng = np.random.default_rng(settings.seed)
    strata = np.zeros(len(groups), int) if classes is None else classes
    table = np.zeros((len(numbers), strata.max() + 1))  # rows by group and class
    np.add.at(table, (members, strata), 1)
    goal = settings.test_fraction * table.sum(axis=0)

    def attempt() -> tuple[float, np.ndarray]:
        order = rng.permutation(len(numbers))
        taken = table[order].cumsum(axis=0)[:-1]  # after one group, two, ...: at least one is left for training
        misses = np.abs(taken - goal).sum(axis=1)
        return misses.min(), order[: int(misses.argmin()) + 1]

    chosen = min((attempt() for _ in range(TRIES)), key=lambda tried: tried[0])[1]
    tested = np.isin(members, chosen)
    return np.flatnonzero(~tested), np.flatnonzero(tested)


def _by_time(times: np.ndarray, folds: int, settings: DataSettings) -> list[Split]:
    """The latest rows, or in folds: the rows of each period, trained on all before it."""
    ordered = np.sort(times)
    rows = len(times)
    if folds == 1:
        cuts = [min(max(round((1 - settings.test_fraction) * rows), 1), rows - 1)]
    else:
        cuts = [round(i * rows / (folds + 1)) for i in range(1, folds + 1)]
    starts = np.unique(ordered[cuts])
    starts = starts[starts > ordered[0]]  # rows of the same time stay together, and some must come first
    if not len(starts) and ordered[-1] > ordered[0]:
        starts = np.array([ordered[ordered > ordered[0]][0]])
    if len(starts) < folds:
        different = len(np.unique(times))
        if different == 1:
            raise TableError(
                f"--time {settings.time}: all rows have the same value, so that none is later than another"
            )
        raise TableError(f"--time {settings.time}: {different} different values are too few for --folds {folds}")
    ends = [*starts[1:], np.inf]
    return [
        (np.flatnonzero(times < start), np.flatnonzero((start <= times) & (times < end)))
        for start, end in zip(starts, ends, strict=True)
    ]
