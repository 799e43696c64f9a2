"""Which scores are best, and which are not significantly worse: on the same examples, over seeds and examples together.

Means over examples are compared by :mod:`posteriax.comparison.difference_of_means`, sums of absolute gaps (calibration
errors, distances from a target such as coverage) by :mod:`posteriax.comparison.difference_of_gaps`. Among several
posteriors, the one that is most clearly worse than the best is eliminated as long as

    p < 0.05 / (K (K - 1) / 2)        K: posteriors that are left

so that if all are equally good, one or more are called worse in at most 5 % of test sets, however many there are. Each
of those left at the end could be the best. (A model confidence set: Hansen, Lunde and Nason 2011)
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from posteriax.comparison.difference_of_gaps import compare_gaps
from posteriax.comparison.difference_of_means import NONE, Difference, compare_means
from posteriax.metrics import SCORES, Score, describe

LEVEL = 0.05

Values = dict[str, np.ndarray]  # by score, its per-example values
Runs = Sequence[np.ndarray]  # by run, a score's values for the same examples


def best_and_ties(
    values: Mapping[str, Values | Sequence[Values]],
    reference: str | None = None,
    scores: Mapping[str, Score] = SCORES,
) -> dict[str, tuple[str, ...]]:
    """For each score, the best posterior and then those that are not significantly worse.

    Args:
        values: by posterior, each score's values for the same examples in the same order; for several runs, a list.
        reference: excluded from distances to itself.
        scores: the records of the scores, by name.

    >>> right, wrong = np.ones(50), np.r_[np.zeros(20), np.ones(30)]
    >>> best_and_ties({"a": {"accuracy": right}, "b": {"accuracy": wrong}, "c": {"accuracy": right}})
    {'accuracy': ('a', 'c')}
    """
    runs = {name: [own] if isinstance(own, dict) else list(own) for name, own in values.items()}
    found = {}
    for column in dict.fromkeys(column for group in runs.values() for column in group[0]):
        score = scores.get(column, describe(column))
        compared = {
            name: [run[column] for run in group]
            for name, group in runs.items()
            if column in group[0] and not (score.against_reference and name == reference)
        }
        if compared and score.better is not None:
            found[column] = _ranked(score, compared)
    return found


def significantly_differ(score: str | Score, one: np.ndarray | Runs, other: np.ndarray | Runs) -> bool:
    """Whether two posteriors' scores differ at the 5 % level, given their values for the same examples, by run."""
    record = describe(score) if isinstance(score, str) else score
    return difference(record, _as_runs(one), _as_runs(other)).p_value < LEVEL


def difference(score: Score, one: Runs, other: Runs) -> Difference:
    """By how much a score's loss (lower is better) differs between two posteriors, and how likely by chance alone."""
    if len(one) == len(other) and all(np.array_equal(a, b) for a, b in zip(one, other, strict=True)):
        return NONE
    gaps = [[gap for run in group if (gap := score.gaps(run)) is not None] for group in (one, other)]
    if all(gaps):
        return compare_gaps(*gaps)
    sign = -1.0 if score.better == "higher" else 1.0
    return compare_means(
        *(sign * np.stack([score.reduction.linearised(run) for run in group]) for group in (one, other))
    )


def _ranked(score: Score, values: dict[str, list[np.ndarray]]) -> tuple[str, ...]:
    losses = {name: _loss(score, runs) for name, runs in values.items()}
    best = min(losses, key=lambda name: losses[name] if math.isfinite(losses[name]) else math.inf)
    others = {name: difference(score, values[name], values[best]) for name in values if name != best}
    # a posterior whose score is worse, but better once chance is subtracted, is not called worse
    order = sorted(others, key=lambda name: others[name].p_value if others[name].value > 0 else 1.0)
    left = len(values)
    while order and others[order[0]].value > 0 and others[order[0]].p_value < LEVEL / math.comb(left, 2):
        order.pop(0)
        left -= 1
    return (best, *sorted(order, key=losses.__getitem__))


def _loss(score: Score, runs: Runs) -> float:
    return float(np.mean([score.loss(score.reduction.value(run)) for run in runs]))


def _as_runs(values: np.ndarray | Runs) -> Runs:
    return [values] if isinstance(values, np.ndarray) else values
