"""What an optimiser needs to know about a family's parameters: which are means, which are scales, and in what units.

VI's default optimiser (posteriax/methods/whitened.py) and its check of convergence ask the family, never the names of
its parameters.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import jax


@dataclass(frozen=True)
class Units:
    """The units of a family's parameters, by name. A parameter that is in none of them moves at the plain rate.

    Args:
        means: the standard deviation of each parameter that is a mean, in that parameter's shape or broadcasting to it.
        scales: the rate of each parameter that is a log of a scale, or is measured in scales, as a multiple of the rate
            of log sigma: 1 for log sigma itself, 1/2 for each of two logs that add up to it, 1 / sqrt(n) for entries
            of which n make a row.
        fisher: the Fisher information of each log of a scale, for the check of convergence: 2 for every weight that it
            scales.
        joint: the names of mean, log diagonal and lower triangle of a covariance L L' to be whitened as a whole, where
            L = diag(exp(log_diagonal)) (I + S) and S is stored row by row; the family then has no other parameters.
        inferred: whether a base class worked them out because the family does not write `units`. The trace then names
            the parameters without a unit.

    >>> from posteriax import families as q
    >>> q.Normal().units({"mean": jax.numpy.zeros(3), "log_scale": jax.numpy.zeros(3)}).scales
    {'log_scale': 1.0}
    """

    means: Mapping[str, jax.Array] = field(default_factory=dict)
    scales: Mapping[str, Any] = field(default_factory=dict)
    fisher: Mapping[str, float] = field(default_factory=dict)
    joint: tuple[str, str, str] | None = None
    inferred: bool = False

    def cover(self, name: str) -> bool:
        """Whether the parameter has a unit."""
        return name in self.means or name in self.scales
