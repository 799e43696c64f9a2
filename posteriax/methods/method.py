"""What the driver asks of a method."""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import jax

from posteriax.data import Batch
from posteriax.posterior import Posterior, Trace
from posteriax.problem import Problem, Unknowns

State = Any  # a pytree: all that the next step needs
Info = Any  # a NamedTuple of scalars; its first field must stay finite, and is what progress shows


@dataclass(frozen=True, eq=False)
class Target:
    """A problem and the facts of the run that are known before it starts.

    Args:
        problem: what is inferred.
        example: shape and dtype of one example of x.
        num_examples: N.
        steps: how many steps the run will take, for schedules.
        steps_per_epoch: how many of them see the whole data set once.
        couples_examples: whether the network's outputs for one example depend on the others in its batch.
        warmup: how many of the steps are thrown away, for samplers.
        data_axis: the axis of devices that examples are split over, if they are.
    """

    problem: Problem
    example: Any
    num_examples: int
    steps: int
    couples_examples: bool = False
    steps_per_epoch: int = 1
    warmup: int = 0
    data_axis: str | None = None


class Lengths(NamedTuple):
    """How long a sampler runs: steps that are thrown away first, and steps from one kept draw to the next."""

    warmup: int
    thin: int


class Method(Protocol):
    """Settings, and pure functions over a state. One step is one optimiser step or one transition.

    `full_batch`: whether a step needs the whole data set. `samples`: whether the run's result is the states it went
    through (a sampler) rather than the last one (an optimiser).
    """

    full_batch: ClassVar[bool]
    samples: ClassVar[bool]

    def prepare(self, target: Target) -> tuple[str, ...]:
        """Check the settings against the target before anything is compiled; returns notes for the trace."""
        ...

    def init(self, target: Target, key: jax.Array, start: Unknowns, batch: Batch) -> State: ...

    def step(self, target: Target, key: jax.Array, state: State, batch: Batch) -> tuple[State, Info]: ...

    def finish(self, target: Target, states: State, draws: Any, trace: Trace) -> Posterior:
        """The posterior of all members: states and draws have a leading axis of members (draws then one of draws)."""
        ...


class Sampler(Method, Protocol):
    """A method whose states are draws, after a warm-up that is thrown away."""

    def lengths(self, steps_per_epoch: int) -> Lengths: ...

    def draw(self, target: Target, state: State) -> Unknowns: ...

    def inspect(self, trace: Trace) -> None:
        """Raise if the warm-up that `trace` recorded has failed beyond use."""
        ...
