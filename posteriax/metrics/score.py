"""Score: one record with all there is to know about a score. Estimate: its value with its standard error.

`px.evaluate`, `px.compare`, its significance tests, its tables and the report read these records and know no score by
name. Each record is defined beside the function that computes its values; :mod:`posteriax.metrics.registry` lists them.

A score's reduction says how its values per example become one number, with a standard error. `linearised` is the delta
method: values per example whose mean is the score, to first order around the data. Standard errors and paired t-tests
both use it. A sum of absolute gaps has no such expansion near zero. It provides what was promised and what happened
(:class:`Gaps`) instead, from which the calibration test of :mod:`posteriax.evaluation.significance` simulates.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from posteriax.likelihoods.predictive import Predictive

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


@dataclass(frozen=True)
class Score:
    """What a score is, how it is computed, and how to read it. Pass your own to `px.evaluate` and `px.compare`.

    Args:
        name: its column in tables, and its key in results.
        meaning: one sentence, for someone who has never seen it.
        better: "higher", "lower", or the number it should be close to; None if it is neither good nor bad, which leaves
            it without an arrow and without a test of significance.
        per_example: ``(predictive, y)`` to values per example, (N,); against a reference ``(predictive, reference)``,
            both predictives for the same inputs. None for columns that `px.compare` measures in some other way.
        reduction: from these values to the score: :class:`Mean`, :class:`RootMean`, :class:`BinnedGaps` or your own.
        needs: attributes of the predictive that `per_example` uses, for an error that names what is missing.
        against_reference: whether it compares with a reference posterior instead of the targets.
        title: in tables; the name with spaces if not given.
        quantity: what the number is, as a sentence would call it; the title if not given.
        percent: whether sentences give it in percent.
        proper: whether no prediction has a better expected score than the true distribution (Gneiting and Raftery
            2007), so that a row that is significantly worse should not be recommended.

    >>> import posteriax as px
    >>> median_off = px.metrics.Score(
    ...     name="median_off",
    ...     meaning="How far the predicted median is from the target, on average.",
    ...     better="lower",
    ...     per_example=lambda predictive, y: np.abs(predictive.quantile(0.5)[:, 0] - y),
    ...     needs=("quantile",),
    ... )
    >>> predictive = px.likelihoods.NormalPredictive(px.Normal(scale=1.0), np.zeros((5, 2, 1)), {})
    >>> scores = px.evaluate(predictive, [1.0, -3.0], scores=["rmse", median_off])
    >>> {name: round(value, 3) for name, value in scores.items()}
    {'rmse': 2.236, 'median_off': 2.0}
    """

    name: str
    meaning: str = ""
    better: Literal["higher", "lower"] | float | None = None
    per_example: Callable[[Any, Any], ArrayLike] | None = None
    reduction: Reduction = Mean()
    needs: tuple[str, ...] = ()
    against_reference: bool = False
    title: str = ""
    quantity: str = ""
    percent: bool = False
    proper: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.better, (int, float)) and self.better not in ("higher", "lower", None):
            raise ValueError(f'better must be "higher", "lower", a number or None, got {self.better!r}')
        object.__setattr__(self, "title", self.title or self.name.replace("_", " "))
        object.__setattr__(self, "quantity", self.quantity or self.title)

    @property
    def target(self) -> float | None:
        """The number that the score should be close to, if that is what is better."""
        return None if self.better is None or isinstance(self.better, str) else float(self.better)

    @property
    def heading(self) -> str:
        """The title, with an arrow towards what is better.

        >>> Score("total_variation", better="lower").heading, Score("coverage_90", better=0.9).heading
        ('total variation ↓', 'coverage 90 → 0.9')
        """
        arrows: dict[Any, str] = {"higher": " ↑", "lower": " ↓", None: ""}
        return self.title + arrows.get(self.better, f" → {self.better}")

    @property
    def explanation(self) -> str:
        """The meaning, and what is better."""
        sides: dict[Any, str] = {"higher": "Higher is better.", "lower": "Lower is better.", None: ""}
        return f"{self.meaning} {sides.get(self.better, f'Closer to {self.better} is better.')}".strip()

    def applies_to(self, *predictives: object) -> bool:
        """Whether predictions have what the score needs."""
        return all(hasattr(predictive, attribute) for predictive in predictives for attribute in self.needs)

    def values(self, predictive: Predictive, other: Predictive | ArrayLike) -> np.ndarray:
        """The values per example, against the targets or against a reference's predictive."""
        if self.per_example is None:
            raise ValueError(f"{self.name!r} cannot be computed from predictions alone: px.compare measures it")
        for given in (predictive, other) if self.against_reference else (predictive,):
            if not self.applies_to(given):
                needs = " and ".join(f"`{attribute}`" for attribute in self.needs)
                raise ValueError(
                    f"the score {self.name!r} needs predictions with {needs}, but got {type(given).__name__}, to which "
                    f"apply: {', '.join(applicable_scores(given)) or 'none'}"
                )
        values = np.asarray(self.per_example(predictive, other), np.float64)
        if values.ndim != self.reduction.dimensions or not len(values):
            raise ValueError(f"the score {self.name!r} must give one value per example, but gave shape {values.shape}")
        return values

    def estimate(self, values: np.ndarray) -> Estimate:
        """The score and its standard error over the examples, from the values per example."""
        value = self.reduction.value(values)
        if len(values) < 2:
            return Estimate(value)
        return Estimate(value, self.reduction.standard_error(values), "examples")

    def loss(self, value: float) -> float:
        """The value so that lower is better: its distance from the target, if there is one."""
        if self.target is not None:
            return abs(value - self.target)
        return -value if self.better == "higher" else value

    def gaps(self, values: np.ndarray) -> Gaps | None:
        """The gaps whose absolute values the loss sums, or None if the loss is linear in the score."""
        if self.target is None:
            return self.reduction.gaps(values)
        happened = self.reduction.linearised(values)
        promised = np.full(len(happened), self.target)
        probabilities = 0 < self.target < 1 and bool(((happened >= 0) & (happened <= 1)).all())
        return Gaps(np.zeros(len(happened), int), happened - promised, promised, probabilities)


def applicable_scores(predictive: object) -> tuple[str, ...]:
    """The names of the scores that a predictive says apply to it."""
    return tuple(getattr(score, "name", score) for score in getattr(predictive, "scores", ()))
