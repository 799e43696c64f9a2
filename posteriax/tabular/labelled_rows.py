"""The rows of a table that can be learned from, and what is known of each: target, group and time."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from posteriax.tabular.columns import read_column
from posteriax.tabular.dates import as_date
from posteriax.tabular.messages import TableError, counted, shown
from posteriax.tabular.number_formats import PLAIN, NumberFormat
from posteriax.tabular.settings import DataSettings
from posteriax.tabular.table import Table
from posteriax.tabular.targets import Task, about_task, check_classes, infer_task, is_numbers


@dataclass(frozen=True, eq=False)
class LabelledRows:
    """The rows that can be used: those with a target, and with a group or time if they are split by it."""

    table: Table
    kept: np.ndarray  # rows of the file
    file_rows: int
    values: Any
    form: NumberFormat
    task: Task
    classes: np.ndarray | None
    groups: np.ndarray | None
    times: np.ndarray | None
    times_are_dates: bool
    notes: tuple[str, ...]

    def renumbered(self, rows: np.ndarray) -> np.ndarray:
        """Rows of the file as rows of the table, without those that were left out."""
        place = np.full(self.file_rows, -1)
        place[self.kept] = np.arange(len(self.kept))
        found = place[rows]
        return found[found >= 0]

    def show_time(self, time: float) -> str:
        return as_date(time) if self.times_are_dates else f"{time:.10g}"


def labelled_rows(table: Table, settings: DataSettings) -> LabelledRows:
    target = settings.target
    if target is None:
        raise TableError(f"which column should be predicted? Say --target COLUMN; columns: {shown(table.columns)}")
    needed = [column for column in (settings.group, settings.time) if column is not None]
    for column in (target, *settings.drop, *settings.keep, *settings.categories, *needed):
        table.require(column)
    values, form, about_target = target_values(table, target, settings.task)
    lacks = {target: ~np.isfinite(values) if is_numbers(values) else ~table.present(target)}
    times, dates = _times(table, settings.time)
    if settings.group is not None:
        lacks[settings.group] = ~table.present(settings.group)
    if settings.time is not None:
        lacks[settings.time] = ~np.isfinite(times)
    usable = ~np.any(list(lacks.values()), axis=0)
    notes = [*table.notes, *about_target, *about_left_out(table, lacks, target)]
    kept = np.flatnonzero(usable)
    if not len(kept):
        raise TableError(f"{table.name}: the target {target!r} has no values")
    values = values[kept] if is_numbers(values) else [values[row] for row in kept]
    task = infer_task(target, values, settings.task)
    groups = None if settings.group is None else table.texts(settings.group).iloc[kept].factorize()[0]
    return LabelledRows(
        table if usable.all() else table.take(kept),
        kept,
        table.rows,
        values,
        form,
        task,
        check_classes(target, values) if task == "classification" else None,
        groups,
        None if settings.time is None else times[kept],
        dates,
        (*notes, *about_task(target, values, task, settings.task)),
    )


def target_values(table: Table, name: str, task: Task | None = None) -> tuple[Any, NumberFormat, list[str]]:
    """The target of every row that has one, an array of numbers or a list of text; how numbers are written; notes."""
    present = table.present(name)
    form = table.number_format(name)
    numbers = table.numbers(name, form)
    is_number = ~np.isnan(numbers)
    if is_number.sum() == present.sum() and present.any():
        notes = list(read_column(table, name).notes) if form != PLAIN else []
        return numbers, form, [note.replace("column", "target", 1) for note in notes]
    if task != "classification" and 2 * is_number.sum() >= present.sum() > 0:
        odd = present & ~is_number
        raise TableError(
            f"{table.name}: the target {name!r} holds numbers, but also {table.first(name, odd)}, in {odd.sum():,} of "
            f"{counted(table.rows, 'row')}: correct or remove these, or treat all values as classes with --task "
            f"classification"
        )
    notes = []
    if is_number.any():
        notes = [f"target {name!r} holds text and numbers, such as {table.first(name, is_number)}: all are classes"]
    return table.texts(name).tolist(), PLAIN, notes


def about_left_out(table: Table, lacks: dict[str, np.ndarray], target: str) -> list[str]:
    notes = []
    for name, lacking in lacks.items():
        if lacking.any():
            first, count = table.place(int(np.argmax(lacking))), counted(int(lacking.sum()), "row")
            what = f"the target {name!r}" if name == target else f"column {name!r}"
            notes.append(f"{count} left out, since {what} is missing or infinite there; the first is {first}")
    return notes


def _times(table: Table, name: str | None) -> tuple[np.ndarray, bool]:
    if name is None:
        return np.zeros(table.rows), False
    reading = read_column(table, name)
    if reading.kind == "text":
        first = table.first(name, table.present(name))
        raise TableError(f"--time {name}: the column must hold dates or numbers, but has {first}")
    if reading.kind == "dates":
        return table.days(name, reading.date_form), True
    return table.numbers(name, reading.number_form), False
