"""Preparing a table: what its target and columns are, which rows are for testing, and both parts as inputs."""

from dataclasses import replace

import numpy as np

from posteriax.tabular.columns import choose_columns, summary
from posteriax.tabular.labelled_rows import LabelledRows, about_left_out, labelled_rows
from posteriax.tabular.messages import TableError, counted, shown
from posteriax.tabular.preparation import Preparation, compare_with_training, known_targets
from posteriax.tabular.prepared import Prepared
from posteriax.tabular.settings import DataSettings
from posteriax.tabular.splitting import FEWEST_ROWS, Split, about_splits, make_splits
from posteriax.tabular.table import Table
from posteriax.tabular.targets import Classes, make_target


def prepare(table: Table, settings: DataSettings, split: Split | None = None) -> Prepared:
    """The first of the folds that :func:`prepare_folds` gives."""
    return prepare_folds(table, settings, split)[0]


def prepare_folds(
    table: Table, settings: DataSettings, split: Split | None = None, test: Table | None = None
) -> list[Prepared]:
    """Find out what every column is, split the rows, and prepare both parts by what the training rows say.

    Args:
        table: the rows.
        settings: the target, how columns are used, and how rows are split.
        split: training and test rows, if they are given.
        test: the test rows, if they are in another table; its columns may be in another order.

    >>> import pandas as pd
    >>> cells = {"height": [str(i**2) for i in range(20)], "kind": ["oak", "elm"] * 10}
    >>> folds = prepare_folds(Table("trees.csv", pd.DataFrame(cells)), DataSettings(target="kind"))
    >>> len(folds), folds[0].train[0].shape, folds[0].test[0].shape, folds[0].target.labels
    (5, (16, 1), (4, 1), ('elm', 'oak'))
    """
    rows = labelled_rows(table, settings)
    if test is not None:
        return [_with_test_table(rows, test, settings)]
    if split is not None:
        splits = [(rows.renumbered(split[0]), rows.renumbered(split[1]))]
    else:
        splits = make_splits(rows.table.rows, settings, classes=rows.classes, groups=rows.groups, times=rows.times)
    notes = [*rows.notes, *about_splits(splits, settings)]
    if rows.times is not None and len(splits) == 1:
        notes.append(f"tested on the latest rows, those from {rows.show_time(rows.times[splits[0][1]].min())} on")
    return [_prepare(rows, settings, train, test_rows, notes) for train, test_rows in splits]


def prepare_whole(table: Table, settings: DataSettings) -> Prepared:
    """All rows for training and none for testing, for a posterior that is to be used after it was tested in folds.

    >>> import pandas as pd
    >>> cells = {"height": [str(i**2) for i in range(20)], "kind": ["oak", "elm"] * 10}
    >>> whole = prepare_whole(Table("trees.csv", pd.DataFrame(cells)), DataSettings(target="kind"))
    >>> whole.train[0].shape, whole.test[0].shape
    ((20, 1), (0, 1))
    """
    rows = labelled_rows(table, settings)
    return _prepare(rows, settings, np.arange(rows.table.rows), np.zeros(0, int), list(rows.notes))


def _prepare(
    rows: LabelledRows, settings: DataSettings, train: np.ndarray, test: np.ndarray, notes: list[str]
) -> Prepared:
    table, target = rows.table, str(settings.target)
    learned = make_target(target, rows.values, rows.task, train, rows.form)
    y = learned.encode(rows.values)
    if isinstance(learned, Classes):
        notes = [*notes, *_about_classes(learned, y[train])]
    names = [name for name in table.columns if name != target and name not in settings.drop]
    chosen = choose_columns(table, names, train, settings)
    if not chosen.columns:
        reasons = "".join(f"; {note}" for note in chosen.notes)
        raise TableError(f"{table.name} has no usable columns besides the target {target!r}{reasons}")
    preparation = Preparation(tuple(chosen.columns), learned, tuple(chosen.ids))
    return Prepared(
        preparation,
        (preparation.inputs(table, train), y[train]),
        (preparation.inputs(table, test), y[test]),
        (*notes, f"columns used: {summary(chosen.columns)}", *chosen.notes),
        rows.kept[train],
        rows.kept[test],
        table.frame.iloc[test],
    )


def _about_classes(target: Classes, labels: np.ndarray) -> list[str]:
    absent = [name for i, name in enumerate(target.labels) if i not in set(labels.tolist())]
    if len(absent) >= len(target.labels) - 1:
        raise TableError(f"target {target.name!r}: all training rows are of one class, {target.labels[labels[0]]!r}")
    return [f"no training row has the class {shown(absent)}"] if absent else []


def _with_test_table(rows: LabelledRows, test: Table, settings: DataSettings) -> Prepared:
    if rows.table.rows < FEWEST_ROWS:
        raise TableError(f"{rows.table.name} has {counted(rows.table.rows, 'row')}; at least {FEWEST_ROWS} are needed")
    whole = _prepare(rows, settings, np.arange(rows.table.rows), np.zeros(0, int), list(rows.notes))
    preparation, target = whole.preparation, whole.target
    test.require(target.name)
    y, known = known_targets(test, target)
    if not known.any():
        raise TableError(f"{test.name}: the target {target.name!r} has no values")
    tested = np.flatnonzero(known)
    x = preparation.inputs(test, tested)
    notes = [
        *whole.notes,
        *test.notes,
        *(f"{test.name}: {note}" for note in about_left_out(test, {target.name: ~known}, target.name)),
        *(f"{test.name}: {note}" for note in compare_with_training(preparation, test)),
        *about_splits([(whole.train_rows, tested)], settings),
        *_about_repeated(whole.train[0], x, test.name),
    ]
    return replace(
        whole,
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
    found = f"{repeated:,} of {counted(len(test), 'row')}"
    return [f"{name}: {found} are training rows too, so that scores will be better than on new rows"]
