"""Wording: what a comparison says, in sentences for someone who has never seen one, and what its columns mean."""

import math

from posteriax.comparison.comparison import Comparison, format_score, title_of, what_errors_hold
from posteriax.comparison.evaluation import BETTER, Score
from posteriax.comparison.report.chart_data import distances

MEANINGS = {
    "accuracy": "How often the most probable label is the right one.",
    "nll": "Negative log likelihood: minus the logarithm of the probability given to what really happened, per example "
    "(nats). Being sure and wrong costs most.",
    "brier": "Squared distance between the predicted probabilities and the truth (1 for the right label, else 0).",
    "ece": "Expected calibration error: how far the confidence is from the fraction that is right, on average.",
    "rmse": "Root mean squared error of the predicted mean, in the unit of the target.",
    "crps": "Continuous ranked probability score: how far the predicted distribution is from what happened, in the "
    "unit of the target. For a prediction without spread it is the absolute error.",
    "coverage_90": "How often the central 90 % interval holds the target: 0.9 if the uncertainty is honest.",
    "agreement": "How often the most probable label is the same as the reference's.",
    "total_variation": "How far the predicted probabilities are from the reference's: the share of probability that "
    "would have to move to other labels.",
    "wasserstein": "How far the predicted distribution is from the reference's: the mean distance that probability "
    "would have to move, in the unit of the target.",
    "auroc": "How well the uncertainty tells inputs from elsewhere from the test set's: the chance that one from "
    "elsewhere is the more uncertain. 0.5 is guessing, 1 is perfect.",
    "auroc_max_probability": "The same as auroc, with the probability of the most probable label as the uncertainty.",
    "auroc_mutual_information": "The same as auroc, with the disagreement between draws as the uncertainty.",
    "fpr95": "The share of inputs from elsewhere that would be let in if 95 % of the test set's were.",
    "attack_success": "How often a small change of the input, made on purpose, turned a right label into a wrong one.",
    "temperature": "What the logits were divided by to fit held-out data: above 1 it was over-confident, below 1 "
    "under-confident.",
}
COST_MEANINGS = {
    "parameters": "How many numbers the posterior is made of.",
    "train s": "Seconds of training or sampling.",
    "predict ms / 1,000": "Milliseconds to predict 1,000 examples.",
}
SPREADS = {
    "examples": "what another test set of this size would change; another training run may differ by more",
    "seeds": "what other seeds would change",
}


def marks(comparison: Comparison) -> str:
    """What ± and the signs in the tables mean.

    >>> marks(Comparison({"test": {"MAP": {"nll": Score(0.5, 0.01, "examples")}}}))[:63]
    '± is the standard error over test examples, one run each: what '
    """
    text = f"± is the {what_errors_hold(comparison.rows, comparison.seeds)}"
    held = {score.over for row in comparison.rows.values() for score in row.values() if math.isfinite(score.error)}
    meanings = [meaning for over, meaning in SPREADS.items() if held == {over}]
    text += f": {meanings[0]}." if meanings else "."
    if comparison.best:
        over = "the same examples" + (", over seeds too" if max(comparison.seeds.values(), default=1) > 1 else "")
        text += (
            " Bold with ★: the best. ≈: not significantly worse than the best; the difference could be chance (at the "
            f"5 % level for all posteriors of a column together, compared on {over})."
        )
    check = comparison.reference_check
    return f"{text} ?: {check.distance_words}." if check is not None and check.converged is False else text


def column_title(column: str) -> str:
    """A column's title with an arrow to the better side; for unknown columns, their name.

    >>> column_title("nll"), column_title("my_score")
    ('nll ↓', 'my score')
    """
    return title_of(column) if column in BETTER else column.replace("_", " ")


def column_meaning(column: str) -> str:
    """What a column says, and which way is better; nothing for unknown columns.

    >>> column_meaning("accuracy")
    'How often the most probable label is the right one. Higher is better.'
    """
    sides = {"higher": "Higher is better.", "lower": "Lower is better."}
    better = BETTER.get(column, "")
    side = sides.get(better, f"Closer to {better} is better." if better else "")
    return f"{MEANINGS.get(column, '')} {side}".strip()


def summary(comparison: Comparison) -> list[str]:
    """One or two paragraphs: which posterior is best, which are as good, and how far each is from the reference.

    >>> rows = {"MAP": {"nll": Score(0.5, 0.01)}, "HMC": {"nll": Score(0.3, 0.01)}}
    >>> summary(Comparison({"test": rows}, best={"test": {"nll": ("HMC",)}}))[0]
    'HMC predicts best: its negative log likelihood (nll) is the lowest, 0.30 ± 0.01. MAP is significantly worse.'
    """
    return [text for text in (_winner(comparison), _fidelity(comparison)) if text]


def warning(comparison: Comparison) -> str:
    """What must be known before the distances are looked at; nothing if all is well.

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
    column = "nll" if "nll" in comparison.columns else comparison.columns[0]
    called = "negative log likelihood (nll)" if column == "nll" else column_title(column)
    among = comparison.best.get(comparison.main, {}).get(column, ())
    if len(comparison.rows) == 1:
        (name,) = comparison.rows
        return f"{name} was scored alone: {called} {format_score(comparison.rows[name][column])}."
    if not among:
        return f"{len(comparison.rows)} posteriors were compared: {listed(list(comparison.rows))}."
    best, *ties = among
    extreme = {"higher": "the highest", "lower": "the lowest"}.get(BETTER.get(column, ""), "the best")
    text = f"{best} predicts best: its {called} is {extreme}, {format_score(comparison.rows[best][column])}."
    worse = [name for name in comparison.rows if name not in among]
    if ties:
        text += f" {listed(ties)} {_is(ties)} not significantly worse: the difference could be chance."
    if worse:
        text += f" {listed(worse)} {_is(worse)} significantly worse."
    return text


def _fidelity(comparison: Comparison) -> str:
    found = distances(comparison)
    names = list(comparison.rows)
    if found is None:
        return ""
    column, lines = found
    ranked = [
        (names[line.method], Score(line.points[0][0], line.points[0][1]))
        for line in lines
        if math.isfinite(line.points[0][0])
    ]
    ranked.sort(key=lambda pair: pair[1].value)
    check = comparison.reference_check
    if not ranked or (check is not None and check.converged is False):  # the warning says what there is to say
        return ""
    far = [f"{name} ({_amount(column, score)})" for name, score in ranked]
    share = "the share of the probability that would have to move to other labels"
    brackets = (
        f"In brackets: {share if column == 'total_variation' else 'the mean distance, in the unit of the target'}."
    )
    text = (
        f"{comparison.reference} is the reference: the others are measured by how far their predictions are from its. "
    )
    if check is not None:
        text += f"{check.note} "
    if len(far) == 1:
        return f"{text}{far[0]} is the only other. {brackets}"
    between = f"; between them: {listed(far[1:-1])}" if far[1:-1] else ""
    return f"{text}The closest is {far[0]}, the farthest {far[-1]}{between}. {brackets}"


def _amount(column: str, score: Score) -> str:
    return f"{100 * score.value:.1f}\u00a0%" if column == "total_variation" else format_score(score)


def _is(names: list[str]) -> str:
    return "is" if len(names) == 1 else "are"
