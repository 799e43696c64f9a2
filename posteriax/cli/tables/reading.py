"""Reading CSV: text files of people's own making, so every way in which one can be wrong has a message.

A column is numbers (NaN where missing) or text (None where missing), never both.
"""

import csv
import io
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "?"})
DELIMITERS = (",", ";", "\t", "|")
SHOWN = 12  # names in a message


Cells = list[str] | np.ndarray


class DataError(ValueError):
    """A data file that cannot be used. One line for a person: what is wrong, where, and what to do."""


@dataclass(frozen=True, eq=False)
class Table:
    """Named columns of the same length, as they were in the file.

    Args:
        name: of the file, for messages.
        columns: by name, the text of every cell, or an array of numbers (NaN where missing).
        lines: the line of the file that each row ends at.
        decimal_comma: whether "1,5" is a number (files with semicolons, as spreadsheets write them in many countries).

    >>> table = Table("trees.csv", {"height": ["1.5", "?"], "kind": ["oak", "elm"]}, [2, 3])
    >>> table.numbers("height").tolist(), table.texts("kind")
    ([1.5, nan], ['oak', 'elm'])
    """

    name: str
    columns: Mapping[str, Cells]
    lines: Sequence[int]
    decimal_comma: bool = field(default=False, repr=False)

    @property
    def rows(self) -> int:
        return len(self.lines)

    def require(self, column: str) -> None:
        """An error that lists the columns if this one is not there."""
        if column in self.columns:
            return
        names = list(self.columns)
        hint = ""
        if all(_number(name) is not None for name in names):
            hint = ". The first line must hold the columns' names, and here it holds numbers"
        raise DataError(f"{self.name} has no column {column!r}; its columns are {shown(names)}{hint}")

    def is_text(self, column: str) -> bool:
        """Whether a column holds text; an error if it holds both text and numbers, or nothing at all."""
        cells = self.columns[column]
        if isinstance(cells, np.ndarray):
            return False
        first: dict[bool, int] = {}
        count = {False: 0, True: 0}
        for row, cell in enumerate(cells):
            if is_missing(cell):
                continue
            text = self._parsed(cell) is None
            first.setdefault(text, row)
            count[text] += 1
        if not first:
            raise DataError(
                f"{self.name}: column {column!r} has no values at all: leave it out with --drop {quoted(column)}"
            )
        if len(first) == 2:
            odd = count[True] <= count[False]  # whichever is rarer is the mistake
            row = first[odd]
            kinds = ("numbers", "text") if odd else ("text", "numbers")
            raise DataError(
                f"{self.name}: column {column!r} is {kinds[0]}, but line {self.lines[row]} has "
                f"{brief(cells[row])} ({count[odd]} of {self.rows} rows are {kinds[1]}): correct the "
                f"file, leave the column out with --drop {quoted(column)}, or take its values as categories with "
                f"--categories {quoted(column)}"
            )
        return True in first

    def numbers(self, column: str) -> np.ndarray:
        """A column of numbers; NaN where missing."""
        cells = self.columns[column]
        if isinstance(cells, np.ndarray):
            return np.asarray(cells, np.float64)
        values = np.full(self.rows, np.nan)
        for row, cell in enumerate(cells):
            if is_missing(cell):
                continue
            value = self._parsed(cell)
            if value is None or not math.isfinite(value):
                raise DataError(
                    f"{self.name}: column {column!r} must hold finite numbers, but line {self.lines[row]} has "
                    f"{brief(cell)}"
                )
            values[row] = value
        return values

    def texts(self, column: str) -> list[str | None]:
        """A column of text; None where missing."""
        cells = self.columns[column]
        if isinstance(cells, np.ndarray):
            return [None if np.isnan(value) else label_of(value) for value in cells]
        return [None if is_missing(cell) else cell.strip() for cell in cells]

    def _parsed(self, cell: str) -> float | None:
        if self.decimal_comma and re.fullmatch(r"\s*[+-]?\d*,\d+([eE][+-]?\d+)?\s*", cell):
            cell = cell.replace(",", ".")
        return _number(cell)


def read_csv(path: Path) -> Table:
    """Read a CSV file with a line of column names: UTF-8, separated by commas, semicolons, tabs or bars.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "trees.csv"
    ...     _ = file.write_text("height;kind\\n1,5;oak\\n2;elm\\n")
    ...     table = read_csv(file)
    >>> table.numbers("height").tolist(), table.texts("kind")
    ([1.5, 2.0], ['oak', 'elm'])
    """
    text = _decoded(path)
    delimiter = _delimiter(text)
    records, lines = [], []
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True)
    try:
        for record in reader:
            if any(cell.strip() for cell in record) or len(record) > 1:  # else a blank line
                records.append(record)
                lines.append(reader.line_num)
    except csv.Error as error:
        raise DataError(f"{path}: line {reader.line_num} is not CSV: {error}") from error
    if not records:
        raise DataError(f"{path} is empty: it needs a line of column names, and rows below it")
    names = [cell.strip() or f"column {i + 1}" for i, cell in enumerate(records[0])]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DataError(f"{path}: the column names {shown(twice)} occur more than once: rename them")
    if len(records) == 1:
        raise DataError(f"{path} has a line of column names ({shown(names)}), but no rows below it")
    for record, line in zip(records, lines, strict=True):
        if len(record) != len(names):
            raise DataError(
                f"{path}: line {line} has {_fields(len(record))}, but the first line has {len(names)}; a value that "
                f"holds the separator {delimiter!r} must be in quotes"
            )
    columns = {name: [record[i] for record in records[1:]] for i, name in enumerate(names)}
    return Table(str(path), columns, lines[1:], decimal_comma=delimiter == ";")


def read_bytes(path: Path) -> bytes:
    """A file's content, or an error that says why there is none."""
    try:
        return Path(path).read_bytes()
    except FileNotFoundError as error:
        raise DataError(f"{path} does not exist") from error
    except IsADirectoryError as error:
        raise DataError(f"{path} is a folder, not a file") from error
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from error


def is_missing(cell: str) -> bool:
    """Whether a cell says that there is no value.

    >>> is_missing(" NA "), is_missing("0")
    (True, False)
    """
    return cell.strip().lower() in MISSING


def label_of(value: float) -> str:
    """A number as the name of a class.

    >>> label_of(3.0), label_of(0.5)
    ('3', '0.5')
    """
    return str(int(value)) if float(value).is_integer() else repr(float(value))


def shown(names: Sequence[str]) -> str:
    """Names for a message, the first few of many.

    >>> shown(["a", "b"])
    "'a', 'b'"
    """
    listed = ", ".join(map(repr, names[:SHOWN]))
    return listed if len(names) <= SHOWN else f"{listed} and {len(names) - SHOWN} more"


def brief(cell: str) -> str:
    """A value for a message, cut if it is long.

    >>> brief("x" * 100)[-5:]
    "...'"
    """
    return repr(cell if len(cell) <= 40 else cell[:37] + "...")


def quoted(name: str) -> str:
    """A name as one would type it on the command line.

    >>> quoted("mean area")
    "'mean area'"
    """
    import shlex

    return shlex.quote(name)


def _decoded(path: Path) -> str:
    content = read_bytes(path)
    if content[:4] == b"PK\x03\x04":
        raise DataError(f"{path} is a spreadsheet or another zip archive, not CSV: save it as CSV (UTF-8)")
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise DataError(f"{path} is UTF-16, not UTF-8: save it as CSV (UTF-8)")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise DataError(f"{path} is not UTF-8 text (line {line}): save it as CSV (UTF-8)") from error
    if "\0" in text:
        raise DataError(f"{path} is a binary file, not CSV")
    return text


def _delimiter(text: str) -> str:
    """The separator that cuts the first lines into the most columns, all lines alike if possible."""
    head = "".join(text.splitlines(keepends=True)[:20])

    def merit(delimiter: str) -> tuple[bool, int]:
        try:
            lengths = [
                len(record) for record in csv.reader(io.StringIO(head, newline=""), delimiter=delimiter) if record
            ]
        except csv.Error:
            return False, 0
        return (len(set(lengths)) == 1 and lengths[0] > 1, lengths[0]) if lengths else (False, 0)

    return max(DELIMITERS, key=merit)  # of equals the first


def _number(cell: str) -> float | None:
    if "_" in cell:  # Python's float takes 1_000
        return None
    try:
        return float(cell)
    except ValueError:
        return None


def _fields(count: int) -> str:
    return f"{count} field" if count == 1 else f"{count} fields"
