"""The units of a target."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Units:
    """The units of a target on which a network was trained in standardised form: y = offset + scale (standardised y).

    Computed in float64, on the host: float32 would lose precision if the offset is large relative to the scale.

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
        """Targets as the network was trained on them."""
        return (np.asarray(y, np.float64) - self.offset) / self.scale
