"""Estimate: a score's value with its standard error, and how it is written."""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

HUGE = 1e12  # from which a value is written with an exponent
ROUNDING = 1e-12  # of a value: smaller errors are those of double precision


class Estimate(NamedTuple):
    """A score's value, its standard error (NaN if there is none), and what the error is over.

    Args:
        value: the score.
        error: the standard error.
        over: "examples" of the test set, for a single run; "seeds", for the mean of several; or "kinds" of corruption.

    >>> Estimate(0.9, 0.01, "seeds").error
    0.01
    """

    value: float
    error: float = math.nan
    over: Literal["", "examples", "seeds", "kinds"] = ""

    @classmethod
    def from_mean(cls, values: Sequence[float], over: Literal["seeds", "kinds"]) -> "Estimate":
        """The mean of independent values; its error is NaN for a single one."""
        error = np.std(values, ddof=1) / math.sqrt(len(values)) if len(values) > 1 else math.nan
        return cls(float(np.mean(values)), float(error), over)


def format_estimate(estimate: Estimate | None) -> str:
    """An estimate as text: as many digits as the error allows, or three if there is no error.

    >>> [format_estimate(e) for e in (Estimate(0.13241, 0.0042), Estimate(0.9, 0.0), Estimate(0.0123))]
    ['0.132 ± 0.004', '0.900 ± 0', '0.012']
    >>> format_estimate(Estimate(4.2e21, 3.9e21))
    '4.2e+21 ± 3.9e+21'
    """
    if estimate is None:
        return ""
    value, error, _ = estimate
    if not math.isfinite(value):
        return str(value)
    if abs(value) >= HUGE:
        return f"{value:.2g} ± {error:.2g}" if math.isfinite(error) else f"{value:.2g}"
    if not math.isfinite(error):
        return f"{value:.3f}"
    if error <= abs(value) * ROUNDING:
        return f"{value:.3f} ± 0"
    digits = max(0, -math.floor(math.log10(error)))
    return f"{value:.{digits}f} ± {error:.{digits}f}"
