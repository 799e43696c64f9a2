"""Ranking: what the order of the examples by a number, such as the confidence, is worth.

Detection: how well a number separates the examples to be found (y = 1) from the others (y = 0): out-of-distribution
inputs by entropy, errors by confidence, one class against the rest by its probability. These functions take ``score``
(N,) and ``y`` (N,), or (S, N) scores for one value per row; equal scores share a threshold.

Selective prediction: how the loss falls when only the most confident predictions are kept. The order of equally
confident examples is arbitrary; the risk is the mean over all their orders.

    risk(k / N) = mean loss of the k most confident examples,   AURC = 1/N sum_k risk(k / N)

Only the order counts, so any increasing function of a number gives the same result.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from numpy.typing import ArrayLike

from posteriax.metrics.arrays import Values, as_binary, as_numbers, check_same_shape, keeps_precision
from posteriax.metrics.score import Score


@keeps_precision
def auroc(score: ArrayLike, y: ArrayLike) -> Values:
    """Area under the ROC curve: the chance that a 1 scores above a 0, where equal scores count half.

        P(score_1 > score_0) + P(score_1 = score_0) / 2

    Best is 1; an uninformative score has 0.5.

    Args:
        score: (N,), higher where y is more likely 1; or (S, N). May be infinite.
        y: 0 or 1, (N,), some of both.

    >>> auroc([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1]).item()
    0.75
    """
    return _by_rows(_auroc, score, as_binary(y, both=True))


@keeps_precision
def average_precision(score: ArrayLike, y: ArrayLike) -> Values:
    """Area under the precision-recall curve (AUC-PR) as average precision, a sum of steps as in scikit-learn.

        sum_n (R_n - R_(n-1)) P_n        over thresholds n: recall R_n, precision P_n

    Best is 1; an uninformative score has about the fraction of ones. Trapezoids instead of steps would interpolate
    precisions that no threshold attains.

    Args:
        score: (N,), higher where y is more likely 1; or (S, N). May be infinite.
        y: 0 or 1, (N,), at least one of them 1.

    >>> average_precision([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1]).round(3).item()
    0.833...
    """
    return _by_rows(_average_precision, score, as_binary(y, both=False))


@keeps_precision
def fpr_at_tpr(score: ArrayLike, y: ArrayLike, tpr: float = 0.95) -> Values:
    """False positive rate at the highest threshold with a true positive rate of at least `tpr` (FPR95).

    Best is 0. It is not symmetric: the literature on out-of-distribution detection labels in-distribution inputs 1,
    with the confidence as the score.

    Args:
        score: (N,), higher where y is more likely 1; or (S, N). May be infinite.
        y: 0 or 1, (N,), some of both.
        tpr: the true positive rate, above 0 and up to 1.

    >>> fpr_at_tpr([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1]).item()
    0.5
    """
    if not 0.0 < tpr <= 1.0:
        raise ValueError(f"tpr must be above 0 and at most 1, got {tpr}")
    return _by_rows(partial(_fpr_at_tpr, tpr=float(tpr)), score, as_binary(y, both=True))


# px.compare measures these columns on two sets of inputs, with the posterior's uncertainty as the score
AUROC = Score(
    name="auroc",
    meaning="How well the uncertainty separates out-of-distribution inputs from the test set: the chance that an "
    "out-of-distribution input is the more uncertain. 0.5 is guessing, 1 is perfect.",
    better="higher",
)
AUROC_MAX_PROBABILITY = Score(
    name="auroc_max_probability",
    meaning="The same as auroc, with the probability of the most probable label as the uncertainty.",
    better="higher",
)
AUROC_MUTUAL_INFORMATION = Score(
    name="auroc_mutual_information",
    meaning="The same as auroc, with the disagreement between draws as the uncertainty.",
    better="higher",
)
FPR95 = Score(
    name="fpr95",
    meaning="The share of inputs from elsewhere that would be let in if 95 % of the test set's were.",
    better="lower",
)


class Thresholds(NamedTuple):
    """Counts with every example's score as the threshold, examples by descending score, (N,)."""

    y: jax.Array
    ones: jax.Array  # ones that score at least as much
    zeros: jax.Array  # zeros that score at least as much
    zeros_above: jax.Array  # zeros that score more


def runs_of_equals(ordered: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The first and last index of the run of equal values around each entry of an ordered array."""
    position = jnp.arange(ordered.size)
    changes = ordered[1:] != ordered[:-1]
    edge = jnp.ones(1, bool)
    first = jax.lax.cummax(jnp.where(jnp.concatenate([edge, changes]), position, 0))
    last = jax.lax.cummin(jnp.where(jnp.concatenate([changes, edge]), position, ordered.size - 1), reverse=True)
    return first, last


def _thresholds(score: jax.Array, y: jax.Array) -> Thresholds:
    order = jnp.argsort(-score)
    first, last = runs_of_equals(score[order])
    y = y[order]
    ones, zeros = jnp.cumsum(y, dtype=jnp.int32), jnp.cumsum(~y, dtype=jnp.int32)
    return Thresholds(y, ones[last], zeros[last], (zeros - ~y)[first])


@jax.jit
def _auroc(score: jax.Array, y: jax.Array) -> jax.Array:
    at = _thresholds(score, y)
    total = 2 * at.zeros[-1]
    beaten = jnp.where(at.y, total - at.zeros - at.zeros_above, 0)  # twice the zeros below each one
    # converted to floats before summing: the number of pairs does not fit in an int32
    return jnp.minimum(beaten.astype(score.dtype).sum() / (total.astype(score.dtype) * at.ones[-1]), 1.0)


@jax.jit
def _average_precision(score: jax.Array, y: jax.Array) -> jax.Array:
    at = _thresholds(score, y)
    return jnp.where(at.y, at.ones / (at.ones + at.zeros), 0.0).sum() / at.ones[-1]


@partial(jax.jit, static_argnames="tpr")
def _fpr_at_tpr(score: jax.Array, y: jax.Array, tpr: float) -> jax.Array:
    at = _thresholds(score, y)
    reached = at.ones >= (tpr - 1e-6) * at.ones[-1]  # 19 of 20 are 95 %, however the product is rounded
    return at.zeros[reached.argmax()] / at.zeros[-1]


def _by_rows(metric: Callable[[jax.Array, jax.Array], jax.Array], score: ArrayLike, y: jax.Array) -> jax.Array:
    score = as_numbers("score", score, infinite=True)
    if y.ndim != 1 or score.ndim not in (1, 2) or score.shape[-1] != y.size:
        raise ValueError(f"y must have the shape (N,) and score (N,) or (S, N), got {y.shape} and {score.shape}")
    return metric(score, y) if score.ndim == 1 else jax.vmap(metric, in_axes=(0, None))(score, y)


class RiskCoverage(NamedTuple):
    """The curve of :func:`risk_coverage`.

    Args:
        coverage: the fraction of examples kept, 1/N to 1, (N,).
        risk: their mean loss, (N,).

    >>> RiskCoverage(coverage=jnp.array([0.5, 1.0]), risk=jnp.array([0.0, 0.5])).risk.tolist()
    [0.0, 0.5]
    """

    coverage: Values
    risk: Values


@keeps_precision
def risk_coverage(confidence: ArrayLike, loss: ArrayLike) -> RiskCoverage:
    """The mean loss of the most confident examples, for every fraction kept.

    Args:
        confidence: (N,), such as ``probs.max(axis=-1)`` or minus the entropy. May be infinite.
        loss: (N,), such as ``probs.argmax(axis=-1) != y`` for the error rate, or squared errors.

    >>> risk_coverage(confidence=[0.9, 0.6, 0.8], loss=[0, 1, 0]).risk.tolist()
    [0.0, 0.0, 0.333...]
    """
    return _curve(*_checked(confidence, loss))


@keeps_precision
def aurc(confidence: ArrayLike, loss: ArrayLike) -> Values:
    """Area under the risk-coverage curve: the mean risk over all fractions kept. Lower is better.

    An uninformative confidence has the mean loss; the best possible order puts the largest losses last.

    Args:
        confidence: (N,), such as ``probs.max(axis=-1)`` or minus the entropy. May be infinite.
        loss: (N,), such as ``probs.argmax(axis=-1) != y`` for the error rate, or squared errors.

    >>> aurc(confidence=[0.9, 0.6, 0.8], loss=[0, 1, 0]).round(3).item()
    0.111...
    """
    return _curve(*_checked(confidence, loss)).risk.mean()


@jax.jit
def _curve(confidence: jax.Array, loss: jax.Array) -> RiskCoverage:
    order = jnp.argsort(-confidence)
    first, last = runs_of_equals(confidence[order])
    position = jnp.arange(loss.size)
    sums = jnp.concatenate([jnp.zeros(1, loss.dtype), jnp.cumsum(loss[order])])
    before, after = sums[first], sums[last + 1]
    # equally confident examples get their mean loss: the mean over their orders
    kept = before + (after - before) * ((position - first + 1) / (last - first + 1))
    return RiskCoverage((position + 1) / loss.size, kept / (position + 1))


def _checked(confidence: ArrayLike, loss: ArrayLike) -> tuple[jax.Array, jax.Array]:
    confidence, loss = as_numbers("confidence", confidence, infinite=True), as_numbers("loss", loss)
    check_same_shape(confidence=confidence, loss=loss)
    return confidence.reshape(-1), loss.reshape(-1)
