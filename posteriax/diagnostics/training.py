"""Has an optimised posterior converged?

Variational inference records the gradients of its last steps in the posterior's own units (methods/vi.py), which
works whatever the learning rate was. For other methods, a line is fitted to the objective over the last quarter
of the trace, averaged in eight parts, and its rise compared with its standard error.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

PARTS = 8  # of a series, whose averages a line is fitted to
FEWEST_STEPS = 4 * PARTS  # so that each part of the last quarter has a step
CLEAR = 4.0  # standard errors; with 6 degrees of freedom, exceeded by chance 4 times in 1,000
NEGLIGIBLE = 1.0  # nats: smaller changes of the objective do not matter
CLOSE = 0.01  # mean square of whitened gradients: parameters typically within 0.1 standard deviations of the optimum
UNSURE = 0.03  # standard error of it above which no verdict is possible


@dataclass(frozen=True)
class TrainingSummary:
    """How the objective changed over the last quarter of training, one number per member.

    Args:
        objective: its name in the trace.
        rise: in nats; negative if it fell.
        error: the rise's standard error.
        rise_before: the rise over the quarter before. A learning rate that decays to zero ends any rise, so a run that
            has converged must have levelled off before that.
        error_before: its standard error.
        steps: length of the run.
        stationarity: the mean square of the whitened gradients over the last tenth of the steps, roughly the squared
            distance to the optimum in standard deviations; empty if it was not recorded.
        stationarity_error: its standard error.
        level_step: of a run under :class:`px.run.UntilLevel`, the step at which the objective had levelled off; -1 if
            it never did. Such a run ends with a learning rate that falls, during which the objective may well rise.

    >>> summarize_training({"elbo": -100.0 * np.exp(-np.arange(400) / 200)}).rising
    (0,)
    """

    objective: str
    rise: tuple[float, ...]
    error: tuple[float, ...]
    rise_before: tuple[float, ...]
    error_before: tuple[float, ...]
    steps: int = 0
    stationarity: tuple[float, ...] = ()
    stationarity_error: tuple[float, ...] = ()
    level_step: int | None = None

    @property
    def not_stationary(self) -> tuple[int, ...]:
        """Members that were clearly not at an optimum."""
        both = enumerate(zip(self.stationarity, self.stationarity_error, strict=True))
        return tuple(member for member, (value, error) in both if value > max(CLEAR * error, CLOSE))

    @property
    def unsure(self) -> tuple[int, ...]:
        """Members whose gradients were too noisy to tell."""
        noisy = [member for member, error in enumerate(self.stationarity_error) if error > UNSURE]
        return tuple(member for member in noisy if member not in self.not_stationary)

    @property
    def rising(self) -> tuple[int, ...]:
        """Members whose objective was clearly still rising."""
        return _clear(self.rise, self.error)

    @property
    def falling(self) -> tuple[int, ...]:
        """Members whose objective was clearly falling."""
        return _clear([-rise for rise in self.rise], self.error)

    @property
    def rising_before(self) -> tuple[int, ...]:
        """Members whose objective was clearly rising in the quarter before the last."""
        return _clear(self.rise_before, self.error_before)

    @property
    def converged(self) -> bool | None:
        """Whether all members had converged; None if the gradients are too noisy to tell."""
        if self.level_step is not None:
            return self.level_step >= 0
        if self.stationarity:
            return False if self.not_stationary or self.falling else None if self.unsure else True
        return not (self.rising or self.falling or self.rising_before)


def summarize_training(trace: Mapping[str, np.ndarray]) -> TrainingSummary | None:
    """Summarise a trace by what it recorded first, a method's objective; None if it is empty or has too few steps."""
    name = next(iter(trace), None)
    if name is None or np.shape(trace[name])[-1] < FEWEST_STEPS:
        return None
    values = np.atleast_2d(np.asarray(trace[name], np.float64))
    quarter = PARTS * (values.shape[1] // (4 * PARTS))
    ends = (*rise_and_error(values[:, -quarter:]), *rise_and_error(values[:, -2 * quarter : -quarter]))
    rise, error, rise_before, error_before = (tuple(map(float, numbers)) for numbers in ends)
    level = int(trace["level_step"][0]) if "level_step" in trace else None
    return TrainingSummary(
        name, rise, error, rise_before, error_before, values.shape[1], *_stationarity(trace), level_step=level
    )


def _stationarity(trace: Mapping[str, np.ndarray]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The mean of the recorded stationarity and its standard error; empty if there is too little of it."""
    values = np.atleast_2d(np.asarray(trace.get("stationarity", ()), np.float64))
    length = values.shape[1] // PARTS
    if length == 0:
        return (), ()
    means = values[:, -length * PARTS :].reshape(len(values), PARTS, length).mean(axis=2)
    error = means.std(axis=1, ddof=1) / np.sqrt(PARTS)
    return tuple(map(float, means.mean(axis=1))), tuple(map(float, error))


def _clear(rises: Sequence[float], errors: Sequence[float]) -> tuple[int, ...]:
    both = enumerate(zip(rises, errors, strict=True))
    return tuple(member for member, (rise, error) in both if rise > max(CLEAR * error, NEGLIGIBLE))


def rise_and_error(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """How much series (members, steps) rise from end to end, and the standard error of that.

    A line is fitted to the averages of eight parts of equal length. Averages of many steps are nearly independent where
    the steps themselves are not. Steps that do not fill a part are left out at the beginning.

    >>> rise, error = rise_and_error(np.linspace(0.0, 1.0, 800)[None])
    >>> rise.round(2).tolist(), error.round(2).tolist()
    ([1.0], [0.0])
    """
    length = values.shape[1] // PARTS
    means = values[:, values.shape[1] - PARTS * length :].reshape(len(values), PARTS, length).mean(axis=2)
    time = (np.arange(PARTS) - (PARTS - 1) / 2) / PARTS
    rise = means @ time / np.sum(time**2)
    residuals = means - means.mean(axis=1, keepdims=True) - rise[:, None] * time
    error = np.sqrt(np.sum(residuals**2, axis=1) / (PARTS - 2) / np.sum(time**2))
    return rise, error


def mean_and_error(values: np.ndarray) -> tuple[float, float]:
    """The mean of a series, and its standard error by the spread of eight parts.

    >>> mean_and_error(np.ones(80))
    (1.0, 0.0)
    """
    means = [part.mean() for part in np.array_split(values, PARTS)]
    return float(np.mean(means)), float(np.std(means, ddof=1) / np.sqrt(PARTS))
