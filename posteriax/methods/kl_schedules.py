"""Schedules for the weight of the KL term in VI: small at first, so that the means fit before the scales; 1 at the end.

    linear:     min(1, (step + 1) / steps)
    staircase:  min(1, slope * every * floor(step / every)),   constant for `every` steps at a time

A weight below 1 at the end has a different optimum from the ELBO: px.VI refuses it unless the schedule allows it.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp

from posteriax._internal.checks import check_count, check_positive


class KLSchedule(ABC):
    """A schedule that knows how long an epoch of the run is."""

    end_below_one: bool = False  # whether a run may end before the weight is 1

    @abstractmethod
    def weight(self, step: Any, steps_per_epoch: int) -> Any:
        """The KL's weight at a step."""


def kl_weight(schedule: Any, step: Any, steps_per_epoch: int) -> Any:
    """The KL's weight at a step by a :class:`KLSchedule`, a function of the step, or None: always 1."""
    if schedule is None:
        return 1.0
    return schedule(step) if callable(schedule) else schedule.weight(step, steps_per_epoch)


def check_last_weight(schedule: Any, steps: int, steps_per_epoch: int) -> tuple[str, ...]:
    """A note if the weight ends below 1, for schedules that allow it; an error for all others."""
    last = float(kl_weight(schedule, steps, steps_per_epoch))
    if abs(last - 1.0) <= 1e-6:
        return ()
    if not (isinstance(schedule, KLSchedule) and schedule.end_below_one):
        raise ValueError(f"kl_schedule must end at 1, but is {last:.4g} at the last step ({steps})")
    return (f"the KL's weight was only {last:.4g} at the end: this is not the optimum of the ELBO",)


@dataclass(frozen=True)
class LinearKL(KLSchedule):
    """The KL's weight grows linearly to 1 over `epochs` epochs, and stays there.

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
class StaircaseKL(KLSchedule):
    """The KL's weight grows by `slope` per step on average, in jumps every `every` steps, up to 1.

    The k-tied paper (Swiatkowski et al. 2020) uses slopes of 5e-5 and 5e-6, which reach 1 after 20,000 and 200,000
    steps; its runs on MNIST, 300 epochs of 49 steps, end at 0.73 and 0.07:
    ``px.StaircaseKL(5e-5, end_below_one=True)``.

    Args:
        slope: the average increase of the weight per step.
        every: steps between two jumps.
        end_below_one: allow runs that end before the weight reaches 1. The posterior's trace notes it.

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
