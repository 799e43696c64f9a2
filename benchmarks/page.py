"""Tables of a benchmark in a page of the documentation, between two lines that name it."""

from collections.abc import Iterable
from pathlib import Path

from rich.table import Table


def write_tables(page: Path, name: str, tables: Iterable[Table]) -> None:
    """Replace what stands between the page's two lines for the benchmark `name`.

    <!-- measured by `python -m benchmarks step` -->
    <!-- end of step -->
    """
    start, end = f"<!-- measured by `python -m benchmarks {name}` -->", f"<!-- end of {name} -->"
    text = page.read_text()
    if start not in text or end not in text:
        raise SystemExit(f"{page} has no lines {start!r} and {end!r} to put tables between")
    before, after = text.split(start)[0], text.split(end)[1]
    page.write_text(before + "\n\n".join([start, *map(markdown, tables), end]) + after)


def markdown(table: Table) -> str:
    """The title, and the table as Markdown, numbers on the right.

    >>> table = Table("", "ms", title="a step")
    >>> table.add_row("MAP", "1.2")
    >>> print(markdown(table))
    **a step**
    <BLANKLINE>
    |  | ms |
    | --- | ---: |
    | MAP | 1.2 |
    """
    rows = zip(*(column.cells for column in table.columns), strict=True)
    lines = [
        _line(str(column.header) for column in table.columns),
        _line(["---", *["---:"] * (len(table.columns) - 1)]),
        *(_line(map(str, row)) for row in rows),
    ]
    return "\n".join([f"**{table.title}**", "", *lines])


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
