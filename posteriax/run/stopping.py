"""Stop rules: what may end a run before its full length, ``px.fit(..., stop=rule)``.

    rule, training = rule.for_data(problem, data, key)     the data that the rule looks at, and those left for training
    members = rule.prepare(members)                        raises if the rule does not suit the method
    observer = rule.observer(program)                      observes the loop, and ends it

    px.run.UntilLevel             optimisers: until more training would gain next to nothing   (run/until_level.py)
    px.run.UntilMixed             samplers: until the chains agree on their predictions        (run/until_mixed.py)
    px.evaluation.EarlyStopping   optimisers: the best by a score on held-out data   (evaluation/early_stopping.py)

``px.fit(..., until="converged", seconds=300)`` is the first or the second, by what the method declares. To add a rule,
derive from :class:`StopRule`; `px.fit` relies on nothing else.
"""

from abc import ABC, abstractmethod
from typing import ClassVar

import jax

from posteriax.methods.ensemble import Members
from posteriax.methods.method import Method
from posteriax.problem import Problem
from posteriax.run.feeding import TrainingData
from posteriax.run.loop import Observer
from posteriax.run.program import Program


class StopRule(ABC):
    """What ends a run early.

    Attributes:
        holds_out: whether the rule keeps data from training: nothing may be estimated from all data beforehand.

    >>> import equinox as eqx, jax, numpy as np, posteriax as px
    >>> class UntilAbove(StopRule):
    ...     def __init__(self, log_joint):
    ...         self.log_joint = log_joint
    ...     def observer(self, program):
    ...         return Above(self.log_joint)
    >>> class Above(Observer):
    ...     def __init__(self, log_joint):
    ...         self.log_joint, self.reached = log_joint, False
    ...     def next_stop(self, step):
    ...         return step + 10 - step % 10  # looks every 10 steps, however the run is divided into chunks
    ...     def after_chunk(self, run):
    ...         values = np.concatenate([infos.log_joint for infos in run.recorded])
    ...         self.reached = run.step % 10 == 0 and bool(values[-10:].mean() > self.log_joint)
    ...     def asks_to_stop(self):
    ...         return self.reached
    >>> (x, y), _ = px.data.two_moons(train=100)
    >>> problem = px.Problem(eqx.nn.MLP(2, 2, 8, 1, key=jax.random.key(0)), px.Categorical())
    >>> posterior = px.fit(problem, (x, y), px.MAP(), steps=1000, key=0, stop=UntilAbove(-200.0))
    >>> len(posterior.trace["log_joint"]) < 1000
    True
    """

    holds_out: ClassVar[bool] = False

    def for_data(self, problem: Problem, data: TrainingData, key: jax.Array) -> tuple["StopRule", TrainingData]:
        """The rule with the data that it looks at, and the data left for training: by default all of them.

        Args:
            problem: what is inferred.
            data: as given to `px.fit`, not yet checked.
            key: the run's.
        """
        return self, data

    def prepare(self, members: Members) -> Members:
        """The members as the rule needs them, by default unchanged; raises if it cannot end a run of theirs."""
        return members

    @abstractmethod
    def observer(self, program: Program) -> Observer:
        """The observer that ends the run: it did so if its `asks_to_stop` is true at the end."""


def check_optimises(argument: str, method: Method) -> None:
    """Raise if a method has no posterior during its run."""
    if method.samples:
        raise ValueError(
            f"{argument} is for methods that optimise: {method.name} has no posterior before its end. A sampler's run "
            f"ends early with stop=px.run.UntilMixed(x)"
        )
