"""The tables of a report as HTML. All names are the user's, and all are escaped."""

import math
from html import escape

from posteriax.comparison.comparison import COST_MEANINGS, Comparison
from posteriax.comparison.estimates import format_estimate
from posteriax.metrics import Estimate, Score


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
    return f"<tbody>{''.join(_row(comparison, name, own) for own in comparison.sets[name])}</tbody>"


def _failed(comparison: Comparison, name: str) -> str:
    """A last row that names the methods that failed."""
    failed = [escape(own) for own, run in comparison.runs.items() if run.status == "failed"]
    if not failed or name != comparison.main:
        return ""
    columns = 1 + len(comparison.columns_of(name)) + (len(COST_MEANINGS) if comparison.costs else 0)
    words = f"failed, not scored: {', '.join(failed)}"
    return f'<tfoot><tr><td class="failed" colspan="{columns}">{words}</td></tr></tfoot>'


def _row_notes(comparison: Comparison, own: str) -> str:
    """Whether a row is the reference, a baseline, or of a run that did not converge."""
    check, run = comparison.reference_check, comparison.runs.get(own)
    notes = []
    if own == comparison.reference:
        failed = check is not None and check.converged is False
        notes.append("best available reference, not converged" if failed else "reference")
    elif run is not None and run.status != "converged":
        notes.append(run.status)
    if own in comparison.baselines:
        notes.append("baseline")
    return f' <small class="note">{", ".join(notes)}</small>' if notes else ""


def _row(comparison: Comparison, name: str, own: str) -> str:
    method = list(comparison.rows).index(own)
    check = comparison.reference_check
    note = _row_notes(comparison, own)
    cells = [f'<th scope="row"><span class="swatch" data-method="{method}"></span>{escape(own)}{note}</th>']
    for column in comparison.columns_of(name):
        estimate = comparison.sets[name][own].get(column, Estimate(math.nan))
        among = comparison.marked(name, column)
        doubt = check.distance_words if check is not None and comparison.is_doubtful(column) else ""
        cells.append(_cell(estimate, comparison.score(column), among.index(own) if own in among else -1, doubt))
    if comparison.costs and name == comparison.main:
        cost = comparison.costs.get(own)
        pairs = list(zip(cost, cost.cells(), strict=True)) if cost else [(None, "")] * len(COST_MEANINGS)
        cells += [f"<td{_sort_value(value)}>{text}</td>" for value, text in pairs]
    return f"<tr>{''.join(cells)}</tr>"


def _cell(estimate: Estimate, score: Score, place: int, doubt: str) -> str:
    key = estimate.value if score.target is None else score.loss(estimate.value)  # with a target, by how far off it is
    text = escape(format_estimate(estimate)) if math.isfinite(estimate.value) else "none"
    if doubt:
        return f'<td class="doubtful"{_sort_value(key)} title="{escape(doubt)}">{text} ?</td>'
    if place == 0:
        return f'<td class="best"{_sort_value(key)} title="the best"><strong>{text}</strong> ★</td>'
    if place > 0:
        return f'<td class="tie"{_sort_value(key)} title="not significantly worse than the best">{text} ≈</td>'
    return f"<td{_sort_value(key)}>{text}</td>"


def _sort_value(value: float | None) -> str:
    return f' data-value="{value:.9g}"' if value is not None and math.isfinite(value) else ""
