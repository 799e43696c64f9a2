"""Which columns of a table are used, and as what: numbers, dates or categories. Notes say what is left out."""

import re
from collections import Counter
from dataclasses import dataclass

import numpy as np
import pandas as pd

from posteriax.cli.user_data.messages import brief, quoted
from posteriax.cli.user_data.settings import DataSettings
from posteriax.cli.user_data.table import Table
from posteriax.cli.user_data.targets import spread

MOST_CATEGORIES = 50
BOOLEANS = {"true", "false", "none"}  # none: missing
FEW_TO_COUNT = 10  # rows that may be numbered by chance
ID_NAME = re.compile(r"(?:.*[\s_.-])?(?:id|uuid|guid|index|row)|.*[a-z]I[Dd]", re.IGNORECASE)
DATES = {  # formats of dates, with an example
    "ISO8601": "2024-01-31",
    "%d.%m.%Y": "31.1.2024",
    "%m/%d/%Y": "1/31/2024",
    "%d/%m/%Y": "31/1/2024",
}


@dataclass(frozen=True)
class Number:
    """A column of numbers, or of dates, which become days since 1970.

    Args:
        name: of the column.
        missing: whether values are missing: then an extra input marks where.
        dates: the format of dates; None for numbers.
        median, mean, scale: of the training rows; the mean and the scale after missing values became the median.
    """

    name: str
    missing: bool
    dates: str | None = None
    median: float = 0.0
    mean: float = 0.0
    scale: float = 1.0


@dataclass(frozen=True)
class Category:
    """A column of categories; None stands for a missing value.

    Args:
        name: of the column.
        categories: those with an input of their own.
        pooled: whether all others share one more input.
    """

    name: str
    categories: tuple[str | None, ...]
    pooled: bool = False


Choice = tuple[Number | Category | None, str]  # how a column is used, None if not, and a line about it, often empty


def choose_columns(
    table: Table, names: list[str], train: np.ndarray, settings: DataSettings
) -> tuple[list[Number | Category], list[str]]:
    """How each column is used, and a note on each that is left out or needs an explanation.

    Args:
        table: the rows.
        names: of the columns that may be used.
        train: the training rows: a column that is constant or missing throughout these is uninformative.
        settings: columns to treat as categories, and to use even if they look like IDs.
    """

    def choose(name: str) -> Choice:
        if table.frame[name].iloc[train].isna().all():
            return None, f"column {name!r} has no values in the training rows: left out"
        if name in settings.categories:
            return _category(table, name, train)
        use = _text if table.is_text(name) else _number
        return use(table, name, train, as_told=name in settings.keep)

    choices = [choose(name) for name in names]
    return [column for column, _ in choices if column is not None], [note for _, note in choices if note]


def summary(columns: list[Number | Category]) -> str:
    """How many columns are used as what.

    >>> summary([Number("height", False), Number("planted", False, "ISO8601"), Category("alive", ("False", "True"))])
    '1 as numbers, 1 as dates, 1 as booleans'
    """
    kinds = Counter(
        ("dates" if column.dates else "numbers")
        if isinstance(column, Number)
        else ("booleans" if {str(value).lower() for value in column.categories} <= BOOLEANS else "categories")
        for column in columns
    )
    return ", ".join(f"{count} as {kind}" for kind, count in kinds.items())


def numbers_of(table: Table, column: str, dates: str | None) -> np.ndarray:
    """A column as floats, NaN where missing; dates as days since 1970."""
    if dates is None:
        return table.numbers(column)
    texts = table.texts(column)
    days = _days(texts, dates)
    table.refuse(column, texts.notna().to_numpy() & np.isnan(days), f"dates like {DATES[dates]}")
    return days


def _days(texts: pd.Series, dates: str) -> np.ndarray:
    times = pd.to_datetime(texts, format=dates, errors="coerce", utc=True)
    return ((times - pd.Timestamp(0, tz="UTC")) / pd.Timedelta(days=1)).to_numpy(np.float64)


def _date_format(texts: pd.Series) -> str | None:
    """The first format that fits all values."""
    present = texts.dropna()
    fits = (dates for dates in DATES if all(np.isfinite(_days(some, dates)).all() for some in (present[:20], present)))
    return next(fits, None)


def _number(table: Table, name: str, train: np.ndarray, *, as_told: bool, dates: str | None = None) -> Choice:
    everywhere = numbers_of(table, name, dates)
    values = everywhere[train]
    missing = bool(np.isnan(values).any())
    if not missing and (values == values[0]).all():
        return None, _constant(table, name, train)
    if not as_told and dates is None and _is_id(name, everywhere):
        return None, (
            f"column {name!r} numbers the rows or is an ID: left out, since it is meaningless for new rows. To use it: "
            f"--keep {quoted(name)}"
        )
    order = {"%m/%d/%Y": ", read as month/day/year", "%d/%m/%Y": ", read as day/month/year"}.get(dates or "", "")
    note = f"column {name!r} holds dates{order}: used as days since 1970" if dates else ""
    filled = np.where(np.isnan(values), median := float(np.nanmedian(values)), values)
    return Number(name, missing, dates, median, float(filled.mean()), spread(filled) or 1.0), note


def _is_id(name: str, values: np.ndarray) -> bool:
    """Whether numbers count the rows from 0 or 1, or are distinct integers under a name such as "user_id"."""
    if len(values) <= FEW_TO_COUNT or np.isnan(values).any():
        return False
    if values[0] in (0.0, 1.0) and (np.diff(values) == 1.0).all():
        return True
    different = len(np.unique(values)) == len(values)
    return bool(ID_NAME.fullmatch(name)) and different and bool((values == np.round(values)).all())


def _text(table: Table, name: str, train: np.ndarray, *, as_told: bool) -> Choice:
    texts = table.texts(name)
    dates = _date_format(texts)
    if dates is not None:
        return _number(table, name, train, as_told=as_told, dates=dates)
    different = texts.nunique()
    if not as_told and 2 * different > max(table.rows, 4):
        example = brief(texts.dropna().iloc[0])
        return None, (
            f"column {name!r} is text with {different} different values in {table.rows} rows, such as {example}: left "
            f"out as a name, an ID or free text. To use it: --keep {quoted(name)}"
        )
    return _category(table, name, train)


def _category(table: Table, name: str, train: np.ndarray) -> Choice:
    texts = table.texts(name).iloc[train]
    counts = texts.dropna().value_counts()
    missing = bool(texts.isna().any())
    if len(counts) == 1 and not missing:
        return None, _constant(table, name, train)
    names = sorted(counts.index, key=lambda value: (-counts[value], value))  # the most frequent first
    pooled = len(names) > MOST_CATEGORIES
    note = ""
    if pooled:
        note = (
            f"column {name!r} has {len(names)} different values: the {MOST_CATEGORIES - 1} most frequent get an input "
            f"each, the others share one"
        )
        names = names[: MOST_CATEGORIES - 1]
    return Category(name, (*sorted(names), *([None] if missing else [])), pooled), note


def _constant(table: Table, name: str, train: np.ndarray) -> str:
    return f"column {name!r} is {brief(table.texts(name).iloc[train[0]])} in all training rows: left out"
