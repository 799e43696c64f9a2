"""A comparison as text: tables for the terminal and for Markdown, and the recommendation below them."""

from collections.abc import Container, Sequence
from typing import Any

from posteriax.comparison.comparison import COST_MEANINGS, Comparison
from posteriax.comparison.estimates import describe_errors, format_estimate


def markdown(comparison: Comparison, test_set: str) -> str:
    """The table of a test set in Markdown; the best posterior in bold, those not significantly worse in italics."""
    titles, cells = _titles(comparison, test_set), _cells(comparison, test_set, ("**{}**", "*{}*"))
    lines = [["", *titles], ["---"] + ["---:"] * len(titles), *cells]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def printed(comparison: Comparison) -> Any:
    """The tables, what their marks mean, and the recommendation, for Rich to print."""
    from rich.console import Group
    from rich.text import Text

    shown = [name for name in comparison.sets if name not in comparison.corruptions]
    parts = [_table(comparison, name) for name in shown]
    parts += [_severity_table(comparison, column) for column in comparison.columns[:2] if comparison.severities(column)]
    parts.append(Text(_caption(comparison)))
    check = comparison.reference_check
    if check is not None and check.converged is not True:
        parts.append(Text(check.note, style="bold red" if check.converged is False else ""))
    advice = comparison.recommendation if len(comparison.rows) > 1 else None
    if advice is not None:
        parts += [Text(""), Text(str(advice))]
    return Group(*parts)


def _table(comparison: Comparison, name: str) -> Any:
    doubtful = {
        comparison.score(column).heading for column in comparison.columns_of(name) if comparison.is_doubtful(column)
    }
    title = name if len(comparison.sets) > 1 else None
    return _rich_table(title, _titles(comparison, name), _cells(comparison, name, ("{} *", "{} =")), doubtful)


def _severity_table(comparison: Comparison, column: str) -> Any:
    means = comparison.severities(column)
    kinds = {corruption.kind for corruption in comparison.corruptions.values()}
    spread = "; ± over kinds, of clean as above" if len(kinds) > 1 else ""
    title = f"{comparison.score(column).heading} by severity of corruption, mean over kinds{spread}"
    headings = [str(severity or "clean") for severity in next(iter(means.values()))]
    return _rich_table(title, headings, [[name, *map(format_estimate, m.values())] for name, m in means.items()])


def _caption(comparison: Comparison) -> str:
    text = f"± {describe_errors(comparison.rows, comparison.seeds)}"
    if any(comparison.is_doubtful(column) for column in comparison.columns) and comparison.reference_check is not None:
        text += f"; ? {comparison.reference_check.distance_words}"
    elif comparison.reference:
        text += f"; distances to {comparison.reference}"
    return text + ("; * best, = not significantly worse" if comparison.best else "")


def _titles(comparison: Comparison, name: str) -> list[str]:
    titles = [comparison.score(column).heading for column in comparison.columns_of(name)]
    return [*titles, *COST_MEANINGS] if comparison.costs and name == comparison.main else titles


def _cells(comparison: Comparison, name: str, marks: tuple[str, str]) -> list[list[str]]:
    cells = []
    for posterior, row in comparison.sets[name].items():
        line = [posterior]
        for column in comparison.columns_of(name):
            among = comparison.marked(name, column)
            text = format_estimate(row.get(column)) + (" ?" if column in row and comparison.is_doubtful(column) else "")
            line.append(text if posterior not in among else marks[posterior != among[0]].format(text))
        if comparison.costs and name == comparison.main:
            cost = comparison.costs.get(posterior)
            line += cost.cells() if cost else [""] * len(COST_MEANINGS)
        cells.append(line)
    return cells


def _rich_table(title: str | None, headings: Sequence[str], rows: Any, dim: Container[str] = ()) -> Any:
    """A table of texts by posterior; columns whose heading is in `dim` are greyed."""
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=title and escape(title), title_justify="left")
    table.add_column("posterior")
    for heading in headings:
        table.add_column(escape(heading), justify="right", style="dim" if heading in dim else "")
    for cells in rows:
        table.add_row(*map(escape, cells))
    return table
