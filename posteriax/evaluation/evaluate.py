"""``px.evaluate``: the scores of one predictive."""

from collections.abc import Sequence

from numpy.typing import ArrayLike

from posteriax._internal.checks import check_targets
from posteriax.evaluation.robustness.conformal import Conformal, interval_values
from posteriax.likelihoods.predictive import Predictive
from posteriax.metrics.registry import choose
from posteriax.metrics.score import Score


def evaluate(
    predictive: Predictive,
    y: ArrayLike,
    *,
    scores: Sequence[str | Score] | None = None,
    conformal: Conformal | None = None,
) -> dict[str, float]:
    """Score predictions against the targets.

    For classes: "accuracy", "nll" (of the mean over draws, nats per example), "ece" (15 bins of equal width), "brier".
    For real numbers: "rmse", "nll", "crps", and "coverage_90", how often the central 90 % interval holds the target.
    Other predictives list theirs in `scores`.

    Args:
        predictive: what ``posterior.predict(x)`` returns.
        y: the targets.
        scores: names and :class:`px.metrics.Score` records, in place of those that apply by default.
        conformal: what :func:`px.evaluation.conformal` made of held-out examples: adds "conformal_coverage", how often
            its intervals or sets hold the target, and "conformal_width" or "conformal_size"; "own_coverage" and
            "own_width" or "own_size" are those of the predictive's own, at the same level.

    >>> import numpy as np, posteriax as px
    >>> predictive = px.likelihoods.ClassPredictive(px.Categorical(), np.zeros((5, 4, 2)))
    >>> {name: round(value, 3) for name, value in px.evaluate(predictive, [0, 1, 0, 0]).items()}
    {'accuracy': 0.75, 'nll': 0.693, 'ece': 0.25, 'brier': 0.5}
    >>> px.evaluate(predictive, [0, 1, 0, 0], scores=["accuracy"])
    {'accuracy': 0.75}
    """
    if hasattr(predictive, "predict"):
        raise TypeError(
            f"evaluate takes predictions, got {type(predictive).__name__}: px.evaluate(posterior.predict(x), y)"
        )
    chosen, y = choose(scores, predictive), check_targets(y)
    for score in chosen:
        if score.against_reference:
            raise ValueError(f"the score {score.name!r} needs a reference: use px.compare(..., reference=...)")
    results = {score.name: score.reduction.value(score.values(predictive, y)) for score in chosen}
    if conformal is not None:
        results |= {name: float(values.mean()) for name, values in interval_values(conformal, predictive, y).items()}
    return results
