"""Comparison: the scores of several posteriors on one or several test sets, as tables."""

import math
import warnings
from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from posteriax.comparison.chart_summaries import ChartSummary
from posteriax.data import Corruption
from posteriax.diagnostics import ReferenceCheck
from posteriax.metrics import Estimate, Score, describe

Rows = dict[str, dict[str, Estimate]]  # by posterior, by column


class Cost(NamedTuple):
    """The cost of a posterior: its parameters, seconds of training, milliseconds to predict 1,000 examples."""

    parameters: int
    train_seconds: float
    predict_ms: float

    def cells(self) -> list[str]:
        """As text, for a table."""
        return [f"{self.parameters:,}", f"{self.train_seconds:.1f}", f"{self.predict_ms:.3g}"]


COST_MEANINGS = {  # by heading, in the order of Cost
    "parameters": "How many numbers describe the posterior.",
    "train s": "Seconds of training or sampling.",
    "predict ms / 1,000": "Milliseconds to predict 1,000 examples.",
}


@dataclass(frozen=True)
class Comparison:
    """Tables: for every test set, one row per posterior and one column per score. Print it, or export it.

    Args:
        sets: the scores by test set, posterior and column. The first test set is the main one.
        reference: the name of the posterior that distances are measured to, if any.
        costs: by posterior.
        best: by test set and column, the posteriors that are best or not significantly worse, the best one first.
        charts: by test set and posterior, what the report draws.
        class_names: names of the labels, for the report.
        corruptions: kind and severity of the corrupted test sets, by name.
        seeds: by posterior, how many runs its scores average over.
        reference_check: whether the reference's chains have mixed, judged by its predictions.
        scores: the score of each column; by default the one in :data:`px.metrics.SCORES` with its name.

    Each value records what its error is over: see :class:`px.metrics.Estimate`.

    >>> from posteriax.metrics import Estimate
    >>> table = Comparison({"test": {"MAP": {"accuracy": Estimate(0.9, 0.02)}}})
    >>> table["MAP"]
    {'accuracy': 0.9}
    >>> print(table.to_markdown())
    |  | accuracy ↑ |
    | --- | ---: |
    | MAP | 0.90 ± 0.02 |
    """

    sets: dict[str, Rows]
    reference: str | None = None
    costs: dict[str, Cost] = field(default_factory=dict)
    best: dict[str, dict[str, tuple[str, ...]]] = field(default_factory=dict)
    charts: dict[str, dict[str, ChartSummary]] = field(default_factory=dict, repr=False)
    class_names: tuple[str, ...] | None = None
    corruptions: dict[str, Corruption] = field(default_factory=dict)
    seeds: dict[str, int] = field(default_factory=dict)
    reference_check: ReferenceCheck | None = None
    scores: dict[str, Score] = field(default_factory=dict, repr=False)

    @property
    def views(self) -> dict[str, dict[str, ChartSummary]]:
        """Deprecated: use :attr:`charts`."""
        warnings.warn("Comparison.views is now called charts", DeprecationWarning, stacklevel=2)
        return self.charts

    @property
    def main(self) -> str:
        """The name of the first test set."""
        return next(iter(self.sets))

    @property
    def rows(self) -> Rows:
        """The scores on the main test set."""
        return self.sets[self.main]

    @property
    def columns(self) -> list[str]:
        """The names of the scores on the main test set."""
        return self.columns_of(self.main)

    def columns_of(self, test_set: str) -> list[str]:
        """The names of the scores that any posterior has on a test set."""
        return list(dict.fromkeys(column for row in self.sets[test_set].values() for column in row))

    def score(self, column: str) -> Score:
        """The score of a column. An unknown score has only its name."""
        return self.scores.get(column) or describe(column)

    def __getitem__(self, name: str) -> dict[str, float]:
        return {column: estimate.value for column, estimate in self.rows[name].items()}

    def severities(self, column: str) -> dict[str, dict[int, Estimate]]:
        """The mean of a score over the kinds of corruption, with its error over them, by posterior and severity.

        Severity 0 is the main test set. Includes only posteriors that have the score on all of these sets.
        """
        groups: dict[int, list[str]] = {0: [self.main]}
        for name, corruption in self.corruptions.items():
            groups.setdefault(corruption.severity, []).append(name)
        names = [name for group in groups.values() for name in group]
        means: dict[str, dict[int, Estimate]] = {}
        for posterior in self.rows if self.corruptions else ():
            if not all(column in self.sets[name].get(posterior, {}) for name in names):
                continue
            means[posterior] = {0: self.rows[posterior][column]}
            for severity in sorted(groups)[1:]:
                values = [self.sets[name][posterior][column].value for name in groups[severity]]
                means[posterior][severity] = Estimate.of_mean(values, "kinds")
        return means

    def is_doubtful(self, column: str) -> bool:
        """Whether a column holds distances to a reference that has not converged."""
        check = self.reference_check
        return check is not None and check.converged is False and self.score(column).against_reference

    def marked(self, test_set: str, column: str) -> tuple[str, ...]:
        """The posteriors to mark as best or not significantly worse: none if the column is doubtful."""
        return () if self.is_doubtful(column) else self.best.get(test_set, {}).get(column, ())

    def to_markdown(self, test_set: str | None = None) -> str:
        """The table of a test set in Markdown; the best posterior in bold, those not significantly worse in italics."""
        name = self.main if test_set is None else test_set
        titles, cells = self._titles(name), self._cells(name, ("**{}**", "*{}*"))
        lines = [["", *titles], ["---"] + ["---:"] * len(titles), *cells]
        return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)

    def to_pandas(self) -> Any:
        """The values as a pandas DataFrame, one row per posterior, or per test set and posterior. Needs pandas."""
        try:
            import pandas
        except ImportError as error:
            raise ImportError("to_pandas needs pandas: pip install pandas") from error
        frames = {
            test_set: pandas.DataFrame({n: {c: e.value for c, e in row.items()} for n, row in rows.items()}).T
            for test_set, rows in self.sets.items()
        }
        return frames[self.main] if len(frames) == 1 else pandas.concat(frames)

    def to_html(self, path: Any, *, title: str = "Which posterior to trust") -> None:
        """Write a report: one self-contained page with sortable tables and charts."""
        from posteriax.comparison.report.page import write_page

        write_page(self, path, title)

    def plot(self, kind: str) -> Any:
        """A Matplotlib figure for a paper: "reliability", "severity", "entropy", "distance" or "coverage"."""
        from posteriax.comparison.report.plots import plot

        return plot(self, kind)

    def __rich__(self) -> Any:
        from rich.console import Group
        from rich.text import Text

        shown = [name for name in self.sets if name not in self.corruptions]
        parts = [self._table(name) for name in shown]
        parts += [self._severity_table(column) for column in self.columns[:2] if self.severities(column)]
        parts.append(Text(self._caption()))
        if self.reference_check is not None and self.reference_check.converged is not True:
            style = "bold red" if self.reference_check.converged is False else ""
            parts.append(Text(self.reference_check.note, style=style))
        return Group(*parts)

    def __str__(self) -> str:
        from rich.console import Console

        console = Console(width=200, no_color=True)
        with console.capture() as capture:
            console.print(self)
        return capture.get()

    __repr__ = __str__

    def _table(self, name: str) -> Any:
        doubtful = {self.score(column).heading for column in self.columns_of(name) if self.is_doubtful(column)}
        title = name if len(self.sets) > 1 else None
        return _rich_table(title, self._titles(name), self._cells(name, ("{} *", "{} =")), doubtful)

    def _severity_table(self, column: str) -> Any:
        means = self.severities(column)
        kinds = {corruption.kind for corruption in self.corruptions.values()}
        spread = "; ± over kinds, of clean as above" if len(kinds) > 1 else ""
        title = f"{self.score(column).heading} by severity of corruption, mean over kinds{spread}"
        headings = [str(severity or "clean") for severity in next(iter(means.values()))]
        return _rich_table(title, headings, [[name, *map(format_estimate, m.values())] for name, m in means.items()])

    def _caption(self) -> str:
        text = f"± {describe_errors(self.rows, self.seeds)}"
        if any(self.is_doubtful(column) for column in self.columns) and self.reference_check is not None:
            text += f"; ? {self.reference_check.distance_words}"
        elif self.reference:
            text += f"; distances to {self.reference}"
        return text + ("; * best, = not significantly worse" if self.best else "")

    def _titles(self, name: str) -> list[str]:
        titles = [self.score(column).heading for column in self.columns_of(name)]
        return [*titles, *COST_MEANINGS] if self.costs and name == self.main else titles

    def _cells(self, name: str, marks: tuple[str, str]) -> list[list[str]]:
        cells = []
        for posterior, row in self.sets[name].items():
            line = [posterior]
            for column in self.columns_of(name):
                among = self.marked(name, column)
                text = format_estimate(row.get(column)) + (" ?" if column in row and self.is_doubtful(column) else "")
                line.append(text if posterior not in among else marks[posterior != among[0]].format(text))
            if self.costs and name == self.main:
                cost = self.costs.get(posterior)
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


def describe_errors(rows: Rows, seeds: dict[str, int]) -> str:
    """Describe what the standard errors of a table are over.

    >>> rows = {"MAP": {"nll": Estimate(0.5, 0.01, "seeds")}, "HMC": {"nll": Estimate(0.3, 0.02, "examples")}}
    >>> describe_errors(rows, {"MAP": 3, "HMC": 1})
    'standard error: over seeds for MAP (3), over test examples for HMC (one run)'
    >>> describe_errors({"HMC": rows["HMC"]}, {"HMC": 1})
    'standard error over test examples, one run each'
    """
    groups: dict[str, list[str]] = {}
    for name, row in rows.items():
        for over in dict.fromkeys(estimate.over for estimate in row.values() if math.isfinite(estimate.error)):
            groups.setdefault(over, []).append(name)
    counts = {seeds.get(name, 1) for name in groups.get("seeds", [])}
    if set(groups) == {"examples"}:
        return "standard error over test examples, one run each"
    if set(groups) == {"seeds"} and len(counts) == 1:
        return f"standard error over {counts.pop()} seeds each"
    if not groups or "" in groups:
        return "standard error"
    runs = [f"{name} ({seeds.get(name, 1)})" for name in groups["seeds"]]
    one = groups.get("examples", [])
    text, each = f"standard error: over seeds for {', '.join(runs)}", " each" if len(one) > 1 else ""
    return f"{text}, over test examples for {', '.join(one)} (one run{each})" if one else text


def format_estimate(estimate: Estimate | None) -> str:
    """As many digits as the error allows; three if there is no error.

    >>> [format_estimate(e) for e in (Estimate(0.13241, 0.0042), Estimate(0.9, 0.0), Estimate(0.0123))]
    ['0.132 ± 0.004', '0.900 ± 0', '0.012']
    """
    if estimate is None:
        return ""
    value, error, _ = estimate
    if not math.isfinite(value):
        return str(value)
    if not math.isfinite(error):
        return f"{value:.3f}"
    if error == 0.0:
        return f"{value:.3f} ± 0"
    digits = max(0, -math.floor(math.log10(error)))
    return f"{value:.{digits}f} ± {error:.{digits}f}"
