"""Training until the objective has levelled off: a learning rate that drops while that helps, then falls to 0.

    level at step t     the objective's rise over the second half of the steps at this rate, t0 to t, is smaller than
                        max(tolerance N, its standard error)
    then                the rate is divided by 4. If the objective, level again, is higher than before by more than
                        max(5 tolerance N, its standard error), it was level only because of the size of the steps
    otherwise           every update is scaled by (1 + cos(pi s / S)) / 2, s = 1 ... S, S = t/2, and the run ends

How long a run must be is not known before it starts, so that a schedule over a given number of steps either ends too
early or wastes time. The rule looks at the run at fixed steps, so that results do not depend on chunking.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from posteriax._internal.checks import check_count, check_positive
from posteriax.diagnostics.training import mean_and_error, rise_and_error
from posteriax.methods.ensemble import Members
from posteriax.methods.method import OptimizingKernel
from posteriax.run.loop import Observer, Run
from posteriax.run.program import Program
from posteriax.run.stopping import StopRule

GROWTH = 1.25  # from one look at the objective to the next
DROP = 4.0  # what the rate is divided by
WORTHWHILE = 5.0  # how many tolerances a drop must gain for another one to follow
FEWEST = 32  # steps from one look to the next
NOT_YET = -1
KEPT = ("level", "begun", "last", "since", "first", "drops", "before")  # what a checkpoint stores of the rule


@dataclass(frozen=True, kw_only=True)
class UntilLevel(StopRule):
    """Train until more would gain next to nothing, for ``px.fit(..., steps=100_000, stop=px.run.UntilLevel())``.

    The learning rate stays as it is until the objective (the log joint or the ELBO) has levelled off. It is then
    divided by four, again and again while that raises the objective further: where data have little noise, the
    objective can be level only because the steps are too large. When it no longer helps, the rate falls to 0 over half
    as many steps, and the run ends; at the latest after the given `steps` or `epochs`. The trace has `level_step`, the
    step at which the objective was finally level, -1 if it never was; `trace.converged` and `posterior.diagnose()` read
    it.

    For methods with an optimiser: px.MAP, px.VI, and ensembles of them, whose members end together.

    Args:
        tolerance: the objective is level if the second half of the steps at this rate raised it by less than this many
            nats per example, or by no more than its noise. A drop of the rate must gain five times as much.
        fewest: steps before the first look.
        seconds: after two thirds of them the learning rate begins to fall whether or not the objective is level, and
            reaches 0 when they are over. Compiling counts, but leaves at least a third of them for training. The result
            then depends on the speed of the machine; without `seconds`, it depends on the key alone.

    >>> import equinox as eqx, jax, posteriax as px
    >>> (x, y), _ = px.data.two_moons(train=100)
    >>> problem = px.Problem(eqx.nn.MLP(2, 2, 8, 1, key=jax.random.key(0)), px.Categorical())
    >>> posterior = px.fit(problem, (x, y), px.MAP(), steps=20_000, key=0, stop=px.run.UntilLevel(fewest=200))
    >>> posterior.diagnose().converged, len(posterior.trace["log_joint"]) < 20_000
    (True, True)
    """

    tolerance: float = 0.02
    fewest: int = 1000
    seconds: float | None = None

    def __post_init__(self) -> None:
        check_positive("tolerance", self.tolerance)
        check_count("fewest", self.fewest)
        if self.fewest < FEWEST:
            raise ValueError(
                f"fewest must be at least {FEWEST} steps, to see a trend in the second half, got {self.fewest}"
            )
        if self.seconds is not None:
            check_positive("seconds", self.seconds)

    @property
    def settings(self) -> str:
        """What the run's result depends on, for the identity of its checkpoint."""
        limit = "" if self.seconds is None else f", {self.seconds:g} seconds"
        return f"until level within {self.tolerance:g} nats, looking from step {self.fewest}{limit}"

    def prepare(self, members: Members) -> Members:
        """The same members, whose updates can be made to fall to 0."""
        kernel = members.kernel
        if not isinstance(kernel, OptimizingKernel):
            raise ValueError(
                f"px.run.UntilLevel() is for methods with an optimizer (px.MAP, px.VI), not {kernel.method.name}"
            )
        return replace(members, kernel=replace(kernel, optimizer=_falling(kernel.optimizer)))

    def observer(self, program: Program) -> "StopWhenLevel":
        return StopWhenLevel(self, program)


class FallingState(NamedTuple):
    """An optimiser's state, and where in the fall of its rate it is."""

    inner: optax.OptState
    step: jax.Array
    rate: jax.Array  # before the fall, relative to that of the optimiser
    begun: jax.Array  # the step at which the rate began to fall, or NOT_YET
    length: jax.Array  # of the fall, in steps


def _falling(optimizer: optax.GradientTransformation) -> optax.GradientTransformation:
    def init(params: optax.Params) -> FallingState:
        return FallingState(optimizer.init(params), jnp.int32(0), jnp.float32(1), jnp.int32(NOT_YET), jnp.int32(1))

    def update(
        gradient: optax.Updates, state: FallingState, params: optax.Params | None = None
    ) -> tuple[optax.Updates, FallingState]:
        updates, inner = optimizer.update(gradient, state.inner, params)
        fallen = jnp.clip((state.step + 1 - state.begun) / state.length, 0.0, 1.0)
        scale = state.rate * jnp.where(state.begun < 0, 1.0, (1.0 + jnp.cos(jnp.pi * fallen)) / 2)
        updates = jax.tree.map(lambda leaf: (scale * leaf).astype(leaf.dtype), updates)
        return updates, state._replace(inner=inner, step=state.step + 1)

    return optax.GradientTransformation(init, update)


class StopWhenLevel(Observer):
    """Watches the objective, lowers the learning rate while that helps, and ends the run when it has fallen to 0."""

    def __init__(self, rule: UntilLevel, program: Program):
        self.rule, self.program = rule, program
        self.tolerance = rule.tolerance * program.task.counted_examples
        self.level = self.begun = NOT_YET
        self.last = program.task.steps
        self.since, self.first = 0, rule.fewest  # the step of the last drop, and how long after it the first look is
        self.drops = 0
        self.before: tuple[float, float] | None = None  # the objective before the last drop, and its standard error
        self.over = False
        self.began: float | None = None  # seconds of the run at the end of the first chunk

    def identity(self) -> dict[str, str]:
        return {"stopping": self.rule.settings}

    def next_stop(self, step: int) -> int:
        return self.last if self.begun != NOT_YET else self.since + _next_look(step - self.since, self.first)

    def asks_to_stop(self) -> bool:
        return self.over

    def after_chunk(self, run: Run) -> None:
        left = self._seconds_left(run)
        if self.begun == NOT_YET and run.step < self.last:
            if run.step == self.next_stop(run.step - 1) and self._is_level(run):
                self._drop_or_end(run)
            elif left < (self.rule.seconds or 0.0) / 3:
                self._begin_to_fall(run, max(int(run.rate * left), 1))
        self.over = run.step >= self.last or left < 0

    def saved(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in KEPT}

    def restore(self, saved: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        for name in KEPT:
            setattr(self, name, saved[name])

    def trace_arrays(self) -> dict[str, np.ndarray]:
        return {"level_step": np.array([self.level]), "converged": np.array([self.level != NOT_YET])}

    def notes(self) -> tuple[str, ...]:
        if self.level != NOT_YET:
            lower = f", at 1/{DROP**self.drops:.0f} of the learning rate," if self.drops > 1 else ""
            return (f"converged: the objective was level after {self.level} steps{lower} and the rate then fell to 0",)
        if self.begun != NOT_YET:
            return (
                f"not converged: time ran out, and the objective was still rising when the learning rate fell from "
                f"step {self.begun}",
            )
        return ("not converged: the objective had not levelled off when the run ended",)

    def _seconds_left(self, run: Run) -> float:
        if self.began is None:
            self.began = run.seconds
        if (limit := self.rule.seconds) is None:
            return math.inf
        return max(limit - self.began, limit / 3) - (run.seconds - self.began)

    def _recent(self, run: Run) -> np.ndarray:
        """The objective in the second half of the steps at this rate, (members, steps)."""
        objective = np.concatenate([np.asarray(infos[0], np.float64) for infos in run.recorded])
        return objective[self.since + (run.step - self.since) // 2 : run.step].T

    def _is_level(self, run: Run) -> bool:
        rise, error = rise_and_error(self._recent(run))
        # members average: each by itself would be noisier, and the unluckiest would decide
        noise = np.sqrt(np.square(error).mean() / len(error))
        return bool(rise.mean() < max(self.tolerance, noise))

    def _drop_or_end(self, run: Run) -> None:
        """Lower the rate if that was never done or last time was worthwhile; otherwise let it fall to 0."""
        mean, error = mean_and_error(self._recent(run).mean(axis=0))
        if self.before is not None:
            gain, noise = mean - self.before[0], math.hypot(error, self.before[1])
            if gain < max(WORTHWHILE * self.tolerance, noise):
                self.level = run.step
                return self._begin_to_fall(run, max(run.step // 2, 1))
        self.before, self.since, self.first = (mean, error), run.step, max(run.step // 4, FEWEST)
        self.drops += 1
        self._set(run, rate=np.float32(DROP**-self.drops))

    def _begin_to_fall(self, run: Run, length: int) -> None:
        self.begun = run.step
        self.last = min(run.step + length, self.program.task.steps)
        self._set(run, begun=np.int32(run.step), length=np.int32(self.last - run.step))

    def _set(self, run: Run, **values: np.generic) -> None:
        """Set fields of the optimiser's state, the same for all members."""
        state: FallingState = run.states.optimizer
        by_member = [np.full(self.program.members, value) for value in values.values()]
        placed = dict(zip(values, self.program.place(by_member, "members"), strict=True))
        run.states = run.states._replace(optimizer=state._replace(**placed))


def _next_look(step: int, fewest: int) -> int:
    """The next step after `step` at which the objective is looked at.

    >>> [_next_look(step, 100) for step in (0, 99, 100, 124, 125)]
    [100, 100, 125, 125, 156]
    """
    look = fewest
    while look <= step:
        look = int(look * GROWTH)
    return look
