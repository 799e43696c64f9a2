"""Preparing a table: how its columns become inputs by scikit-learn, with what the training rows say of each.

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
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder

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
        """Fitted to one made-up row, from which the imputer takes the medians."""
        numbers = [column for column in self.columns if isinstance(column, Number)]
        categories = [column for column in self.columns if isinstance(column, Category)]
        mean, scale = np.array([(column.mean, column.scale) for column in numbers]).reshape(-1, 2).T
        standardise = FunctionTransformer(lambda values: (values - mean) / scale)
        encoder = OneHotEncoder(
            categories=[_encoded(column) for column in categories], handle_unknown="ignore", sparse_output=False
        )
        row: dict[str, list[Any]] = {column.name: [column.median] for column in numbers}
        row |= {column.name: [column.categories[0]] for column in categories}
        return ColumnTransformer(
            [
                ("numbers", make_pipeline(SimpleImputer(strategy="median"), standardise), [c.name for c in numbers]),
                ("missing", MissingIndicator(features="all"), [c.name for c in numbers if c.missing]),
                ("categories", encoder, [c.name for c in categories]),
            ]
        ).fit(pd.DataFrame(row))


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
    preparation = Preparation(tuple(chosen), learned)
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
