"""Schedules of the KL's weight in VI: small at first, so that the fit is found before the noise; 1 in the end.

    linear:     min(1, (step + 1) / steps)
    staircase:  min(1, slope * every * floor(step / every)),   constant for `every` steps at a time

A weight that is below 1 at the end gives another optimum than the ELBO's: px.VI refuses it unless it is asked for.
"""

from dataclasses import dataclass
from typing import Any, Protocol

import jax.numpy as jnp

from posteriax._internal.checks import check_count, check_positive


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

    The k-tied paper has slopes of 5e-5 and 5e-6, which reach 1 after 20,000 and 200,000 steps; its runs on MNIST, of
    300 epochs of 49 steps, end at 0.73 and 0.07: ``px.StaircaseKL(5e-5, end_below_one=True)``.

    Args:
        slope: by how much the weight grows in a step.
        every: how many steps it stays the same.
        end_below_one: allow runs that end before the weight is 1. A note in the posterior's trace says so.

    >>> import posteriax as px
    >>> schedule = px.StaircaseKL(slope=5e-5, every=100)
    >>> round(float(schedule.weight(step=10_050, steps_per_epoch=49)), 6)
    0.5
    """

    slope: float = 5e-5
    every: int = 100
    end_below_one: bool = False

    def __post_init__(self) -> None:
        check_positive("slope", self.slope)
        check_count("every", self.every)

    def weight(self, step: Any, steps_per_epoch: int) -> Any:
        return jnp.minimum(1.0, self.slope * self.every * (step // self.every))
