"""What a column of a table is to the network, as the training rows have it: numbers, dates or categories."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from posteriax.cli.user_data.dates import DATES
from posteriax.cli.user_data.number_formats import PLAIN, NumberFormat

BOOLEANS = {"true", "false", "none"}  # none: missing


@dataclass(frozen=True)
class Number:
    """A column of numbers.

    Args:
        name: of the column.
        missing: whether values are missing: then an extra input marks where.
        median, mean, scale: of the training rows; the mean and the scale after missing values became the median.
        low, high: the range of the training rows; None if it is not known.
        form: how the numbers are written.
    """

    name: str
    missing: bool
    median: float = 0.0
    mean: float = 0.0
    scale: float = 1.0
    low: float | None = None
    high: float | None = None
    form: NumberFormat = PLAIN

    @property
    def input_names(self) -> tuple[str, ...]:
        """What each input says."""
        return (self.name, *([f"{self.name} is missing"] if self.missing else []))


@dataclass(frozen=True)
class Date:
    """A column of dates or times: days since 1970, and where each falls in the week, the year or the day.

    Args:
        name: of the column.
        missing: whether values are missing: then an extra input marks where.
        form: how the dates are written.
        parts: those of :data:`dates.PARTS` that are used; each is two inputs, a sine and a cosine.
        trend: whether the days themselves are an input.
        median, mean, scale: of the days, as for numbers.
        low, high: the range of the training rows; None if it is not known.

    >>> Date("planted", False, "ISO8601", parts=("time of year",)).input_names
    ('planted', 'planted: time of year (sin)', 'planted: time of year (cos)')
    """

    name: str
    missing: bool
    form: str
    parts: tuple[str, ...] = ()
    trend: bool = True
    median: float = 0.0
    mean: float = 0.0
    scale: float = 1.0
    low: float | None = None
    high: float | None = None

    @property
    def input_names(self) -> tuple[str, ...]:
        """What each input says."""
        trend = (self.name,) if self.trend else ()
        missing = (f"{self.name} is missing",) if self.missing else ()
        return (*trend, *missing, *(f"{self.name}: {part} ({wave})" for part in self.parts for wave in ("sin", "cos")))


@dataclass(frozen=True)
class Category:
    """A column of categories; None stands for a missing value.

    Args:
        name: of the column.
        categories: those with an input of their own.
        pooled: whether all others share one more input.

    >>> Category("kind", ("elm", None), pooled=True).input_names
    ('kind is elm', 'kind is another value', 'kind is missing')
    """

    name: str
    categories: tuple[str | None, ...]
    pooled: bool = False

    @property
    def missing(self) -> bool:
        """Whether values are missing in training."""
        return None in self.categories

    @property
    def input_names(self) -> tuple[str, ...]:
        """What each input says."""
        named = [f"{self.name} is {value}" for value in self.categories if value is not None]
        pooled = [f"{self.name} is another value"] if self.pooled else []
        return (*named, *pooled, *([f"{self.name} is missing"] if self.missing else []))


Column = Number | Date | Category


def summary(columns: Sequence[Column]) -> str:
    """How many columns are used as what.

    >>> summary([Number("height", False), Date("planted", False, "ISO8601"), Category("alive", ("False", "True"))])
    '1 as numbers, 1 as dates, 1 as booleans'
    """

    def kind(column: Column) -> str:
        if isinstance(column, Category):
            return "booleans" if {str(value).lower() for value in column.categories} <= BOOLEANS else "categories"
        return "dates" if isinstance(column, Date) else "numbers"

    return ", ".join(f"{count} as {name}" for name, count in Counter(map(kind, columns)).items())


def column_from_plain(plain: dict[str, Any]) -> Column:
    """The column that `asdict` gave, in this version or an earlier one.

    >>> column_from_plain({"name": "day", "missing": False, "dates": "ISO8601", "mean": 3.0})  # of version 2
    Date(name='day', missing=False, form='ISO8601', parts=(), trend=True, median=0.0, mean=3.0, ...)
    """
    if "categories" in plain:
        return Category(str(plain["name"]), tuple(plain["categories"]), bool(plain.get("pooled", False)))
    dates, form = plain.get("dates"), plain.get("form")
    settings = {name: value for name, value in plain.items() if name not in ("dates", "form")}
    if dates is None and not isinstance(form, str):
        return Number(**settings, form=NumberFormat(**form) if form else PLAIN)
    form = dates or form
    if form not in DATES:
        raise ValueError(f"dates in an unknown format: {form!r}")
    return Date(**settings | {"parts": tuple(plain.get("parts", ()))}, form=form)
