"""Wording: a comparison in sentences, for readers who have never seen one."""

import math

from posteriax.comparison.comparison import Comparison, describe_errors, format_estimate
from posteriax.comparison.report.chart_data import distances
from posteriax.metrics import NLL, Estimate, Score

ERROR_MEANINGS = {
    "examples": "how much the score would vary between test sets of this size; it may vary more between training runs",
    "seeds": "how much the score would vary between seeds",
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


def summary(comparison: Comparison) -> list[str]:
    """One or two paragraphs: the best posterior, those not significantly worse, and distances to the reference.

    >>> rows = {"MAP": {"nll": Estimate(0.5, 0.01)}, "HMC": {"nll": Estimate(0.3, 0.01)}}
    >>> summary(Comparison({"test": rows}, best={"test": {"nll": ("HMC",)}}))[0]
    'HMC predicts best: its negative log likelihood (nll) is the lowest, 0.30 ± 0.01. MAP is significantly worse.'
    """
    return [text for text in (_winner(comparison), _fidelity(comparison)) if text]


def warning(comparison: Comparison) -> str:
    """What to know before reading the distances; empty if the reference has converged.

    >>> from posteriax.diagnostics.reference import ReferenceCheck
    >>> warning(Comparison({"test": {"HMC": {}}}, "HMC", reference_check=ReferenceCheck("HMC", 1.62)))
    'HMC has not converged: R-hat 1.62 in function space (limit 1.05). Distances to it say little. They are in grey.'
    """
    check = comparison.reference_check
    return f"{check.note} They are in grey." if check is not None and check.converged is False else ""


def listed(names: list[str]) -> str:
    """Names in a sentence.

    >>> listed(["a"]), listed(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    return names[0] if len(names) == 1 else ", ".join(names[:-1]) + " and " + names[-1]


def _winner(comparison: Comparison) -> str:
    if not comparison.columns:
        return ""
    column = NLL.name if NLL.name in comparison.columns else comparison.columns[0]
    score = comparison.score(column)
    among = comparison.best.get(comparison.main, {}).get(column, ())
    if len(comparison.rows) == 1:
        (name,) = comparison.rows
        return f"{name} was scored alone: {score.quantity} {format_estimate(comparison.rows[name][column])}."
    if not among:
        return f"{len(comparison.rows)} posteriors were compared: {listed(list(comparison.rows))}."
    best, *ties = among
    extreme = {"higher": "the highest", "lower": "the lowest"}.get(str(score.better), "the best")
    text = f"{best} predicts best: its {score.quantity} is {extreme}, {format_estimate(comparison.rows[best][column])}."
    worse = [name for name, row in comparison.rows.items() if name not in among and column in row]
    if ties:
        text += f" {listed(ties)} {_is_or_are(ties)} not significantly worse: the difference could be chance."
    if worse:
        text += f" {listed(worse)} {_is_or_are(worse)} significantly worse."
    return text


def _fidelity(comparison: Comparison) -> str:
    found = distances(comparison)
    names = list(comparison.rows)
    if found is None:
        return ""
    column, lines = found
    ranked = [
        (names[line.method], Estimate(line.points[0][0], line.points[0][1]))
        for line in lines
        if math.isfinite(line.points[0][0])
    ]
    ranked.sort(key=lambda pair: pair[1].value)
    check = comparison.reference_check
    if not ranked or (check is not None and check.converged is False):  # the warning suffices
        return ""
    score = comparison.score(column)
    far = [f"{name} ({_amount(score, estimate)})" for name, estimate in ranked]
    brackets = f"In brackets: the {score.quantity}."
    text = f"{comparison.reference} is the reference: the others are ranked by their distance to its predictions. "
    if check is not None:
        text += f"{check.note} "
    if len(far) == 1:
        return f"{text}The only other is {far[0]}. {brackets}"
    between = f"; between them: {listed(far[1:-1])}" if far[1:-1] else ""
    return f"{text}The closest is {far[0]}, the farthest {far[-1]}{between}. {brackets}"


def _amount(score: Score, estimate: Estimate) -> str:
    return f"{100 * estimate.value:.1f}\u00a0%" if score.percent else format_estimate(estimate)


def _is_or_are(names: list[str]) -> str:
    return "is" if len(names) == 1 else "are"
