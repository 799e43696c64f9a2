"""Which scores are best, and which are not significantly worse: paired over the same examples.

    z = mean_i d_i / (sd_i d_i / sqrt(N)),   d_i = score of the one - score of the best, on example i

Two posteriors that are right and wrong on the same examples differ significantly by less than their own errors
suggest. For calibration errors, which are no means over examples, the examples are resampled.
"""

import math

import numpy as np

from posteriax.evaluate import BETTER, Examples, resamplings, value_of

Z = 1.96  # two-sided 95 %
DISTANCES = ("agreement", "total_variation", "wasserstein")


def best_and_ties(examples: dict[str, Examples], reference: str | None = None) -> dict[str, tuple[str, ...]]:
    """For each score, the best posterior and after it those that are not significantly worse.

    Args:
        examples: by posterior, every score's values for the same examples in the same order.
        reference: takes no part in distances to itself.

    >>> right, wrong = np.ones(50), np.r_[np.zeros(20), np.ones(30)]
    >>> best_and_ties({"a": {"accuracy": right}, "b": {"accuracy": wrong}, "c": {"accuracy": right}})
    {'accuracy': ('a', 'c')}
    """
    found = {}
    for column in next(iter(examples.values())):
        values = {
            name: own[column] for name, own in examples.items() if not (column in DISTANCES and name == reference)
        }
        if values:
            found[column] = _ranked(column, values)
    return found


def _ranked(column: str, values: dict[str, np.ndarray]) -> tuple[str, ...]:
    losses = {name: _loss(column, float(value_of(column, own))) for name, own in values.items()}
    best = min(losses, key=lambda name: losses[name] if math.isfinite(losses[name]) else math.inf)
    ties = [name for name in values if name != best and not significantly_differ(column, values[name], values[best])]
    return (best, *sorted(ties, key=losses.__getitem__))


def _loss(column: str, value: float) -> float:
    better = BETTER[column]
    return -value if better == "higher" else value if better == "lower" else abs(value - float(better))


def significantly_differ(column: str, one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two posteriors' scores differ at the 95 % level, given their values for the same examples."""
    if one.shape == other.shape and (one == other).all():
        return False
    if column == "ece":
        weights = resamplings(len(one))
        differences = value_of(column, one, weights) - value_of(column, other, weights)
        low, high = np.quantile(differences, [0.025, 0.975])
        return bool(low > 0 or high < 0)
    differences = one - other
    error = differences.std(ddof=1) / math.sqrt(len(differences)) if len(differences) > 1 else math.inf
    return bool(abs(differences.mean()) > Z * error)
