"""The part of a network that depends on fixed leaves and inputs only: cut off, so that it can be computed once.

    apply(params, x)  =  apply(params, features(x))         features: the values that cross the cut, for every example

:class:`Features` take the place of x anywhere: a pytree of arrays with a leading axis of examples, from which the
network continues.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from posteriax.networks.tracing.cut import Crossing, find_cut
from posteriax.networks.tracing.program import (
    TRIAL_SIZES,
    Inputs,
    NetworkPrograms,
    Params,
    TracedProgram,
    batch_spec,
    spec_of_example,
)


@partial(jax.tree_util.register_dataclass, data_fields=["values"], meta_fields=["part"])
@dataclass(frozen=True, eq=False)
class Features:
    """What the fixed part computes from some examples, in place of their inputs.

    Args:
        values: arrays with a leading axis of examples.
        part: the fixed part, which knows how the network continues.
    """

    values: tuple[Any, ...]
    part: "FixedPart"


@dataclass(frozen=True, eq=False)
class FixedPart:
    """The fixed part of a network, for inputs of one shape. Built by :func:`find_fixed_part`.

    A network may compute something else in training (with a key) than otherwise, so it is cut for both kinds of calls.

    Args:
        programs: of the network, with its fixed leaves as constants.
        example: shape and dtype of one example, without the leading axis.
        cuts: the values kept and their numbers among the features, for calls without a key and for calls with one,
            which may share some.
    """

    programs: NetworkPrograms
    example: Inputs
    cuts: tuple[tuple[tuple[int, Crossing], ...], ...]

    def features(self, x: Inputs) -> Features:
        """The values that the rest of the network needs of the inputs `x`."""
        values: dict[int, jax.Array] = {}
        for keyed, cut in enumerate(self.cuts):
            missing = {number: crossing for number, crossing in cut if number not in values}
            program = self._program(jax.tree.leaves(x)[0].shape[0], bool(keyed))
            slots_of_x = program.inputs[len(jax.tree.leaves(self.programs.params)) : -1]
            given = dict(zip(slots_of_x, map(jnp.asarray, jax.tree.leaves(x)), strict=True))
            computed = program.run(given, [crossing.slot for crossing in missing.values()])
            crossings = zip(missing.items(), computed, strict=True)
            values |= {number: jnp.moveaxis(value, crossing.axis, 0) for (number, crossing), value in crossings}
        return Features(tuple(values[number] for number in sorted(values)), self)

    def outputs(self, params: Params, features: Features, key: jax.Array | None = None) -> Any:
        """The network's outputs, from its features."""
        keyed = key is not None
        if keyed and len(self.cuts) < 2:
            raise ValueError("these features are for calls without a key: pass the inputs themselves")
        program = self._program(features.values[0].shape[0], keyed)
        given = dict(zip(program.inputs, jax.tree.leaves(params), strict=False))  # x and the key follow
        for number, crossing in self.cuts[keyed]:
            given[crossing.slot] = jnp.moveaxis(features.values[number], 0, crossing.axis)
        if keyed:
            given[program.inputs[-1]] = key
        return jax.tree.unflatten(program.structure, program.run(given, program.outputs))

    @property
    def spec(self) -> Features:
        """Shape and dtype of the features of one example."""
        return spec_of_example(jax.eval_shape(self.features, batch_spec(self.example, TRIAL_SIZES[0])))

    @property
    def numbers(self) -> int:
        """How many numbers are kept for an example."""
        return sum(int(np.prod(a.shape, dtype=np.int64)) for a in jax.tree.leaves(self.spec))

    @property
    def nbytes(self) -> int:
        """How many bytes are kept for an example."""
        return sum(int(np.prod(a.shape, dtype=np.int64)) * a.dtype.itemsize for a in jax.tree.leaves(self.spec))

    def treats_examples_alone(self, x: Inputs) -> bool:
        """Whether the features of an example depend neither on the others in its batch nor on its position there.

        Found by trial, since a program does not show the latter: some examples are run in two orders, among different
        others.
        """
        n = jax.tree.leaves(x)[0].shape[0]
        rows = np.linspace(0, n - 1, min(n, 8)).astype(int)
        others = np.where(np.arange(len(rows)) < len(rows) // 2, rows[-1], rows[::-1])  # its second half is kept
        kept = len(rows) - len(rows) // 2
        run = jax.jit(self.features)
        here, there = (run(jax.tree.map(lambda a, r=r: np.asarray(a[r]), x)) for r in (rows, others))
        pairs = zip(jax.tree.leaves(here), jax.tree.leaves(there), strict=True)
        return all(_same(np.asarray(a)[:kept], np.asarray(b)[::-1][:kept]) for a, b in pairs)

    def _program(self, size: int, keyed: bool) -> TracedProgram:
        program = self.programs.traced(self.example, size, keyed=keyed)
        if program.shape != self.programs.traced(self.example, keyed=keyed).shape:
            raise ValueError(
                f"the network computes something else for {size} examples than for {TRIAL_SIZES[0]}: its fixed "
                f"part cannot be computed separately. Leave out fixed=, or make the program the same for all sizes"
            )
        return program


def find_fixed_part(programs: NetworkPrograms, example: Inputs, *, training: bool) -> FixedPart | None:
    """The part of a network that can be computed once; None if there is nothing worth computing separately.

    Args:
        programs: of the network, with its fixed leaves as constants.
        example: shape and dtype of one example, without the leading axis.
        training: whether the network is also called with a key.

    >>> def net(w, x, *, key=None):
    ...     return jnp.tanh(x @ jnp.ones((3, 4))) @ w
    >>> programs = NetworkPrograms(net, jnp.ones((4, 2)))
    >>> part = find_fixed_part(programs, jax.ShapeDtypeStruct((3,), jnp.float32), training=False)
    >>> part.numbers, part.outputs(jnp.ones((4, 2)), part.features(jnp.ones((5, 3)))).shape
    (4, (5, 2))
    """
    cuts: list[tuple[tuple[int, Crossing], ...]] = []
    numbers: dict[str, int] = {}  # of each value among the features, by how it is computed
    for keyed in (False, True)[: 2 if training else 1]:
        small, large = programs.pair(example, keyed=keyed)
        crossings = find_cut(small, large)
        if not crossings:
            return None
        computed = small.expressions()
        cuts.append(tuple((numbers.setdefault(computed[c.slot], len(numbers)), c) for c in crossings))
    return FixedPart(programs, example, tuple(cuts))


def _same(a: np.ndarray, b: np.ndarray) -> bool:
    a, b = a.astype(np.float64), b.astype(np.float64)
    with np.errstate(invalid="ignore"):
        return bool(np.abs(a - b).max(initial=0.0) <= 1e-3 * np.abs(a).max(initial=0.0) + 1e-6)
