"""Predictions in the target's own units, by a network that was trained on standardised targets.

y = mean + scale f(x, w) + scale sigma xi        xi: standard normal
"""

from dataclasses import replace
from typing import Any

import posteriax as px
from posteriax.likelihoods.numbers import InUnits
from posteriax.tabular.targets import Quantity, Target


def in_units_of(target: Target, posterior: px.Posterior) -> px.Posterior:
    """The posterior with predictions in the target's own units, not standardised ones. Classes have none."""
    if not isinstance(target, Quantity):
        return posterior
    standard: Any = posterior.problem.likelihood
    likelihood = InUnits(standard, target.mean, target.scale)
    return replace(posterior, problem=replace(posterior.problem, likelihood=likelihood))
