"""Looking at a posterior while it is being fitted."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from posteriax._internal.checks import check_count
from posteriax.posterior import Posterior


@dataclass(frozen=True, eq=False)
class Watch:
    """A function of the posterior to call during a run, for ``px.fit(..., watch=px.Watch(function, every=100))``.

    Its results are in the trace under their names, with the steps they are of as "watched_step"; a checkpoint keeps
    them. It changes nothing of the run.

    Args:
        function: takes the posterior as it is by then, returns numbers by name.
        every: steps from one call to the next; it is also called at the end.

    >>> import equinox as eqx, jax, posteriax as px
    >>> (x, y), test = px.data.two_moons()
    >>> problem = px.Problem(eqx.nn.MLP(2, 2, 8, 1, key=jax.random.key(0)), px.Categorical())
    >>> watch = px.Watch(lambda posterior: px.evaluate(posterior.predict(test[0]), test[1]), every=20)
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

    def look(self, posterior: Posterior, taken: tuple[str, ...] = ()) -> dict[str, float]:
        """What the function finds; `taken` are the names that the run itself records."""
        found = self.function(posterior)
        if not isinstance(found, Mapping):
            raise TypeError(f"the watched function must return numbers by name, got {type(found).__name__}")
        clashes = sorted({*taken, "watched_step"} & found.keys())
        if clashes:
            raise ValueError(f"the run itself records {', '.join(clashes)}: the watched function must use other names")
        return {str(name): float(value) for name, value in found.items()}


class Watched(NamedTuple):
    """What was seen so far."""

    steps: tuple[int, ...] = ()
    values: tuple[dict[str, float], ...] = ()

    def plus(self, step: int, values: dict[str, float]) -> "Watched":
        return Watched((*self.steps, step), (*self.values, values))

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """By name, along the looks; NaN where a look had no such number."""
        if not self.steps:
            return {}
        names = dict.fromkeys(name for values in self.values for name in values)
        columns = {name: np.array([values.get(name, np.nan) for values in self.values]) for name in names}
        return {"watched_step": np.array(self.steps), **columns}
