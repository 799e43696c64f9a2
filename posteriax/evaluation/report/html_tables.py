"""The tables of a report as HTML: scores by test set, what columns mean, and classes one by one.

With classes of unequal size, accuracy hides whether the rare one is ever predicted: for each class the tables show
which methods find it and what it is confused with. All names are the user's, and all are escaped.
"""

import math
from html import escape

import numpy as np

from posteriax.evaluation.chart_summaries import ChartSummary
from posteriax.evaluation.comparison import COST_MEANINGS, NOT_SCORED, Comparison
from posteriax.metrics.score import Estimate, Score, format_estimate

MOST_IN_MATRIX = 12
MOST_IN_TABLES = 20
SHADES = (0.03, 0.1, 0.3, 0.6)  # shares of a class's rows from which a cell is darker
COLUMNS = {
    "AUROC ↑": "The chance that a row of the class is given a higher probability of it than a row of another class.",
    "average precision ↑": "The area under the curve of precision against recall; the share of the class by guessing.",
    "found (recall)": "How many of the rows of the class are predicted as it.",
    "right (precision)": "How many of the rows predicted as the class are of it.",
}


def score_tables(comparison: Comparison) -> str:
    """One table per test set, each in its own scrolling box; the page's script shows one at a time.

    >>> from posteriax.metrics import Estimate
    >>> print(score_tables(Comparison({"a & b": {"MAP": {"nll": Estimate(0.5, 0.01)}}})))
    <div class="scroll" data-set="0" tabindex="0" role="region" aria-label="Scores on a &amp; b">...
    """
    return "\n".join(
        f'<div class="scroll" data-set="{i}" tabindex="0" role="region" aria-label="Scores on {escape(name)}">'
        f"<table><caption>{escape(name)}</caption>{_head(comparison, name)}{_body(comparison, name)}"
        f"{_failed(comparison, name)}</table></div>"
        for i, name in enumerate(comparison.sets)
    )


def glossary(comparison: Comparison) -> str:
    """The meaning of the columns, as a definition list.

    >>> glossary(Comparison({"test": {"MAP": {"nll": Estimate(0.5, 0.01)}}}))[:16]
    '<dt>nll ↓</dt><d'
    """
    scores = [comparison.score(column) for name in comparison.sets for column in comparison.columns_of(name)]
    meanings = {score.heading: score.explanation for score in scores}
    if comparison.costs:
        meanings |= COST_MEANINGS
    return "".join(f"<dt>{escape(t)}</dt><dd>{escape(m)}</dd>" for t, m in meanings.items() if m)


def _head(comparison: Comparison, name: str) -> str:
    cells = [_header("posterior", "The names passed to px.compare", "ascending")]
    for column in comparison.columns_of(name):
        score = comparison.score(column)
        first = "descending" if score.better == "higher" else "ascending"  # the better ones on top
        cells.append(_header(score.heading, score.explanation, first))
    if comparison.costs and name == comparison.main:
        cells += [_header(title, meaning, "ascending") for title, meaning in COST_MEANINGS.items()]
    return f"<thead><tr>{''.join(cells)}</tr></thead>"


def _header(title: str, meaning: str, first: str) -> str:
    return (
        f'<th scope="col" aria-sort="none" data-first="{first}">'
        f'<button type="button" title="{escape(meaning)}">{escape(title)}</button></th>'
    )


def _body(comparison: Comparison, name: str) -> str:
    return f"<tbody>{''.join(_row(comparison, name, row) for row in comparison.sets[name])}</tbody>"


def _failed(comparison: Comparison, name: str) -> str:
    """A last row that names the methods that failed or were skipped."""
    not_scored = {
        status: ", ".join(escape(row) for row, run in comparison.runs.items() if run.status == status)
        for status in NOT_SCORED
    }
    if not any(not_scored.values()) or name != comparison.main:
        return ""
    columns = 1 + len(comparison.columns_of(name)) + (len(COST_MEANINGS) if comparison.costs else 0)
    words = "; ".join(f"{status}, not scored: {names}" for status, names in not_scored.items() if names)
    return f'<tfoot><tr><td class="failed" colspan="{columns}">{words}</td></tr></tfoot>'


def _row_notes(comparison: Comparison, row: str) -> str:
    """Whether a row is the reference, a baseline, or of a run that did not converge."""
    check, run = comparison.reference_check, comparison.runs.get(row)
    notes = []
    if row == comparison.reference:
        failed = check is not None and check.converged is False
        notes.append("best available reference, not converged" if failed else "reference")
    elif run is not None and run.status != "converged":
        notes.append(run.status)
    if row in comparison.baselines:
        notes.append("baseline")
    return f' <small class="note">{", ".join(notes)}</small>' if notes else ""


def _row(comparison: Comparison, name: str, row: str) -> str:
    method = list(comparison.rows).index(row)
    check = comparison.reference_check
    note = _row_notes(comparison, row)
    cells = [f'<th scope="row"><span class="swatch" data-method="{method}"></span>{escape(row)}{note}</th>']
    for column in comparison.columns_of(name):
        estimate = comparison.sets[name][row].get(column, Estimate(math.nan))
        among = comparison.marked(name, column)
        doubt = check.distance_words if check is not None and comparison.is_doubtful(column) else ""
        cells.append(_cell(estimate, comparison.score(column), among.index(row) if row in among else -1, doubt))
    if comparison.costs and name == comparison.main:
        cost = comparison.costs.get(row)
        values = (
            (None,) * len(COST_MEANINGS) if cost is None else (cost.parameters, cost.train_seconds, cost.predict_ms)
        )
        pairs = zip(values, [""] * len(values) if cost is None else cost.cells(), strict=True)
        cells += [f"<td{_sort_value(value)}>{text}</td>" for value, text in pairs]
    return f"<tr>{''.join(cells)}</tr>"


def _cell(estimate: Estimate, score: Score, rank: int, doubt: str) -> str:
    key = estimate.value if score.target is None else score.loss(estimate.value)  # with a target, by how far off it is
    text = escape(format_estimate(estimate)) if math.isfinite(estimate.value) else "none"
    if doubt:
        return f'<td class="doubtful"{_sort_value(key)} title="{escape(doubt)}">{text} ?</td>'
    if rank == 0:
        return f'<td class="best"{_sort_value(key)} title="the best"><strong>{text}</strong> ★</td>'
    if rank > 0:
        return f'<td class="tie"{_sort_value(key)} title="not significantly worse than the best">{text} ≈</td>'
    return f"<td{_sort_value(key)}>{text}</td>"


def _sort_value(value: float | None) -> str:
    return f' data-value="{value:.9g}"' if value is not None and math.isfinite(value) else ""


def class_tables(comparison: Comparison) -> str:
    """For each class, a table of the methods; the page's script shows one class at a time, first the rarest.

    >>> chart = ChartSummary(confusion=np.array([[8, 0], [2, 0]]), auroc=np.ones(2), average_precision=np.ones(2))
    >>> comparison = Comparison({"test": {"MAP": {}}}, charts={"test": {"MAP": chart}}, class_names=("well", "ill"))
    >>> '<td class="never">0 of 2</td>' in class_tables(comparison)
    True
    """
    charts = _charts(comparison)
    if not charts:
        return ""
    counts = next(iter(charts.values())).confusion.sum(axis=1)
    classes = np.argsort(counts, kind="stable")
    shown = [int(c) for c in classes if counts[c] > 0][:MOST_IN_TABLES]
    return "".join(_class_table(comparison, charts, c, int(counts[c]), int(counts.sum())) for c in shown)


def _class_table(comparison: Comparison, charts: dict[str, ChartSummary], c: int, count: int, total: int) -> str:
    rows = ""
    for name, chart in charts.items():
        method, matrix = list(comparison.rows).index(name), chart.confusion
        hits, predicted = int(matrix[c, c]), int(matrix[:, c].sum())
        never = ' class="never"' if not predicted else ""
        ranks = "".join(f"<td>{_number(values, c)}</td>" for values in (chart.auroc, chart.average_precision))
        right = f"{hits:,} of {predicted:,}" if predicted else "never predicted"
        rows += (
            f'<tr data-method="{method}"><th scope="row"><span class="swatch" data-method="{method}"></span>'
            f"{escape(name)}</th>{ranks}<td{never}>{hits:,} of {count:,}</td><td{never}>{right}</td></tr>"
        )
    heads = "".join(f'<th scope="col" title="{escape(meaning)}">{title}</th>' for title, meaning in COLUMNS.items())
    label = escape(label_of(comparison, c))
    caption = f"{label}: {count:,} of {total:,} test rows"
    return (
        f'<div class="scroll" data-class="{label}" tabindex="0" role="region" aria-label="{label}"><table>'
        f'<caption>{caption}</caption><thead><tr><th scope="col">posterior</th>{heads}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def confusion_tables(comparison: Comparison) -> str:
    """For each method, its confusion matrix; the page's script shows one at a time. Empty with very many classes."""
    charts = _charts(comparison)
    return "".join(
        _confusion(comparison, list(comparison.rows).index(name), name, chart.confusion)
        for name, chart in charts.items()
        if len(chart.confusion) <= MOST_IN_MATRIX
    )


def _confusion(comparison: Comparison, method: int, name: str, matrix: np.ndarray) -> str:
    labels = [escape(label_of(comparison, c)) for c in range(len(matrix))]
    head = "".join(f'<th scope="col">{label}</th>' for label in labels)
    rows = ""
    for c, label in enumerate(labels):
        shares = matrix[c] / max(1, matrix[c].sum())
        cells = "".join(
            f'<td class="{"hit" if k == c else "miss"}-{_shade(share)}">{count:,}</td>'
            for k, (count, share) in enumerate(zip(matrix[c], shares, strict=True))
        )
        rows += f'<tr><th scope="row">{label}</th>{cells}</tr>'
    return (
        f'<div class="scroll confusion" data-method="{method}" tabindex="0" role="region" aria-label="Confusions of '
        f'{escape(name)}"><table><caption>{escape(name)}</caption><thead><tr><th scope="col">actual ↓ predicted →</th>'
        f"{head}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def label_of(comparison: Comparison, c: int) -> str:
    """The name of a class, or its number."""
    names = comparison.class_names
    return names[c] if names and c < len(names) else str(c)


def _charts(comparison: Comparison) -> dict[str, ChartSummary]:
    charts = comparison.charts.get(comparison.main, {})
    return {name: charts[name] for name in comparison.rows if name in charts and charts[name].confusion.size}


def _number(values: np.ndarray, c: int) -> str:
    return f"{values[c]:.3f}" if c < len(values) and np.isfinite(values[c]) else ""


def _shade(share: float) -> int:
    """0 to 4, by the share of a class's rows."""
    return int(np.searchsorted(SHADES, share, side="right"))
