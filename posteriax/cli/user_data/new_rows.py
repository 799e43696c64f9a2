"""How new rows differ from the training rows, one line each."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from posteriax.cli.user_data.column_reading import odd_cells
from posteriax.cli.user_data.columns import Category, Date, Number
from posteriax.cli.user_data.dates import DATES, as_date
from posteriax.cli.user_data.messages import DataError, counted, label_of, shown
from posteriax.cli.user_data.preparation import Preparation
from posteriax.cli.user_data.table import Table
from posteriax.cli.user_data.targets import Classes, Target

NEGLIGIBLE = 0.1  # of the training range, by which a value may lie outside it without a line
MOST_RANGES = 10  # lines about values outside the training range


def compare_with_training(preparation: Preparation, table: Table) -> list[str]:
    """Lines about missing columns and values, unknown categories, and values outside the training range.

    >>> import pandas as pd
    >>> from posteriax.cli.user_data.targets import Classes
    >>> age = Number("age", missing=False, low=18.0, high=90.0)
    >>> patients = Table("new.csv", pd.DataFrame({"age": ["20", "1e6"]}))
    >>> compare_with_training(Preparation((age,), Classes("ill", ("no", "yes"))), patients)
    ["column 'age': 1 of 2 rows lies outside the range of the training rows, 18 to 90; the farthest is 1000000 (row 1)"]
    """
    notes: list[str] = []
    ranges: list[str] = []
    for column in preparation.columns:
        if column.name not in table.frame:
            notes.append(f"{table.name} has no column {column.name!r}: treated as missing in all rows")
        elif isinstance(column, Category):
            notes += _about_categories(table, column)
        else:
            notes += _about_missing(table, column)
            ranges += _about_range(table, column)
    if len(ranges) > MOST_RANGES:
        others = counted(len(ranges) - MOST_RANGES, "more column")
        ranges = [*ranges[:MOST_RANGES], f"{others} with values outside the range of the training rows"]
    return notes + ranges


def known_targets(table: Table, target: Target) -> tuple[Any, np.ndarray]:
    """The targets of the rows that have one, as the file has them, and which rows these are."""
    if target.name not in table.frame:
        return None, np.zeros(table.rows, bool)
    numbers = table.numbers(target.name, None if isinstance(target, Classes) else target.form)
    present = table.present(target.name)
    unread = present & np.isnan(numbers)
    if isinstance(target, Classes) and unread.any():
        return table.texts(target.name).to_numpy(object)[present], present
    if unread.any():
        first = table.first(target.name, unread)
        raise DataError(f"{table.name}: the target {target.name!r} must hold numbers, but has {first}")
    known = np.isfinite(numbers)
    return numbers[known], known


def _about_categories(table: Table, column: Category) -> Iterator[str]:
    texts = table.texts(column.name)
    unseen = texts.notna() & ~texts.isin(column.categories)
    if unseen.any():
        names = sorted(set(texts[unseen]))
        rows = f"{counted(int(unseen.sum()), 'row')} of {table.rows:,}"
        used = "; read as one of the rarer values" if column.pooled else "; the column is ignored there"
        yield f"column {column.name!r} has values that were not seen in training: {shown(names)} ({rows}{used})"
    missing = int(texts.isna().sum())
    if missing and not column.missing:
        used = f"{counted(missing, 'missing value')}, but had none in training: the column is ignored there"
        yield f"column {column.name!r} has {used}"


def _about_missing(table: Table, column: Number | Date) -> Iterator[str]:
    values, wanted = _values(table, column), "numbers"
    if isinstance(column, Date):
        wanted = f"dates like {DATES[column.form]}"
    present = table.present(column.name)
    if present.any() and np.isnan(values).all():
        first = table.first(column.name, present)
        raise DataError(f"{table.name}: column {column.name!r} must hold {wanted}, but has {first}")
    yield from odd_cells(table, column.name, values, wanted)
    missing = int((~np.isfinite(values)).sum())
    if missing and not column.missing:
        count = counted(missing, "missing value")
        yield f"column {column.name!r} has {count}, but had none in training: replaced by the median"


def _about_range(table: Table, column: Number | Date) -> Iterator[str]:
    if column.low is None or column.high is None:  # saved by an earlier version
        return
    values = _values(table, column)
    values = np.where(np.isinf(values), np.nan, values)
    distance = np.nan_to_num(np.maximum(column.low - values, values - column.high), nan=-np.inf)
    outside = int((distance > 0).sum())
    if outside and distance.max() > NEGLIGIBLE * (column.high - column.low):
        show = as_date if isinstance(column, Date) else _as_number
        row = int(distance.argmax())
        rows = f"{outside:,} of {counted(table.rows, 'row')} {'lies' if outside == 1 else 'lie'}"
        span = f"{show(column.low)} to {show(column.high)}"
        farthest = f"{show(values[row])} ({table.place(row)})"
        yield (
            f"column {column.name!r}: {rows} outside the range of the training rows, {span}; the farthest is {farthest}"
        )


def _values(table: Table, column: Number | Date) -> np.ndarray:
    if isinstance(column, Date):
        return table.days(column.name, column.form)
    return table.numbers(column.name, column.form)


def _as_number(value: float) -> str:
    return label_of(value) if float(value).is_integer() and abs(value) < 1e9 else f"{value:.6g}"
