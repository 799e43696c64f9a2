"""Prior sweeps: the same problem under many priors, to see how much the prior matters.

    for name, prior in p.scale_sweep().items():
        posteriors[name] = px.fit(px.Problem(net, likelihood, prior), data, px.HMC(), draws=40, key=0)

All families have exactly the same variance, so they differ in shape only. (Izmailov et al. 2021)
"""

import math
from collections.abc import Callable, Sequence
from fractions import Fraction

from posteriax._internal.checks import check_positive
from posteriax.priors.prior import Prior
from posteriax.priors.standard import Laplace, Logistic, Normal, NormalMixture, StudentT

VARIANCES = (1 / 40, 1 / 20, 1 / 10, 1 / 5, 1.0)
DEGREES = 5.0  # of Student-t: heavy tails, but four finite moments
NARROW = 0.1  # of the mixture, relative to its wide scale; both components have weight 1/2

FAMILIES: dict[str, Callable[[float], Prior]] = {
    "Normal": lambda variance: Normal(math.sqrt(variance)),
    "Laplace": lambda variance: Laplace(math.sqrt(variance / 2)),
    "Logistic": lambda variance: Logistic(math.sqrt(3 * variance) / math.pi),
    "StudentT": lambda variance: StudentT(DEGREES, math.sqrt(variance * (DEGREES - 2) / DEGREES)),
    "NormalMixture": lambda variance: _mixture(math.sqrt(2 * variance / (1 + NARROW**2))),
}


def scale_sweep(variances: Sequence[float] = VARIANCES, family: str = "Normal") -> dict[str, Prior]:
    """One family of priors over a range of variances, by name.

    Args:
        variances: of a weight; by default those of Izmailov et al. 2021.
        family: "Normal", "Laplace", "Logistic", "StudentT" (5 degrees of freedom) or "NormalMixture".

    >>> from posteriax import priors as p
    >>> list(p.scale_sweep())
    ['variance 1/40', 'variance 1/20', 'variance 1/10', 'variance 1/5', 'variance 1']
    >>> p.scale_sweep([0.25])
    {'variance 1/4': Normal(scale=0.5, loc=0.0)}
    """
    if family not in FAMILIES:
        raise ValueError(f"family must be one of {', '.join(FAMILIES)}, got {family!r}")
    for variance in variances:
        check_positive("variances", variance)
    names = [f"variance {_short(variance)}" for variance in variances]
    if len(set(names)) < len(names):
        raise ValueError(f"variances must all differ, got {list(variances)}")
    return {name: FAMILIES[family](variance) for name, variance in zip(names, variances, strict=True)}


def family_sweep(variance: float = 1 / 40) -> dict[str, Prior]:
    """All families of priors with one variance, by name.

    Student-t has 5 degrees of freedom; the mixture has two equally weighted Gaussians, one ten times as wide.

    Args:
        variance: of a weight, the same in all of them.

    >>> from posteriax import priors as p
    >>> p.family_sweep(0.5)["Laplace"]
    Laplace(scale=0.5)
    """
    check_positive("variance", variance)
    return {name: prior(variance) for name, prior in FAMILIES.items()}


def _mixture(scale: float) -> Prior:
    return NormalMixture(scale, NARROW * scale, weight=0.5)


def _short(value: float) -> str:
    """1/40 rather than 0.025."""
    fraction = Fraction(value).limit_denominator(1000)
    return str(fraction) if math.isclose(fraction, value, rel_tol=1e-9) else f"{value:.6g}"
