"""What the cells of a column are: numbers, dates or text. Lines say what was not obvious."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from posteriax.cli.user_data.dates import (
    COMPACT,
    DATES,
    ORDER,
    TIMES,
    are_compact_dates,
    find_date_format,
    is_ambiguous,
)
from posteriax.cli.user_data.messages import USUAL, brief, counted, quoted
from posteriax.cli.user_data.number_formats import COMMA, PLAIN, NumberFormat
from posteriax.cli.user_data.table import Table


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
    if is_number.sum() >= USUAL * present.sum():
        if are_compact_dates(values):
            return _read_dates(table, name, COMPACT)
        return Reading("numbers", number_form=form, notes=_about_numbers(table, name, form))
    dates = find_date_format(table.texts(name), day_first=table.decimal_comma)
    if dates is not None:
        return _read_dates(table, name, dates)
    notes: tuple[str, ...] = ()
    if is_number.sum() > (1 - USUAL) * present.sum():
        number, word = table.first(name, is_number), table.first(name, present & ~is_number)
        notes = (f"column {name!r} mixes numbers and text, such as {number} and {word}: treated as text",)
    return Reading("text", notes=notes)


def odd_cells(table: Table, name: str, values: np.ndarray, wanted: str) -> list[str]:
    """A line about cells that are there but could not be read, and one about infinite ones, if there are any."""
    odd = table.present(name) & np.isnan(values)
    notes = []
    if odd.any():
        others = int(odd.sum()) - 1
        are_not = f"and {counted(others, 'other value')} are not" if others else "is not"
        notes.append(f"column {name!r} holds {wanted}, but {table.first(name, odd)} {are_not}: treated as missing")
    infinite = np.isinf(values)
    if infinite.any():
        first = table.place(int(np.argmax(infinite)))
        count = counted(int(infinite.sum()), "infinite value")
        notes.append(f"column {name!r} has {count}, the first at {first}: treated as missing")
    return notes


def _about_numbers(table: Table, name: str, form: NumberFormat) -> tuple[str, ...]:
    values = table.numbers(name, form)
    notes = []
    usual = (PLAIN, COMMA) if table.decimal_comma else (PLAIN,)
    if form not in usual:
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
