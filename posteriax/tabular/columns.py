"""What each column of a table is, and what it is to the network: numbers, dates or categories.

A column is read (:func:`read_column`), then used as what it holds or left out (:func:`choose_columns`). Notes say what
is left out, and what was not obvious.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np

from posteriax.tabular.dates import (
    COMPACT,
    DATES,
    ORDER,
    TIMES,
    are_compact_dates,
    find_date_format,
    informative_parts,
    is_ambiguous,
)
from posteriax.tabular.messages import MAJORITY, brief, counted, quoted
from posteriax.tabular.number_formats import COMMA, PLAIN, NumberFormat
from posteriax.tabular.table import TOO_LARGE, Table
from posteriax.tabular.targets import spread

BOOLEANS = {"true", "false", "none"}  # none: missing
MOST_CATEGORIES = 50
FEW_TO_COUNT = 10  # rows that may be numbered by chance
LONGEST_NAME = 60  # characters on average; longer text is not the name of a row
ID_NAME = re.compile(r"(?:.*[\s_.-])?(?:id|uuid|guid|index|row)|.*[a-z]I[Dd]", re.IGNORECASE)


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


def summarise_columns(columns: Sequence[Column]) -> str:
    """How many columns are used as what.

    >>> alive = Category("alive", ("False", "True"))
    >>> summarise_columns([Number("height", False), Date("planted", False, "ISO8601"), alive])
    '1 as numbers, 1 as dates, 1 as booleans'
    """

    def kind(column: Column) -> str:
        if isinstance(column, Category):
            return "booleans" if {str(value).lower() for value in column.categories} <= BOOLEANS else "categories"
        return "dates" if isinstance(column, Date) else "numbers"

    return ", ".join(f"{count} as {name}" for name, count in Counter(map(kind, columns)).items())


@dataclass(frozen=True)
class Reading:
    """How a column is read.

    Args:
        kind: of its cells.
        number_form, date_form: how they are written.
        described: what the column holds, in a few words.
        notes: lines about what was not obvious.
    """

    kind: Literal["numbers", "dates", "text"]
    number_form: NumberFormat = PLAIN
    date_form: str = ""
    described: str = ""
    notes: tuple[str, ...] = ()


def read_column(table: Table, name: str) -> Reading:
    """Whether a column holds numbers, dates or text: whatever at least nine in ten of its values are.

    >>> import pandas as pd
    >>> table = Table("shop.csv", pd.DataFrame({"price": ["$5.20", "$1,000"]}))
    >>> read_column(table, "price").notes
    ("column 'price' holds amounts of money: '$5.20' is read as 5.2",)
    """
    form, present = table.number_format(name), table.present(name)
    values = table.numbers(name, form)
    is_number = ~np.isnan(values)
    if is_number.sum() >= MAJORITY * present.sum():
        if are_compact_dates(values):
            return _read_dates(table, name, COMPACT)
        return Reading("numbers", number_form=form, notes=_about_numbers(table, name, form))
    dates = find_date_format(table.texts(name), day_first=table.decimal_comma)
    if dates is not None:
        return _read_dates(table, name, dates)
    notes: tuple[str, ...] = ()
    if is_number.sum() > (1 - MAJORITY) * present.sum():
        number, word = table.first(name, is_number), table.first(name, present & ~is_number)
        notes = (f"column {name!r} mixes numbers and text, such as {number} and {word}: treated as text",)
    return Reading("text", notes=notes)


def odd_cells(table: Table, name: str, values: np.ndarray, kind: str) -> list[str]:
    """A line about cells that are there but could not be read, and one about too large ones, if there are any."""
    odd = table.present(name) & np.isnan(values)
    notes = []
    if odd.any():
        others = int(odd.sum()) - 1
        are_not = f"and {counted(others, 'other value')} are not" if others else "is not"
        notes.append(f"column {name!r} holds {kind}, but {table.first(name, odd)} {are_not}: treated as missing")
    infinite = np.isinf(values)
    if infinite.any():
        first = table.location(int(np.argmax(infinite)))
        count, are = counted(int(infinite.sum()), "value"), "is" if infinite.sum() == 1 else "are"
        notes.append(f"column {name!r} has {count} that {are} {TOO_LARGE}, the first at {first}: treated as missing")
    return notes


def _about_numbers(table: Table, name: str, form: NumberFormat) -> tuple[str, ...]:
    values = table.numbers(name, form)
    notes = []
    expected = (PLAIN, COMMA) if table.decimal_comma else (PLAIN,)
    if form not in expected:
        texts = table.texts(name)
        dressed = texts.notna().to_numpy() & np.isnan(PLAIN.read(texts)) & np.isfinite(values)
        row = int(np.argmax(dressed))
        read_as = f"{brief(texts.iloc[row])} is read as {values[row]:.15g}"
        notes.append(f"column {name!r} holds {form.kind}: {read_as}")
    odd = odd_cells(table, name, values, "numbers")
    if odd and "infinite" not in odd[0]:
        odd[0] += f". To use all its values as categories: --categories {quoted(name)}"
    return (*notes, *odd)


def _read_dates(table: Table, name: str, form: str) -> Reading:
    described = "times of day" if form in TIMES else "dates"
    notes = odd_cells(table, name, table.days(name, form), f"{described} like {DATES[form]}")
    order = ORDER.get(form[:5])
    if order is not None:
        described = f"{described} ({order})"
        if is_ambiguous(table.texts(name), form):
            other = next(value for value in ORDER.values() if value != order)
            notes.append(
                f"column {name!r} could as well be {other}, since no value is above 12; to be sure, write 2024-01-31"
            )
    return Reading("dates", date_form=form, described=described, notes=tuple(notes))


class ColumnOptions(Protocol):
    """What a user says about columns."""

    keep: Sequence[str]
    categories: Sequence[str]
    group: str | None
    time: str | None


class Chosen(NamedTuple):
    """The columns that are used, those that are not because they name the rows, and notes on both."""

    columns: list[Column]
    ids: list[str]
    notes: list[str]


def choose_columns(table: Table, names: list[str], train: np.ndarray, options: ColumnOptions) -> Chosen:
    """How each column is used.

    Args:
        table: the rows.
        names: of the columns that may be used.
        train: the training rows: a column that is constant or missing throughout these is uninformative.
        options: columns to treat as categories, to use even if they look like IDs, and that group or order the rows.
    """
    choices = {name: _Chooser(table, name, train, options).choose() for name in names}
    return Chosen(
        [choice.column for choice in choices.values() if choice.column is not None],
        [name for name, choice in choices.items() if choice.is_id],
        [note for choice in choices.values() for note in choice.notes],
    )


class _Choice(NamedTuple):
    column: Column | None
    notes: tuple[str, ...] = ()
    is_id: bool = False


@dataclass(frozen=True, eq=False)
class _Chooser:
    """Decides on one column."""

    table: Table
    name: str
    train: np.ndarray
    options: ColumnOptions

    def choose(self) -> _Choice:
        name, options = self.name, self.options
        if not self.table.present(name)[self.train].any():
            return _Choice(None, (f"column {name!r} has no values in the training rows: left out",))
        if name == options.group and not self._kept:
            return self._not_used("says which rows belong together: not an input", is_id=True)
        if name in options.categories:
            return self._category(Reading("text"))
        reading = read_column(self.table, name)
        if reading.kind == "dates":
            return self._date(reading)
        return self._number(reading) if reading.kind == "numbers" else self._text(reading)

    @property
    def _kept(self) -> bool:
        return self.name in self.options.keep

    @property
    def _orders_rows(self) -> bool:
        return self.name == self.options.time and not self._kept

    def _number(self, reading: Reading) -> _Choice:
        everywhere = self.table.numbers(self.name, reading.number_form)
        if self._orders_rows:
            return self._not_used("orders the rows in time, so it is not used as an input")
        if not self._kept and is_id(self.name, everywhere):
            why = "numbers the rows or is an ID: left out, since it is meaningless for new rows"
            return self._not_used(why, is_id=True)
        values = everywhere[self.train]
        statistics = _statistics(values)
        if statistics is None:
            return self._constant(np.isfinite(values), reading.notes)
        return _Choice(Number(self.name, **statistics, form=reading.number_form), reading.notes)

    def _date(self, reading: Reading) -> _Choice:
        days = self.table.days(self.name, reading.date_form)[self.train]
        statistics, parts = _statistics(days), informative_parts(days)
        only_parts = reading.date_form in TIMES and bool(parts)  # of a time of day, the days say nothing
        trend = not self._orders_rows and not only_parts
        if statistics is None:
            return self._constant(np.isfinite(days), reading.notes)
        if not trend and not parts:
            return self._not_used("orders the rows in time, so it is not used as an input")
        used = [*(["days since 1970"] if trend else []), *parts]
        listed = " and ".join([", ".join(used[:-1]), used[-1]] if len(used) > 1 else used)
        note = f"column {self.name!r} holds {reading.described}: used as {listed}"
        column = Date(self.name, form=reading.date_form, parts=parts, trend=trend, **statistics)
        return _Choice(column, (note, *reading.notes))

    def _text(self, reading: Reading) -> _Choice:
        texts = self.table.texts(self.name)
        different = texts.nunique()
        if self._kept or 2 * different <= max(self.table.rows, 4):
            return self._category(reading)
        present = texts.dropna()
        why = (
            f"is text with {different:,} different values in {counted(self.table.rows, 'row')}, such as "
            f"{brief(present.iloc[0])}: left out as a name, an ID or free text"
        )
        short = bool(present.map(len).mean() <= LONGEST_NAME)
        return self._not_used(why, is_id=short, notes=reading.notes)

    def _category(self, reading: Reading) -> _Choice:
        texts = self.table.texts(self.name).iloc[self.train]
        counts = texts.dropna().value_counts()
        missing = bool(texts.isna().any())
        if len(counts) == 1 and not missing:
            return self._constant(np.ones(len(texts), bool), reading.notes)
        names = sorted(counts.index, key=lambda value: (-counts[value], value))  # the most frequent first
        pooled = len(names) > MOST_CATEGORIES
        notes = reading.notes
        if pooled:
            most = f"the {MOST_CATEGORIES - 1} most frequent get an input each, the others share one"
            notes = (*notes, f"column {self.name!r} has {len(names)} different values: {most}")
            names = names[: MOST_CATEGORIES - 1]
        return _Choice(Category(self.name, (*sorted(names), *([None] if missing else [])), pooled), notes)

    def _constant(self, valid: np.ndarray, notes: tuple[str, ...]) -> _Choice:
        if not valid.any():
            return _Choice(None, (*notes, f"column {self.name!r} has no values in the training rows: left out"))
        value = brief(self.table.texts(self.name).iloc[self.train[int(np.argmax(valid))]])
        return _Choice(None, (*notes, f"column {self.name!r} is {value} in all training rows: left out"))

    def _not_used(self, why: str, *, is_id: bool = False, notes: tuple[str, ...] = ()) -> _Choice:
        return _Choice(None, (*notes, f"column {self.name!r} {why}. To use it: --keep {quoted(self.name)}"), is_id)


def is_id(name: str, values: np.ndarray) -> bool:
    """Whether numbers count the rows from 0 or 1, in any order, or are distinct integers under a name like "user_id".

    >>> is_id("nr", np.arange(20.0)[::-1]), is_id("year", np.arange(1990.0, 2010.0))
    (True, False)
    """
    if len(values) <= FEW_TO_COUNT or not np.isfinite(values).all():
        return False
    if len(np.unique(values)) < len(values) or (values != np.round(values)).any():
        return False
    counts_rows = values.min() in (0.0, 1.0) and values.max() <= 1.5 * len(values)  # some rows may have been left out
    return bool(counts_rows or ID_NAME.fullmatch(name))


def _statistics(values: np.ndarray) -> dict[str, Any] | None:
    """What is kept of the training rows; None if they say nothing."""
    finite = np.isfinite(values)
    missing = not bool(finite.all())
    if not finite.any() or (not missing and (values == values[0]).all()):
        return None
    median, low, high = (float(f(values[finite])) for f in (np.median, np.min, np.max))
    filled = np.where(finite, values, median)
    moments = {"median": median, "mean": float(filled.mean()), "scale": spread(filled) or 1.0}
    return {"missing": missing, **moments, "low": low, "high": high}
