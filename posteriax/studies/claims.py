"""The rule that turns numbers into a verdict, the same for every claim.

    interval = mean ± t s / sqrt(n)     n values, one per seed; t: Student's 95 % quantile, n - 1 degrees of freedom

The claim holds if the interval lies within the claim's bounds, does not hold if it lies outside, and cannot be decided
otherwise, nor from fewer than two values, nor at a scale that is only for trying out.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import t as student

HOLDS, FAILS, UNDECIDED = "holds", "does not hold", "not decidable at this scale"
CONFIDENCE = 0.95  # that the mean is above the lower end, and that it is below the upper end


@dataclass(frozen=True)
class Verdict:
    """What the results say about a claim.

    Args:
        word: "holds", "does not hold" or "not decidable at this scale".
        effect: mean of the quantity; NaN if there is none.
        error: its standard error over the values; NaN for fewer than two.
        values: how many.
        rule: the rule that was applied, in words.
    """

    word: str
    effect: float
    error: float
    values: int
    rule: str


def judge(values: Sequence[float] | np.ndarray, above: float, below: float, decides: bool = True) -> Verdict:
    """The verdict on a quantity that should lie between `above` and `below`.

    >>> judge([0.30, 0.34, 0.32], above=0.1, below=math.inf).word
    'holds'
    >>> judge([0.30, 0.34, -0.32], above=0.1, below=math.inf).word
    'not decidable at this scale'
    """
    found = np.asarray(values, np.float64)
    count = len(found)
    effect = float(found.mean()) if count else math.nan
    error = float(found.std(ddof=1) / math.sqrt(count)) if count > 1 else math.nan
    rule = describe_rule(above, below)
    if not decides or not np.isfinite([effect, error]).all():
        return Verdict(UNDECIDED, effect, error, count, rule)
    reach = float(student.ppf(CONFIDENCE, count - 1)) * error
    low, high = effect - reach, effect + reach
    if above < low and high < below:
        word = HOLDS
    elif high <= above or low >= below:
        word = FAILS
    else:
        word = UNDECIDED
    return Verdict(word, effect, error, count, rule)


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
