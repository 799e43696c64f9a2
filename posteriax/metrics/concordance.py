"""Concordance: how often, of two times until an event, the one that was predicted to be shorter is shorter.

    C = (pairs in the right order + half of those predicted equal) / pairs whose order is known

The order of a pair is known if the shorter time is that of an event (Harrell et al. 1982).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from posteriax.metrics.score import Reduction, Score

AT_ONCE = 500  # rows that are compared with all others


@dataclass(frozen=True)
class ShareOfPairs(Reduction):
    """Pairs in the right order over all pairs, from the numbers of both that each example is in, (N, 2).

    >>> ShareOfPairs().value(np.array([[1.0, 2.0], [2.0, 2.0]]))
    0.75
    """

    dimensions = 2

    def value(self, values: np.ndarray) -> float:
        right, known = values.sum(axis=0)
        return float(right / known) if known else float("nan")

    def linearised(self, values: np.ndarray) -> np.ndarray:
        # each pair belongs to two examples: the projection of a U-statistic counts twice
        share = self.value(values)
        return share + 2 * (values[:, 0] - share * values[:, 1]) / max(values[:, 1].mean(), 1e-300)


def concordance(predicted: ArrayLike, times: ArrayLike, observed: ArrayLike) -> float:
    """Harrell's C: 1 if all pairs whose order is known are in the right order, 0.5 by chance.

    Args:
        predicted: larger where the time is expected to be longer, (N,).
        times: until the event or the censoring, (N,).
        observed: whether it was the event, (N,).

    >>> concordance([1.0, 2.0, 3.0], [10.0, 20.0, 5.0], [True, True, False])  # of one pair the order is known
    1.0
    """
    arrays = (np.asarray(a).reshape(-1) for a in (predicted, times, observed))
    return ShareOfPairs().value(pairs_by_example(*arrays))


def pairs_by_example(predicted: np.ndarray, times: np.ndarray, observed: np.ndarray) -> np.ndarray:
    """For each example, the pairs in the right order and all pairs that it is in, (N, 2)."""
    observed, counts = observed.astype(bool), np.zeros((len(times), 2))
    for first in range(0, len(times), AT_ONCE):
        rows = slice(first, first + AT_ONCE)  # the example with the earlier event of a pair
        known = observed[rows, None] & (
            (times[rows, None] < times) | ((times[rows, None] == times) & ~observed)  # censored at once: later
        )
        right = known * (0.5 + 0.5 * np.sign(predicted - predicted[rows, None]))
        counts[rows] += np.stack([right.sum(axis=1), known.sum(axis=1)], axis=1)
        counts += np.stack([right.sum(axis=0), known.sum(axis=0)], axis=1)
    return counts


def _by_example(predictive: object, y: ArrayLike) -> np.ndarray:
    typical, times, observed = predictive.point(), predictive.targets(y), predictive.observed(y)  # type: ignore[attr-defined]
    return pairs_by_example(*(np.asarray(a)[:, 0] for a in (typical, times, observed)))


CONCORDANCE = Score(
    name="concordance",
    meaning="Of two rows whose order is known, how often the one with the shorter predicted median time has the "
    "shorter time. 0.5 is chance.",
    better="higher",
    per_example=_by_example,
    reduction=ShareOfPairs(),
    needs=("observed",),
)
