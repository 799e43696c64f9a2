"""Evaluate: the scores of one predictive."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from posteriax import metrics
from posteriax.predictive import ClassPredictive, NormalPredictive


class Score(NamedTuple):
    """A value and its standard error over the examples (NaN where it is not a mean over examples)."""

    value: float
    error: float = math.nan


BETTER = {  # which way each score is better
    "accuracy": "higher",
    "nll": "lower",
    "brier": "lower",
    "ece": "lower",
    "rmse": "lower",
    "agreement": "higher",
    "total_variation": "lower",
    "wasserstein": "lower",
}

QUANTILE_LEVELS = (np.arange(32) + 0.5) / 32


def evaluate(predictive: ClassPredictive | NormalPredictive, y: Any) -> dict[str, float]:
    """Scores of predictions against the targets.

    For classes: "accuracy", "nll" (of the log-mixture, nats per example), "ece" (15 bins of equal width), "brier".
    For real numbers: "rmse" and "nll".

    >>> import posteriax as px
    >>> predictive = px.ClassPredictive(px.Categorical(), np.zeros((5, 4, 2)))
    >>> {name: round(value, 3) for name, value in px.evaluate(predictive, [0, 1, 0, 0]).items()}
    {'accuracy': 0.75, 'nll': 0.693, 'ece': 0.25, 'brier': 0.5}
    """
    return {name: score.value for name, score in scores(predictive, y).items()}


def scores(predictive: ClassPredictive | NormalPredictive, y: Any) -> dict[str, Score]:
    """The scores of `evaluate` with their standard errors."""
    targets = predictive.check(y)
    nll = _mean(-predictive.log_prob(y))
    if isinstance(predictive, NormalPredictive):
        squares = np.square(predictive.mean - targets)
        root = math.sqrt(squares.mean())
        spread = _mean(squares.reshape(len(targets), -1).mean(axis=1)).error
        return {"rmse": Score(root, spread / (2 * root) if root else 0.0), "nll": nll}  # the error by the delta method
    probs, labels = metrics.classification.as_classes(predictive.probs, targets)
    each: Callable[[Any], Score] = lambda metric: _mean(_per_example(metric, probs, labels))  # noqa: E731
    return {
        "accuracy": each(metrics.accuracy),
        "nll": nll,
        "ece": Score(float(metrics.ece_equal_width(probs, labels))),
        "brier": each(metrics.brier),
    }


def distances(predictive: Any, reference: Any) -> dict[str, Score]:
    """How far predictions are from a reference posterior's on the same inputs."""
    if isinstance(predictive, NormalPredictive):
        ours, theirs = predictive.quantile(QUANTILE_LEVELS), reference.quantile(QUANTILE_LEVELS)
        return {"wasserstein": _mean(_per_example(metrics.wasserstein, ours.swapaxes(0, 1), theirs.swapaxes(0, 1)))}
    ours, theirs = (p.probs.reshape(-1, p.probs.shape[-1]) for p in (predictive, reference))
    return {
        "agreement": _mean(_per_example(metrics.agreement, ours, theirs)),
        "total_variation": _mean(_per_example(metrics.total_variation, ours, theirs)),
    }


def _per_example(metric: Callable[..., Any], *arrays: Any) -> np.ndarray:
    """A metric that is a mean over examples, for each example by itself."""
    import jax

    return np.asarray(jax.vmap(lambda *rows: metric(*(row[None] for row in rows)))(*arrays))


def _mean(values: np.ndarray) -> Score:
    n = len(values)
    return Score(float(values.mean()), float(values.std(ddof=1) / math.sqrt(n)) if n > 1 else math.nan)
