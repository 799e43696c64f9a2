"""From a file's data to what a network is trained and tested on: rows with a target, split, and prepared by what the
training rows say."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from posteriax.tabular.columns import read_column
from posteriax.tabular.data_files import Arrays, is_npz, joined, read_table, table_of
from posteriax.tabular.dates import as_date
from posteriax.tabular.messages import TableError, counted, shown
from posteriax.tabular.number_formats import PLAIN, NumberFormat
from posteriax.tabular.preparation import ImagePreparation, Preparation, TablePreparation, compare_with_training
from posteriax.tabular.splitting import FEWEST_ROWS, DataSettings, Split, about_splits, make_splits
from posteriax.tabular.table import TOO_LARGE, Table
from posteriax.tabular.targets import (
    OF_CLASSES,
    Classes,
    Quantities,
    Target,
    TargetValues,
    Task,
    Times,
    about_task,
    check_classes,
    infer_task,
    is_numbers,
    make_quantities,
    make_target,
)

OBSERVED, CENSORED = ("1", "1.0", "yes", "true", "y", "t"), ("0", "0.0", "no", "false", "n", "f")  # as --event says it

Examples = tuple[np.ndarray, np.ndarray]  # inputs and encoded targets


def _no_rows() -> np.ndarray:
    return np.zeros(0, int)


@dataclass(frozen=True, eq=False)
class Fold:
    """Training and test rows, prepared, and how new rows are prepared alike.

    Args:
        preparation: of inputs, fitted to the training rows.
        target: what is predicted.
        train, test: inputs, and targets as the network sees them: labels, standardised numbers or counts.
        notes: lines for the user about the file, its columns and the split.
        train_rows, test_rows: which rows of the file these are, from 0 on.
        cells: the test rows as they are in the file, with all of its columns; the index holds the line or row of each
            and is named "line" or "row". None for images.
    """

    preparation: Preparation
    target: Target
    train: Examples
    test: Examples
    notes: tuple[str, ...] = ()
    train_rows: np.ndarray = field(default_factory=_no_rows)
    test_rows: np.ndarray = field(default_factory=_no_rows)
    cells: pd.DataFrame | None = None

    @property
    def y_test(self) -> np.ndarray:
        """The test targets as predictions are scored against them: numbers in their own units."""
        return self.target.restore(self.test[1])

    def location(self, example: int) -> str:
        """Where a test example is in the file, such as "line 7"."""
        if self.cells is None:
            return f"example {int(self.test_rows[example])}"
        return f"{self.cells.index.name or 'row'} {self.cells.index[example]}"


class JoinedTests(NamedTuple):
    """The test rows of all folds, one after the other, as `px.likelihoods.join_examples` joins their predictions."""

    y: np.ndarray  # in the target's own units
    rows: np.ndarray
    cells: pd.DataFrame | None


def join_tests(folds: Sequence[Fold]) -> JoinedTests:
    """The test rows of all folds. Inputs are not joined: columns may have other categories in another fold."""
    cells = [fold.cells for fold in folds if fold.cells is not None]
    return JoinedTests(
        np.concatenate([fold.y_test for fold in folds]),
        np.concatenate([fold.test_rows for fold in folds]),
        pd.concat(cells) if len(cells) == len(folds) else None,
    )


def prepare_folds(data: Table | Arrays, settings: DataSettings) -> list[Fold]:
    """Find out what the target and every column are, split the rows, and prepare both parts: one fold by default.

    >>> cells = {"height": [str(i**2) for i in range(20)], "kind": ["oak", "elm"] * 10}
    >>> folds = prepare_folds(Table("trees.csv", pd.DataFrame(cells)), DataSettings(target="kind"))
    >>> len(folds), folds[0].train[0].shape, folds[0].test[0].shape, folds[0].target.labels
    (5, (16, 1), (4, 1), ('elm', 'oak'))
    >>> arrays = Arrays("images.npz", np.zeros((80, 8, 8), np.uint8), np.arange(80) % 2)
    >>> [fold.train[0].shape for fold in prepare_folds(arrays, DataSettings())]
    [(64, 8, 8)]
    """
    rows = labelled_rows(data, settings)
    if settings.test is not None:
        return [_with_test_table(rows, _read_test_table(settings.test), settings)]
    splits = [rows.given_split] if rows.given_split is not None else rows.split(settings)
    notes = [*rows.notes, *about_splits(splits, settings)]
    if rows.times is not None and len(splits) == 1:
        notes.append(f"tested on the latest rows, those from {rows.show_time(rows.times[splits[0][1]].min())} on")
    return [_prepare(rows, settings, train, test, notes) for train, test in splits]


def prepare_all_rows(data: Table | Arrays, settings: DataSettings) -> Fold:
    """All rows for training and none for testing, for a posterior that is to be used after it was tested in folds.

    >>> cells = {"height": [str(i**2) for i in range(20)], "kind": ["oak", "elm"] * 10}
    >>> fold = prepare_all_rows(Table("trees.csv", pd.DataFrame(cells)), DataSettings(target="kind"))
    >>> fold.train[0].shape, fold.test[0].shape
    ((20, 1), (0, 1))
    """
    return _prepare_all(labelled_rows(data, settings), settings)


@dataclass(frozen=True, eq=False)
class LabelledRows:
    """The rows that can be learned from: those with a target, and with a group or time if they are split by it.

    Args:
        source: these rows of the table, or all images.
        target: the name of the target.
        kept: which rows of the file they are.
        values: their targets.
        form: how numbers are written.
        task: what is predicted.
        classes, groups: of the rows, numbered, if there are any.
        times: of the rows, if they are split by time.
        times_are_dates: whether times are days since 1970.
        notes: lines about what was not obvious.
        given_split: training and test rows, if the file says so.
        targets: of several, their names and how they are written.
    """

    source: Table | Arrays
    target: str
    kept: np.ndarray
    values: TargetValues
    form: NumberFormat
    task: Task
    classes: np.ndarray | None
    groups: np.ndarray | None = None
    times: np.ndarray | None = None
    times_are_dates: bool = False
    notes: tuple[str, ...] = ()
    given_split: Split | None = None
    targets: tuple[tuple[str, NumberFormat], ...] = ()

    def __len__(self) -> int:
        return len(self.kept)

    def split(self, settings: DataSettings) -> list[Split]:
        return make_splits(len(self), settings, classes=self.classes, groups=self.groups, times=self.times)

    def show_time(self, time: float) -> str:
        return as_date(time) if self.times_are_dates else f"{time:.10g}"


def labelled_rows(data: Table | Arrays, settings: DataSettings) -> LabelledRows:
    """The rows of a file that can be learned from."""
    if isinstance(data, Table):
        return _rows_of_table(data, settings)
    _refuse_columns(data, settings)
    x, y, split = joined(data)
    if not data.is_image:
        rows = _rows_of_table(table_of(data.name, x, y), replace(settings, target="y"))
        return rows if split is None else replace(rows, given_split=_renumbered(split, rows.kept, len(x)))
    task = infer_task("y", y, settings.task)
    return LabelledRows(
        Arrays(data.name, x, y),
        "y",
        np.arange(len(x)),
        y,
        PLAIN,
        task,
        check_classes("y", y) if task in OF_CLASSES else None,
        notes=tuple(about_task("y", y, task, settings.task)),
        given_split=split,
    )


def _rows_of_table(table: Table, settings: DataSettings) -> LabelledRows:
    target = settings.target
    if target is None:
        raise TableError(f"which column should be predicted? Say --target COLUMN; columns: {shown(table.columns)}")
    needed = [column for column in (settings.group, settings.time, settings.event) if column is not None]
    names = target_columns(table, target)
    if len(names) > 1:
        return _rows_of_targets(table, names, settings)
    for column in (target, *settings.drop, *settings.keep, *settings.categories, *needed):
        table.require(column)
    if settings.event is not None:
        settings = replace(settings, task="times")
        for name in (target, settings.event):
            if name is not None and not table.present(name).any():
                raise TableError(f"{table.name}: the column {name!r} has no values")
    values, form, about_target = target_values(table, target, settings.task)
    if settings.event is not None:
        values = with_event(table, target, values, settings.event)
    lacks = {} if settings.event is None else {settings.event: ~table.present(settings.event)}
    unknown = ~np.isfinite(values) if is_numbers(values) else ~table.present(target)
    lacks[target] = unknown & ~lacks.get(str(settings.event), np.zeros(table.rows, bool))
    times, dates = _times(table, settings.time)
    if settings.group is not None:
        lacks[settings.group] = ~table.present(settings.group)
    if settings.time is not None:
        lacks[settings.time] = ~np.isfinite(times)
    usable = ~np.any(list(lacks.values()), axis=0)
    notes = [*table.notes, *about_target, *about_left_out(table, lacks, target)]
    kept = np.flatnonzero(usable)
    if not len(kept):
        large = is_numbers(values) and np.isinf(values).any()
        kind = f" but those that are {TOO_LARGE}" if large else ""
        raise TableError(f"{table.name}: the target {target!r} has no values{kind}")
    values = values[kept] if is_numbers(values) else [values[row] for row in kept]
    task = infer_task(target, values, settings.task)
    groups = None if settings.group is None else table.texts(settings.group).iloc[kept].factorize()[0]
    return LabelledRows(
        table if usable.all() else table.take(kept),
        target,
        kept,
        values,
        form,
        task,
        check_classes(target, values) if task in OF_CLASSES else None,
        groups,
        None if settings.time is None else times[kept],
        dates,
        (*notes, *about_task(target, values, task, settings.task)),
    )


def target_columns(table: Table, target: str) -> list[str]:
    """The column, or several if there is none of this name but it is a list of columns."""
    parts = [part.strip() for part in target.split(",")]
    several = target not in table.frame and len(parts) > 1 and all(parts)
    return list(dict.fromkeys(parts)) if several else [target]


def _rows_of_targets(table: Table, names: Sequence[str], settings: DataSettings) -> LabelledRows:
    """The rows that have all of several targets, which must be real numbers."""
    if settings.task not in (None, "regression") or settings.event is not None:
        what = "--event" if settings.event is not None else f"--task {settings.task}"
        raise TableError(f"several targets must be real numbers, but {what} says otherwise")
    roles = [column for column in (settings.group, settings.time) if column is not None]
    for column in (*names, *settings.drop, *settings.keep, *settings.categories, *roles):
        table.require(column)
    wrong = [name for name in names if name in (*settings.drop, *roles)]
    if wrong:
        raise TableError(f"column {wrong[0]!r} is a target and cannot be anything else as well")
    for name in names:
        if not table.present(name).any():
            raise TableError(f"{table.name}: the target {name!r} has no values")
    read = [target_values(table, name, "regression") for name in names]
    for name, (values, _, _) in zip(names, read, strict=True):
        if not is_numbers(values):
            raise TableError(f"target {name!r} is text, but several targets must all be numbers")
    values = np.column_stack([np.asarray(values, np.float64) for values, _, _ in read])
    times, dates = _times(table, settings.time)
    lacks = {name: ~np.isfinite(column) for name, column in zip(names, values.T, strict=True)}
    lacks |= {name: ~table.present(name) for name in (settings.group,) if name is not None}
    lacks |= {name: ~np.isfinite(times) for name in (settings.time,) if name is not None}
    usable = ~np.any(list(lacks.values()), axis=0)
    kept = np.flatnonzero(usable)
    if not len(kept):
        raise TableError(f"{table.name}: no row has all of the targets {shown(names)}")
    notes = [note for _, _, about in read for note in about]
    return LabelledRows(
        table if usable.all() else table.take(kept),
        ", ".join(names),
        kept,
        values[kept],
        PLAIN,
        "regression",
        None,
        None if settings.group is None else table.texts(settings.group).iloc[kept].factorize()[0],
        None if settings.time is None else times[kept],
        dates,
        (*table.notes, *notes, *about_left_out(table, lacks, names[0])),
        targets=tuple((name, form) for name, (_, form, _) in zip(names, read, strict=True)),
    )


def target_values(table: Table, name: str, task: Task | None = None) -> tuple[TargetValues, NumberFormat, list[str]]:
    """The target of every row that has one, an array of numbers or a list of text; how numbers are written; notes."""
    present = table.present(name)
    form = table.number_format(name)
    numbers = table.numbers(name, form)
    is_number = ~np.isnan(numbers)
    if is_number.sum() == present.sum() and present.any():
        notes = list(read_column(table, name).notes) if form != PLAIN else []
        return numbers, form, [note.replace("column", "target", 1) for note in notes]
    if task != "classification" and 2 * is_number.sum() >= present.sum() > 0:
        odd = present & ~is_number
        classes = ", or treat all values as classes with --task classification" if task is None else ""
        raise TableError(
            f"{table.name}: the target {name!r} holds numbers, but also {table.first(name, odd)}, in {odd.sum():,} of "
            f"{counted(table.rows, 'row')}: correct or remove these{classes}"
        )
    notes = []
    if is_number.any():
        notes = [f"target {name!r} holds text and numbers, such as {table.first(name, is_number)}: all are classes"]
    return table.texts(name).tolist(), PLAIN, notes


def with_event(table: Table, target: str, values: TargetValues, event: str) -> np.ndarray:
    """Times, negative where the event was not observed, and NaN where that is not known."""
    if not is_numbers(values):
        raise TableError(f"target {target!r} is text, so it cannot be a time until {event!r}")
    texts = table.texts(event).fillna("").str.strip().str.lower()
    present = table.present(event)
    yes, no = (texts.isin(words).to_numpy() & present for words in (OBSERVED, CENSORED))
    odd = present & ~yes & ~no
    if odd.any():
        raise TableError(f"--event {event}: the column must hold 1 or 0, yes or no, but has {table.first(event, odd)}")
    wrong = np.isfinite(values) & (values <= 0) & present
    if wrong.any():
        raise TableError(f"{table.name}: times must be positive, but {target!r} has {table.first(target, wrong)}")
    return np.where(yes, values, np.where(no, -values, np.nan))


def known_targets(table: Table, target: Target) -> tuple[np.ndarray | None, np.ndarray]:
    """The targets of new rows that have one, as the file has them, and which rows these are."""
    if isinstance(target, Quantities):
        if not all(name in table.frame for name in target.names):
            return None, np.zeros(table.rows, bool)
        columns = [_read_numbers(table, name, form) for name, form in zip(target.names, target.forms, strict=True)]
        values = np.column_stack(columns)
        finite = np.isfinite(values).all(axis=1)
        return values[finite], finite
    if target.name not in table.frame:
        return None, np.zeros(table.rows, bool)
    if isinstance(target, Classes):
        numbers, present = table.numbers(target.name, None), table.present(target.name)
        if (present & np.isnan(numbers)).any():
            return table.texts(target.name).to_numpy(object)[present], present
    else:
        numbers = _read_numbers(table, target.name, target.form)
    if isinstance(target, Times):
        if target.event not in table.frame:
            return None, np.zeros(table.rows, bool)
        numbers = with_event(table, target.name, numbers, target.event)
    known = np.isfinite(numbers)
    return numbers[known], known


def _read_numbers(table: Table, name: str, form: NumberFormat) -> np.ndarray:
    """The numbers of a target, NaN where it has no value; an error if one is not a number."""
    numbers = table.numbers(name, form)
    unread = table.present(name) & np.isnan(numbers)
    if unread.any():
        first = table.first(name, unread)
        raise TableError(f"{table.name}: the target {name!r} must hold numbers, but has {first}")
    return numbers


def about_left_out(table: Table, lacks: dict[str, np.ndarray], target: str) -> list[str]:
    """Lines about rows that cannot be used, by the column that they lack."""
    notes = []
    for name, lacking in lacks.items():
        if lacking.any():
            first, count = table.location(int(np.argmax(lacking))), counted(int(lacking.sum()), "row")
            what = f"the target {name!r}" if name == target else f"column {name!r}"
            notes.append(f"{count} left out, since {what} is missing, {TOO_LARGE} there; the first is {first}")
    return notes


def _times(table: Table, name: str | None) -> tuple[np.ndarray, bool]:
    if name is None:
        return np.zeros(table.rows), False
    reading = read_column(table, name)
    if reading.kind == "text":
        first = table.first(name, table.present(name))
        raise TableError(f"--time {name}: the column must hold dates or numbers, but has {first}")
    if reading.kind == "dates":
        return table.days(name, reading.date_form), True
    return table.numbers(name, reading.number_form), False


def _renumbered(split: Split, kept: np.ndarray, file_rows: int) -> Split:
    """Map rows of the file to rows that are kept, dropping the others."""
    numbers = np.full(file_rows, -1)
    numbers[kept] = np.arange(len(kept))
    train, test = (numbers[part] for part in split)
    return train[train >= 0], test[test >= 0]


def _prepare(rows: LabelledRows, settings: DataSettings, train: np.ndarray, test: np.ndarray, notes: list[str]) -> Fold:
    target: Target
    if rows.targets:
        names, forms = zip(*rows.targets, strict=True)
        target = make_quantities(names, np.asarray(rows.values), train, forms)
    else:
        target = make_target(rows.target, rows.values, rows.task, train, rows.form, settings.event)
    y = target.encode(rows.values)
    if isinstance(target, Classes):
        _check_classes(target, y[train])
    preparation, x_train, x_test = _inputs(rows, settings, train, test)
    return Fold(
        preparation,
        target,
        (x_train, y[train]),
        (x_test, y[test]),
        (*notes, *preparation.notes_),
        rows.kept[train],
        rows.kept[test],
        rows.source.frame.iloc[test] if isinstance(rows.source, Table) else None,
    )


def _prepare_all(rows: LabelledRows, settings: DataSettings) -> Fold:
    return _prepare(rows, settings, np.arange(len(rows)), _no_rows(), list(rows.notes))


def _inputs(
    rows: LabelledRows, settings: DataSettings, train: np.ndarray, test: np.ndarray
) -> tuple[Preparation, np.ndarray, np.ndarray]:
    """A preparation fitted to the training rows, and the inputs of both parts."""
    source = rows.source
    if isinstance(source, Arrays):
        pixels = ImagePreparation().fit(source, rows=train)
        return pixels, pixels.transform(source, train), pixels.transform(source, test)
    columns = TablePreparation(
        target=rows.target,
        drop=[*settings.drop, *(name for name, _ in rows.targets), *filter(None, [settings.event])],
        keep=settings.keep,
        categories=settings.categories,
        group=settings.group,
        time=settings.time,
    ).fit(source, rows=train)
    return columns, columns.transform(source, train), columns.transform(source, test)


def _check_classes(target: Classes, labels: np.ndarray) -> None:
    """Raise if the training rows lack a class, which no network could then learn."""
    absent = [name for i, name in enumerate(target.labels) if i not in set(labels.tolist())]
    if len(absent) >= len(target.labels) - 1:
        raise TableError(f"target {target.name!r}: all training rows are of one class, {target.labels[labels[0]]!r}")
    if absent:
        raise TableError(
            f"the split leaves no training rows of the class {shown(absent)}: use another split, or drop its rows"
        )


def _with_test_table(rows: LabelledRows, test: Table, settings: DataSettings) -> Fold:
    if len(rows) < FEWEST_ROWS:
        raise TableError(f"{rows.source.name} has {counted(len(rows), 'row')}; at least {FEWEST_ROWS} are needed")
    fold = _prepare_all(rows, settings)
    preparation, target = fold.preparation, fold.target
    assert isinstance(preparation, TablePreparation)  # images have no test file
    for name in target.names if isinstance(target, Quantities) else (target.name,):
        test.require(name)
    if isinstance(target, Times):
        test.require(target.event)
    y, known = known_targets(test, target)
    if y is None or not known.any():
        event = f", or {target.event!r}," if isinstance(target, Times) else ""
        raise TableError(f"{test.name}: the target {target.name!r}{event} has no values")
    tested = np.flatnonzero(known)
    x = preparation.transform(test, tested)
    notes = [
        *fold.notes,
        *test.notes,
        *(f"{test.name}: {note}" for note in about_left_out(test, {target.name: ~known}, target.name)),
        *(f"{test.name}: {note}" for note in compare_with_training(preparation, test)),
        *about_splits([(fold.train_rows, tested)], settings),
        *_about_repeated(fold.train[0], x, test.name),
    ]
    return replace(
        fold,
        test=(x, target.encode(y)),
        notes=tuple(notes),
        test_rows=tested,
        cells=test.frame.iloc[tested],
    )


def _about_repeated(train: np.ndarray, test: np.ndarray, name: str) -> list[str]:
    """A line if most test rows have exactly the inputs of a training row, as if one file were a part of the other."""
    seen = {row.tobytes() for row in train}
    repeated = sum(row.tobytes() in seen for row in test)
    if 2 * repeated <= len(test) or 2 * len(seen) <= len(train):  # rows that differ little are often alike
        return []
    share = f"{repeated:,} of {counted(len(test), 'row')}"
    return [f"{name}: {share} are training rows too, so that scores will be better than on new rows"]


def _read_test_table(path: Path) -> Table:
    if is_npz(path):
        raise TableError(f"--test {path}: the test rows of a table must be in a table too")
    return read_table(path)


def _refuse_columns(arrays: Arrays, settings: DataSettings) -> None:
    if settings.test is not None:
        raise TableError(f"{arrays.name}: instead of --test, add arrays x_test and y_test to the file")
    if arrays.x_test is not None and (settings.folds or 1) > 1:
        raise TableError(f"{arrays.name} has test examples, x_test, so that --folds has nothing to do")
    if arrays.is_image and (settings.group or settings.time):
        raise TableError(f"{arrays.name} holds images, which have no columns for --group or --time")
