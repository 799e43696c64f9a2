"""The rule that turns a claim's numbers into a verdict, the same for every claim.

    interval = mean ± t s / sqrt(n)     s: standard deviation; t: Student's 95 % quantile, n - 1 degrees of freedom

A claim holds if the interval lies within its bounds, and does not hold if it lies outside. In terms of tests,

    p_holds = max(P(T > (mean - above) / e), P(T > (below - mean) / e))        e = s / sqrt(n)
    p_fails = min(P(T < (mean - above) / e), P(T < (below - mean) / e))

must be below 5 %. A claim of several parts, such as networks, holds if all of them do (its p is the largest), and does
not hold if one of them does not (the smallest p times their number). Claims that repeat a comparison are a family,
within which both p are Holm's:

    p_(i) <- max over j <= i of min(1, (m - j + 1) p_(j))                      p_(1) <= ... <= p_(m)
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.stats import t as student

HOLDS, FAILS, UNDECIDED = "holds", "does not hold", "not decidable at this scale"
NOT_RUN = "not run at this scale yet"
WORDS = (FAILS, UNDECIDED, NOT_RUN, HOLDS)  # in the order in which pages list them
CONFIDENCE = 0.95  # that the mean is above the lower end, and that it is below the upper end


@dataclass(frozen=True)
class Estimate:
    """The mean of a quantity over seeds, its standard error, and how many values there are."""

    effect: float
    error: float
    values: int

    @property
    def interval(self) -> tuple[float, float]:
        """That of the mean, 95 % at each end; NaN for fewer than two values."""
        if self.values < 2:
            return math.nan, math.nan
        reach = float(student.ppf(CONFIDENCE, self.values - 1)) * self.error
        return self.effect - reach, self.effect + reach

    @property
    def can_decide(self) -> bool:
        return self.values > 1 and bool(np.isfinite([self.effect, self.error]).all())


@dataclass(frozen=True)
class Evidence:
    """How well the data speak for a claim and against it, before the correction for its family."""

    p_holds: float
    p_fails: float


@dataclass(frozen=True)
class Verdict:
    """What the results say about a claim.

    Args:
        word: "holds", "does not hold", "not decidable at this scale" or "not run at this scale yet".
        effect: mean of the quantity; of several parts, that of the one furthest from holding. NaN if there is none.
        error: its standard error over the values; NaN for fewer than two.
        values: how many.
        rule: the rule that was applied, in words.
        parts: the estimate of every part; one without a name if there is only one.
        objection: why the numbers decide nothing; empty if they may.
        earlier: whether an earlier run decided, because cells of the present one have not run yet.
    """

    word: str
    effect: float
    error: float
    values: int
    rule: str
    parts: Mapping[str, Estimate] = field(default_factory=dict)
    objection: str = ""
    earlier: bool = False


def estimate(values: Sequence[float] | np.ndarray) -> Estimate:
    """Mean and standard error.

    >>> estimate([1.0, 3.0])
    Estimate(effect=2.0, error=1.0, values=2)
    """
    numbers = np.asarray(values, np.float64)
    count = len(numbers)
    effect = float(numbers.mean()) if count else math.nan
    return Estimate(effect, float(numbers.std(ddof=1) / math.sqrt(count)) if count > 1 else math.nan, count)


def evidence(found: Estimate, above: float, below: float) -> Evidence:
    """One-sided p for and against a mean between two bounds; a quantity without an error is certain."""
    if not found.can_decide:
        return Evidence(1.0, 1.0)
    margins = np.array([found.effect - above, below - found.effect])
    if found.error == 0:
        inside = bool((margins > 0).all())
        return Evidence(float(not inside), float(inside))
    ratios = margins / found.error
    return Evidence(
        float(student.sf(ratios, found.values - 1).max()), float(student.cdf(ratios, found.values - 1).min())
    )


def combined_evidence(parts: Iterable[Evidence]) -> Evidence:
    """Of a claim that holds if all parts do, and does not if one does not.

    >>> combined_evidence([Evidence(0.01, 0.99), Evidence(0.2, 0.8)])
    Evidence(p_holds=0.2, p_fails=1.0)
    """
    listed = list(parts)
    if not listed:
        return Evidence(1.0, 1.0)
    return Evidence(max(p.p_holds for p in listed), min(1.0, len(listed) * min(p.p_fails for p in listed)))


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's adjusted p: below 5 % with a probability of at most 5 % if all null hypotheses are true.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    adjusted, largest, count = [0.0] * len(p_values), 0.0, len(p_values)
    for rank, i in enumerate(sorted(range(count), key=lambda i: p_values[i])):
        largest = max(largest, min(1.0, (count - rank) * p_values[i]))
        adjusted[i] = largest
    return adjusted


def word_for(found: Evidence) -> str:
    """The verdict at the 5 % level.

    >>> word_for(Evidence(0.01, 0.99)), word_for(Evidence(0.3, 0.7))
    ('holds', 'not decidable at this scale')
    """
    if found.p_holds < 1 - CONFIDENCE:
        return HOLDS
    return FAILS if found.p_fails < 1 - CONFIDENCE else UNDECIDED


def describe_rule(above: float, below: float) -> str:
    """The bounds in words.

    >>> describe_rule(0.0, math.inf), describe_rule(-0.1, 0.1)
    ('above 0', 'between -0.1 and 0.1')
    """
    if math.isinf(below):
        return f"above {above:g}"
    if math.isinf(above):
        return f"below {below:g}"
    return f"between {above:g} and {below:g}"
