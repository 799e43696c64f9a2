"""Reading tables: CSV and its relatives, Parquet and Excel, each plain or gzipped.

The format is detected from the content, not from the file's name. Every way a file can be bad has its own message.
"""

import csv
import gzip
import io
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pandas as pd

from posteriax.cli.user_data.messages import DataError, read_bytes, shown
from posteriax.cli.user_data.table import Table, clean

DELIMITERS = (",", ";", "\t", "|")
GZIP, ZIP, PARQUET, OLD_EXCEL = b"\x1f\x8b", b"PK\x03\x04", b"PAR1", b"\xd0\xcf\x11\xe0"


def read_table(path: Path) -> Table:
    """Read a table with column names in its first line.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "trees.csv"
    ...     _ = file.write_text("height;kind\\n1,5;oak\\n2;elm\\n")
    ...     table = read_table(file)
    >>> table.numbers("height").tolist(), table.texts("kind").tolist()
    ([1.5, 2.0], ['oak', 'elm'])
    """
    content = read_bytes(path)
    if content.startswith(GZIP):
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error) as error:
            raise DataError(f"{path} is a damaged gzip file: {error}") from error
    if content.startswith(PARQUET):
        return _read_parquet(path, content)
    if content.startswith(ZIP):
        return _read_excel(path, content)
    if content.startswith(OLD_EXCEL):
        raise DataError(f"{path} is a spreadsheet in the old .xls format: save it as .xlsx or as CSV (UTF-8)")
    return _read_csv(path, _decoded(path, content))


def _read_csv(path: Path, text: str) -> Table:
    if not text.strip():
        raise DataError(f"{path} is empty: it needs a line of column names, and rows below it")
    try:
        delimiter = _delimiter(text)
        # only pandas' Python parser distinguishes a missing field (NaN) from an empty one ("")
        cells = pd.read_csv(
            io.StringIO(text, newline=""), sep=delimiter, header=None, dtype=str, keep_default_na=False,
            skipinitialspace=True, skip_blank_lines=False, index_col=False, engine="python",
        )  # fmt: skip
    except (pd.errors.ParserError, csv.Error) as error:
        found = re.search(r"Expected (\d+) fields in line (\d+), saw (\d+)", str(error))
        if found is None:
            raise DataError(f"{path} is not CSV: {error}") from error
        raise _ragged(path, int(found[2]), int(found[3]), int(found[1]), delimiter) from error
    cells.index += 1
    if '"' in text:  # a quoted value may hold line breaks: a row's line is the one it ends at
        cells.index += cells.apply(lambda column: column.str.count("\n")).sum(axis=1).cumsum().astype(int).to_numpy()
    cells = cells[(cells[0].fillna("") != "") | cells.iloc[:, 1:].notna().any(axis=1)]  # the others are blank lines
    short = cells.isna().any(axis=1)
    if short.any():
        line = short.idxmax()
        raise _ragged(path, line, int(cells.loc[line].notna().sum()), cells.shape[1], delimiter)
    return Table(str(path), _named(path, *_header(path, cells)).rename_axis("line"), decimal_comma=delimiter == ";")


def _read_excel(path: Path, content: bytes) -> Table:
    """The first sheet of an .xlsx file."""
    advice = "save it as CSV (UTF-8)"
    needs = f"{path} is a spreadsheet; reading one needs openpyxl: pip install 'posteriax[tables]', or {advice}"
    damaged = f"{path} is a damaged spreadsheet or another zip archive, not a table: {advice}"
    with _reader(needs, damaged):
        cells = pd.read_excel(io.BytesIO(content), header=None, dtype=object)
    cells.index += 1
    return Table(str(path), _named(path, *_header(path, cells.dropna(how="all"))).rename_axis("row"))


def _read_parquet(path: Path, content: bytes) -> Table:
    needs = f"{path} is a Parquet file; reading one needs pyarrow: pip install 'posteriax[tables]'"
    with _reader(needs, f"{path} is a damaged Parquet file"):
        frame = pd.read_parquet(io.BytesIO(content))
    if not isinstance(frame.index, pd.RangeIndex):
        frame = frame.reset_index()
    frame.index += 1
    return Table(str(path), _named(path, frame.columns.map(str), frame).rename_axis("row"))


@contextmanager
def _reader(needs: str, damaged: str) -> Iterator[None]:
    """The messages of a format that another package reads: if that is missing, and for whatever it raises."""
    try:
        yield
    except ImportError as error:
        raise DataError(needs) from error
    except Exception as error:  # openpyxl, zipfile and pyarrow raise all kinds, which share no base class
        raise DataError(f"{damaged} ({' '.join(str(error).split())})") from error


def _header(path: Path, cells: pd.DataFrame) -> tuple[pd.Index, pd.DataFrame]:
    """The first row as names, and the rows below it."""
    if cells.empty:
        raise DataError(f"{path} is empty: it needs a line of column names, and rows below it")
    first = clean(cells.iloc[0].astype(object).map(str, na_action="ignore"))
    return pd.Index([f"column {i + 1}" if pd.isna(name) else name for i, name in enumerate(first)]), cells.iloc[1:]


def _named(path: Path, names: pd.Index, rows: pd.DataFrame) -> pd.DataFrame:
    """The columns under their names, as floats or text."""
    repeated = sorted(set(names[names.duplicated()]))
    if repeated:
        raise DataError(f"{path}: the column names {shown(repeated)} occur more than once: rename them")
    if rows.empty:
        raise DataError(f"{path} has a line of column names ({shown(list(names))}), but no rows below it")
    return pd.DataFrame({name: clean(rows.iloc[:, i]) for i, name in enumerate(names)})


def _decoded(path: Path, content: bytes) -> str:
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise DataError(f"{path} is UTF-16, not UTF-8: save it as CSV (UTF-8)")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise DataError(f"{path} is not UTF-8 text (line {line}): save it as CSV (UTF-8)") from error
    if "\0" in text:
        raise DataError(f"{path} is a binary file, not a table: CSV, Parquet and Excel are read")
    return text


def _delimiter(text: str) -> str:
    """The separator that splits the first lines into the most columns, preferably the same number in every line."""
    head = text.strip().splitlines(keepends=True)[:20]

    def merit(delimiter: str) -> tuple[bool, int]:
        widths = [len(record) for record in csv.reader(head, delimiter=delimiter) if record]
        return 1 < widths[0] == min(widths) == max(widths), widths[0]

    return max(DELIMITERS, key=merit)  # the first in case of a tie


def _ragged(path: Path, line: int, fields: int, expected: int, delimiter: str) -> DataError:
    return DataError(
        f"{path}: line {line} has {fields} field{'s' if fields != 1 else ''}, but the first line has {expected}; a "
        f"value that holds the separator {delimiter!r} must be in quotes"
    )
