"""A table: named columns, each of numbers or of text, and where in the file each row was."""

from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd
from pandas.api.types import is_integer_dtype, is_numeric_dtype

from posteriax.tabular.dates import days_since_1970
from posteriax.tabular.messages import TableError, brief, label_of, shown
from posteriax.tabular.number_formats import PLAIN, NumberFormat, find_format

MISSING = frozenset(
    {"", "na", "n/a", "n.a.", "nan", "null", "none", "?", "-", "--", ".", "<na>", "nat"}
    | {"#n/a", "#na", "#div/0!", "#value!", "#ref!", "#num!", "#name?", "#null!"}  # errors of spreadsheets
)
LARGEST = 1e100  # larger numbers are treated as infinite: their squares would be
TOO_LARGE = f"infinite or beyond {LARGEST:g}"  # in messages
EXACT = 2**53  # whole numbers up to here are exact as floats


@dataclass(frozen=True, eq=False)
class Table:
    """A file's columns.

    Args:
        name: of the file, for messages.
        frame: columns of numbers or of text, NaN where missing. The index holds each row's number in the file, and its
            name is what it counts: "line" or "row".
        decimal_comma: whether "1,234" is 1.234, as spreadsheets in many countries write it.
        notes: lines about how the file was read.

    >>> table = Table("trees.csv", pd.DataFrame({"height": ["1.5", None], "kind": ["oak", "elm"]}))
    >>> table.numbers("height").tolist(), table.texts("kind").tolist()
    ([1.5, nan], ['oak', 'elm'])
    """

    name: str
    frame: pd.DataFrame
    decimal_comma: bool = False
    notes: tuple[str, ...] = ()
    _parsed: dict[tuple[str, NumberFormat | str], np.ndarray] = field(default_factory=dict, repr=False)
    _formats: dict[str, NumberFormat] = field(default_factory=dict, repr=False)

    @classmethod
    def from_frame(cls, name: str, frame: pd.DataFrame) -> "Table":
        """A data frame as a table: cells cleaned, rows counted from 1.

        >>> Table.from_frame("trees", pd.DataFrame({"kind": [" oak ", "n/a"]})).texts("kind").tolist()
        ['oak', None]
        """
        frame = clean_columns(frame).set_axis(pd.RangeIndex(1, len(frame) + 1, name="row"))
        return cls(name, frame.set_axis(frame.columns.map(str), axis=1))

    @property
    def columns(self) -> list[str]:
        return list(self.frame.columns)

    @property
    def rows(self) -> int:
        return len(self.frame)

    def location(self, row: int) -> str:
        """Where a row is in the file."""
        return f"{self.frame.index.name or 'row'} {self.frame.index[row]}"

    def take(self, rows: np.ndarray) -> "Table":
        """Some of the rows."""
        return replace(self, frame=self.frame.iloc[rows], _parsed={}, _formats={})

    def require(self, column: str) -> None:
        """Raise an error that lists the columns if this one is not among them."""
        if column in self.frame:
            return
        hint = ""
        if pd.to_numeric(pd.Series(self.columns, dtype=str), errors="coerce").notna().all():
            hint = ". The first line must hold the column names, but here it holds numbers"
        raise TableError(f"{self.name} has no column {column!r}; its columns are {shown(self.columns)}{hint}")

    def present(self, column: str) -> np.ndarray:
        """Where a column has a value of any kind."""
        return self.frame[column].notna().to_numpy()

    def number_format(self, column: str) -> NumberFormat:
        """How the numbers of a column are written."""
        if column not in self._formats:
            cells, form = self.frame[column], PLAIN
            if not is_numeric_dtype(cells):
                unread = np.isnan(self.numbers(column, PLAIN)) & self.present(column)
                form = find_format(cells, unread, decimal_comma=self.decimal_comma)
            self._formats[column] = form
        return self._formats[column]

    def numbers(self, column: str, form: NumberFormat | None = None) -> np.ndarray:
        """A column as floats, infinite ones included; NaN where there is no number."""
        form = form or self.number_format(column)
        if (column, form) not in self._parsed:
            cells = self.frame[column]
            numeric = is_numeric_dtype(cells)
            values = cells.to_numpy(np.float64, na_value=np.nan) if numeric else form.read(cells)
            self._parsed[column, form] = np.where(np.abs(values) > LARGEST, np.copysign(np.inf, values), values)
        return self._parsed[column, form]

    def days(self, column: str, form: str) -> np.ndarray:
        """A column of dates as days since 1970; NaN where there is no date."""
        if (column, form) not in self._parsed:
            self._parsed[column, form] = days_since_1970(self.texts(column), form)
        return self._parsed[column, form]

    def texts(self, column: str) -> pd.Series:
        """A column as text, None where missing."""
        cells = self.frame[column].astype(object)
        if is_integer_dtype(self.frame[column]):
            cells = cells.map(str, na_action="ignore")
        elif is_numeric_dtype(self.frame[column]):
            cells = cells.map(label_of, na_action="ignore")
        return cells.where(cells.notna(), None)

    def first(self, column: str, where: np.ndarray) -> str:
        """The first of these cells and where it is, for a message."""
        row = int(np.argmax(where))
        return f"{brief(str(self.texts(column).iloc[row]))} ({self.location(row)})"


def clean(cells: pd.Series) -> pd.Series:
    """A column of a table: numbers, or stripped text with NaN where there is no value. Dates become ISO text.

    >>> clean(pd.Series([" oak ", "n/a", "elm"])).tolist()
    ['oak', nan, 'elm']
    >>> clean(pd.Series([True, False])).tolist(), clean(pd.Series([1, 2])).tolist()
    (['True', 'False'], [1, 2])
    """
    cells = cells.infer_objects()
    if isinstance(cells.dtype, pd.DatetimeTZDtype):
        cells = cells.dt.tz_convert("UTC").dt.tz_localize(None)
    if cells.dtype.kind == "M":
        whole_days = (cells.dropna() == cells.dropna().dt.normalize()).all()
        cells = cells.dt.strftime("%Y-%m-%d" if whole_days else "%Y-%m-%dT%H:%M:%S")
    if is_integer_dtype(cells) and (len(cells.dropna()) == len(cells) or cells.abs().max() > EXACT):
        return cells
    if is_numeric_dtype(cells) and cells.dtype.kind != "b" and str(cells.dtype) != "boolean":
        return pd.Series(cells.to_numpy(np.float64, na_value=np.nan), cells.index)
    if not isinstance(cells.dtype, pd.StringDtype):
        cells = cells.astype(object).map(str, na_action="ignore").astype("str")
    texts = cells.str.strip()
    return texts.mask(texts.str.lower().isin(MISSING))


def clean_columns(rows: pd.DataFrame) -> pd.DataFrame:
    """Every column as a table has it."""
    return pd.DataFrame({name: clean(rows[name]) for name in rows}, index=rows.index)
