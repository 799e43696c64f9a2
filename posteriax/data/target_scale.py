"""The scale of a data set's targets, at which the prior of a learned noise is centred.

    s_y^2 = sum_i w_i |y_i - m|^2 / (D sum_i w_i)        m: the targets' weighted mean, D numbers per target

summed batch by batch in double precision, so that targets need not be in memory at once.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

DIGITS = 6  # the others depend on the order in which batches are summed, and on the machine
MOST_COLUMNS = 10_000  # numbers per target that each have a mean; more, such as pixels, share one


class TargetMoments(NamedTuple):
    """Moments of the targets seen so far.

    Args:
        weight: the sum of the examples' weights.
        mean: of every number of a target.
        squares: the weighted sum of squared differences from it.
    """

    weight: float
    mean: np.ndarray
    squares: np.ndarray

    @classmethod
    def from_targets(cls, y: ArrayLike, weight: ArrayLike | None = None) -> "TargetMoments":
        """The moments of these targets, each of which counts as `weight` examples."""
        targets = np.asarray(y, np.float64)
        rows = targets.reshape(len(targets), -1)
        counts = np.ones(len(rows)) if weight is None else np.asarray(weight, np.float64)
        rows, counts = rows[counts > 0], counts[counts > 0]
        if rows.shape[1] > MOST_COLUMNS:
            rows, counts = rows.reshape(-1, 1), np.repeat(counts, rows.shape[1]) / rows.shape[1]
        if not len(rows):
            return cls(0.0, np.zeros(rows.shape[1]), np.zeros(rows.shape[1]))
        total = float(counts.sum())
        differences = rows - rows[0]  # exactly 0 if the targets are constant
        shift = counts @ differences / total
        return cls(total, rows[0] + shift, counts @ np.square(differences - shift))

    def merge(self, other: "TargetMoments") -> "TargetMoments":
        """The moments of both (Chan, Golub and LeVeque 1983)."""
        if not self.weight or not other.weight:
            return self if self.weight else other
        total = self.weight + other.weight
        shift = other.mean - self.mean
        squares = self.squares + other.squares + np.square(shift) * (self.weight * other.weight / total)
        return TargetMoments(total, self.mean + shift * (other.weight / total), squares)

    @property
    def scale(self) -> float:
        """The standard deviation; of constant targets their size, and 1 if they are all 0.

        >>> TargetMoments.from_targets([1.0, 3.0]).scale, TargetMoments.from_targets([5.0, 5.0]).scale
        (1.0, 5.0)
        """
        variance = float(self.squares.mean()) / self.weight if self.weight else 0.0
        if variance == 0.0:
            variance = float(np.square(self.mean).mean())
        return float(f"{variance**0.5:.{DIGITS}g}") or 1.0
