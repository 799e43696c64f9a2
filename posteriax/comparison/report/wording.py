"""Wording: a comparison in sentences, for readers who have never seen one."""

import math

from posteriax.comparison.comparison import Comparison
from posteriax.comparison.estimates import describe_errors, format_estimate
from posteriax.comparison.recommendation_words import listed
from posteriax.comparison.report.chart_data import distances
from posteriax.metrics import Estimate, Score

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
    found = distances(comparison)
    names = list(comparison.rows)
    if found is None:
        return ""
    column, lines = found
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
