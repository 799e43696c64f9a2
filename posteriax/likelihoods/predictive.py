"""The contract of a predictive: a posterior's predictions for new inputs, draw by draw, and what is derived from them.

    p(y | x, D) ~ 1/S sum_s p(y | x, w_s)

The outputs of every draw are kept, so that disagreement between draws can be told from noise. If that would need too
much memory, only sums over the draws are.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from numpy.typing import ArrayLike

from posteriax._internal.checks import check_targets

if TYPE_CHECKING:
    from posteriax.likelihoods.likelihood import Likelihood


class Sums(Protocol):
    """A pytree of sums over any number of draws, from which predictions follow. Its arrays have a leading axis of
    examples, or none."""

    def join(self, other: Self) -> Self:
        """The sums over both sets of draws."""


class Predictive(ABC):
    """Predictions for N examples from S draws.

    Scores, comparisons, reports and drift tests rely only on what is declared here, and on what the scores named in
    `scores` need.
    """

    scores: ClassVar[tuple[str, ...]] = ("nll",)  # names of the scores that apply by default
    reported_uncertainty: ClassVar[str] = "std"  # which of `uncertainties` drift tests use
    whole_numbers: ClassVar[bool] = False  # whether targets are counts: 0, 1, 2, ...

    @property
    @abstractmethod
    def mean(self) -> np.ndarray:
        """The expected target."""

    @property
    @abstractmethod
    def std(self) -> np.ndarray:
        """A standard deviation of the same shape."""

    @abstractmethod
    def quantile(self, q: ArrayLike) -> np.ndarray:
        """Quantiles, (len(q), ...), or of the shape of `mean` for one q."""

    @abstractmethod
    def entropy(self) -> np.ndarray:
        """The total uncertainty about a target, in nats."""

    @abstractmethod
    def mutual_information(self) -> np.ndarray:
        """Between target and weights, in nats: the part of the entropy that more data could remove."""

    @abstractmethod
    def log_prob(self, y: ArrayLike) -> np.ndarray:
        """log p(y_i | x_i, D) of every example, (N,): the log of the mean over draws, formed in the log domain."""

    @abstractmethod
    def check(self, y: ArrayLike) -> np.ndarray:
        """The targets as the likelihood takes them, checked against the predictions."""

    def targets(self, y: ArrayLike) -> np.ndarray:
        """The targets in the units and the shape of `mean`, in float64."""
        return np.asarray(self.check(y), np.float64)

    @abstractmethod
    def uncertainties(self) -> dict[str, np.ndarray]:
        """By name, numbers that are higher where the posterior is less certain, (N,) each."""

    @abstractmethod
    def per_draw(self) -> np.ndarray:
        """What every draw predicts, (S, N, values per example), without units: used to check whether chains agree."""

    def means_per_draw(self) -> np.ndarray:
        """What every draw expects, (S, N, values per example), in the target's units."""
        return self.per_draw()

    def point(self) -> np.ndarray:
        """The single best answer for every target: the mean, or the most probable class."""
        return self.mean

    def interval(self, level: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """The ends of the central interval with probability `level`."""
        low, high = self.quantile(np.array([(1 - level) / 2, (1 + level) / 2]))
        return low, high

    def share_inside(self, y: ArrayLike, level: ArrayLike = 0.9) -> np.ndarray:
        """How much of each target lies in the central interval with probability `level`: on average, `level` if the
        predictions are right. 1 or 0 for real numbers; for counts a share.

        Of the shape of `mean`, or (len(level), ...).
        """
        levels = np.asarray(level, np.float64)
        low, high = np.split(self.quantile(np.stack([(1 - levels) / 2, (1 + levels) / 2]).reshape(-1)), 2)
        targets = self.targets(y).reshape(low.shape[1:])
        inside = (low <= targets) & (targets <= high)
        return inside.astype(np.float64).reshape(*levels.shape, *targets.shape)

    def confidence(self) -> np.ndarray | None:
        """The probability of every point prediction; None if there is none, as for real numbers."""
        return None

    def tempered(self, temperature: float) -> "Predictive":
        """The predictions at another temperature."""
        raise TypeError(f"recalibration by a temperature is for classes, which {type(self).__name__} does not predict")


@dataclass(frozen=True, eq=False)
class Reduced(Predictive):
    """Predictions for which only sums over the draws were kept: no quantiles, no single draws."""

    likelihood: Any
    sums: Any
    output_shape: tuple[int, ...]

    def shape_of_outputs(self) -> tuple[int, ...]:
        return self.output_shape

    def quantile(self, q: ArrayLike) -> np.ndarray:
        raise needs_draws("quantile")

    def per_draw(self) -> np.ndarray:
        raise needs_draws("per_draw")


def needs_draws(what: str) -> ValueError:
    return ValueError(f"{what} needs the outputs of every draw: predict with reduce=False")


def check_against(likelihood: "Likelihood", shape: tuple[int, ...], y: ArrayLike) -> np.ndarray:
    """The targets, checked against predictions whose outputs have this shape for one draw, (N, ...)."""
    targets = check_targets(y)
    if targets.ndim == 0 or targets.shape[0] != shape[0]:
        raise ValueError(f"y has shape {targets.shape}, but there are predictions for {shape[0]} examples")
    return likelihood.check(jax.ShapeDtypeStruct(shape, jnp.float32), targets)


def mean_per_example(values: ArrayLike) -> np.ndarray:
    """Values (N, ...) averaged over what belongs to one example, (N,), in float64."""
    return np.asarray(values, np.float64).reshape(np.shape(values)[0], -1).mean(axis=1)


@jax.jit
def log_mean(log_values: jax.Array) -> jax.Array:
    """The log of the mean over the first axis."""
    return logsumexp(log_values, axis=0) - jnp.log(log_values.shape[0])
