"""How rows become a network's inputs: transformers of tables and of images, for scikit-learn's pipelines.

numbers     (value - mean) / scale; a missing value becomes the median, and an extra input marks it
dates       days since 1970, as numbers; sine and cosine of the day of week, the time of year and the time of day
categories  one-hot; a category not seen in training is 0 in all inputs
images      pixels from 0 to 1; the network standardises them with the training images' mean and scale
"""

from collections.abc import Iterator, Sequence
from typing import Any, Self

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.compose import ColumnTransformer
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder
from sklearn.utils.validation import check_is_fitted

from posteriax.tabular.columns import Category, Column, Date, Number, choose_columns, odd_cells, summarise_columns
from posteriax.tabular.data_files import Arrays
from posteriax.tabular.dates import DATES, as_date, cycles
from posteriax.tabular.messages import TableError, counted, label_of, shown
from posteriax.tabular.table import Table

OTHER = " other"  # no cell of a table begins with a space
ROWS_AT_ONCE = 10_000  # scikit-learn keeps several copies in double precision
IMAGES_TO_MEASURE = 5000  # whose pixels give the mean and scale
NEGLIGIBLE = 0.1  # of the training range, by which a value may lie outside it without a line
MOST_RANGES = 10  # lines about values outside the training range


class TablePreparation(TransformerMixin, BaseEstimator):
    """The columns of a table as a network's inputs: finds out what each column is, and which say nothing.

    Args:
        target: the column that is predicted, if the table has it: not an input.
        drop: other columns to leave out.
        keep: columns to use even if they look like IDs, or group or order the rows.
        categories: columns of numbers to treat as categories.
        group, time: columns that group the rows or order them in time: not inputs, unless kept.

    Attributes:
        columns_: the input columns, in the network's order, with what is kept of the training rows.
        ids_: columns that name the rows; not inputs, but carried over to predictions.
        notes_: lines about what each column is used as, or why it is not.

    >>> trees = {"nr": range(1, 13), "height": ["1,5 m", "2 m", None, "4 m"] * 3, "kind": ["oak", "elm"] * 6}
    >>> preparation = TablePreparation().fit(pd.DataFrame(trees))
    >>> preparation.get_feature_names_out().tolist()
    ['height', 'height is missing', 'kind is elm', 'kind is oak']
    >>> preparation.transform(pd.DataFrame({"height": ["2 m"], "kind": ["elm"]})).round(2)
    array([[-0.39,  0.  ,  1.  ,  0.  ]], dtype=float32)
    """

    def __init__(
        self,
        *,
        target: str | None = None,
        drop: Sequence[str] = (),
        keep: Sequence[str] = (),
        categories: Sequence[str] = (),
        group: str | None = None,
        time: str | None = None,
    ):
        self.target = target
        self.drop = drop
        self.keep = keep
        self.categories = categories
        self.group = group
        self.time = time

    @classmethod
    def from_columns(cls, columns: Sequence[Column], ids: Sequence[str] = (), **settings: Any) -> "TablePreparation":
        """One that was fitted before, from what a file says about it.

        >>> height = Number("height", missing=False, median=1.0, mean=1.0, scale=0.5)
        >>> preparation = TablePreparation.from_columns([height])
        >>> preparation.transform(Table("new.csv", pd.DataFrame({"height": ["2.0", None]}))).tolist()
        [[2.0], [0.0]]
        """
        preparation = cls(**settings)
        preparation.columns_, preparation.ids_, preparation.notes_ = tuple(columns), tuple(ids), ()
        return preparation

    def fit(self, X: Table | pd.DataFrame, y: Any = None, *, rows: np.ndarray | None = None) -> Self:
        """Find out what the columns are.

        How a column is written, and whether it names the rows, is read from all rows of the table; medians, means,
        scales and categories come from the training rows.

        Args:
            X: the table.
            y: ignored; for pipelines.
            rows: the training rows; by default all.
        """
        table = _as_table(X)
        names = [name for name in table.columns if name != self.target and name not in self.drop]
        chosen = choose_columns(table, names, np.arange(table.rows) if rows is None else rows, self)
        if not chosen.columns:
            besides = "" if self.target is None else f" besides the target {self.target!r}"
            reasons = "".join(f"; {note}" for note in chosen.notes)
            raise TableError(f"{table.name} has no usable columns{besides}{reasons}")
        self.columns_, self.ids_ = tuple(chosen.columns), tuple(chosen.ids)
        self.notes_ = (f"columns used: {summarise_columns(chosen.columns)}", *chosen.notes)
        return self

    def transform(self, X: Table | pd.DataFrame, rows: np.ndarray | None = None) -> np.ndarray:
        """The network's inputs, (N, d), for all rows of a table or the given ones. Columns may be in any order."""
        check_is_fitted(self)
        table, columns = _as_table(X), self.columns_
        lacking = [column.name for column in columns if column.name not in table.frame and not column.missing]
        if lacking:
            raise TableError(f"{table.name} lacks the columns {shown(lacking)}; its columns are {shown(table.columns)}")
        cells = {column.name: _cells(table, column) for column in columns}
        rows = np.arange(table.rows) if rows is None else rows
        inputs = np.empty((len(rows), len(self.get_feature_names_out())), np.float32)
        transformer, order = _transformer(columns), _table_order(columns)
        for start in range(0, len(rows), ROWS_AT_ONCE):
            block_rows = rows[start : start + ROWS_AT_ONCE]
            # with its dtype: pandas would turn an array of text into its own kind, and None into NaN
            block = pd.DataFrame({name: pd.Series(cell[block_rows], dtype=cell.dtype) for name, cell in cells.items()})
            inputs[start : start + ROWS_AT_ONCE] = transformer.transform(block)[:, order]
        return inputs

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """What each of the network's inputs says."""
        return np.array([name for column in self.columns_ for name in column.input_names], object)

    @property
    def inputs_by_column(self) -> dict[str, slice]:
        """Which of the network's inputs belong to a column, by its name.

        >>> TablePreparation.from_columns([Number("a", True), Number("b", False)]).inputs_by_column
        {'a': slice(0, 2, None), 'b': slice(2, 3, None)}
        """
        ends = np.cumsum([len(column.input_names) for column in self.columns_]).tolist()
        return {
            column.name: slice(start, end) for column, start, end in zip(self.columns_, [0, *ends], ends, strict=False)
        }


class ImagePreparation(TransformerMixin, BaseEstimator):
    """Images as a network's inputs: pixels from 0 to 1.

    Attributes:
        shape_: of an image, (h, w) or (h, w, c).
        divide_: what pixels are divided by: 255 for integers, 1 for fractions.
        mean_, scale_: of the training images' pixels after the division.

    >>> images = np.tile(np.array([0, 255], np.uint8), (6, 4, 2))
    >>> preparation = ImagePreparation().fit(images)
    >>> preparation.mean_, preparation.scale_, preparation.transform(images).max().item()
    (0.5, 0.5, 1.0)
    """

    notes_: tuple[str, ...] = ()

    def fit(self, X: Arrays | np.ndarray, y: Any = None, *, rows: np.ndarray | None = None) -> Self:
        """Measure the pixels of the training images: all, or the given rows."""
        images = X.x if isinstance(X, Arrays) else X
        rows = np.arange(len(images)) if rows is None else rows
        divide = 255.0 if images.dtype.kind in "iu" else 1.0
        measured = images[rows[:: max(1, len(rows) // IMAGES_TO_MEASURE)]] / divide
        scale = float(measured.std())
        return self._set(images.shape[1:], divide, float(measured.mean()), scale if scale > 1e-6 else 1.0)

    @classmethod
    def from_pixels(cls, shape: tuple[int, ...], divide: float, mean: float, scale: float) -> "ImagePreparation":
        """One that was fitted before, from what a file says about it."""
        return cls()._set(shape, divide, mean, scale)

    def _set(self, shape: tuple[int, ...], divide: float, mean: float, scale: float) -> Self:
        self.shape_, self.divide_, self.mean_, self.scale_ = shape, divide, mean, scale
        return self

    def transform(self, X: Arrays | np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
        """The network's inputs."""
        check_is_fitted(self)
        name, images = (X.name, X.x) if isinstance(X, Arrays) else ("the images", X)
        if images.shape[1:] != self.shape_:
            raise TableError(
                f"{name}: x has examples of shape {images.shape[1:]}, but the network expects {self.shape_}"
            )
        return ((images if rows is None else images[rows]) / np.float32(self.divide_)).astype(np.float32)


Preparation = TablePreparation | ImagePreparation


def _as_table(X: Table | pd.DataFrame) -> Table:
    return X if isinstance(X, Table) else Table.from_frame("the table", X)


def _transformer(columns: Sequence[Column]) -> ColumnTransformer:
    """Fitted to one made-up row, from which the imputer takes the medians."""
    scaled = [column for column in columns if not isinstance(column, Category) and _is_scaled(column)]
    dates = [column for column in columns if isinstance(column, Date)]
    categories = [column for column in columns if isinstance(column, Category)]
    marked = [column.name for column in columns if not isinstance(column, Category) and column.missing]
    mean, scale = np.array([(column.mean, column.scale) for column in scaled]).reshape(-1, 2).T

    def standardise(values: np.ndarray) -> np.ndarray:
        return (values - mean) / scale

    def date_parts(days: pd.DataFrame) -> np.ndarray:
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
            ("dates", FunctionTransformer(date_parts), [column.name for column in dates]),
            ("categories", encoder, [column.name for column in categories]),
        ]
    ).fit(pd.DataFrame(row))


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
    numbered = list(enumerate(columns))
    scaled = [i for i, column in numbered if _is_scaled(column)]
    missing = [i for i, column in numbered if not isinstance(column, Category) and column.missing]
    parts = [i for i, column in numbered if isinstance(column, Date) for _ in range(2 * len(column.parts))]
    categories = [i for i, column in numbered if isinstance(column, Category) for _ in _encoded(column)]
    return np.argsort([*scaled, *missing, *parts, *categories], kind="stable")


def compare_with_training(preparation: TablePreparation, table: Table) -> list[str]:
    """Lines about missing columns and values, unknown categories, and values outside the training range.

    >>> age = Number("age", missing=False, low=18.0, high=90.0)
    >>> patients = Table("new.csv", pd.DataFrame({"age": ["20", "1e6"]}))
    >>> compare_with_training(TablePreparation.from_columns([age]), patients)
    ["column 'age': 1 of 2 rows lies outside the range of the training rows, 18 to 90; the farthest is 1000000 (row 1)"]
    """
    notes: list[str] = []
    ranges: list[str] = []
    for column in preparation.columns_:
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
    values = _values(table, column)
    kind = f"dates like {DATES[column.form]}" if isinstance(column, Date) else "numbers"
    present = table.present(column.name)
    if present.any() and np.isnan(values).all():
        first = table.first(column.name, present)
        raise TableError(f"{table.name}: column {column.name!r} must hold {kind}, but has {first}")
    yield from odd_cells(table, column.name, values, kind)
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
        farthest = f"{show(values[row])} ({table.location(row)})"
        yield (
            f"column {column.name!r}: {rows} outside the range of the training rows, {span}; the farthest is {farthest}"
        )


def _values(table: Table, column: Number | Date) -> np.ndarray:
    if isinstance(column, Date):
        return table.days(column.name, column.form)
    return table.numbers(column.name, column.form)


def _as_number(value: float) -> str:
    return label_of(value) if float(value).is_integer() and abs(value) < 1e9 else f"{value:.6g}"
