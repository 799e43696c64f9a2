"""Comparison: the scores of several posteriors on one or several test sets, how their runs ended, tables as text."""

import math
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

from posteriax.data.corruptions.corrupt import Corruption
from posteriax.diagnostics.reference import ReferenceCheck
from posteriax.evaluation.chart_summaries import ChartSummary, Disagreement
from posteriax.metrics.registry import describe
from posteriax.metrics.score import Estimate, Score, format_estimate
from posteriax.posterior.posterior import Posterior

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure
    from rich.console import Group
    from rich.table import Table

    from posteriax.evaluation.recommend import Recommendation
    from posteriax.evaluation.report.context import ReportContext

Status = Literal["converged", "stopped at the budget", "not converged", "failed", "skipped"]
NOT_SCORED = ("failed", "skipped")
Rows = dict[str, dict[str, Estimate]]  # by posterior, by column


@dataclass(frozen=True)
class RunEnd:
    """How a method's run ended, and what it inferred.

    Args:
        status: "converged"; "stopped at the budget", before it had converged; "not converged", which more time would
            not change, as with chains that diverge; "failed"; or "skipped", for lack of time. The last two are listed,
            but not scored.
        details: the numbers behind the status and what was tried, one sentence each.
        seconds: how long it took.
        posterior: what was inferred; None if the run failed, or if the posterior is kept elsewhere.

    >>> RunEnd("stopped at the budget", ("The ELBO was still rising.",)).status
    'stopped at the budget'
    """

    status: Status
    details: tuple[str, ...] = ()
    seconds: float = math.nan
    posterior: Posterior | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        statuses = get_args(Status)
        if self.status not in statuses:
            raise ValueError(f"status must be one of {', '.join(map(repr, statuses))}, got {self.status!r}")


class Cost(NamedTuple):
    """The cost of a posterior: its parameters, seconds of training, milliseconds to predict 1,000 examples.

    A baseline has no parameters that could be compared: None. The time of prediction is that of `timed_rows` examples,
    times 1,000 / `timed_rows`: of a few it is mostly the overhead of a call.
    """

    parameters: int | None
    train_seconds: float
    predict_ms: float
    timed_rows: int = 0

    def cells(self) -> list[str]:
        """As text, for a table."""
        parameters = "" if self.parameters is None else f"{self.parameters:,}"
        predict_ms = f"{self.predict_ms:,.0f}" if self.predict_ms >= 100 else f"{self.predict_ms:.3g}"
        return [parameters, f"{self.train_seconds:.1f}", predict_ms]


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
        baselines: by name, what the rows that are not posteriors are, in one sentence.
        mixtures: by name, what the rows that are mixtures of others are, in one sentence.
        runs: by name, how each run ended, those that failed and are not scored included.
        disagreements: examples of the main test set about which the methods disagree most.
        differences: by posterior, its negative log likelihood less the smallest one, over the same examples.
        floor: by column, how far apart two halves of the reference's chains are: distances this small can be chance.

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
    baselines: dict[str, str] = field(default_factory=dict)
    mixtures: dict[str, str] = field(default_factory=dict)
    runs: dict[str, RunEnd] = field(default_factory=dict)
    disagreements: tuple[Disagreement, ...] = field(default=(), repr=False)
    floor: dict[str, Estimate] = field(default_factory=dict)
    differences: dict[str, Estimate] = field(default_factory=dict)

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
                means[posterior][severity] = Estimate.from_mean(values, "kinds")
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

        return _markdown(self, self.main if test_set is None else test_set)

    def to_pandas(self) -> "pandas.DataFrame":
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

    def to_html(
        self, path: str | Path, *, title: str = "Which posterior to trust", context: "ReportContext | None" = None
    ) -> None:
        """Write a report: one self-contained page with advice, sortable tables and charts.

        Args:
            path: of the file.
            title: its heading.
            context: what else to report: the columns' names and cells, what was done, how to do it again, the effect of
                each column. See :class:`px.evaluation.ReportContext`.
        """
        from posteriax.evaluation.report.page import write_page

        write_page(self, path, title, context)

    def plot(self, kind: str) -> "Figure":
        """A Matplotlib figure for a paper: "reliability", "coverage", "error", "severity", "entropy", "distance"."""
        from posteriax.evaluation.report.figures import plot

        return plot(self, kind)

    @property
    def recommendation(self) -> "Recommendation | None":
        """Which row to use, how sure that is, and what would change it; None if there is nothing to decide by."""
        from posteriax.evaluation.recommend import deciding_column, recommend

        return None if deciding_column(self) is None else recommend(self)

    def __rich__(self) -> "Group":
        return _printed(self)

    def __str__(self) -> str:
        from rich.console import Console

        console = Console(width=200, no_color=True)
        with console.capture() as capture:
            console.print(self)
        return capture.get()

    __repr__ = __str__


def describe_errors(rows: Mapping[str, Mapping[str, Estimate]], seeds: Mapping[str, int]) -> str:
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
    several = [f"{name} ({seeds.get(name, 1)})" for name in groups["seeds"]]
    single = groups.get("examples", [])
    text, apiece = f"standard error: over seeds for {', '.join(several)}", " each" if len(single) > 1 else ""
    return f"{text}, over test examples for {', '.join(single)} (one run{apiece})" if single else text


def _markdown(comparison: Comparison, test_set: str) -> str:
    """The table of a test set in Markdown; the best posterior in bold, those not significantly worse in italics."""
    titles, cells = _titles(comparison, test_set), _cells(comparison, test_set, ("**{}**", "*{}*"))
    lines = [["", *titles], ["---"] + ["---:"] * len(titles), *cells]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def _printed(comparison: Comparison) -> "Group":
    """The tables, what their marks mean, and the recommendation, for Rich to print."""
    from rich.console import Group
    from rich.text import Text

    shown = [name for name in comparison.sets if name not in comparison.corruptions]
    parts: list[Table | Text] = [_table(comparison, name) for name in shown]
    parts += [_severity_table(comparison, column) for column in comparison.columns[:2] if comparison.severities(column)]
    parts.append(Text(_caption(comparison)))
    check = comparison.reference_check
    if check is not None and check.converged is not True:
        parts.append(Text(check.note, style="bold red" if check.converged is False else ""))
    advice = comparison.recommendation
    if advice is not None and (len(comparison.rows) > 1 or advice.trust or advice.cautions):
        parts += [Text(""), Text(str(advice))]
    return Group(*parts)


def _table(comparison: Comparison, name: str) -> "Table":
    doubtful = {
        comparison.score(column).heading for column in comparison.columns_of(name) if comparison.is_doubtful(column)
    }
    title = name if len(comparison.sets) > 1 else None
    return _rich_table(title, _titles(comparison, name), _cells(comparison, name, ("{} *", "{} =")), doubtful)


def _severity_table(comparison: Comparison, column: str) -> "Table":
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


def _rich_table(
    title: str | None, headings: Sequence[str], rows: Iterable[Sequence[str]], dim: Container[str] = ()
) -> "Table":
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
