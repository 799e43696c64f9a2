"""Early stopping: the best posterior of a run by a score on held-out data, and an end once it no longer improves.

every `every` epochs    the posterior of the current state is scored on the held-out data
best                    the state with the best score so far; the posterior is made of it
end                     after `patience` scores that are no better than the best
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import jax
import numpy as np

from posteriax import distributed
from posteriax._internal.checks import check_count, check_data, check_fraction, check_positive
from posteriax.data.sources import is_large, is_loader
from posteriax.evaluation.evaluate import evaluate
from posteriax.methods.ensemble import Members
from posteriax.metrics.registry import choose
from posteriax.metrics.score import Score
from posteriax.posterior.posterior import Posterior
from posteriax.posterior.trace import Trace
from posteriax.problem import Problem
from posteriax.run.checkpoint import digest_arrays
from posteriax.run.feeding import Inputs, TrainingData
from posteriax.run.loop import Observer, Run
from posteriax.run.program import Program, States
from posteriax.run.stopping import StopRule, check_optimises

SPLIT = 2**32 - 1  # the stream that the split is drawn from; members count from 0


@dataclass(frozen=True, kw_only=True, eq=False)
class EarlyStopping(StopRule):
    """The best posterior by a score on held-out data, for ``px.fit(..., stop=px.evaluation.EarlyStopping(...))``.

    The run ends after `patience` evaluations without improvement, and at its full length otherwise; either way the
    posterior is that of the best evaluation. The trace has the values ("validation_nll") and their steps
    ("validation_step"), and a note that says when it stopped. A checkpoint stores the best state, so that a resumed run
    ends the same, bit for bit.

    For methods that optimise. The members of an ensemble stop together, by the score of their joint predictive: that is
    what the ensemble is for. Samplers and SWAG, whose posterior is collected until the end, are refused.

    Args:
        metric: a score that :func:`px.evaluate` takes, by name, or a :class:`px.metrics.Score`.
        patience: evaluations without improvement after which the run ends.
        every: epochs between evaluations; fractions are fine. The last step is always evaluated.
        validation: held-out data ``(x, y)``.
        fraction: the part of the training data to hold out instead, drawn by the run's key. The posterior is then that
            of the remaining examples: N, and with it the weight of the likelihood against the prior, is theirs.
        draws: draws of the weights to predict with; the same random numbers at every evaluation.

    >>> import equinox as eqx, jax, posteriax as px
    >>> (x, y), _ = px.data.two_moons(train=100)
    >>> problem = px.Problem(eqx.nn.MLP(2, 2, 8, 1, key=jax.random.key(0)), px.Categorical())
    >>> stop = px.evaluation.EarlyStopping(fraction=0.2, patience=3, every=20)
    >>> posterior = px.fit(problem, (x, y), px.MAP(), epochs=100, key=0, stop=stop)
    >>> posterior.trace["validation_nll"].shape == posterior.trace["validation_step"].shape
    True
    """

    holds_out: ClassVar[bool] = True
    patience: int = 10
    every: float = 1
    validation: TrainingData = None
    fraction: float | None = None
    metric: str | Score = "nll"
    draws: int = 32
    score: Score = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check_count("patience", self.patience)
        check_positive("every", self.every)
        if (self.validation is None) == (self.fraction is None):
            raise ValueError("give either validation=(x, y), or fraction= to hold out a part of the training data")
        if self.fraction is not None:
            check_fraction("fraction", self.fraction)
        check_count("draws", self.draws)
        (score,) = choose([self.metric], None)
        if score.against_reference or score.per_example is None or score.better is None:
            raise ValueError(f"metric {score.name!r} cannot say which of two posteriors is better on held-out data")
        object.__setattr__(self, "score", score)

    def for_data(self, problem: Problem, data: TrainingData, key: jax.Array) -> tuple["EarlyStopping", TrainingData]:
        """Split off the validation data, or check those that were given."""
        if self.fraction is None:
            (x, y), training = _named("validation", check_data, self.validation), data
            _named("validation", problem.check, (x, y))
        else:
            (x, y), training = _split(self.fraction, problem, data, key)
        self.check(problem, x, y)
        return replace(self, validation=(x, y), fraction=None), training

    def prepare(self, members: Members) -> Members:
        method = members.kernel.method
        check_optimises("stop=", method)
        if method.fixed_length:
            raise ValueError(f"stop= is not for {method.name}: its posterior is collected until the end of the run")
        return members

    def observer(self, program: Program) -> "StopEarly":
        return StopEarly(self, program)

    @property
    def name(self) -> str:
        """What is measured, as the trace calls it."""
        return self.score.name

    @property
    def settings(self) -> str:
        """What else the measured values depend on, for the identity of a checkpoint."""
        return f"{self.name} of {self.draws} draws"

    def check(self, problem: Problem, x: Inputs, y: np.ndarray) -> None:
        """Raise if the score cannot be computed for this problem and these data."""
        shape, latents = problem.output_spec(x).shape, problem.likelihood.latents()
        one_draw = jax.tree.map(lambda leaf: np.asarray(leaf)[None], latents)
        predictive = problem.likelihood.predictive(np.zeros((1, *shape), np.float32), one_draw)
        try:  # on outputs that are all 0
            evaluate(predictive, y, scores=[self.score])
        except (TypeError, ValueError) as error:
            raise ValueError(f"metric {self.name!r} does not suit {problem.likelihood!r}: {error}") from error

    def measure(self, posterior: Posterior, x: Inputs, y: np.ndarray) -> float:
        """The value on the held-out data; the same whenever it is called with the same posterior."""
        return evaluate(posterior.predict(x, draws=self.draws), y, scores=[self.score])[self.name]

    def loss(self, value: float) -> float:
        """The value, turned so that lower is better."""
        return self.score.loss(value)


def _named(argument: str, check: Callable[[TrainingData], Any], data: TrainingData) -> Any:
    try:
        return check(data)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{argument}: {error}") from error


def _split(
    fraction: float, problem: Problem, data: TrainingData, key: jax.Array
) -> tuple[tuple[Inputs, np.ndarray], TrainingData]:
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

    def __init__(self, rule: EarlyStopping, program: Program):
        self.rule, self.program = rule, program
        self.x, self.y = rule.validation
        self.every = max(1, round(rule.every * program.task.steps_per_epoch))
        self.steps: list[int] = []
        self.values: list[float] = []
        self.best = 0  # the index of the best among them
        self.leaves: list[np.ndarray] = []  # of the best state

    def identity(self) -> dict[str, str]:
        data = digest_arrays((self.x, self.y))
        return {"early stopping": f"{self.rule.settings}, patience {self.rule.patience}, every {self.every}, {data}"}

    def next_stop(self, step: int) -> int:
        return step + self.every - step % self.every

    def asks_to_stop(self) -> bool:
        return len(self.steps) > self.best + self.rule.patience

    def after_chunk(self, run: Run) -> None:
        if run.step % self.every and run.step != self.program.task.steps:
            return
        posterior = self.program.kernel.finish(distributed.to_host(run.states), None, Trace({}))
        value = self.rule.measure(posterior, self.x, self.y)
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

    def chosen(self, states: States) -> States:
        return jax.tree.unflatten(jax.tree.structure(states), self.leaves) if self.leaves else states

    def trace_arrays(self) -> dict[str, np.ndarray]:
        return {"validation_step": np.array(self.steps), f"validation_{self.rule.name}": np.array(self.values)}

    def notes(self) -> tuple[str, ...]:
        if not self.steps:
            return ()
        total, last, best = (
            self._epochs(step) for step in (self.program.task.steps, self.steps[-1], self.steps[self.best])
        )
        value = f"validation {self.rule.name} {self.values[self.best]:.4g}"
        if self.asks_to_stop() and self.steps[-1] < self.program.task.steps:
            return (f"stopped at epoch {last} of {total}; best at {best}: {value}",)
        return (f"best at epoch {best} of {total}: {value}",)

    def _epochs(self, step: int) -> str:
        return f"{step / self.program.task.steps_per_epoch:.4g}"
