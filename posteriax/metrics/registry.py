"""The registry: every score by name. To add one, define it beside its function and list it here."""

from collections.abc import Iterable, Mapping

from posteriax.likelihoods.predictive import Predictive
from posteriax.metrics import calibration, classification, fidelity, intervals, log_score, ranking
from posteriax.metrics.concordance import CONCORDANCE
from posteriax.metrics.regression import CRPS, RMSE
from posteriax.metrics.score import Score

SCORES: Mapping[str, Score] = {
    score.name: score
    for score in (
        classification.ACCURACY,
        log_score.NLL,
        calibration.ECE,
        classification.BRIER,
        RMSE,
        CRPS,
        CONCORDANCE,
        intervals.COVERAGE_90,
        fidelity.AGREEMENT,
        fidelity.TOTAL_VARIATION,
        fidelity.WASSERSTEIN,
        ranking.AUROC,
        ranking.FPR95,
        ranking.AUROC_MAX_PROBABILITY,
        ranking.AUROC_MUTUAL_INFORMATION,
        Score(
            name="attack_success",
            meaning="How often a small change of the input, made on purpose, turned a right label into a wrong one.",
            better="lower",
        ),
        Score(
            name="temperature",
            meaning="What the logits were divided by to fit held-out data: above 1 it was over-confident, below 1 "
            "under-confident.",
            better=1.0,
        ),
    )
}


def describe(column: str) -> Score:
    """The record of a column; for a name that no score has, one that only repeats it.

    >>> describe("accuracy").better, describe("my_column").heading
    ('higher', 'my column')
    """
    return SCORES.get(column) or Score(column)


def choose(scores: Iterable[str | Score] | None, predictive: Predictive | None) -> list[Score]:
    """The scores that were asked for, by name or as records; those that the predictive says apply, if None.

    >>> import posteriax as px
    >>> [score.name for score in choose(["nll", Score("mine")], predictive=None)]
    ['nll', 'mine']
    """
    if isinstance(scores, (str, Score)):
        raise TypeError(f"scores must be a list of names and px.metrics.Score records, got {scores!r}")
    if scores is None:
        scores = getattr(predictive, "scores", ())
        if not scores:
            raise TypeError(
                f"{type(predictive).__name__} does not say which scores apply to it: give its class an attribute "
                f"`scores`, a tuple of names, or pass scores=[...]"
            )
    chosen = [_record(score) for score in scores]
    names = [score.name for score in chosen]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"scores has {name!r} twice")
    return chosen


def _record(score: str | Score) -> Score:
    if isinstance(score, Score):
        return score
    if not isinstance(score, str):
        raise TypeError(f"a score is a name or a px.metrics.Score, got {score!r}")
    if score not in SCORES:
        names = ", ".join(name for name, known in SCORES.items() if known.per_example is not None)
        raise ValueError(f"there is no score {score!r}. There are {names}; for your own, pass a px.metrics.Score")
    return SCORES[score]
