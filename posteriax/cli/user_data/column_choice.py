"""Which columns of a table are used, and as what. Notes say what is left out, and what needs an explanation."""

import re
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from posteriax.cli.user_data.column_reading import Reading, read_column
from posteriax.cli.user_data.columns import Category, Column, Date, Number
from posteriax.cli.user_data.dates import TIMES, informative_parts
from posteriax.cli.user_data.messages import brief, counted, quoted
from posteriax.cli.user_data.settings import DataSettings
from posteriax.cli.user_data.table import Table
from posteriax.cli.user_data.targets import spread

MOST_CATEGORIES = 50
FEW_TO_COUNT = 10  # rows that may be numbered by chance
LONGEST_NAME = 60  # characters on average; longer text is not the name of a row
ID_NAME = re.compile(r"(?:.*[\s_.-])?(?:id|uuid|guid|index|row)|.*[a-z]I[Dd]", re.IGNORECASE)


class Chosen(NamedTuple):
    """The columns that are used, those that are not because they name the rows, and notes on both."""

    columns: list[Column]
    ids: list[str]
    notes: list[str]


def choose_columns(table: Table, names: list[str], train: np.ndarray, settings: DataSettings) -> Chosen:
    """How each column is used.

    Args:
        table: the rows.
        names: of the columns that may be used.
        train: the training rows: a column that is constant or missing throughout these is uninformative.
        settings: columns to treat as categories, and to use even if they look like IDs.
    """
    choices = {name: _Chooser(table, name, train, settings).choose() for name in names}
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
    settings: DataSettings

    def choose(self) -> _Choice:
        name, settings = self.name, self.settings
        if not self.table.present(name)[self.train].any():
            return _Choice(None, (f"column {name!r} has no values in the training rows: left out",))
        if name == settings.group and not self._kept:
            return self._not_used("says which rows belong together: not an input", is_id=True)
        if name in settings.categories:
            return self._category(Reading("text"))
        reading = read_column(self.table, name)
        if reading.kind == "dates":
            return self._date(reading)
        return self._number(reading) if reading.kind == "numbers" else self._text(reading)

    @property
    def _kept(self) -> bool:
        return self.name in self.settings.keep

    @property
    def _orders_rows(self) -> bool:
        return self.name == self.settings.time and not self._kept

    def _number(self, reading: Reading) -> _Choice:
        everywhere = self.table.numbers(self.name, reading.number_form)
        if self._orders_rows:
            return self._not_used("says how late a row is: not an input")
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
        whole_story = reading.date_form in TIMES and bool(parts)  # of a time of day, the days say nothing
        trend = not self._orders_rows and not whole_story
        if statistics is None:
            return self._constant(np.isfinite(days), reading.notes)
        if not trend and not parts:
            return self._not_used("says how late a row is: not an input")
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
