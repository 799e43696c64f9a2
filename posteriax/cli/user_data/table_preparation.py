"""Preparing a table: scikit-learn learns from the training rows how columns become inputs; the result is plain data.

numbers     (value - mean) / scale; a missing value becomes the median, and an extra input marks it
dates       days since 1970, then as numbers
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
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from posteriax.cli.user_data.columns import DATES, Category, Number, choose_columns, numbers_of, summary
from posteriax.cli.user_data.messages import DataError, shown
from posteriax.cli.user_data.settings import DataSettings, Prepared, Split, split_by_target
from posteriax.cli.user_data.table import Table
from posteriax.cli.user_data.targets import Target, target_from_plain

OTHER = " other"  # no cell of a table begins with a space


@dataclass(frozen=True)
class Preparation:
    """All that is needed to prepare new rows as the training rows were.

    Args:
        columns: the input columns, in the network's order.
        target: what is predicted.

    >>> from dataclasses import asdict
    >>> from posteriax.cli.user_data.targets import Classes
    >>> height = Number("height", missing=False, median=1.0, mean=1.0, scale=0.5)
    >>> preparation = Preparation((height,), Classes("kind", ("elm", "oak")))
    >>> preparation.inputs(Table("new.csv", pd.DataFrame({"height": ["2.0", None]}))).tolist()
    [[2.0], [0.0]]
    >>> preparation_from_plain(asdict(preparation)) == preparation
    True
    """

    columns: tuple[Number | Category, ...]
    target: Target

    def inputs(self, table: Table) -> np.ndarray:
        """The network's inputs, (N, d)."""
        lacking = [column.name for column in self.columns if column.name not in table.frame]
        if lacking:
            raise DataError(f"{table.name} lacks the columns {shown(lacking)}; its columns are {shown(table.columns)}")
        inputs = self._transformer.transform(_cells(table, self.columns))
        return inputs[:, _table_order(self.columns)].astype(np.float32)

    def notes(self, table: Table) -> list[str]:
        """Differences from the training rows, one line each."""
        notes = []
        for column in self.columns:
            missing = int(table.frame[column.name].isna().sum())
            if isinstance(column, Category):
                unseen = set(table.texts(column.name)) - set(column.categories)
                if column.pooled:  # whatever is not missing has the input of the rare ones
                    unseen &= {None}
                if unseen:
                    names = sorted("(missing)" if value is None else value for value in unseen)
                    notes.append(f"column {column.name!r} has values that were not seen in training: {shown(names)}")
            elif missing and not column.missing:
                notes.append(
                    f"column {column.name!r} has {missing} missing values, but had none in training: replaced by the "
                    f"median"
                )
        return notes

    @cached_property
    def _transformer(self) -> ColumnTransformer:
        """Rebuilt by a fit to one made-up row; only means and scales, public attributes, have to be set."""
        row = {
            column.name: [column.median] if isinstance(column, Number) else [column.categories[0]]
            for column in self.columns
        }
        transformer = _fit(self.columns, pd.DataFrame(row))
        numbers = [column for column in self.columns if isinstance(column, Number)]
        if numbers:
            scaler = transformer.named_transformers_["numbers"][-1]
            scaler.mean_ = np.array([column.mean for column in numbers])
            scaler.scale_ = np.array([column.scale for column in numbers])
            scaler.var_ = scaler.scale_**2
        return transformer


def prepare(table: Table, settings: DataSettings, split: Split | None = None) -> Prepared:
    """Find out what every column is, split the rows, and prepare both parts by what the training rows say.

    Args:
        table: the rows.
        settings: the target, and how columns are used.
        split: training and test rows, if they are given.

    >>> cells = {"height": [str(i**2) for i in range(20)], "kind": ["oak", "elm"] * 10}
    >>> prepared = prepare(Table("trees.csv", pd.DataFrame(cells)), DataSettings(target="kind"))
    >>> prepared.train[0].shape, prepared.test[0].shape, prepared.preparation.target.labels
    ((16, 1), (4, 1), ('elm', 'oak'))
    """
    target = settings.target
    if target is None:
        raise DataError(f"which column should be predicted? Say --target COLUMN; columns: {shown(table.columns)}")
    for column in (target, *settings.drop, *settings.keep, *settings.categories):
        table.require(column)
    values = target_values(table, target)
    learned, train, test = split_by_target(target, values, settings, split)
    names = [name for name in table.columns if name != target and name not in settings.drop]
    chosen, notes = choose_columns(table, names, train, settings)
    if not chosen:
        reasons = "".join(f"; {note}" for note in notes)
        raise DataError(f"{table.name} has no usable columns besides the target {target!r}{reasons}")
    preparation = Preparation(_fit_columns(table, chosen, train), learned)
    x, y = preparation.inputs(table), learned.encode(values)
    told = (f"columns used: {summary(chosen)}", *notes)
    return Prepared(preparation, (x[train], y[train]), (x[test], y[test]), told)


def target_values(table: Table, target: str) -> Any:
    """The target of every row, an array of numbers or a list of text; an error where it is missing."""
    missing = np.flatnonzero(table.frame[target].isna())
    if len(missing):
        raise DataError(
            f"{table.name}: the target {target!r} is missing in {len(missing)} rows, the first at "
            f"{table.place(missing[0])}: fill it in, or remove these rows"
        )
    return table.texts(target).tolist() if table.is_text(target) else table.numbers(target)


def preparation_from_plain(plain: dict[str, Any]) -> Preparation:
    """The preparation that `asdict` gave."""
    columns = tuple(
        Category(str(column["name"]), tuple(column["categories"]), bool(column.get("pooled", False)))
        if "categories" in column
        else Number(**column)
        for column in plain["columns"]
    )
    unknown = {column.dates for column in columns if isinstance(column, Number)} - {None, *DATES}
    if unknown:
        raise ValueError(f"dates in unknown formats: {unknown}")
    return Preparation(columns, target_from_plain(plain["target"]))


def _fit_columns(
    table: Table, columns: Sequence[Number | Category], train: np.ndarray
) -> tuple[Number | Category, ...]:
    facts: Any = iter(())
    if any(isinstance(column, Number) for column in columns):
        imputer, scaler = _fit(columns, _cells(table, columns).iloc[train]).named_transformers_["numbers"]
        facts = zip(imputer.statistics_.tolist(), scaler.mean_.tolist(), scaler.scale_.tolist(), strict=True)
    return tuple(
        column if isinstance(column, Category) else Number(column.name, column.missing, column.dates, *next(facts))
        for column in columns
    )


def _fit(columns: Sequence[Number | Category], cells: pd.DataFrame) -> ColumnTransformer:
    numbers = [column for column in columns if isinstance(column, Number)]
    categories = [column for column in columns if isinstance(column, Category)]
    encoder = OneHotEncoder(
        categories=[_encoded(column) for column in categories], handle_unknown="ignore", sparse_output=False
    )
    return ColumnTransformer(
        [
            ("numbers", make_pipeline(SimpleImputer(strategy="median"), StandardScaler()), [c.name for c in numbers]),
            ("missing", MissingIndicator(features="all"), [c.name for c in numbers if c.missing]),
            ("categories", encoder, [c.name for c in categories]),
        ]
    ).fit(cells)


def _encoded(column: Category) -> list[str | None]:
    """Categories that have an input, None last, as scikit-learn wants it."""
    named = [value for value in column.categories if value is not None]
    return [*named, *([OTHER] if column.pooled else []), *([None] if None in column.categories else [])]


def _cells(table: Table, columns: Sequence[Number | Category]) -> pd.DataFrame:
    """The columns as scikit-learn takes them: floats, and text with None where missing."""
    cells = {}
    for column in columns:
        if isinstance(column, Number):
            cells[column.name] = pd.Series(numbers_of(table, column.name, column.dates), table.frame.index)
        else:
            texts = table.texts(column.name)
            rare = texts.notna() & ~texts.isin(column.categories) & column.pooled
            cells[column.name] = texts.mask(rare, OTHER)
    return pd.DataFrame(cells, index=table.frame.index)


def _table_order(columns: Sequence[Number | Category]) -> np.ndarray:
    """From the transformer's order (numbers, where they are missing, categories) to that of the table's columns."""
    numbers = [i for i, column in enumerate(columns) if isinstance(column, Number)]
    missing = [i for i, column in enumerate(columns) if isinstance(column, Number) and column.missing]
    categories = [i for i, c in enumerate(columns) if isinstance(c, Category) for _ in _encoded(c)]
    return np.argsort([*numbers, *missing, *categories], kind="stable")
