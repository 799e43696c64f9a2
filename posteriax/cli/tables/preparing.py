"""Preparing: a table as the numbers that a network learns from, by what was found in the training rows.

numbers     (value - mean) / scale; a missing one is the median, and a column beside it says where
categories  one column for each, 1 where it is; a category that was never seen is 0 in all of them
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

from posteriax.cli.tables.reading import DataError, Table, brief, quoted, shown
from posteriax.cli.tables.targets import (
    Classes,
    Quantity,
    Target,
    Task,
    check_classes,
    infer_task,
    make_target,
    split_rows,
)

MOST_CATEGORIES = 50
FEW_TO_COUNT = 10  # rows whose numbering may be chance


@dataclass(frozen=True)
class NumberColumn:
    """A column of numbers."""

    name: str
    median: float
    mean: float
    scale: float
    missing: bool  # whether values were missing: then the network is told where

    def inputs(self, table: Table) -> np.ndarray:
        values = table.numbers(self.name)
        absent = np.isnan(values)
        standard = (np.where(absent, self.median, values) - self.mean) / self.scale
        return np.stack([standard, absent], axis=1) if self.missing else standard[:, None]

    def notes(self, table: Table) -> list[str]:
        absent = int(np.isnan(table.numbers(self.name)).sum())
        if self.missing or not absent:
            return []
        return [f"column {self.name!r}: {absent} missing values, where none were missing before: the median was taken"]


@dataclass(frozen=True)
class CategoryColumn:
    """A column of text; None stands for a missing value."""

    name: str
    categories: tuple[str | None, ...]

    def inputs(self, table: Table) -> np.ndarray:
        values = table.texts(self.name)
        return np.array([[float(value == category) for category in self.categories] for value in values])

    def notes(self, table: Table) -> list[str]:
        unseen = {value for value in table.texts(self.name) if value not in self.categories}
        if not unseen:
            return []
        names = sorted("(missing)" if value is None else value for value in unseen)
        return [f"column {self.name!r} has values that were never seen in training: {shown(names)}"]


@dataclass(frozen=True)
class Preparation:
    """All that is needed to prepare new rows as the training rows were.

    Args:
        columns: the input columns, in the network's order.
        target: what is predicted.

    >>> target = Classes("kind", ("elm", "oak"))
    >>> preparation = Preparation((NumberColumn("height", 1.0, mean=1.0, scale=0.5, missing=False),), target)
    >>> preparation.inputs(Table("new.csv", {"height": ["2.0", "NA"]}, [2, 3])).tolist()
    [[2.0], [0.0]]
    >>> preparation_from_plain(preparation.to_plain()) == preparation
    True
    """

    columns: tuple[NumberColumn | CategoryColumn, ...]
    target: Target

    def inputs(self, table: Table) -> np.ndarray:
        """The network's inputs, (N, d)."""
        lacking = [column.name for column in self.columns if column.name not in table.columns]
        if lacking:
            raise DataError(
                f"{table.name} lacks the columns {shown(lacking)}; its columns are {shown(list(table.columns))}"
            )
        return np.concatenate([column.inputs(table) for column in self.columns], axis=1).astype(np.float32)

    def notes(self, table: Table) -> list[str]:
        """What is unlike the training rows, one line each."""
        return [note for column in self.columns for note in column.notes(table)]

    def to_plain(self) -> dict[str, Any]:
        """The same as data for JSON."""
        return {"columns": [asdict(column) for column in self.columns], "target": target_to_plain(self.target)}


class Prepared(NamedTuple):
    """A table ready to learn from. Targets are labels or standardised numbers."""

    preparation: Preparation
    train: tuple[np.ndarray, np.ndarray]
    test: tuple[np.ndarray, np.ndarray]
    notes: tuple[str, ...]


def prepare(
    table: Table,
    target: str,
    *,
    task: Task | None = None,
    drop: Sequence[str] = (),
    categories: Sequence[str] = (),
    test_fraction: float = 0.2,
    seed: int = 0,
    split: tuple[np.ndarray, np.ndarray] | None = None,
) -> Prepared:
    """Find out what every column is, split the rows, and prepare both parts by what is found in the training rows.

    Args:
        table: the rows.
        target: the column to predict.
        task: "classification" or "regression"; by default, text and a few different whole numbers are classes.
        drop: columns to leave out.
        categories: columns of numbers to take as categories.
        test_fraction: of the rows, or of each class.
        seed: of the split.
        split: training and test rows, where they are given.

    >>> cells = {"height": [str(i) for i in range(20)], "kind": ["oak", "elm"] * 10}
    >>> prepared = prepare(Table("trees.csv", cells, range(2, 22)), "kind")
    >>> prepared.train[0].shape, prepared.test[0].shape, prepared.preparation.target.labels
    ((16, 1), (4, 1), ('elm', 'oak'))
    """
    for column in (target, *drop, *categories):
        table.require(column)
    if target in drop:
        raise DataError(f"column {target!r} is the target and cannot be left out as well")
    values = target_values(table, target)
    chosen_task = infer_task(target, values, task)
    classes = check_classes(target, values) if chosen_task == "classification" else None
    train, test = split_rows(table.rows, classes, test_fraction, seed) if split is None else split
    inputs = [name for name in table.columns if name != target and name not in drop]
    if not inputs:
        raise DataError(f"{table.name} has no columns to learn from beside the target {target!r}")
    columns = tuple(_column(table, name, train, as_categories=name in categories) for name in inputs)
    preparation = Preparation(columns, make_target(target, values, chosen_task, train))
    x, y = preparation.inputs(table), preparation.target.encode(values)
    notes = tuple(note for name in inputs for note in _counts_rows(table, name))
    return Prepared(preparation, (x[train], y[train]), (x[test], y[test]), notes)


def target_values(table: Table, target: str) -> Any:
    """The target of every row, an array of numbers or a list of text; an error where it is missing."""
    values: Any = table.texts(target) if table.is_text(target) else table.numbers(target)
    absent = [row for row, value in enumerate(values) if value is None or value != value]
    if absent:
        raise DataError(
            f"{table.name}: the target {target!r} is missing in {len(absent)} rows, the first at line "
            f"{table.lines[absent[0]]}: fill it in, or remove these rows"
        )
    return values


def preparation_from_plain(plain: dict[str, Any]) -> Preparation:
    """Back from what `to_plain` gave."""
    columns = tuple(
        CategoryColumn(str(column["name"]), tuple(column["categories"]))
        if "categories" in column
        else NumberColumn(**column)
        for column in plain["columns"]
    )
    return Preparation(columns, target_from_plain(plain["target"]))


def target_to_plain(target: Target) -> dict[str, Any]:
    return {"task": target.task, **asdict(target)}


def target_from_plain(plain: dict[str, Any]) -> Target:
    if plain["task"] == "classification":
        return Classes(str(plain["name"]), tuple(map(str, plain["labels"])))
    return Quantity(str(plain["name"]), float(plain["mean"]), float(plain["scale"]))


def _column(table: Table, name: str, train: np.ndarray, *, as_categories: bool) -> NumberColumn | CategoryColumn:
    if as_categories or table.is_text(name):
        return _category_column(table, name, train)
    values = table.numbers(name)[train]
    absent = np.isnan(values)
    median = 0.0 if absent.all() else float(np.median(values[~absent]))
    filled = np.where(absent, median, values)
    scale = float(filled.std())
    constant = scale <= 1e-9 * max(float(np.abs(filled).max()), 1e-300)
    return NumberColumn(name, median, float(filled.mean()), 1.0 if constant else scale, bool(absent.any()))


def _category_column(table: Table, name: str, train: np.ndarray) -> CategoryColumn:
    values = table.texts(name)
    different = {value for value in values if value is not None}
    if len(different) > MOST_CATEGORIES or 2 * len(different) > max(table.rows, 4):
        example = brief(next(value for value in values if value is not None))
        raise DataError(
            f"{table.name}: column {name!r} is text with {len(different)} different values in {table.rows} rows, such "
            f"as {example}: too many for categories. If it is a name, an id or free text, leave it out with --drop "
            f"{quoted(name)}"
        )
    seen = {values[row] for row in train}
    return CategoryColumn(
        name, (*sorted(value for value in seen if value is not None), *([None] if None in seen else []))
    )


def _counts_rows(table: Table, name: str) -> list[str]:
    """A note on a column that only counts rows: it helps on no new ones."""
    if table.is_text(name):
        return []
    values = table.numbers(name)
    if len(values) > FEW_TO_COUNT and (np.diff(values) == 1.0).all():
        return [f"column {name!r} counts the rows: if it is an id, leave it out with --drop {quoted(name)}"]
    return []
