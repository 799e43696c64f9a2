"""The tables of a study's page, described: rows choose cells, columns say which of their numbers, and how."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from posteriax.studies.results import Results, Setting

Values = Sequence[float] | np.ndarray
Write = Callable[[Values], str]


@dataclass(frozen=True)
class PageTable:
    """A table of the page: rows of text and numbers under headings, with a caption."""

    caption: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]


def mean_with_error(digits: int = 3, unit: float = 1.0) -> Write:
    """Writes the mean over seeds, with its standard error if there are several; nothing if there are none.

    >>> mean_with_error(1, 100)([0.991, 0.993]), mean_with_error()([])
    ('99.2 ± 0.1', '')
    """

    def write(values: Values) -> str:
        numbers = unit * np.asarray(values, float)
        if not len(numbers):
            return ""
        error = f" ± {numbers.std(ddof=1) / np.sqrt(len(numbers)):.{digits}f}" if len(numbers) > 1 else ""
        return f"{numbers.mean():.{digits}f}{error}"

    return write


def mean_as(form: str) -> Write:
    """Writes the mean over seeds in a format.

    >>> mean_as(".1%")([0.25, 0.35])
    '30.0%'
    """
    return lambda values: format(np.mean(values), form)


class Column(NamedTuple):
    """A heading, the path of the entry in a cell's results, and how its values by seed are written."""

    heading: str
    path: str
    write: Write = mean_with_error()


class Row(NamedTuple):
    """What a row starts with, where its values are looked up by path, and what it ends with."""

    start: Sequence[str]
    look_up: Callable[[str], Values]
    end: Sequence[str] = ()


def rows_by(
    results: Results,
    names: Sequence[str],
    end: Callable[[Callable[[str], np.ndarray]], Sequence[str]] = lambda look_up: (),
    **cells: Setting,
) -> list[Row]:
    """A row for every combination of settings among some of the cells, in the order of the study.

    Args:
        results: of the study.
        names: of the settings, with which the row starts.
        end: what it ends with, given its values by path.
        cells: the settings that the cells have.
    """
    rows = []
    for settings in dict.fromkeys(tuple(cell.settings[name] for name in names) for cell in results.select(**cells)):
        chosen: dict[str, Any] = {**cells, **dict(zip(names, settings, strict=True))}
        look_up = partial(results.values, **chosen)
        start = [value if isinstance(value, str) else f"{value:g}" for value in settings]
        rows.append(Row(start, look_up, end(look_up)))
    return rows


def make_table(
    caption: str, start: Sequence[str], columns: Sequence[Column], rows: Iterable[Row], end: Sequence[str] = ()
) -> PageTable:
    """A table of numbers by seed: a row for each choice of cells, a column for each entry of their results."""
    headings = [*start, *(column.heading for column in columns), *end]
    return PageTable(
        caption,
        headings,
        [[*row.start, *(column.write(row.look_up(column.path)) for column in columns), *row.end] for row in rows],
    )


def markdown(table: PageTable) -> str:
    """The rows as a Markdown table."""
    rows = [table.headings, ["---"] * len(table.headings), *table.rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in row) + " |" for row in rows
    )
