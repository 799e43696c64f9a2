"""Selective prediction: how the loss falls when only the most confident predictions are kept.

    risk(k / N) = mean loss of the k most confident examples,   AURC = 1/N sum_k risk(k / N)

The order of equally confident examples is arbitrary; the risk is the mean over all their orders.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from numpy.typing import ArrayLike

from posteriax.metrics.arrays import Values, as_numbers, check_same_shape, keeps_precision
from posteriax.metrics.ranking import runs_of_equals


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
