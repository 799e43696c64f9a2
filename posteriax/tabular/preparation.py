"""How a table's columns become inputs, by scikit-learn and with what the training rows say of each.

numbers     (value - mean) / scale; a missing value becomes the median, and an extra input marks it
dates       days since 1970, as numbers; sine and cosine of the day of week, the time of year and the time of day
categories  one-hot; a category not seen in training is 0 in all inputs

A preparation is saved as JSON and rebuilt from it, so that reading one can never run code.

How new rows differ from the training rows, one line each.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from sklearn.compose import ColumnTransformer
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder

from posteriax.tabular.columns import Category, Column, Date, Number, column_from_plain, odd_cells
from posteriax.tabular.dates import DATES, as_date, cycles
from posteriax.tabular.messages import TableError, counted, label_of, shown
from posteriax.tabular.table import Table
from posteriax.tabular.targets import Classes, Target, target_from_plain

OTHER = " other"  # no cell of a table begins with a space
ROWS_AT_ONCE = 10_000  # scikit-learn keeps several copies in double precision


@dataclass(frozen=True)
class Preparation:
    """All that is needed to prepare new rows as the training rows were.

    Args:
        columns: the input columns, in the network's order.
        target: what is predicted.
        ids: columns that name the rows; not inputs, but carried over to predictions.

    >>> from dataclasses import asdict
    >>> from posteriax.tabular.targets import Classes
    >>> height = Number("height", missing=False, median=1.0, mean=1.0, scale=0.5)
    >>> preparation = Preparation((height,), Classes("kind", ("elm", "oak")))
    >>> preparation.inputs(Table("new.csv", pd.DataFrame({"height": ["2.0", None]}))).tolist()
    [[2.0], [0.0]]
    >>> preparation_from_plain(asdict(preparation)) == preparation
    True
    """

    columns: tuple[Column, ...]
    target: Target
    ids: tuple[str, ...] = ()

    @property
    def input_names(self) -> tuple[str, ...]:
        """What each of the network's inputs says."""
        return tuple(name for column in self.columns for name in column.input_names)

    @property
    def inputs_of(self) -> dict[str, slice]:
        """Which of the network's inputs belong to a column, by its name.

        >>> Preparation((Number("a", True), Number("b", False)), None).inputs_of
        {'a': slice(0, 2, None), 'b': slice(2, 3, None)}
        """
        ends = np.cumsum([len(column.input_names) for column in self.columns]).tolist()
        return {
            column.name: slice(start, end) for column, start, end in zip(self.columns, [0, *ends], ends, strict=False)
        }

    def inputs(self, table: Table, rows: np.ndarray | None = None) -> np.ndarray:
        """The network's inputs, (N, d), for all rows or some."""
        lacking = [c.name for c in self.columns if c.name not in table.frame and not c.missing]
        if lacking:
            raise TableError(f"{table.name} lacks the columns {shown(lacking)}; its columns are {shown(table.columns)}")
        cells = {column.name: _cells(table, column) for column in self.columns}
        rows = np.arange(table.rows) if rows is None else rows
        inputs = np.empty((len(rows), len(self.input_names)), np.float32)
        order = _table_order(self.columns)
        for start in range(0, len(rows), ROWS_AT_ONCE):
            some = rows[start : start + ROWS_AT_ONCE]
            # with its dtype: pandas would turn an array of text into its own kind, and None into NaN
            block = pd.DataFrame({name: pd.Series(cell[some], dtype=cell.dtype) for name, cell in cells.items()})
            inputs[start : start + ROWS_AT_ONCE] = self._transformer.transform(block)[:, order]
        return inputs

    @cached_property
    def _transformer(self) -> ColumnTransformer:
        """Fitted to one made-up row, from which the imputer takes the medians."""
        scaled = [column for column in self.columns if not isinstance(column, Category) and _is_scaled(column)]
        dates = [column for column in self.columns if isinstance(column, Date)]
        categories = [column for column in self.columns if isinstance(column, Category)]
        marked = [column.name for column in self.columns if not isinstance(column, Category) and column.missing]
        mean, scale = np.array([(column.mean, column.scale) for column in scaled]).reshape(-1, 2).T

        def standardise(values: Any) -> Any:
            return (values - mean) / scale

        def take_apart(days: pd.DataFrame) -> np.ndarray:
            return np.concatenate([cycles(days[date.name].to_numpy(), date.parts) for date in dates], axis=1)

        encoder = OneHotEncoder(
            categories=[_encoded(column) for column in categories], handle_unknown="ignore", sparse_output=False
        )
        imputed = make_pipeline(SimpleImputer(strategy="median"), FunctionTransformer(standardise))
        row: dict[str, list[Any]] = {column.name: [column.median] for column in [*scaled, *dates]}
        row |= {column.name: [_encoded(column)[0]] for column in categories}
        return ColumnTransformer(
            [
                ("numbers", imputed, [column.name for column in scaled]),
                ("missing", MissingIndicator(features="all"), marked),
                ("dates", FunctionTransformer(take_apart), [column.name for column in dates]),
                ("categories", encoder, [column.name for column in categories]),
            ]
        ).fit(pd.DataFrame(row))


def preparation_from_plain(plain: dict[str, Any]) -> Preparation:
    """The preparation that `asdict` gave, in this version or an earlier one."""
    columns = tuple(map(column_from_plain, plain["columns"]))
    return Preparation(columns, target_from_plain(plain["target"]), tuple(map(str, plain.get("ids", ()))))


def _is_scaled(column: Column) -> bool:
    return isinstance(column, Number) or (isinstance(column, Date) and column.trend)


def _encoded(column: Category) -> list[str | None]:
    """Categories that have an input, None last, as scikit-learn wants it."""
    named = [value for value in column.categories if value is not None]
    return [*named, *([OTHER] if column.pooled else []), *([None] if None in column.categories else [])]


def _cells(table: Table, column: Column) -> np.ndarray:
    """A column as scikit-learn takes it: floats, NaN where missing, or text, None where missing."""
    if column.name not in table.frame:
        empty: Any = None if isinstance(column, Category) else np.nan
        return np.full(table.rows, empty)
    if isinstance(column, Category):
        texts = table.texts(column.name)
        rare = texts.notna() & ~texts.isin(column.categories) & column.pooled
        return texts.mask(rare, OTHER).to_numpy(object)
    if isinstance(column, Date):
        return table.days(column.name, column.form)
    values = table.numbers(column.name, column.form)
    return np.where(np.isinf(values), np.nan, values)


def _table_order(columns: Sequence[Column]) -> np.ndarray:
    """From the transformer's order (numbers, where they are missing, dates, categories) to that of the columns."""
    each = list(enumerate(columns))
    scaled = [i for i, column in each if _is_scaled(column)]
    missing = [i for i, column in each if not isinstance(column, Category) and column.missing]
    parts = [i for i, column in each if isinstance(column, Date) for _ in range(2 * len(column.parts))]
    categories = [i for i, column in each if isinstance(column, Category) for _ in _encoded(column)]
    return np.argsort([*scaled, *missing, *parts, *categories], kind="stable")


NEGLIGIBLE = 0.1  # of the training range, by which a value may lie outside it without a line
MOST_RANGES = 10  # lines about values outside the training range


def compare_with_training(preparation: Preparation, table: Table) -> list[str]:
    """Lines about missing columns and values, unknown categories, and values outside the training range.

    >>> import pandas as pd
    >>> from posteriax.tabular.targets import Classes
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
        raise TableError(f"{table.name}: the target {target.name!r} must hold numbers, but has {first}")
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
        raise TableError(f"{table.name}: column {column.name!r} must hold {wanted}, but has {first}")
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
