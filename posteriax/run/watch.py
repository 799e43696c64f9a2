"""Watching a posterior while it is being fitted."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from posteriax import distributed
from posteriax._internal.checks import check_count
from posteriax.posterior.posterior import Posterior
from posteriax.posterior.trace import Trace
from posteriax.run.loop import Observer, Run
from posteriax.run.program import Program


@dataclass(frozen=True, eq=False)
class Watch:
    """A function of the posterior to call during a run, for ``px.fit(..., watch=px.run.Watch(function, every=100))``.

    The trace holds its results under their names, and the steps at which it was called as "watched_step"; a checkpoint
    stores them. Watching does not change the run.

    Args:
        function: takes the current posterior, returns numbers by name.
        every: steps between calls; it is also called at the end.

    >>> import equinox as eqx, jax, posteriax as px
    >>> (x, y), test = px.data.two_moons()
    >>> problem = px.Problem(eqx.nn.MLP(2, 2, 8, 1, key=jax.random.key(0)), px.Categorical())
    >>> watch = px.run.Watch(lambda posterior: px.evaluate(posterior.predict(test[0]), test[1]), every=20)
    >>> posterior = px.fit(problem, (x, y), px.MAP(), steps=50, key=0, watch=watch)
    >>> posterior.trace["watched_step"].tolist(), posterior.trace["accuracy"].shape
    ([20, 40, 50], (3,))
    """

    function: Callable[[Posterior], Mapping[str, Any]]
    every: int

    def __post_init__(self) -> None:
        check_count("every", self.every)
        if not callable(self.function):
            raise TypeError(f"function must take a posterior and return numbers by name, got {self.function!r}")


class WatchObserver(Observer):
    """Calls a watch's function at its steps and keeps the results, also in the run's checkpoint."""

    def __init__(self, watch: Watch, program: Program):
        self.watch, self.program = watch, program
        self.steps: list[int] = []
        self.values: list[dict[str, float]] = []

    def next_stop(self, step: int) -> int:
        return step + self.watch.every - step % self.watch.every

    def after_chunk(self, run: Run) -> None:
        if run.step % self.watch.every == 0 or run.step == self.program.task.steps:
            # a copy of the states: the next chunk overwrites them
            posterior = self.program.kernel.finish(distributed.to_host(run.states), None, Trace({}))
            self.values.append(self._call(posterior, taken=run.recorded[-1]._fields))
            self.steps.append(run.step)

    def saved(self) -> dict[str, Any]:
        return {"watched_step": self.steps, "watched": self.values}

    def restore(self, saved: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        self.steps, self.values = list(saved.get("watched_step", ())), list(saved.get("watched", ()))

    def trace_arrays(self) -> dict[str, np.ndarray]:
        """By name, one value per call; NaN where a call did not return that number."""
        if not self.steps:
            return {}
        names = dict.fromkeys(name for values in self.values for name in values)
        columns = {name: np.array([values.get(name, np.nan) for values in self.values]) for name in names}
        return {"watched_step": np.array(self.steps), **columns}

    def _call(self, posterior: Posterior, taken: tuple[str, ...]) -> dict[str, float]:
        numbers = self.watch.function(posterior)
        if not isinstance(numbers, Mapping):
            raise TypeError(f"the watched function must return numbers by name, got {type(numbers).__name__}")
        clashes = sorted({*taken, "watched_step"} & numbers.keys())
        if clashes:
            raise ValueError(f"the run itself records {', '.join(clashes)}: the watched function must use other names")
        return {str(name): float(value) for name, value in numbers.items()}
