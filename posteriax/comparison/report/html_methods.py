"""What was done, as HTML: the methods, how their runs ended, the data, the command, the log."""

import math
from html import escape

from posteriax.comparison.comparison import Comparison
from posteriax.comparison.report.html_advice import CLASSES, SIGNS, text
from posteriax.comparison.report_context import ReportContext


def account(comparison: Comparison, context: ReportContext) -> str:
    """The section on what was done; empty if nothing is known.

    >>> account(Comparison({"test": {}}), ReportContext(done={"Rows": "80 for training"}))
    '<dl><dt>Rows</dt><dd>80 for training</dd></dl>'
    """
    facts = "".join(f"<dt>{escape(title)}</dt><dd>{text(said)}</dd>" for title, said in context.done.items())
    if context.command:
        facts += f"<dt>To make this report again</dt><dd><code>{escape(context.command)}</code></dd>"
    log = f"<details><summary>Log</summary><pre>{escape(context.log)}</pre></details>" if context.log else ""
    return (f"<dl>{facts}</dl>" if facts else "") + method_table(comparison, context) + log


def method_table(comparison: Comparison, context: ReportContext) -> str:
    """Every method, what it is, and how its run ended, with the numbers behind that folded away.

    >>> from posteriax.comparison.run_end import RunEnd
    >>> found = method_table(Comparison({"test": {}}, runs={"swag": RunEnd("failed")}), ReportContext())
    >>> '<td class="failed">✕ failed</td>' in found
    True
    """
    described = {**context.methods, **{name: said for name, said in comparison.baselines.items() if said}}
    known = {**described, **comparison.runs}
    names = [name for name in dict.fromkeys([*comparison.rows, *comparison.runs]) if name in known]
    if not names:
        return ""
    places = list(comparison.rows)
    rows = ""
    for name in names:
        swatch = f'<span class="swatch" data-method="{places.index(name)}"></span>' if name in places else ""
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
