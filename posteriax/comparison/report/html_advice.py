"""The head of a report as HTML: what to use, how sure that is, and how the runs ended."""

import re
from html import escape

from posteriax.comparison.comparison import Comparison
from posteriax.comparison.recommendation import Recommendation
from posteriax.comparison.report.wording import fidelity, warning
from posteriax.comparison.report_context import ReportContext

SIGNS = {"converged": "✓", "stopped at the budget": "◷", "not converged": "✕", "failed": "✕"}
CLASSES = {"converged": "done", "stopped at the budget": "stopped", "not converged": "stopped", "failed": "failed"}


def advice(comparison: Comparison, context: ReportContext) -> str:
    """A warning if the reference failed, the recommendation, and how the runs ended.

    >>> from posteriax.metrics import Estimate
    >>> print(advice(Comparison({"test": {"MAP": {"nll": Estimate(0.5, 0.01)}}}), ReportContext()))
    <p class="lead">MAP was scored alone: its negative log likelihood (nll) is 0.50 ± 0.01.</p>
    """
    box, found = _warning(comparison), comparison.recommendation
    if found is None:
        return box + run_ends(comparison)
    lead, _, rest = found.headline.partition(": ")
    first = f"<strong>{text(lead)}</strong>: {text(rest)}" if lead.startswith("Use ") else text(found.headline)
    return (
        box
        + f'<p class="lead">{" ".join([first, *map(text, found.reasons)])}</p>'
        + _answers(comparison, found, context)
        + run_ends(comparison)
    )


def _warning(comparison: Comparison) -> str:
    """That the reference has not converged, and folded away why and what it would take."""
    said, check = warning(comparison), comparison.reference_check
    if not said or check is None:
        return ""
    run = comparison.runs.get(check.name)
    lines = "".join(f"<li>{text(line)}</li>" for line in run.details) if run is not None else ""
    more = f"<details><summary>Why, and what it would take</summary><ul>{lines}</ul></details>" if lines else ""
    return f'<div class="warning" role="alert"><p>{text(said)}</p>{more}</div>'


def _answers(comparison: Comparison, found: Recommendation, context: ReportContext) -> str:
    command = context.predict_with(found.posterior)
    how = f" (with {text(found.posterior)})" if command and found.posterior not in (None, found.name) else ""
    answers = {
        "Can its uncertainty be trusted?": text(" ".join(found.trust)),
        "Is a network worth it?": text(found.network),
        "Beware": text(" ".join(found.cautions)),
        "What would change the answer?": text(" ".join(found.changes)) if len(comparison.rows) > 1 else "",
        "How close are the approximations?": text(fidelity(comparison)),
        f"To predict new rows{how}": f"<code>{escape(command)}</code>" if command else "",
    }
    rows = "".join(f"<dt>{title}</dt><dd>{said}</dd>" for title, said in answers.items() if said)
    return f'<dl class="answers">{rows}</dl>' if rows else ""


def run_ends(comparison: Comparison) -> str:
    """How every run ended, as a line of marks; empty if nothing is known.

    >>> from posteriax.comparison.run_end import RunEnd
    >>> "✕ <b>swag</b> failed" in run_ends(Comparison({"test": {}}, runs={"swag": RunEnd("failed")}))
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
