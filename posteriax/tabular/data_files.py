"""Reading a user's file: a table (CSV and its relatives, Parquet, Excel; plain or gzipped) or NPZ arrays.

The format of a table is detected from the content, not from the file's name. Every way a file can be bad has its own
message. pandas reads Parquet and Excel; CSV is read here, since messages name lines, and a quoted value may hold line
breaks, after which pandas no longer knows them.

NPZ: arrays ``x`` and ``y``, or ``x_train``, ``y_train``, ``x_test``, ``y_test``. No pickled objects.
"""

import csv
import gzip
import io
import re
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from posteriax.tabular.messages import TableError, brief, counted, read_bytes, shown
from posteriax.tabular.table import Table, clean, clean_columns

DELIMITERS = (",", ";", "\t", "|")
GZIP, ZIP, PARQUET, OLD_EXCEL = b"\x1f\x8b", b"PK\x03\x04", b"PAR1", b"\xd0\xcf\x11\xe0"
CELLS_AT_ONCE = 1_000_000  # as Python strings, which take several times the memory of a column of text
NO_TABLE = "is empty: it needs a line of column names, and rows below it"
UTF16 = (b"\xff\xfe", b"\xfe\xff")
CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
UNDEFINED = re.compile(rb"[\x81\x8d\x8f\x90\x9d]")  # in Windows-1252


def read_data(path: Path) -> "Table | Arrays":
    """A table, or arrays if the file is called .npz."""
    return read_npz(path) if is_npz(path) else read_table(path)


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
    line_numbers: list[int] = []  # a quoted value may hold line breaks: a row's line is the one it ends at
    try:
        records = _records(path, reader, delimiter, line_numbers)
        names = next(records, None)
        if names is None:
            raise TableError(f"{path} {NO_TABLE}")
        parts = [clean_columns(part) for part in _parts(records, len(names))]
    except csv.Error as error:
        raise TableError(f"{path} is not CSV: line {reader.line_num}: {error}") from error
    rows = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()
    rows.index = pd.Index(line_numbers[1:], name="line")
    frame = _named(path, _names(pd.Series(names)), rows)
    return Table(str(path), frame, decimal_comma=delimiter == ";", notes=(note,) if note else ())


def _records(path: Path, reader: Iterator[list[str]], delimiter: str, line_numbers: list[int]) -> Iterator[list[str]]:
    """The records that are not blank, all of the same length; the line of each is added to `line_numbers`."""
    width = None
    for record in reader:
        if not record or record == [""]:
            continue
        width = width or len(record)
        line_numbers.append(reader.line_num)  # type: ignore[attr-defined]
        if len(record) != width:
            raise _ragged(path, line_numbers[-1], len(record), width, delimiter, second=len(line_numbers) == 2)
        yield record


def _parts(records: Iterator[list[str]], width: int) -> Iterator[pd.DataFrame]:
    while block := list(islice(records, max(1, CELLS_AT_ONCE // width))):
        yield pd.DataFrame(dict(enumerate(zip(*block, strict=True))), dtype="str")


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
    count = counted(fields, "field")
    return TableError(f"{path}: line {line} has {count}, but the first line has {expected}; {advice}")


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


@dataclass(frozen=True, eq=False)
class Arrays:
    """The arrays of a file: inputs, targets, and a test set if it has one.

    Args:
        name: of the file, for messages.
        x: (N, d) a table, (N, h, w) grey images or (N, h, w, c) images.
        y: (N,) numbers or text; None if there are no targets.
        x_test, y_test: the same for a test set; None if there is none.
    """

    name: str
    x: np.ndarray
    y: np.ndarray | None
    x_test: np.ndarray | None = None
    y_test: np.ndarray | None = None

    @property
    def is_image(self) -> bool:
        return self.x.ndim > 2


def read_npz(path: Path) -> Arrays:
    """Read and check the arrays of an NPZ file, as ``numpy.savez(path, x=x, y=y)`` writes it.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(Path(folder) / "images.npz", x=np.zeros((5, 8, 8), np.uint8), y=np.arange(5) % 2)
    ...     arrays = read_npz(Path(folder) / "images.npz")
    >>> arrays.is_image, arrays.x.shape
    (True, (5, 8, 8))
    """
    arrays = _load(path)
    name = "x" if "x" in arrays else "x_train"
    if name not in arrays:
        raise TableError(
            f"{path} has the arrays {shown(sorted(arrays)) or 'none'}, but needs x and y, or x_train, y_train, x_test "
            f"and y_test"
        )
    if ("x_test" in arrays) != ("y_test" in arrays):
        raise TableError(f"{path} has one of x_test and y_test, but needs both or none")
    x, y = _inputs(path, name, arrays[name]), _targets(path, name, arrays)
    if "x_test" not in arrays:
        return Arrays(str(path), x, y)
    x_test = _inputs(path, "x_test", arrays["x_test"])
    if x_test.shape[1:] != x.shape[1:]:
        raise TableError(f"{path}: x_test has examples of shape {x_test.shape[1:]}, but {name} of {x.shape[1:]}")
    return Arrays(str(path), x, y, x_test, _targets(path, "x_test", arrays))


def is_npz(path: Path) -> bool:
    """Whether a file holds arrays, by its name."""
    return Path(path).suffix.lower() in (".npz", ".npy")


def joined(arrays: Arrays) -> tuple[np.ndarray, np.ndarray, tuple[np.ndarray, np.ndarray] | None]:
    """Inputs and targets of all examples, and the training and test rows if the file has a test set."""
    if arrays.y is None:
        raise TableError(f"{arrays.name} has no targets: it needs an array y beside x")
    if arrays.x_test is None or arrays.y_test is None:
        return arrays.x, arrays.y, None
    x, y = np.concatenate([arrays.x, arrays.x_test]), np.concatenate([arrays.y, arrays.y_test])
    return x, y, (np.arange(len(arrays.x)), np.arange(len(arrays.x), len(x)))


def table_of(name: str, x: np.ndarray, y: np.ndarray | None = None) -> Table:
    """A table with the columns x0, x1, ... of an (N, d) array, and y; NaN is a missing value.

    >>> table_of("arrays.npz", np.zeros((5, 2)), np.arange(5)).columns
    ['x0', 'x1', 'y']
    """
    columns: dict[str, Any] = {f"x{i}": np.asarray(x[:, i], np.float64) for i in range(x.shape[1])}
    if y is not None:
        columns["y"] = clean(pd.Series(y)).to_numpy()
    return Table(name, pd.DataFrame(columns, index=pd.RangeIndex(1, len(x) + 1, name="row")))


def _load(path: Path) -> dict[str, np.ndarray]:
    content = read_bytes(path)
    if not content:
        raise TableError(f"{path} is empty")
    try:
        loaded = np.load(io.BytesIO(content), allow_pickle=False)
        arrays = loaded if isinstance(loaded, np.ndarray) else {name: loaded[name] for name in loaded.files}
    except (ValueError, OSError, EOFError, KeyError, zipfile.BadZipFile, NotImplementedError, MemoryError) as error:
        if "allow_pickle" in str(error) or "Object arrays" in str(error):
            raise TableError(
                f"{path} holds arrays of Python objects, which are not read: save numbers or text"
            ) from error
        raise TableError(f"{path} is not an NPZ file, or is damaged: {error}") from error
    if isinstance(arrays, np.ndarray):
        raise TableError(f"{path} is one array: put both into one file with numpy.savez(path, x=x, y=y)")
    return arrays


def _inputs(path: Path, name: str, x: np.ndarray) -> np.ndarray:
    if x.dtype.kind not in "biuf":
        raise TableError(f"{path}: {name} must be an array of numbers, got dtype {x.dtype}")
    if x.ndim not in (2, 3, 4):
        raise TableError(
            f"{path}: {name} has {x.ndim} axes, shape {x.shape}; it needs 2 (N, columns), 3 (N, height, width) or 4 "
            f"(N, height, width, channels)"
        )
    if 0 in x.shape:
        raise TableError(f"{path}: {name} is empty, shape {x.shape}")
    if x.dtype.kind == "f" and x.ndim > 2:  # values may be missing in a table, but not in an image
        bad = ~np.isfinite(x)
        if bad.any():
            index = tuple(int(i) for i in np.argwhere(bad)[0])
            raise TableError(
                f"{path}: {name} has {int(bad.sum())} values that are not finite, the first at index {index}"
            )
    if x.ndim == 4 and x.shape[3] > 16:
        raise TableError(
            f"{path}: {name} has shape {x.shape}, that is {x.shape[3]} channels: images are (N, height, width, "
            f"channels)"
        )
    return x


def _targets(path: Path, x_name: str, arrays: dict[str, np.ndarray]) -> np.ndarray | None:
    name, x = x_name.replace("x", "y", 1), arrays[x_name]
    if name not in arrays:
        return None
    y = arrays[name]
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim != 1:
        raise TableError(f"{path}: {name} must have one target per example, shape (N,), got shape {y.shape}")
    if y.dtype.kind not in "biufUS":
        raise TableError(f"{path}: {name} must be numbers or text, got dtype {y.dtype}")
    if len(y) != len(x):
        raise TableError(f"{path}: {x_name} has {len(x)} examples, but {name} has {len(y)}")
    if x.ndim > 2 and y.dtype.kind == "f" and not np.isfinite(y).all():
        raise TableError(f"{path}: {name} has {int((~np.isfinite(y)).sum())} values that are not finite")
    return np.char.decode(y, "utf-8", "replace") if y.dtype.kind == "S" else y
