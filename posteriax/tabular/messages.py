"""Errors about a user's files, and how messages quote names, values and counts."""

import shlex
from collections.abc import Sequence
from pathlib import Path

SHOWN = 12  # names in a message
MAJORITY = 0.9  # the share of a column's values that settles what the column is; the others are treated as missing


class TableError(ValueError):
    """A data file that cannot be used. One line: what is wrong, where, and what to do."""


def read_bytes(path: Path) -> bytes:
    """A file's content, or an error that says why it cannot be read."""
    try:
        return Path(path).read_bytes()
    except FileNotFoundError as error:
        raise TableError(f"{path} does not exist") from error
    except IsADirectoryError as error:
        raise TableError(f"{path} is a folder, not a file") from error
    except OSError as error:
        raise TableError(f"{path} cannot be read: {error.strerror or error}") from error


def label_of(value: float) -> str:
    """A number as the name of a class.

    >>> label_of(3.0), label_of(0.5)
    ('3', '0.5')
    """
    return str(int(value)) if float(value).is_integer() else repr(float(value))


def counted(number: int, noun: str) -> str:
    """A number of things.

    >>> counted(1, "row"), counted(1200, "row")
    ('1 row', '1,200 rows')
    """
    return f"{number:,} {noun if number == 1 else noun + 's'}"


def shown(names: Sequence[str]) -> str:
    """Names for a message: the first few, and how many more.

    >>> shown(["a", "b"])
    "'a', 'b'"
    """
    listed = ", ".join(map(repr, names[:SHOWN]))
    return listed if len(names) <= SHOWN else f"{listed} and {len(names) - SHOWN} more"


def brief(cell: str) -> str:
    """A value for a message, truncated if long.

    >>> brief("x" * 100)[-5:]
    "...'"
    """
    return repr(cell if len(cell) <= 40 else cell[:37] + "...")


def quoted(name: str) -> str:
    """A name as typed on the command line.

    >>> quoted("mean area")
    "'mean area'"
    """
    return shlex.quote(name)
