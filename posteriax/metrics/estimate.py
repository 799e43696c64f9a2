"""Estimates as text, with as many digits as their error allows, and what the errors are over."""

import math
from collections.abc import Mapping

from posteriax.metrics.score import Estimate

HUGE = 1e12  # from which a value is written with an exponent
ROUNDING = 1e-12  # of a value: smaller errors are those of double precision


def describe_errors(rows: Mapping[str, Mapping[str, Estimate]], seeds: Mapping[str, int]) -> str:
    """Describe what the standard errors of a table are over.

    >>> rows = {"MAP": {"nll": Estimate(0.5, 0.01, "seeds")}, "HMC": {"nll": Estimate(0.3, 0.02, "examples")}}
    >>> describe_errors(rows, {"MAP": 3, "HMC": 1})
    'standard error: over seeds for MAP (3), over test examples for HMC (one run)'
    >>> describe_errors({"HMC": rows["HMC"]}, {"HMC": 1})
    'standard error over test examples, one run each'
    """
    groups: dict[str, list[str]] = {}
    for name, row in rows.items():
        for over in dict.fromkeys(estimate.over for estimate in row.values() if math.isfinite(estimate.error)):
            groups.setdefault(over, []).append(name)
    counts = {seeds.get(name, 1) for name in groups.get("seeds", [])}
    if set(groups) == {"examples"}:
        return "standard error over test examples, one run each"
    if set(groups) == {"seeds"} and len(counts) == 1:
        return f"standard error over {counts.pop()} seeds each"
    if not groups or "" in groups:
        return "standard error"
    runs = [f"{name} ({seeds.get(name, 1)})" for name in groups["seeds"]]
    one = groups.get("examples", [])
    text, each = f"standard error: over seeds for {', '.join(runs)}", " each" if len(one) > 1 else ""
    return f"{text}, over test examples for {', '.join(one)} (one run{each})" if one else text


def format_estimate(estimate: Estimate | None) -> str:
    """As many digits as the error allows; three if there is no error.

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
