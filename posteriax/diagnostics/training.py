"""Had the objective of an optimised posterior levelled off when training ended?

A line through the last quarter of the trace, in eight means of equally many steps: its rise and its standard error.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

OBJECTIVES = ("elbo", "log_joint")
PARTS = 8
FEWEST_STEPS = 4 * PARTS  # so that the last quarter has a step in every part
CLEAR = 4.0  # standard errors; with 6 degrees of freedom, exceeded by chance in 4 of 1,000
WORTH = 1.0  # nats: a smaller change of the objective means nothing


@dataclass(frozen=True)
class TrainingSummary:
    """How the objective moved over the last quarter of training, one number per member.

    Args:
        objective: its name in the trace.
        rise: in nats; negative if it fell.
        error: the rise's standard error.
        rise_before: the rise over the quarter before. Under a learning rate that falls to zero everything levels off in
            the end; what had found its optimum had levelled off before.
        error_before: its standard error.

    >>> summarize_training({"elbo": -100.0 * np.exp(-np.arange(400) / 200)}).rising
    (0,)
    """

    objective: str
    rise: tuple[float, ...]
    error: tuple[float, ...]
    rise_before: tuple[float, ...]
    error_before: tuple[float, ...]

    @property
    def rising(self) -> tuple[int, ...]:
        """The members whose objective was clearly still going up."""
        return _clear(self.rise, self.error)

    @property
    def falling(self) -> tuple[int, ...]:
        """The members whose objective was clearly going down."""
        return _clear([-rise for rise in self.rise], self.error)

    @property
    def rising_before(self) -> tuple[int, ...]:
        """The members whose objective was clearly going up in the quarter before the last."""
        return _clear(self.rise_before, self.error_before)


def summarize_training(trace: Mapping[str, np.ndarray]) -> TrainingSummary | None:
    """The summary of a trace; None if it has no objective, or too few steps to tell."""
    name = next((name for name in OBJECTIVES if name in trace), None)
    if name is None or np.shape(trace[name])[-1] < FEWEST_STEPS:
        return None
    values = np.atleast_2d(np.asarray(trace[name], np.float64))
    quarter = PARTS * (values.shape[1] // (4 * PARTS))
    return TrainingSummary(name, *_line(values[:, -quarter:]), *_line(values[:, -2 * quarter : -quarter]))


def _line(values: np.ndarray) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """By how much a line through values, (members, steps), rises from end to end, and its standard error."""
    means = values.reshape(len(values), PARTS, -1).mean(axis=2)
    time = (np.arange(PARTS) - (PARTS - 1) / 2) / PARTS
    rise = means @ time / np.sum(time**2)
    residuals = means - means.mean(axis=1, keepdims=True) - rise[:, None] * time
    error = np.sqrt(np.sum(residuals**2, axis=1) / (PARTS - 2) / np.sum(time**2))
    return tuple(map(float, rise)), tuple(map(float, error))


def _clear(rises: Sequence[float], errors: Sequence[float]) -> tuple[int, ...]:
    both = enumerate(zip(rises, errors, strict=True))
    return tuple(member for member, (rise, error) in both if rise > max(CLEAR * error, WORTH))
