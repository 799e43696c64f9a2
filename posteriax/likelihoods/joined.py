"""Predictions for several test sets, joined end to end into one.

Each part, such as a fold of a cross-validation, keeps its own draws, noise and units: nothing is averaged over parts,
and scores per example are those of the parts.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from posteriax.likelihoods.classes import FromClassSums
from posteriax.likelihoods.mixtures import LEVEL_WEIGHTS, LEVELS
from posteriax.likelihoods.number_predictive import CountPredictive, NumberPredictive
from posteriax.likelihoods.predictive import Predictive


def join_examples(predictives: Sequence[Predictive]) -> Predictive:
    """One predictive for the examples of several, in their order.

    Args:
        predictives: of the same kind of target, such as those of the folds of a cross-validation, each by the posterior
            that was trained without its examples. Their draws, noise and units may differ.

    >>> from posteriax.likelihoods import Normal, NormalPredictive, join_examples
    >>> folds = [NormalPredictive(Normal(scale=s), np.zeros((5, n, 1)), {}) for s, n in ((1.0, 2), (3.0, 1))]
    >>> joined = join_examples(folds)
    >>> joined.std[:, 0].tolist(), joined.quantile([0.05, 0.95]).shape
    ([1.0, 1.0, 3.0], (2, 3, 1))
    """
    parts = tuple(predictives)
    if not parts:
        raise ValueError("predictives is empty: there is nothing to join")
    shapes = {np.shape(part.mean)[1:] for part in parts}
    scores = {part.scores for part in parts}
    if len(shapes) > 1 or len(scores) > 1:
        kinds = ", ".join(f"{type(part).__name__} of shape {np.shape(part.mean)}" for part in parts)
        raise ValueError(f"predictives of different targets cannot be joined: {kinds}")
    kinds_of_joined: tuple[tuple[type, type[JoinedPredictive]], ...] = (
        (FromClassSums, JoinedClasses),
        (CountPredictive, JoinedCounts),
        (NumberPredictive, JoinedNumbers),
    )
    for kind, joined in kinds_of_joined:
        if all(isinstance(part, kind) for part in parts):
            return joined(parts)
    return JoinedPredictive(parts)


@dataclass(frozen=True, eq=False)
class JoinedPredictive(Predictive):
    """Predictions for the examples of all parts; built by :func:`join_examples`. Methods are those of every predictive.

    Args:
        parts: one predictive per test set.
    """

    parts: tuple[Any, ...]

    @property
    def scores(self) -> tuple[str, ...]:  # type: ignore[override]  # of the parts, not of the class
        return self.parts[0].scores

    @property
    def reported_uncertainty(self) -> str:  # type: ignore[override]
        return self.parts[0].reported_uncertainty

    @property
    def whole_numbers(self) -> bool:  # type: ignore[override]
        return self.parts[0].whole_numbers

    @property
    def mean(self) -> np.ndarray:
        return self._join(lambda part: part.mean)

    @property
    def std(self) -> np.ndarray:
        return self._join(lambda part: part.std)

    def quantile(self, q: ArrayLike) -> np.ndarray:
        return self._join(lambda part: part.quantile(q), axis=np.ndim(q))

    def entropy(self) -> np.ndarray:
        return self._join(lambda part: part.entropy())

    def mutual_information(self) -> np.ndarray:
        return self._join(lambda part: part.mutual_information())

    def log_prob(self, y: ArrayLike) -> np.ndarray:
        return self._join_with(y, lambda part, targets: part.log_prob(targets))

    def check(self, y: ArrayLike) -> np.ndarray:
        return self._join_with(y, lambda part, targets: part.check(targets))

    def targets(self, y: ArrayLike) -> np.ndarray:
        return self._join_with(y, lambda part, targets: part.targets(targets))

    def share_inside(self, y: ArrayLike, level: ArrayLike = 0.9) -> np.ndarray:
        return self._join_with(y, lambda part, targets: part.share_inside(targets, level), axis=np.ndim(level))

    def uncertainties(self) -> dict[str, np.ndarray]:
        by_part = [part.uncertainties() for part in self.parts]
        return {name: np.concatenate([values[name] for values in by_part]) for name in by_part[0]}

    def per_draw(self) -> np.ndarray:
        return self._join_draws([part.per_draw() for part in self.parts])

    def point(self) -> np.ndarray:
        return self._join(lambda part: part.point())

    def confidence(self) -> np.ndarray | None:
        return None if self.parts[0].confidence() is None else self._join(lambda part: part.confidence())

    def tempered(self, temperature: float) -> Predictive:
        return join_examples([part.tempered(temperature) for part in self.parts])

    @cached_property
    def _ends(self) -> np.ndarray:
        return np.cumsum([len(part.mean) for part in self.parts])

    def _join(self, function: Callable[[Any], Any], axis: int = 0) -> np.ndarray:
        return np.concatenate([np.asarray(function(part)) for part in self.parts], axis=axis)

    def _join_with(self, y: ArrayLike, function: Callable[[Any, np.ndarray], np.ndarray], axis: int = 0) -> np.ndarray:
        """function(part, targets of that part), for every part."""
        y = np.asarray(y)
        if y.ndim == 0 or len(y) != self._ends[-1]:
            raise ValueError(f"y has shape {y.shape}, but there are predictions for {self._ends[-1]} examples")
        split = zip(self.parts, np.split(y, self._ends[:-1]), strict=True)
        return np.concatenate([np.asarray(function(part, targets)) for part, targets in split], axis=axis)

    @staticmethod
    def _join_draws(parts: list[np.ndarray]) -> np.ndarray:
        """(S, N, ...) along N. Parts with more draws than the others are thinned evenly."""
        fewest = min(len(values) for values in parts)
        thinned = [values[np.arange(fewest) * len(values) // fewest] for values in parts]
        return np.concatenate(thinned, axis=1)


class JoinedClasses(JoinedPredictive):
    """Predictions of classes for the examples of all parts."""

    @property
    def probs(self) -> np.ndarray:
        """p(class | x, D), (N, C)."""
        return self._join(lambda part: part.probs)


class JoinedNumbers(JoinedPredictive):
    """Predictions of numbers for the examples of all parts."""

    @property
    def moments_per_draw(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation of y under every draw, (S, N, D)."""
        mean, std = zip(*(part.moments_per_draw for part in self.parts), strict=True)
        return self._join_draws(list(map(np.asarray, mean))), self._join_draws(list(map(np.asarray, std)))

    def cdf(self, y: ArrayLike) -> np.ndarray:
        """The probability of a target up to y, (N, D)."""
        return self._join_with(y, lambda part, targets: part.cdf(targets))

    def distance(self, other: "JoinedNumbers | NumberPredictive") -> np.ndarray:
        """1-Wasserstein distance of every target's mixture from another prediction's, in the target's units, (N, D)."""
        if isinstance(other, JoinedNumbers) and np.array_equal(other._ends, self._ends):
            both = zip(self.parts, other.parts, strict=True)
            return np.concatenate([part.distance(other_part) for part, other_part in both])
        return np.tensordot(LEVEL_WEIGHTS, np.abs(self.quantile(LEVELS) - other.quantile(LEVELS)), 1)


class JoinedCounts(JoinedNumbers):
    """Predictions of counts for the examples of all parts."""

    def pmf(self, largest: int) -> np.ndarray:
        """The probability of every count from 0 to `largest`, (N, D, largest + 1)."""
        return self._join(lambda part: part.pmf(largest))
