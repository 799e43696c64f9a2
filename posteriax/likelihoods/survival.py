"""Times until an event, some of which are censored: all that is known is that they are longer."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.scipy.stats import norm
from numpy.typing import ArrayLike

from posteriax._internal.checks import check_positive
from posteriax.likelihoods.likelihood import LikelihoodLatents, sum_per_example
from posteriax.likelihoods.noise_scale import Scale, check_scale, check_two_outputs, location_and_scale, log_scale_prior
from posteriax.likelihoods.number_predictive import NumberPredictive
from posteriax.likelihoods.numbers import NumberLikelihood

WIDTH = 1.0  # of the prior of a learned spread: 95 % of it between 1/7 and 7


@dataclass(frozen=True)
class SurvivalTime(NumberLikelihood):
    """A time until an event, log-normal given the inputs; a negative target is a time up to which nothing happened.

        log T = log(base_time) + f + sigma e        e ~ N(0, 1)

        log p(y) = log of the density of T at y     if y > 0: the event was seen at y
                   log P(T > |y|)                   if y < 0: right-censored at |y|

    An accelerated failure time model: exp(f) stretches the time. The censoring must not depend on T, given the inputs.

    Args:
        base_time: the median time where the network outputs 0; by default the standard deviation of the targets, which
            :func:`px.fit` reads.
        scale: sigma; a number, "learned", under log sigma ~ N(0, 1), or "predicted", by a second output.

    >>> likelihood = SurvivalTime(base_time=10.0, scale=1.0)
    >>> seen, censored = likelihood.log_prob({}, jnp.zeros((2, 1)), jnp.array([[10.0], [-10.0]])).tolist()
    >>> round(seen, 3), round(censored, 3)  # -log(10 sqrt(2 pi)), log(1/2)
    (-3.222, -0.693)
    """

    base_time: float | None = None
    scale: Scale = "learned"

    def __post_init__(self) -> None:
        check_scale(self.scale)
        if self.base_time is not None:
            check_positive("base_time", self.base_time)

    def priors(self) -> dict[str, dist.Distribution]:
        return {"log_scale": log_scale_prior((1.0, WIDTH))} if self.scale == "learned" else {}

    @property
    def outputs_per_target(self) -> int:
        return 2 if self.scale == "predicted" else 1

    @property
    def needs_target_scale(self) -> bool:
        return self.base_time is None

    def for_target_scale(self, scale: float) -> "SurvivalTime":
        return replace(self, base_time=scale) if self.base_time is None else self

    def check(self, outputs: jax.ShapeDtypeStruct, y: np.ndarray) -> np.ndarray:
        if self.scale == "predicted":
            check_two_outputs("SurvivalTime", outputs.shape)
        if (y == 0).any():
            raise ValueError("y has the value 0, but times are positive, and negative where they are censored")
        times = super().check(outputs, np.abs(y))
        return np.where(np.asarray(y).reshape(times.shape) > 0, times, -times)

    def distribution(self, latents: LikelihoodLatents, outputs: jax.Array) -> dist.LogNormal:
        location, scale = location_and_scale(self.scale, latents, outputs)
        return dist.LogNormal(location + np.log(self.base_time or 1.0), scale)

    def log_prob(self, latents: LikelihoodLatents, outputs: jax.Array, y: jax.Array) -> jax.Array:
        times = self.distribution(latents, outputs)
        standard = (jnp.log(jnp.abs(y)) - times.loc) / times.scale
        return sum_per_example(jnp.where(y > 0, times.log_prob(jnp.abs(y)), norm.logsf(standard)))

    def predictive(self, outputs: np.ndarray, latents: dict[str, Any]) -> "SurvivalPredictive":
        return SurvivalPredictive(self, outputs, latents)


@dataclass(frozen=True, eq=False)
class SurvivalPredictive(NumberPredictive):
    """Predictions of times: a mixture of one log-normal distribution per draw. Targets that are negative are censored.

    >>> likelihood = SurvivalTime(base_time=10.0, scale=1.0)
    >>> predictive = SurvivalPredictive(likelihood, np.zeros((1, 2, 1), np.float32), {})
    >>> predictive.survival(np.array([10.0, 1000.0]))[:, 0].round(3).tolist()  # P(T > t)
    [0.5, 0.0]
    """

    scores: ClassVar[tuple[str, ...]] = ("nll", "concordance", "coverage_90")

    def observed(self, y: ArrayLike) -> np.ndarray:
        """Whether each target is the time of an event, (N, D); it is censored otherwise."""
        return self.check(y) > 0

    def targets(self, y: ArrayLike) -> np.ndarray:
        """The times, of events or of censoring, in float64."""
        return np.abs(super().targets(y))

    def point(self) -> np.ndarray:
        """The median: the mean of a long tail is far above most times."""
        return np.asarray(self.quantile(0.5))

    def cdf(self, y: ArrayLike) -> np.ndarray:
        """The probability of an event up to |y|, (N, D)."""
        return super().cdf(np.abs(np.asarray(y)))

    def survival(self, times: ArrayLike) -> np.ndarray:
        """The probability that nothing has happened up to these times, one for each example, (N, D)."""
        return 1.0 - self.cdf(times)

    def share_inside(self, y: ArrayLike, level: ArrayLike = 0.9) -> np.ndarray:
        """How much of each target lies in the central interval, (N, D) or (len(level), N, D).

        If a time c is censored, the event is somewhere in the range of probability from F(c) to 1. The share of that
        between (1 - level) / 2 and (1 + level) / 2 is `level` on average if the predictions are right.
        """
        upto = np.asarray(self.cdf(y), np.float64)
        levels = np.asarray(level, np.float64).reshape(*np.shape(level), *[1] * upto.ndim)
        low, high = (1 - levels) / 2, (1 + levels) / 2
        left = np.maximum(1.0 - upto, 1e-12)
        later = np.clip((high - np.maximum(upto, low)) / left, 0.0, 1.0)
        return np.where(self.observed(y), (low <= upto) & (upto <= high), later)


def signed_times(times: ArrayLike, observed: ArrayLike) -> np.ndarray:
    """Targets of :class:`SurvivalTime`: times, negative where the event was not observed.

    >>> signed_times([3.0, 5.0], [True, False]).tolist()
    [3.0, -5.0]
    """
    times = np.asarray(times, np.float64)
    return np.where(np.asarray(observed, bool), times, -times)
