"""Stopping early: the run's state that is best on held-out data, and an end once it no longer gets better.

The loop knows only what a rule declares here. What is measured on the held-out data is up to the rule: scores belong to
a room above this one, so `px.EarlyStopping`, which knows them by name, lives there and derives from
:class:`StoppingRule`.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np

from posteriax import distributed
from posteriax._internal.checks import check_count, check_data, check_positive
from posteriax.data.sources import is_large, is_loader
from posteriax.posterior.posterior import Posterior
from posteriax.posterior.trace import Trace
from posteriax.problem import Problem
from posteriax.run.checkpoint import digest
from posteriax.run.loop import Observer, Run
from posteriax.run.program import Program

SPLIT = 2**32 - 1  # the stream that the split is drawn from; members count from 0


@dataclass(frozen=True, kw_only=True, eq=False)
class StoppingRule(ABC):
    """What ends a run early; :class:`px.EarlyStopping` explains the settings.

    Args:
        patience: evaluations without improvement after which the run ends.
        every: epochs between evaluations.
        validation: the held-out ``(x, y)``.
        fraction: the part of the training data to hold out instead.
    """

    patience: int = 10
    every: float = 1
    validation: Any = None
    fraction: float | None = None

    def __post_init__(self) -> None:
        check_count("patience", self.patience)
        check_positive("every", self.every)
        if (self.validation is None) == (self.fraction is None):
            raise ValueError("give either validation=(x, y), or fraction= to hold out a part of the training data")
        if self.fraction is not None and not 0 < self.fraction < 1:
            raise ValueError(f"fraction must lie strictly between 0 and 1, got {self.fraction!r}")

    @property
    @abstractmethod
    def name(self) -> str:
        """What is measured, as the trace calls it."""

    @property
    @abstractmethod
    def settings(self) -> str:
        """Whatever else the measured values depend on, for the identity of a checkpoint."""

    @abstractmethod
    def check(self, problem: Problem, x: Any, y: Any) -> None:
        """Raise if it cannot be measured for this problem and these data."""

    @abstractmethod
    def measure(self, posterior: Posterior, x: Any, y: Any) -> float:
        """The value on the held-out data; the same whenever it is called with the same posterior."""

    @abstractmethod
    def loss(self, value: float) -> float:
        """The value so that lower is better."""


class HeldOut(NamedTuple):
    """A rule with the data that it measures on, and the data that are left for training."""

    rule: StoppingRule
    x: Any
    y: np.ndarray
    training: Any


def hold_out(rule: StoppingRule, problem: Problem, data: Any, key: jax.Array) -> HeldOut:
    """Split off the validation data, or check those that were given."""
    if rule.fraction is None:
        (x, y), training = _named("validation", check_data, rule.validation), data
        _named("validation", problem.check, (x, y))
    else:
        (x, y), training = _split(rule.fraction, problem, data, key)
    rule.check(problem, x, y)
    return HeldOut(rule, x, y, training)


def _named(argument: str, check: Any, data: Any) -> Any:
    try:
        return check(data)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{argument}: {error}") from error


def _split(fraction: float, problem: Problem, data: Any, key: jax.Array) -> tuple[Any, Any]:
    if is_loader(data):
        raise ValueError("fraction= needs arrays to split, not a loader: give validation=(x, y)")
    problem.check_weighted(data)
    x, *others = data
    if is_large(x):
        raise ValueError("fraction= would copy data that stay on the host or on disk: give validation=(x, y)")
    arrays = (jax.tree.map(np.asarray, x), *map(np.asarray, others))
    n = len(arrays[1])
    held = round(fraction * n)
    if not 0 < held < n:
        raise ValueError(f"fraction={fraction:g} of {n} examples holds out {held}: both parts need at least one")
    order = np.asarray(jax.random.permutation(jax.random.fold_in(key, np.uint32(SPLIT)), n))
    # in the data's own order, and validation examples count the same whatever their weight
    first, rest = np.sort(order[:held]), np.sort(order[held:])
    taken, left = (jax.tree.map(lambda a, rows=rows: a[rows], arrays) for rows in (first, rest))
    return taken[:2], left


class StopEarly(Observer):
    """Evaluates the posterior at the rule's steps, keeps the best state, and ends the run when the rule says so."""

    def __init__(self, held_out: HeldOut, program: Program):
        self.rule, self.held_out, self.program = held_out.rule, held_out, program
        self.every = max(1, round(self.rule.every * program.task.steps_per_epoch))
        self.steps: list[int] = []
        self.values: list[float] = []
        self.best = 0  # its place among them
        self.leaves: list[np.ndarray] = []  # of the best state

    def identity(self) -> dict[str, str]:
        """What the run's result depends on, for its checkpoint."""
        data = digest((self.held_out.x, self.held_out.y))
        return {"early stopping": f"{self.rule.settings}, patience {self.rule.patience}, every {self.every}, {data}"}

    def next_stop(self, step: int) -> int:
        return step + self.every - step % self.every

    def asks_to_stop(self) -> bool:
        return len(self.steps) > self.best + self.rule.patience

    def after_chunk(self, run: Run) -> None:
        if run.step % self.every and run.step != self.program.task.steps:
            return
        posterior = self.program.kernel.finish(distributed.to_host(run.states), None, Trace({}))
        value = self.rule.measure(posterior, self.held_out.x, self.held_out.y)
        if np.isnan(value):
            raise FloatingPointError(f"the validation {self.rule.name} is NaN at step {run.step}")
        self.steps.append(run.step)
        self.values.append(value)
        if not self.leaves or self.rule.loss(value) < self.rule.loss(self.values[self.best]):
            self.best = len(self.steps) - 1
            # copies: the next chunk overwrites them
            self.leaves = [np.array(leaf) for leaf in jax.tree.leaves(distributed.gathered(run.states))]

    def saved(self) -> dict[str, Any]:
        return {"validation_step": self.steps, "validation": self.values, "best": self.best}

    def saved_arrays(self) -> dict[str, np.ndarray]:
        return {f"best:{i}": leaf for i, leaf in enumerate(self.leaves)}

    def restore(self, saved: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        self.steps, self.values, self.best = saved["validation_step"], saved["validation"], saved["best"]
        self.leaves = [arrays[f"best:{i}"] for i in range(sum(name.startswith("best:") for name in arrays))]

    def chosen(self, states: Any) -> Any:
        return jax.tree.unflatten(jax.tree.structure(states), self.leaves) if self.leaves else states

    def trace_arrays(self) -> dict[str, np.ndarray]:
        return {"validation_step": np.array(self.steps), f"validation_{self.rule.name}": np.array(self.values)}

    def notes(self) -> tuple[str, ...]:
        if not self.steps:
            return ()
        total, last, best = (self._epochs(step) for step in (self.program.task.steps, self.steps[-1], self._best_step))
        value = f"validation {self.rule.name} {self.values[self.best]:.4g}"
        if self.asks_to_stop() and self.steps[-1] < self.program.task.steps:
            return (f"stopped at epoch {last} of {total}; best at {best}: {value}",)
        return (f"best at epoch {best} of {total}: {value}",)

    @property
    def _best_step(self) -> int:
        return self.steps[self.best]

    def _epochs(self, step: int) -> str:
        return f"{step / self.program.task.steps_per_epoch:.4g}"
