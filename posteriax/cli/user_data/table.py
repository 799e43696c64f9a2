"""A table: named columns, each of numbers or of text, and where in the file each row was."""

from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from pandas.api.types import is_numeric_dtype

from posteriax.cli.user_data.messages import DataError, brief, label_of, quoted, shown

MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "?"})
DECIMAL_COMMA = r"^([+-]?\d*),(\d+(?:[eE][+-]?\d+)?)$"


@dataclass(frozen=True, eq=False)
class Table:
    """A file's columns.

    Args:
        name: of the file, for messages.
        frame: columns of floats or of text, NaN where missing. The index holds each row's place in the file, and is
            named as places are called there: "line" or "row".
        decimal_comma: whether "1,5" is a number, as spreadsheets in many countries write it.

    >>> table = Table("trees.csv", pd.DataFrame({"height": ["1.5", None], "kind": ["oak", "elm"]}))
    >>> table.numbers("height").tolist(), table.texts("kind").tolist()
    ([1.5, nan], ['oak', 'elm'])
    """

    name: str
    frame: pd.DataFrame
    decimal_comma: bool = False
    _floats: dict[str, np.ndarray] = field(default_factory=dict, repr=False)  # columns that have been parsed

    @property
    def columns(self) -> list[str]:
        return list(self.frame.columns)

    @property
    def rows(self) -> int:
        return len(self.frame)

    def place(self, row: int) -> str:
        """Where a row is in the file."""
        return f"{self.frame.index.name or 'row'} {self.frame.index[row]}"

    def require(self, column: str) -> None:
        """Raise an error that lists the columns if this one is not among them."""
        if column in self.frame:
            return
        hint = ""
        if pd.to_numeric(pd.Series(self.columns, dtype=str), errors="coerce").notna().all():
            hint = ". The first line must hold the column names, but here it holds numbers"
        raise DataError(f"{self.name} has no column {column!r}; its columns are {shown(self.columns)}{hint}")

    def is_text(self, column: str) -> bool:
        """Whether a column holds text; an error if it mixes text and numbers."""
        cells = self.frame[column]
        if is_numeric_dtype(cells):
            return False
        present = cells.notna().to_numpy()
        text = present & np.isnan(self._parsed(column))
        if not text.any() or text.sum() == present.sum():
            return bool(text.any())
        odd_is_text = 2 * text.sum() <= present.sum()  # whichever is rarer is the mistake
        odd = text if odd_is_text else present & ~text
        row, (usual, unusual) = int(np.argmax(odd)), ("numbers", "text") if odd_is_text else ("text", "numbers")
        raise DataError(
            f"{self.name}: column {column!r} holds {usual}, but {self.place(row)} has {brief(cells.iloc[row])} "
            f"({odd.sum()} of {self.rows} rows are {unusual}): correct the file, leave the column out with --drop "
            f"{quoted(column)}, or treat its values as categories with --categories {quoted(column)}"
        )

    def numbers(self, column: str) -> np.ndarray:
        """A column as floats, NaN where missing; an error if a value is not a finite number."""
        values, present = self._parsed(column), self.frame[column].notna().to_numpy()
        self.refuse(column, present & ~np.isfinite(values), "finite numbers")
        return values

    def refuse(self, column: str, wrong: np.ndarray, wanted: str) -> None:
        """Raise an error that shows the first of the rows that are wrong, if any is."""
        if wrong.any():
            row = int(np.argmax(wrong))
            found = f"{self.place(row)} has {brief(str(self.frame[column].iloc[row]))}"
            raise DataError(f"{self.name}: column {column!r} must hold {wanted}, but {found}")

    def texts(self, column: str) -> pd.Series:
        """A column as text, None where missing."""
        cells = self.frame[column].astype(object)
        if is_numeric_dtype(self.frame[column]):
            cells = cells.map(label_of, na_action="ignore")
        return cells.where(cells.notna(), None)

    def _parsed(self, column: str) -> np.ndarray:
        """Floats; NaN where missing or not a number."""
        if column not in self._floats:
            cells = self.frame[column]
            if self.decimal_comma and not is_numeric_dtype(cells):
                cells = cells.str.replace(DECIMAL_COMMA, r"\1.\2", regex=True)
            self._floats[column] = pd.to_numeric(cells, errors="coerce").to_numpy(np.float64, na_value=np.nan)
        return self._floats[column]


def clean(cells: pd.Series) -> pd.Series:
    """A column of a table: floats, or stripped text with NaN where there is no value. Dates become ISO text.

    >>> clean(pd.Series([" oak ", "n/a", "elm"])).tolist()
    ['oak', nan, 'elm']
    >>> clean(pd.Series([True, False])).tolist(), clean(pd.Series([1, 2])).tolist()
    (['True', 'False'], [1.0, 2.0])
    """
    cells = cells.infer_objects()
    if isinstance(cells.dtype, pd.DatetimeTZDtype):
        cells = cells.dt.tz_convert("UTC").dt.tz_localize(None)
    if cells.dtype.kind == "M":
        whole_days = (cells.dropna() == cells.dropna().dt.normalize()).all()
        cells = cells.dt.strftime("%Y-%m-%d" if whole_days else "%Y-%m-%dT%H:%M:%S")
    if is_numeric_dtype(cells) and cells.dtype.kind != "b" and str(cells.dtype) != "boolean":
        return pd.Series(cells.to_numpy(np.float64, na_value=np.nan), cells.index)
    if not isinstance(cells.dtype, pd.StringDtype):
        cells = cells.astype(object).map(str, na_action="ignore").astype("str")
    texts = cells.str.strip()
    return texts.mask(texts.str.lower().isin(MISSING))
