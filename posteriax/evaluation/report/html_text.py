"""The text of a report as HTML: what to use and how sure that is, how the runs ended, what was done.

In sentences for readers who have never seen a comparison of posteriors.
"""

import math
import re
from html import escape

from posteriax.evaluation.comparison import Comparison, describe_errors
from posteriax.evaluation.recommend import Recommendation, listed
from posteriax.evaluation.report.chart_data import distances
from posteriax.evaluation.report.context import ReportContext
from posteriax.metrics.score import Estimate, Score, format_estimate

ERROR_MEANINGS = {
    "examples": "how much the score would vary between test sets of this size; it may vary more between training runs",
    "seeds": "how much the score would vary between seeds",
}
SIGNS = {"converged": "✓", "stopped at the budget": "◷", "not converged": "✕", "failed": "✕", "skipped": "◷"}
CLASSES = {
    "converged": "done",
    "stopped at the budget": "stopped",
    "not converged": "stopped",
    "failed": "failed",
    "skipped": "stopped",
}


def explain_marks(comparison: Comparison) -> str:
    """What ± and the marks in the tables mean.

    >>> explain_marks(Comparison({"test": {"MAP": {"nll": Estimate(0.5, 0.01, "examples")}}}))[:59]
    '± is the standard error over test examples, one run each: h'
    """
    text = f"± is the {describe_errors(comparison.rows, comparison.seeds)}"
    estimates = [estimate for row in comparison.rows.values() for estimate in row.values()]
    held = {estimate.over for estimate in estimates if math.isfinite(estimate.error)}
    meanings = [meaning for over, meaning in ERROR_MEANINGS.items() if held == {over}]
    text += f": {meanings[0]}." if meanings else "."
    if comparison.best:
        over = "the same examples" + (", over seeds too" if max(comparison.seeds.values(), default=1) > 1 else "")
        text += (
            " Bold with ★: the best. ≈: not significantly worse than the best: the difference could be chance (at the "
            f"5 % level for all posteriors of a column together, compared on {over})."
        )
    check = comparison.reference_check
    return f"{text} ?: {check.distance_words}." if check is not None and check.converged is False else text


def warning(comparison: Comparison) -> str:
    """What to know before reading the distances; empty if the reference has converged.

    >>> from posteriax.diagnostics.reference import ReferenceCheck
    >>> print(warning(Comparison({"test": {"HMC": {}}}, "HMC", reference_check=ReferenceCheck("HMC", 1.62))))
    Best available reference (not converged): HMC has not converged: R-hat 1.62 in function space (limit 1.05).
    Distances to it say little. They are in grey.
    """
    check = comparison.reference_check
    if check is None or check.converged is not False:
        return ""
    return f"Best available reference (not converged): {check.note} They are in grey."


def fidelity(comparison: Comparison) -> str:
    """How far the posteriors are from the reference; empty if there is none, or if it has not converged.

    >>> rows = {"VI": {"total_variation": Estimate(0.1, 0.01)}, "HMC": {"total_variation": Estimate(0.0, 0.0)}}
    >>> fidelity(Comparison({"test": rows}, reference="HMC"))[:86]
    'HMC is the reference: the others are ranked by their distance to its predictions. The '
    >>> rows["reference"] = rows.pop("HMC")
    >>> fidelity(Comparison({"test": rows}, reference="reference"))[:80]
    "The methods are ranked by the distance of their predictions to the reference's. "
    """
    measured = distances(comparison)
    names = list(comparison.rows)
    if measured is None:
        return ""
    column, lines = measured
    ranked = [
        (names[line.method], Estimate(line.points[0][0], line.points[0][1]))
        for line in lines
        if math.isfinite(line.points[0][0]) and names[line.method] not in comparison.baselines
    ]
    ranked.sort(key=lambda pair: pair[1].value)
    check = comparison.reference_check
    if not ranked or (check is not None and check.converged is False):  # the warning suffices
        return ""
    score = comparison.score(column)
    far = [f"{name} ({_amount(score, estimate)})" for name, estimate in ranked]
    brackets = f"In brackets: the {score.quantity}."
    text = f"{comparison.reference} is the reference: the others are ranked by their distance to its predictions. "
    if comparison.reference == "reference":  # the name that `posteriax compare` gives it
        text = "The methods are ranked by the distance of their predictions to the reference's. "
    if check is not None:
        text += f"{check.note} "
    if column in comparison.floor:
        text += f"Two halves of its chains differ by {_amount(score, comparison.floor[column])}. "
    if len(far) == 1:
        return f"{text}The only other is {far[0]}. {brackets}"
    between = f"; between them: {listed(far[1:-1])}" if far[1:-1] else ""
    return f"{text}The closest is {far[0]}, the farthest {far[-1]}{between}. {brackets}"


def _amount(score: Score, estimate: Estimate) -> str:
    return f"{100 * estimate.value:.1f} %" if score.percent else format_estimate(estimate)


def advice(comparison: Comparison, context: ReportContext) -> str:
    """A warning if the reference failed, the recommendation, and how the runs ended.

    >>> from posteriax.metrics import Estimate
    >>> print(advice(Comparison({"test": {"MAP": {"nll": Estimate(0.5, 0.01)}}}), ReportContext()))
    <p class="lead">MAP is the only row: its negative log likelihood (nll) is 0.50 ± 0.01.</p>
    """
    box, recommended = _warning(comparison), comparison.recommendation
    if recommended is None:
        return box + run_end_marks(comparison)
    lead, _, rest = recommended.headline.partition(": ")
    first = f"<strong>{text(lead)}</strong>: {text(rest)}" if lead.startswith("Use ") else text(recommended.headline)
    return (
        box
        + f'<p class="lead">{" ".join([first, *map(text, recommended.reasons)])}</p>'
        + _answers(comparison, recommended, context)
        + run_end_marks(comparison)
    )


def _warning(comparison: Comparison) -> str:
    """That the reference has not converged, and folded away why and what it would take."""
    sentence, check = warning(comparison), comparison.reference_check
    if not sentence or check is None:
        return ""
    run = comparison.runs.get(check.name)
    lines = "".join(f"<li>{text(line)}</li>" for line in run.details) if run is not None else ""
    more = f"<details><summary>Why, and what it would take</summary><ul>{lines}</ul></details>" if lines else ""
    return f'<div class="warning" role="alert"><p>{text(sentence)}</p>{more}</div>'


def _answers(comparison: Comparison, recommended: Recommendation, context: ReportContext) -> str:
    command, how = context.predict_with(recommended.name), ""
    if not command and (command := context.predict_with(recommended.posterior)):
        how = f" (with {text(recommended.posterior)})"
    answers = {
        "Can its uncertainty be trusted?": text(" ".join(recommended.trust)),
        "Is a network worth it?": text(recommended.network),
        "What should I know first?": text(" ".join(recommended.cautions)),
        "What would change the answer?": text(" ".join(recommended.changes)) if len(comparison.rows) > 1 else "",
        "How close are the approximations?": text(fidelity(comparison)),
        f"To predict new rows{how}": f"<code>{escape(command)}</code>" if command else "",
    }
    rows = "".join(f"<dt>{title}</dt><dd>{answer}</dd>" for title, answer in answers.items() if answer)
    return f'<dl class="answers">{rows}</dl>' if rows else ""


def run_end_marks(comparison: Comparison) -> str:
    """How every run ended, as a line of marks; empty if nothing is known.

    >>> from posteriax.evaluation.comparison import RunEnd
    >>> "✕ <b>swag</b> failed" in run_end_marks(Comparison({"test": {}}, runs={"swag": RunEnd("failed")}))
    True
    """
    items, check = "", comparison.reference_check
    for name, run in comparison.runs.items():
        kind, sign = CLASSES[run.status], SIGNS[run.status]
        words = "failed, not scored" if run.status == "failed" else str(run.status)
        if name == comparison.reference and check is not None and check.converged is False:
            kind, sign, words = "failed", SIGNS["failed"], "not converged, best available reference"
        elif name == comparison.reference:
            words += ", the reference"
        title = escape(" ".join(run.details))
        items += f'<li class="{kind}" title="{title}">{sign} <b>{escape(name)}</b> {words}</li>'
    return f'<ul class="runs" aria-label="How the runs ended">{items}</ul>' if items else ""


def text(words: str | None) -> str:
    """Words as HTML: escaped, and with no line break between a number and its percent sign.

    >>> text("<b> 90 % & more")
    '&lt;b&gt; 90&nbsp;% &amp; more'
    """
    return re.sub(r"(\d) %", r"\1&nbsp;%", escape(words or ""))


def account(comparison: Comparison, context: ReportContext) -> str:
    """The section on what was done; empty if nothing is known.

    >>> account(Comparison({"test": {}}), ReportContext(done={"Rows": "80 for training"}))
    '<dl><dt>Rows</dt><dd>80 for training</dd></dl>'
    """
    facts = "".join(f"<dt>{escape(title)}</dt><dd>{text(fact)}</dd>" for title, fact in context.done.items())
    if context.command:
        facts += f"<dt>To make this report again</dt><dd><code>{escape(context.command)}</code></dd>"
    log = f"<details><summary>Log</summary><pre>{escape(context.log)}</pre></details>" if context.log else ""
    return (f"<dl>{facts}</dl>" if facts else "") + method_table(comparison, context) + log


def method_table(comparison: Comparison, context: ReportContext) -> str:
    """Every method, what it is, and how its run ended, with the numbers behind that folded away.

    >>> from posteriax.evaluation.comparison import RunEnd
    >>> table = method_table(Comparison({"test": {}}, runs={"swag": RunEnd("failed")}), ReportContext())
    >>> '<td class="failed">✕ failed</td>' in table
    True
    """
    others = {**comparison.baselines, **comparison.mixtures}
    described = {**context.methods, **{name: fact for name, fact in others.items() if fact}}
    known = {**described, **comparison.runs}
    names = [name for name in dict.fromkeys([*comparison.rows, *comparison.runs]) if name in known]
    if not names:
        return ""
    scored = list(comparison.rows)
    rows = ""
    for name in names:
        swatch = f'<span class="swatch" data-method="{scored.index(name)}"></span>' if name in scored else ""
        rows += f'<tr><th scope="row">{swatch}{escape(name)}</th>{_run_cells(comparison, name)}'
        rows += f"<td>{text(described.get(name, ''))}{_details(comparison, name)}</td></tr>"
    head = "".join(f'<th scope="col">{title}</th>' for title in ("method", "run", "seconds", "what it is"))
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    return f'<div class="scroll methods" tabindex="0" role="region" aria-label="Methods">{table}</div>'


def _run_cells(comparison: Comparison, name: str) -> str:
    run, cost = comparison.runs.get(name), comparison.costs.get(name)
    seconds = run.seconds if run is not None else cost.train_seconds if cost is not None else math.nan
    took = f"{seconds:.1f}" if math.isfinite(seconds) else ""
    status = "<td></td>" if run is None else f'<td class="{CLASSES[run.status]}">{SIGNS[run.status]} {run.status}</td>'
    return f"{status}<td>{took}</td>"


def _details(comparison: Comparison, name: str) -> str:
    run = comparison.runs.get(name)
    if run is None or not run.details:
        return ""
    lines = "".join(f"<li>{text(line)}</li>" for line in run.details)
    return f"<details><summary>details of the run</summary><ul>{lines}</ul></details>"
