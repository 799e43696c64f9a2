"""Reductions: how a score's values per example become one number, with a standard error.

`linearised` is the delta method: values per example whose mean is the score, to first order around the data. Standard
errors and paired t-tests both use it. A sum of absolute gaps has no such expansion near zero, and says instead what was
promised and what happened (:class:`Gaps`), from which :mod:`posteriax.comparison.difference_of_gaps` simulates.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np


class Gaps(NamedTuple):
    """One run's residuals on the test set: what a score that sums absolute gaps is made of.

    Args:
        bin: which bin each example is in, (N,).
        residual: what happened less what was promised, (N,).
        promised: what should happen on average, (N,).
        probabilities: whether `promised` is the probability of something that happens or does not.

    >>> from posteriax.metrics import BinnedGaps
    >>> BinnedGaps().gaps(np.array([[0.8, 1.0], [0.7, 0.0]])).residual.round(1)
    array([ 0.2, -0.7])
    """

    bin: np.ndarray
    residual: np.ndarray
    promised: np.ndarray
    probabilities: bool = True


class Reduction(ABC):
    """How values per example become one number. Derive from it to write your own.

    >>> class GeometricMean(Reduction):
    ...     def value(self, values):
    ...         return float(np.exp(np.log(values).mean()))
    ...
    ...     def linearised(self, values):
    ...         return self.value(values) * (1 + np.log(values) - np.log(values).mean())
    >>> GeometricMean().value(np.array([1.0, 4.0])), GeometricMean().standard_error(np.array([2.0, 2.0]))
    (2.0, 0.0)
    """

    dimensions = 1  # of the array of values: one number per example

    @abstractmethod
    def value(self, values: np.ndarray) -> float:
        """The score of these examples."""

    @abstractmethod
    def linearised(self, values: np.ndarray) -> np.ndarray:
        """Values per example, (N,), whose mean is the score, to first order around the data (the delta method)."""

    def standard_error(self, values: np.ndarray) -> float:
        """Over the examples, of which there are at least two."""
        return float(self.linearised(values).std(ddof=1) / math.sqrt(len(values)))

    def gaps(self, values: np.ndarray) -> Gaps | None:
        """For a sum of absolute gaps, the gaps; otherwise None."""
        return None


@dataclass(frozen=True)
class Mean(Reduction):
    """The mean over examples.

    >>> Mean().value(np.array([0.0, 1.0])), Mean().standard_error(np.array([0.0, 1.0]))
    (0.5, 0.5)
    """

    def value(self, values: np.ndarray) -> float:
        return float(values.mean())

    def linearised(self, values: np.ndarray) -> np.ndarray:
        return values


@dataclass(frozen=True)
class RootMean(Reduction):
    """The square root of the mean, of squared errors.

    >>> RootMean().value(np.array([0.0, 8.0]))
    2.0
    """

    def value(self, values: np.ndarray) -> float:
        return float(np.sqrt(values.mean()))

    def linearised(self, values: np.ndarray) -> np.ndarray:
        root = self.value(values)
        return root + (values - root**2) / (2 * root) if root else values
