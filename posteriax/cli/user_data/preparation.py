"""How a table's columns become inputs, by scikit-learn and with what the training rows say of each.

numbers     (value - mean) / scale; a missing value becomes the median, and an extra input marks it
dates       days since 1970, as numbers; sine and cosine of the day of week, the time of year and the time of day
categories  one-hot; a category not seen in training is 0 in all inputs

A preparation is saved as JSON and rebuilt from it, so that reading one can never run code.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from sklearn.compose import ColumnTransformer
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder

from posteriax.cli.user_data.columns import Category, Column, Date, Number, column_from_plain
from posteriax.cli.user_data.dates import cycles
from posteriax.cli.user_data.messages import DataError, shown
from posteriax.cli.user_data.table import Table
from posteriax.cli.user_data.targets import Target, target_from_plain

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
    >>> from posteriax.cli.user_data.targets import Classes
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
            raise DataError(f"{table.name} lacks the columns {shown(lacking)}; its columns are {shown(table.columns)}")
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
