"""Which encoding a text file is in, found from its bytes.

Reading tables: CSV and its relatives, Parquet and Excel, each plain or gzipped.

The format is detected from the content, not from the file's name. Every way a file can be bad has its own message.
"""

import csv
import gzip
import io
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import pandas as pd

from posteriax.tabular.messages import TableError, brief, counted, read_bytes, shown
from posteriax.tabular.table import Table, clean

UTF16 = (b"\xff\xfe", b"\xfe\xff")
CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
UNDEFINED = re.compile(rb"[\x81\x8d\x8f\x90\x9d]")  # in Windows-1252


def find_encoding(name: str, content: bytes) -> tuple[str, str, str]:
    """The encoding, what to do with bytes that do not fit it (as Python calls it), and a line about it, often empty.

    >>> find_encoding("trees.csv", "höhe".encode())
    ('utf-8-sig', 'strict', '')
    >>> find_encoding("trees.csv", "höhe".encode("latin-1"))[0]
    'cp1252'
    """
    if content.startswith(UTF16):
        return "utf-16", "replace", f"{name} is UTF-16 text"
    if CONTROL.search(content):
        raise TableError(f"{name} is a binary file, not a table: CSV, Parquet and Excel are read")
    try:
        content.decode("utf-8")
    except UnicodeDecodeError as error:
        return _other_than_utf8(name, content, error.start)
    return "utf-8-sig", "strict", ""


def _other_than_utf8(name: str, content: bytes, start: int) -> tuple[str, str, str]:
    line = content[:start].count(b"\n") + 1
    text = content.decode("utf-8", "replace")
    damaged = text.count("\ufffd")
    if sum(not char.isascii() for char in text) > 2 * damaged:
        note = f"{name} is UTF-8 text with {counted(damaged, 'damaged character')}, the first in line {line}"
        return "utf-8-sig", "replace", note
    encoding, called = ("latin-1", "Latin-1") if UNDEFINED.search(content) else ("cp1252", "Windows-1252")
    word = re.search(r"\w*[^\x00-\x7f]\w*", content[max(start - 40, 0) : start + 40].decode(encoding))
    example = brief(word[0]) if word else "it"
    note = f"{name} is not UTF-8 text: read as {called} ({example} in line {line}); if that is wrong, save it as UTF-8"
    return encoding, "strict", note


DELIMITERS = (",", ";", "\t", "|")
GZIP, ZIP, PARQUET, OLD_EXCEL = b"\x1f\x8b", b"PK\x03\x04", b"PAR1", b"\xd0\xcf\x11\xe0"
CELLS_AT_ONCE = 1_000_000  # as Python strings, which take several times the memory of a column of text
NO_TABLE = "is empty: it needs a line of column names, and rows below it"


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
            raise TableError(f"{path} is a damaged gzip file: {error}") from error
    if content.startswith(PARQUET):
        return _read_parquet(path, content)
    if content.startswith(ZIP):
        return _read_excel(path, content)
    if content.startswith(OLD_EXCEL):
        raise TableError(f"{path} is a spreadsheet in the old .xls format: save it as .xlsx or as CSV (UTF-8)")
    return _read_csv(path, content)


def _read_csv(path: Path, content: bytes) -> Table:
    encoding, errors, note = find_encoding(str(path), content)

    def lines() -> io.TextIOWrapper:  # decoded as they are read: text in memory would take up to four times the bytes
        return io.TextIOWrapper(io.BytesIO(content), encoding, errors, newline="")

    try:
        delimiter = _delimiter([line for line in islice(lines(), 40) if line.strip()][:20])
    except csv.Error as error:
        raise TableError(f"{path} is not CSV: {error}") from error
    reader = csv.reader(lines(), delimiter=delimiter, skipinitialspace=True, strict=True)
    places: list[int] = []  # a quoted value may hold line breaks: a row's line is the one it ends at
    try:
        records = _records(path, reader, delimiter, places)
        names = next(records, None)
        if names is None:
            raise TableError(f"{path} {NO_TABLE}")
        parts = [clean_columns(part) for part in _parts(records, len(names))]
    except csv.Error as error:
        raise TableError(f"{path} is not CSV: line {reader.line_num}: {error}") from error
    rows = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()
    rows.index = pd.Index(places[1:], name="line")
    frame = _named(path, _names(pd.Series(names)), rows)
    return Table(str(path), frame, decimal_comma=delimiter == ";", notes=(note,) if note else ())


def _records(path: Path, reader: Iterator[list[str]], delimiter: str, places: list[int]) -> Iterator[list[str]]:
    """The records that are not blank, all of the same length; the line of each is added to `places`."""
    width = None
    for record in reader:
        if not record or record == [""]:
            continue
        width = width or len(record)
        places.append(reader.line_num)  # type: ignore[attr-defined]
        if len(record) != width:
            raise _ragged(path, places[-1], len(record), width, delimiter, second=len(places) == 2)
        yield record


def _parts(records: Iterator[list[str]], width: int) -> Iterator[pd.DataFrame]:
    while some := list(islice(records, max(1, CELLS_AT_ONCE // width))):
        yield pd.DataFrame(dict(enumerate(zip(*some, strict=True))), dtype="str")


def clean_columns(rows: pd.DataFrame) -> pd.DataFrame:
    """Every column as a table has it."""
    return pd.DataFrame({name: clean(rows[name]) for name in rows}, index=rows.index)


def _read_excel(path: Path, content: bytes) -> Table:
    """The first sheet of an .xlsx file."""
    advice = "save it as CSV (UTF-8)"
    needs = f"{path} is a spreadsheet; reading one needs openpyxl: pip install 'posteriax[tables]', or {advice}"
    damaged = f"{path} is a damaged spreadsheet or another zip archive, not a table: {advice}"
    with _reader(needs, damaged):
        cells = pd.read_excel(io.BytesIO(content), header=None, dtype=object)
    cells.index = pd.RangeIndex(1, len(cells) + 1, name="row")
    cells = cells.dropna(how="all")
    if cells.empty:
        raise TableError(f"{path} {NO_TABLE}")
    return Table(str(path), _named(path, _names(cells.iloc[0]), clean_columns(cells.iloc[1:])))


def _read_parquet(path: Path, content: bytes) -> Table:
    needs = f"{path} is a Parquet file; reading one needs pyarrow: pip install 'posteriax[tables]'"
    with _reader(needs, f"{path} is a damaged Parquet file"):
        frame = pd.read_parquet(io.BytesIO(content))
    if not isinstance(frame.index, pd.RangeIndex):
        frame = frame.reset_index()
    names = frame.columns.map(str)
    frame.columns, frame.index = pd.RangeIndex(len(names)), pd.RangeIndex(1, len(frame) + 1, name="row")
    return Table(str(path), _named(path, names, clean_columns(frame)))


@contextmanager
def _reader(needs: str, damaged: str) -> Iterator[None]:
    """The messages of a format that another package reads: if that is missing, and for whatever it raises."""
    try:
        yield
    except ImportError as error:
        raise TableError(needs) from error
    except Exception as error:  # openpyxl, zipfile and pyarrow raise all kinds, which share no base class
        raise TableError(f"{damaged} ({' '.join(str(error).split())})") from error


def _names(first: pd.Series) -> pd.Index:
    """Column names from the first row."""
    names = clean(first.astype(object).map(str, na_action="ignore"))
    return pd.Index([f"column {i + 1}" if pd.isna(name) else name for i, name in enumerate(names)])


def _named(path: Path, names: pd.Index, rows: pd.DataFrame) -> pd.DataFrame:
    """The columns under their names."""
    repeated = sorted(set(names[names.duplicated()]))
    if repeated:
        what = "name {} occurs" if len(repeated) == 1 else "names {} occur"
        raise TableError(f"{path}: the column {what.format(shown(repeated))} more than once: rename all but one")
    if rows.empty:
        raise TableError(f"{path} has a line of column names ({shown(list(names))}), but no rows below it")
    return rows.set_axis(names, axis=1)


def _delimiter(head: list[str]) -> str:
    """The separator that splits the first lines into the most columns, preferably the same number in every line."""

    def merit(delimiter: str) -> tuple[bool, int]:
        widths = [len(record) for record in csv.reader(head, delimiter=delimiter) if record] or [0]
        return 1 < widths[0] == min(widths) == max(widths), widths[0]

    return max(DELIMITERS, key=merit)  # the first in case of a tie


def _ragged(path: Path, line: int, fields: int, expected: int, delimiter: str, second: bool) -> TableError:
    advice = f"a value that holds the separator {delimiter!r} must be in quotes"
    if second and fields > expected:
        advice = "is the first line a title? It must hold the names of the columns"
    found = counted(fields, "field")
    return TableError(f"{path}: line {line} has {found}, but the first line has {expected}; {advice}")
