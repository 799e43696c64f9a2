"""The contract of a method: settings that are bound once to a task, and the kernel that the driver then runs.

    kernel = method.bind(task)                            everything that can be decided before the first step
    state = kernel.init(key, start, batch)                a pytree
    state, info = kernel.step(key, state, batch)          pure and jittable: one optimiser step or one transition
    posterior = kernel.finish(states, draws, trace)

To add a method, derive from :class:`Method` and :class:`Kernel`; the driver relies on nothing else.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import optax
from jaxtyping import PyTree

from posteriax._internal.leaf_paths import describe_leaves
from posteriax.data.batches import Batch
from posteriax.posterior.draws import DrawsPosterior
from posteriax.posterior.posterior import Posterior
from posteriax.posterior.trace import Trace
from posteriax.problem import Latents, Problem

State = Any  # a pytree: all that the next step needs
Info = Any  # a NamedTuple of arrays
Draws = Any  # of a sampler: latents with leading axes (members, draws), in memory or on disk


@dataclass(frozen=True, kw_only=True, eq=False)
class Task:
    """A problem to infer, and what is known about the run before it starts.

    Args:
        problem: what is inferred.
        example: shape and dtype of one example of x.
        num_examples: how many rows the data set has.
        total_weight: the sum of the examples' weights, if they have weights.
        steps: how many steps the run takes, for schedules.
        steps_per_epoch: how many of them pass over the data set once.
        couples_examples: whether the network's outputs for one example depend on the others in its batch.
        warmup: how many of the steps are a sampler's warm-up.
        thin: steps from one kept draw of a sampler to the next.
        data_axis: for methods of the whole data set, the mesh axis over which examples are split, if they are: sums
            over examples must then be summed over this axis. (Other methods always see complete batches.)
    """

    problem: Problem
    example: PyTree
    num_examples: int
    steps: int
    steps_per_epoch: int = 1
    couples_examples: bool = False
    warmup: int = 0
    thin: int = 1
    data_axis: str | None = None
    total_weight: float | None = None

    @property
    def counted_examples(self) -> float:
        """N: the number of examples that the log-likelihood sums over, each counted with its weight."""
        return self.num_examples if self.total_weight is None else self.total_weight


class RunLength(NamedTuple):
    """A sampler's warm-up, and the steps from one kept draw to the next."""

    warmup: int
    thin: int


class Method(ABC):
    """How to infer: a frozen dataclass of settings.

    Attributes:
        full_batch: whether every step needs the whole data set.
        samples: whether the result is the states that the run visits (a sampler), or the last one (an optimiser).
        sums_over_devices: whether a method of the whole data set sums its log joint over the devices that examples are
            split over (`Task.data_axis`). A mesh that splits them is refused for one that does not say so.
        fixed_length: whether an optimiser's result needs the run to reach its end, so that it cannot stop early.
        micro_batches: how many parts of equal size a full batch is cut into.
        start: where members start, if the method decides it: "prior", or a posterior that provides draws. Anything else
            leaves it to the ensemble: by default the network's own weights.
        arviz_names: ArviZ's names for what `step` records, where they differ from the method's own.

    A method of your own derives from this class and works everywhere a method does; CONTRIBUTING.md shows how.

    >>> import posteriax as px
    >>> issubclass(px.HMC, px.Method), px.HMC.samples, px.HMC.full_batch, px.MAP.samples
    (True, True, True, False)
    """

    full_batch: ClassVar[bool] = False
    samples: ClassVar[bool] = False
    sums_over_devices: ClassVar[bool] = False
    fixed_length: ClassVar[bool] = False
    arviz_names: ClassVar[Mapping[str, str]] = {}
    micro_batches: int = 1
    start: Any = "network"

    @property
    def name(self) -> str:
        """What messages and the progress bar call it."""
        return type(self).__name__

    def run_length(self, steps_per_epoch: int) -> RunLength:
        """For samplers: how long they warm up, and how far apart their draws are."""
        return RunLength(0, 1)

    @abstractmethod
    def bind(self, task: Task) -> "Kernel":
        """Check the settings against the task, and decide whatever can be decided before anything is compiled."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Kernel(ABC):
    """A method bound to a task.

    Args:
        method: its settings.
        task: what it infers.
        notes: what a user should know about how the run was set up, one line each; kept in the posterior's trace.

    >>> import numpy as np, posteriax as px
    >>> problem = px.Problem((lambda w, x: x @ w, np.zeros((2, 1), np.float32)), px.Normal(scale=1.0))
    >>> task = px.methods.Task(
    ...     problem=problem, example=jax.ShapeDtypeStruct((2,), np.float32), num_examples=10, steps=5
    ... )
    >>> isinstance(px.MAP().bind(task), px.Kernel)
    True
    """

    method: Method
    task: Task
    notes: tuple[str, ...] = ()

    @property
    def problem(self) -> Problem:
        return self.task.problem

    @abstractmethod
    def init(self, key: jax.Array, start: Latents, batch: Batch) -> State:
        """The state before the first step. `batch` is the whole data set, or the first batch of a loader."""

    @abstractmethod
    def step(self, key: jax.Array, state: State, batch: Batch) -> tuple[State, Info]:
        """One step, and what it records: every field of `Info` appears in the trace by name.

        The run stops if the first field is not finite; the progress bar shows it. For samplers, `posterior.diagnose()`
        reads the fields acceptance, divergent, energy and step_size.
        """

    def draw(self, state: State) -> Latents:
        """The draw that a sampler's state holds."""
        raise NotImplementedError(f"{self.method.name} does not sample")

    def check_warmup(self, trace: Trace) -> None:
        """Raise if the warm-up recorded in `trace` has failed."""
        return

    def finish(self, states: State, draws: Draws, trace: Trace) -> Posterior:
        """The posterior of all members.

        Args:
            states: the final states, with a leading axis of members.
            draws: a sampler's draws, with leading axes (members, draws).
            trace: what the steps recorded.
        """
        return DrawsPosterior(self.problem, trace, draws)


@dataclass(frozen=True, kw_only=True, eq=False)
class OptimizingKernel(Kernel):
    """A kernel that steps with an optimiser and keeps its state in the field `optimizer` of its own state.

    Recording gradients (``px.run.GradientNoise``) wraps the optimiser in one that records.
    """

    optimizer: optax.GradientTransformation


def check_start(start: object, allowed: tuple[str, ...]) -> None:
    """Raise if a method's start is neither one of the allowed words nor a posterior."""
    if not isinstance(start, Posterior) and start not in allowed:
        raise ValueError(f"start must be one of {', '.join(allowed)}, or a posterior, got {start!r}")


def check_same_network(posterior: Posterior, problem: Problem) -> None:
    """Raise if a posterior used as a start belongs to a different network."""
    expected, given = describe_leaves(problem.latents), describe_leaves(posterior.template)
    if expected != given:
        raise ValueError(f"start is a posterior of another network: it has {given}, the problem has {expected}")
