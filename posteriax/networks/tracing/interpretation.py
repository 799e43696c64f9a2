"""Abstract interpretation: follow what a question wants to know of each value through a network's program.

A question says what an operation makes of its operands; calls, loops and branches are followed here.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar, Generic, TypeVar

from jax.extend.core import Jaxpr, JaxprEqn, Literal

from posteriax.networks.tracing.program import called_program

V = TypeVar("V")  # what is known about a value; compared by ==


class Interpretation(ABC, Generic[V]):
    """A question to a program. What is known about a value in a loop may only become less in :meth:`join`."""

    CONSTANT: ClassVar  # what is known about constants

    @abstractmethod
    def results(self, eqn: JaxprEqn, operands: list[V]) -> list[V]:
        """What is known about the results of an operation."""

    @abstractmethod
    def join(self, chooser: V, values: Sequence[V]) -> V:
        """What is known about a value that is any of these, depending on `chooser`."""

    @abstractmethod
    def entry(self, value: V) -> V:
        """What is known about the entries along the first axis of a value."""

    @abstractmethod
    def stack(self, value: V) -> V:
        """What is known about a stack of such values along a new first axis."""

    def visit(self, eqn: JaxprEqn, operands: list[V]) -> None:
        """Look at an operation. Called when all is known about its operands: once for the body of a loop."""

    def outputs(self, jaxpr: Jaxpr, inputs: Sequence[V], *, visiting: bool = True) -> list[V]:
        """What is known about the outputs of a program, from what is known about its inputs."""
        known = dict.fromkeys(jaxpr.constvars, self.CONSTANT) | dict(zip(jaxpr.invars, inputs, strict=True))

        def read(atom: object) -> V:
            return self.CONSTANT if isinstance(atom, Literal) else known[atom]

        for eqn in jaxpr.eqns:
            outputs = self._follow(eqn, [read(atom) for atom in eqn.invars], visiting)
            known.update(zip(eqn.outvars, outputs, strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    def _follow(self, eqn: JaxprEqn, operands: list[V], visiting: bool) -> list[V]:
        called = called_program(eqn)
        if called is not None:
            return self.outputs(called.jaxpr, operands, visiting=visiting)
        if eqn.primitive.name == "scan":
            return self._scan(eqn, operands, visiting)
        if eqn.primitive.name == "while":
            return self._while(eqn, operands, visiting)
        if eqn.primitive.name == "cond":
            by_branch = [self.outputs(b.jaxpr, operands[1:], visiting=visiting) for b in eqn.params["branches"]]
            return [self.join(operands[0], values) for values in zip(*by_branch, strict=True)]
        if visiting:
            self.visit(eqn, operands)
        return self.results(eqn, operands)

    def _scan(self, eqn: JaxprEqn, operands: list[V], visiting: bool) -> list[V]:
        consts, carry, body = eqn.params["num_consts"], eqn.params["num_carry"], eqn.params["jaxpr"].jaxpr
        entries = [self.entry(value) for value in operands[consts + carry :]]

        def turn(carried: list[V], *, visiting: bool = False) -> list[V]:
            return self.outputs(body, [*operands[:consts], *carried, *entries], visiting=visiting)

        carried = self._settled(operands[consts : consts + carry], lambda c: (self.CONSTANT, turn(c)[:carry]))
        stacked = [self.stack(value) for value in turn(carried, visiting=visiting)[carry:]]
        return carried + stacked

    def _while(self, eqn: JaxprEqn, operands: list[V], visiting: bool) -> list[V]:
        first, second = eqn.params["cond_nconsts"], eqn.params["cond_nconsts"] + eqn.params["body_nconsts"]
        condition, body = eqn.params["cond_jaxpr"].jaxpr, eqn.params["body_jaxpr"].jaxpr

        def turn(carried: list[V]) -> tuple[V, list[V]]:
            (goes_on,) = self.outputs(condition, operands[:first] + carried, visiting=False)
            return goes_on, self.outputs(body, operands[first:second] + carried, visiting=False)

        carried = self._settled(operands[second:], turn)
        self.outputs(body, operands[first:second] + carried, visiting=visiting)
        return carried

    def _settled(self, carried: list[V], turn: Callable[[list[V]], tuple[V, list[V]]]) -> list[V]:
        """What is known about the values carried by a loop after any number of turns."""
        while True:
            goes_on, after = turn(carried)
            joined = [self.join(goes_on, pair) for pair in zip(carried, after, strict=True)]
            if joined == carried:
                return carried
            carried = joined
