"""The units of a target."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Units:
    """The units of a target that a network learned standardised: y = offset + scale (standardised y).

    In float64, on the host: where the offset is large against the scale, float32 would lose what was learned.

    >>> Units(offset=1e7, scale=2.0).restore(np.float32([0.25])).item()
    10000000.5
    """

    offset: float = 0.0
    scale: float = 1.0

    @property
    def are_standard(self) -> bool:
        return self.offset == 0.0 and self.scale == 1.0

    @property
    def log_scale(self) -> float:
        return math.log(self.scale)

    def restore(self, values: Any) -> np.ndarray:
        """Values in the target's units."""
        return np.asarray(values) if self.are_standard else self.offset + self.scale * np.asarray(values, np.float64)

    def restore_spread(self, values: Any) -> np.ndarray:
        """Differences, standard deviations or distances in the target's units."""
        return np.asarray(values) if self.are_standard else self.scale * np.asarray(values, np.float64)

    def standardise(self, y: Any) -> np.ndarray:
        """Targets as the network learned them."""
        return (np.asarray(y, np.float64) - self.offset) / self.scale
