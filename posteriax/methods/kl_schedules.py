"""Schedules of the KL's weight in VI: small at first, so that the fit is found before the noise; 1 in the end.

    linear:     min(1, (step + 1) / steps)
    staircase:  min(1, slope * every * floor(step / every)),   constant for `every` steps at a time

(METHODS B.3, E.1)
"""

from dataclasses import dataclass
from typing import Any, Protocol

import jax.numpy as jnp

from posteriax.checks import check_count, check_positive


class KLSchedule(Protocol):
    """A schedule that knows how long an epoch of the run is."""

    def weight(self, step: Any, steps_per_epoch: int) -> Any: ...


@dataclass(frozen=True)
class LinearKL:
    """The KL's weight grows linearly to 1 over so many epochs, and stays there.

    >>> import posteriax as px
    >>> schedule = px.LinearKL(epochs=10)
    >>> float(schedule.weight(step=499, steps_per_epoch=100))
    0.5
    """

    epochs: float

    def __post_init__(self) -> None:
        check_positive("epochs", self.epochs)

    def weight(self, step: Any, steps_per_epoch: int) -> Any:
        return jnp.minimum(1.0, (step + 1) / (self.epochs * steps_per_epoch))


@dataclass(frozen=True)
class StaircaseKL:
    """The KL's weight grows by `slope` a step, but only once in `every` steps, up to 1.

    >>> import posteriax as px
    >>> schedule = px.StaircaseKL(slope=5e-5, every=100)
    >>> round(float(schedule.weight(step=10_050, steps_per_epoch=49)), 6)
    0.5
    """

    slope: float = 5e-5
    every: int = 100

    def __post_init__(self) -> None:
        check_positive("slope", self.slope)
        check_count("every", self.every)

    def weight(self, step: Any, steps_per_epoch: int) -> Any:
        return jnp.minimum(1.0, self.slope * self.every * (step // self.every))
