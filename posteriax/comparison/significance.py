"""Which scores are best, and which are not significantly worse: on the same examples, over seeds and examples together.

Means over examples are compared by :mod:`posteriax.comparison.difference_of_means`, sums of absolute gaps
(calibration errors, coverage) by :mod:`posteriax.comparison.difference_of_gaps`. Of several posteriors, the one that is
most clearly worse than the best is set aside as long as

    p < 0.05 / (K (K - 1) / 2)        K: posteriors that are left

so that if all of them are equally good, one is called worse in at most 5 % of test sets, however many there are. Those
left at the end could each be the best. (A model confidence set: Hansen, Lunde and Nason 2011)
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from posteriax.comparison.difference_of_gaps import calibration_gaps, compare_gaps, coverage_gaps
from posteriax.comparison.difference_of_means import NONE, Difference, compare_means
from posteriax.comparison.evaluation import BETTER, DISTANCES, Examples, value_of

LEVEL = 0.05

Runs = Sequence[np.ndarray]  # a score's values for the same examples, by run


def best_and_ties(
    examples: Mapping[str, Examples | Sequence[Examples]], reference: str | None = None
) -> dict[str, tuple[str, ...]]:
    """For each score, the best posterior and after it those that are not significantly worse.

    Args:
        examples: by posterior, every score's values for the same examples in the same order; of several runs, a list.
        reference: takes no part in distances to itself.

    >>> right, wrong = np.ones(50), np.r_[np.zeros(20), np.ones(30)]
    >>> best_and_ties({"a": {"accuracy": right}, "b": {"accuracy": wrong}, "c": {"accuracy": right}})
    {'accuracy': ('a', 'c')}
    """
    runs = {name: [own] if isinstance(own, dict) else list(own) for name, own in examples.items()}
    found = {}
    for column in next(iter(runs.values()))[0]:
        values = {
            name: [run[column] for run in own]
            for name, own in runs.items()
            if not (column in DISTANCES and name == reference)
        }
        if values:
            found[column] = _ranked(column, values)
    return found


def significantly_differ(column: str, one: np.ndarray | Runs, other: np.ndarray | Runs) -> bool:
    """Whether two posteriors' scores differ at the 5 % level, given their values for the same examples, by run."""
    return difference(column, _as_runs(one), _as_runs(other)).p_value < LEVEL


def difference(column: str, one: Runs, other: Runs) -> Difference:
    """By how much a score's loss (lower is better) differs between two posteriors, and how likely by chance alone."""
    if len(one) == len(other) and all(np.array_equal(a, b) for a, b in zip(one, other, strict=True)):
        return NONE
    if column == "ece":
        return compare_gaps([calibration_gaps(run) for run in one], [calibration_gaps(run) for run in other])
    better = BETTER[column]
    if better not in ("higher", "lower"):
        return compare_gaps(*([coverage_gaps(run, float(better)) for run in own] for own in (one, other)))
    sign = -1.0 if better == "higher" else 1.0
    return compare_means(*(sign * np.stack([_linear(column, run) for run in own]) for own in (one, other)))


def _ranked(column: str, values: dict[str, list[np.ndarray]]) -> tuple[str, ...]:
    losses = {name: _loss(column, own) for name, own in values.items()}
    best = min(losses, key=lambda name: losses[name] if math.isfinite(losses[name]) else math.inf)
    others = {name: difference(column, values[name], values[best]) for name in values if name != best}
    # what is worse by its own number but, with chance taken away, better is not called worse
    order = sorted(others, key=lambda name: others[name].p_value if others[name].value > 0 else 1.0)
    left = len(values)
    while order and others[order[0]].value > 0 and others[order[0]].p_value < LEVEL / math.comb(left, 2):
        order.pop(0)
        left -= 1
    return (best, *sorted(order, key=losses.__getitem__))


def _loss(column: str, runs: Runs) -> float:
    better = BETTER[column]
    each = np.array([float(value_of(column, run)) for run in runs])
    if better in ("higher", "lower"):
        return float(-each.mean() if better == "higher" else each.mean())
    return float(np.abs(each - float(better)).mean())


def _linear(column: str, values: np.ndarray) -> np.ndarray:
    """Values for each example whose mean is the score; of a root of a mean, by its tangent."""
    if column != "rmse":
        return values
    root = float(value_of(column, values))
    return root + (values - root**2) / (2 * root) if root else values


def _as_runs(values: np.ndarray | Runs) -> Runs:
    return [values] if isinstance(values, np.ndarray) else values
