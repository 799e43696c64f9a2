"""Error by decile of the predicted uncertainty: does a posterior know where it is wrong?

Examples are sorted by their uncertainty and divided into ten equal groups, or fewer if there are few examples. In each,
the error that was expected is compared with the error that was made:

    numbers     sqrt(mean sigma_i^2)            against  sqrt(mean (y_i - mu_i)^2)
    classes     mean of 1 - p_i(predicted)      against  the share of wrong predictions

and for numbers, how often the central 90 % interval holds the target.
"""

from dataclasses import dataclass, field

import numpy as np

MOST_GROUPS = 10
FEWEST_EXAMPLES = 10  # in a group
CONSTANT = 0.01  # values whose range is at most this fraction of the largest count as equal


@dataclass(frozen=True, eq=False)
class Deciles:
    """Groups of examples, from the most to the least certain.

    Args:
        expected: by group, the error that the posterior expects.
        observed: by group, the error that it makes.
        covered: by group, how often the 90 % interval holds the target; empty for classes.
        count: by group, the number of examples.
        rank_correlation: Spearman's, of uncertainty and absolute error; NaN if either is the same everywhere.
    """

    expected: np.ndarray = field(default_factory=lambda: np.zeros(0))
    observed: np.ndarray = field(default_factory=lambda: np.zeros(0))
    covered: np.ndarray = field(default_factory=lambda: np.zeros(0))
    count: np.ndarray = field(default_factory=lambda: np.zeros(0, int))
    rank_correlation: float = float("nan")


def number_deciles(spread: np.ndarray, error: np.ndarray, inside: np.ndarray) -> Deciles:
    """The error of predicted numbers, by decile of their uncertainty.

    Args:
        spread: predicted standard deviations, (N,).
        error: predicted less true, (N,).
        inside: whether the 90 % interval holds the target, or the share of several targets that it holds, (N,).

    >>> deciles = number_deciles(np.repeat([1.0, 2.0], 10), np.repeat([-1.0, 4.0], 10), np.ones(20))
    >>> deciles.expected.tolist(), deciles.observed.tolist(), deciles.count.tolist()
    ([1.0, 2.0], [1.0, 4.0], [10, 10])
    """
    groups = _groups(spread)
    root_mean_square = lambda values: np.array([np.sqrt(np.square(values[g]).mean()) for g in groups])  # noqa: E731
    return Deciles(
        root_mean_square(spread),
        root_mean_square(error),
        np.array([inside[g].mean() for g in groups]),
        np.array([len(g) for g in groups]),
        rank_correlation(spread, np.abs(error)),
    )


def class_deciles(confidence: np.ndarray, right: np.ndarray) -> Deciles:
    """The error of predicted classes, by decile of their uncertainty.

    Args:
        confidence: probabilities of the predicted classes, (N,).
        right: whether these are the true ones, (N,).

    >>> deciles = class_deciles(np.repeat([0.9, 0.6], 10), np.repeat([True, False], 10))
    >>> deciles.expected.round(3).tolist(), deciles.observed.tolist()
    ([0.1, 0.4], [0.0, 1.0])
    """
    doubt, wrong = 1.0 - np.asarray(confidence, np.float64), ~np.asarray(right, bool)
    groups = _groups(doubt)
    return Deciles(
        np.array([doubt[g].mean() for g in groups]),
        np.array([wrong[g].mean() for g in groups]),
        count=np.array([len(g) for g in groups]),
        rank_correlation=rank_correlation(doubt, wrong.astype(float)),
    )


def rank_correlation(a: np.ndarray, b: np.ndarray) -> float:
    """Spearman's rank correlation; NaN if there is nothing to rank.

    >>> rank_correlation(np.array([1.0, 2.0, 3.0]), np.array([1.0, 4.0, 9.0]))
    1.0
    """
    if len(a) < 3 or is_constant(a) or is_constant(b):
        return float("nan")
    from scipy.stats import rankdata  # slow to import

    return float(np.clip(np.corrcoef(rankdata(a), rankdata(b))[0, 1], -1.0, 1.0))


def _groups(uncertainty: np.ndarray) -> list[np.ndarray]:
    """The examples of each group; a single one if all are equally certain."""
    finite = np.flatnonzero(np.isfinite(uncertainty))
    if not len(finite):
        return []
    number = 1 if is_constant(uncertainty[finite]) else int(np.clip(len(finite) // FEWEST_EXAMPLES, 1, MOST_GROUPS))
    return np.array_split(finite[np.argsort(uncertainty[finite], kind="stable")], number)


def is_constant(values: np.ndarray) -> bool:
    """Whether all values are practically the same.

    >>> is_constant(np.array([2.0, 2.001])), is_constant(np.array([2.0, 3.0]))
    (True, False)
    """
    low, high = float(np.min(values)), float(np.max(values))
    return not high - low > CONSTANT * max(abs(low), abs(high))
