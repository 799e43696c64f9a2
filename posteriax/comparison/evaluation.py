"""Evaluate: the scores of one predictive."""

import math
from typing import Any, Literal, NamedTuple

import numpy as np

from posteriax.metrics import bin_of
from posteriax.posterior import ClassPredictive
from posteriax.posterior import NumberPredictive as NormalPredictive


class Score(NamedTuple):
    """A value, its standard error (NaN where there is none), and what the error is over.

    Args:
        value: the score.
        error: the standard error.
        over: "examples" of the test set, for a single run; "seeds", for the mean of several; or "kinds" of corruption.

    >>> Score(0.9, 0.01, "seeds").error
    0.01
    """

    value: float
    error: float = math.nan
    over: Literal["", "examples", "seeds", "kinds"] = ""


BETTER = {  # which way each score is better; coverage should be what it says
    "accuracy": "higher",
    "nll": "lower",
    "brier": "lower",
    "ece": "lower",
    "rmse": "lower",
    "crps": "lower",
    "coverage_90": "0.9",
    "agreement": "higher",
    "total_variation": "lower",
    "wasserstein": "lower",
    "auroc": "higher",
    "auroc_max_probability": "higher",
    "auroc_mutual_information": "higher",
    "fpr95": "lower",
    "attack_success": "lower",
    "temperature": "1.0",
}

DISTANCES = ("agreement", "total_variation", "wasserstein")  # to a reference
QUANTILE_LEVELS = (np.arange(32) + 0.5) / 32
BOOTSTRAPS = 200  # resamplings of the examples, for errors of scores that are no means over examples

Examples = dict[str, np.ndarray]  # by score, the values whose mean (or for rmse, root mean) is the score


def evaluate(predictive: ClassPredictive | NormalPredictive, y: Any) -> dict[str, float]:
    """Scores of predictions against the targets.

    For classes: "accuracy", "nll" (of the log-mixture, nats per example), "ece" (15 bins of equal width), "brier".
    For real numbers: "rmse", "nll", "crps", and "coverage_90", how often the central 90 % interval holds the target.

    >>> import posteriax as px
    >>> predictive = px.ClassPredictive(px.Categorical(), np.zeros((5, 4, 2)))
    >>> {name: round(value, 3) for name, value in px.evaluate(predictive, [0, 1, 0, 0]).items()}
    {'accuracy': 0.75, 'nll': 0.693, 'ece': 0.25, 'brier': 0.5}
    """
    return {name: score.value for name, score in scores(predictive, y).items()}


def scores(predictive: ClassPredictive | NormalPredictive, y: Any) -> dict[str, Score]:
    """The scores of `evaluate` with their standard errors over the examples."""
    return summarise(example_scores(predictive, y))


def example_scores(predictive: ClassPredictive | NormalPredictive, y: Any) -> Examples:
    """Every score's value for each example; for "ece", confidence and correctness as columns of pairs."""
    nll = -np.asarray(predictive.log_prob(y), np.float64)
    if isinstance(predictive, NormalPredictive):
        numbers = predictive.targets(y)
        return {"rmse": _squares(predictive, numbers), "nll": nll, **_quantile_scores(predictive, numbers)}
    targets = predictive.check(y)
    probs = predictive.probs.reshape(-1, predictive.probs.shape[-1]).astype(np.float64)
    labels = np.asarray(targets).reshape(-1)
    right = probs.argmax(axis=1) == labels
    one_hot = np.eye(probs.shape[1])[labels]
    return {
        "accuracy": right.astype(np.float64),
        "nll": nll,
        "ece": np.stack([probs.max(axis=1), right], axis=1),
        "brier": np.square(probs - one_hot).sum(axis=1),
    }


def example_distances(predictive: Any, reference: Any) -> Examples:
    """How far predictions are from a reference posterior's on the same inputs, for each example."""
    if isinstance(predictive, NormalPredictive):
        distance = predictive.distance(reference).astype(np.float64)
        return {"wasserstein": distance.reshape(len(distance), -1).mean(axis=1)}
    ours, theirs = (p.probs.reshape(-1, p.probs.shape[-1]).astype(np.float64) for p in (predictive, reference))
    return {
        "agreement": (ours.argmax(axis=1) == theirs.argmax(axis=1)).astype(np.float64),
        "total_variation": 0.5 * np.abs(ours - theirs).sum(axis=1),
    }


def summarise(examples: Examples) -> dict[str, Score]:
    """Scores and their standard errors from their values for each example."""
    return {name: _score(name, values) for name, values in examples.items()}


def value_of(name: str, values: np.ndarray, weights: np.ndarray | None = None) -> Any:
    """A score from its values for each example; with (B, N) weights, of each of B resamplings of the examples."""
    if name == "ece":
        return calibration_error(values, weights)
    mean = values.mean() if weights is None else weights @ values / weights.sum(axis=1)
    return np.sqrt(mean) if name == "rmse" else mean


def calibration_error(pairs: np.ndarray, weights: np.ndarray | None = None, bins: int = 15) -> Any:
    """:func:`px.metrics.ece_equal_width` of (confidence, correctness) pairs, possibly of resampled examples."""
    confidence, right = pairs[:, 0], pairs[:, 1]
    index = np.asarray(bin_of(confidence.astype(np.float32), bins))
    gaps = np.zeros((len(pairs), bins))
    gaps[np.arange(len(pairs)), index] = right - confidence
    if weights is None:
        return float(np.abs(gaps.sum(axis=0)).sum() / len(pairs))
    return np.abs(weights @ gaps).sum(axis=1) / weights.sum(axis=1)


def resamplings(n: int, seed: int = 0) -> np.ndarray:
    """How often each of n examples is in each of the bootstrap's samples, (B, n)."""
    return np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), size=BOOTSTRAPS).astype(np.float64)


def _score(name: str, values: np.ndarray) -> Score:
    value, n = float(value_of(name, values)), len(values)
    if n < 2:
        return Score(value)
    if name == "ece":
        return Score(value, float(value_of(name, values, resamplings(n)).std(ddof=1)), "examples")
    spread = float(values.std(ddof=1) / math.sqrt(n))
    if name == "rmse":  # by the delta method
        return Score(value, spread / (2 * value) if value else 0.0, "examples")
    return Score(value, spread, "examples")


def _squares(predictive: NormalPredictive, targets: np.ndarray) -> np.ndarray:
    squares = np.square(predictive.mean.astype(np.float64) - targets)
    return squares.reshape(len(squares), -1).mean(axis=1)


def _quantile_scores(predictive: NormalPredictive, targets: np.ndarray) -> Examples:
    """CRPS as twice the mean pinball loss of 32 quantiles, and the coverage of the central 90 %."""
    quantiles = predictive.quantile(QUANTILE_LEVELS).astype(np.float64)
    y = targets
    levels = QUANTILE_LEVELS.reshape(-1, *[1] * y.ndim)
    pinball = np.where(y >= quantiles, levels * (y - quantiles), (1 - levels) * (quantiles - y))
    low, high = predictive.quantile(np.array([0.05, 0.95]))
    inside = (low <= y) & (y <= high)
    flat = lambda a: np.asarray(a, np.float64).reshape(len(y), -1).mean(axis=1)  # noqa: E731
    return {"crps": flat(2 * pinball.mean(axis=0)), "coverage_90": flat(inside)}
