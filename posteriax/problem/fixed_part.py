"""The part of a network that depends on fixed leaves and inputs only: cut off, so that it can be computed once.

    apply(params, x)  =  apply(params, features(x))         features: the values that cross the cut, for every example

The network is traced at two batch sizes and cut (:mod:`posteriax.problem.program_cut`). :class:`Features` take the
place of x anywhere: a pytree of arrays with a leading axis of examples, from which the network continues.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from posteriax.problem.program_cut import Crossing, find_cut
from posteriax.problem.traced_program import Program, trace_program

TRIAL_SIZES = (5, 7)  # any two sizes will do

Params = Any


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
        apply: the network, as ``apply(params, x, key=...)``.
        params: shapes of the leaves that are inferred.
        example: shape and dtype of one example, without the leading axis.
        cuts: the values kept, for calls without a key and for calls with one.
        places: where each of them is among the features; calls with and without a key may share some.
    """

    apply: Callable[..., Any]
    params: Any
    example: Any
    cuts: tuple[tuple[Crossing, ...], ...]
    places: tuple[tuple[int, ...], ...]
    _programs: dict[tuple[int, bool], Program] = field(default_factory=dict, repr=False)

    def features(self, x: Any) -> Features:
        """The values that the rest of the network needs of the inputs `x`."""
        values: dict[int, Any] = {}
        for keyed, (cut, places) in enumerate(zip(self.cuts, self.places, strict=True)):
            new = {place: crossing for crossing, place in zip(cut, places, strict=True) if place not in values}
            program = self._program(jax.tree.leaves(x)[0].shape[0], bool(keyed))
            wanted = [crossing.slot for crossing in new.values()]
            given = dict(zip(self._slots_of_x(program), map(jnp.asarray, jax.tree.leaves(x)), strict=True))
            found = program.run(program.needed(wanted, given), given, wanted)
            values |= {place: jnp.moveaxis(a, c.axis, 0) for a, (place, c) in zip(found, new.items(), strict=True)}
        return Features(tuple(values[place] for place in sorted(values)), self)

    def outputs(self, params: Params, features: Features, key: Any = None) -> Any:
        """The network's outputs, from its features."""
        if key is not None and len(self.cuts) < 2:
            raise ValueError("these features are for calls without a key: pass the inputs themselves")
        keyed = key is not None
        program = self._program(features.values[0].shape[0], keyed)
        crossings = zip(self.cuts[keyed], self.places[keyed], strict=True)
        given = {c.slot: jnp.moveaxis(features.values[place], 0, c.axis) for c, place in crossings}
        given |= dict(zip(program.inputs, jax.tree.leaves(params), strict=False))  # x and the key follow
        if keyed:
            given[program.inputs[-1]] = key
        steps = program.needed(program.outputs, given)
        return jax.tree.unflatten(program.structure, program.run(steps, given, program.outputs))

    @property
    def spec(self) -> Features:
        """Shape and dtype of the features of one example."""
        small = jax.eval_shape(self.features, _batch_of(self.example, TRIAL_SIZES[0]))
        return jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape[1:], a.dtype), small)

    @property
    def numbers(self) -> int:
        """How many numbers are kept for an example."""
        return sum(int(np.prod(a.shape, dtype=np.int64)) for a in jax.tree.leaves(self.spec))

    @property
    def nbytes(self) -> int:
        """How many bytes are kept for an example."""
        return sum(int(np.prod(a.shape, dtype=np.int64)) * a.dtype.itemsize for a in jax.tree.leaves(self.spec))

    def treats_examples_alone(self, x: Any) -> bool:
        """Whether the features of an example depend neither on the others in its batch nor on its place there.

        Found by trial, like :func:`couples_examples`: some examples are run in two orders, among different others.
        """
        n = jax.tree.leaves(x)[0].shape[0]
        rows = np.linspace(0, n - 1, min(n, 8)).astype(int)
        others = np.where(np.arange(len(rows)) < len(rows) // 2, rows[-1], rows[::-1])  # its second half is kept
        kept = len(rows) - len(rows) // 2
        run = jax.jit(self.features)
        here, there = (run(jax.tree.map(lambda a, r=r: np.asarray(a[r]), x)) for r in (rows, others))
        pairs = zip(jax.tree.leaves(here), jax.tree.leaves(there), strict=True)
        return all(_same(np.asarray(a)[:kept], np.asarray(b)[::-1][:kept]) for a, b in pairs)

    def _slots_of_x(self, program: Program) -> list[int]:
        return program.inputs[len(jax.tree.leaves(self.params)) : -1]

    def _program(self, size: int, keyed: bool) -> Program:
        if (size, keyed) not in self._programs:
            new = _trace(self.apply, self.params, self.example, size, keyed)
            if new.shape != self._programs[TRIAL_SIZES[0], keyed].shape:
                raise ValueError(
                    f"the network computes something else for {size} examples than for {TRIAL_SIZES[0]}: its fixed "
                    f"part cannot be computed separately. Leave out fixed=, or make the program the same for all sizes"
                )
            self._programs[size, keyed] = new
        return self._programs[size, keyed]


def find_fixed_part(apply: Callable[..., Any], params: Params, x: Any, *, training: bool) -> FixedPart | None:
    """The part of a network that can be computed once; None if there is nothing worth computing separately.

    Args:
        apply: the network, as ``apply(params, x, key=...)``, with its fixed leaves as constants.
        params: the leaves that are inferred.
        x: inputs, with a leading axis of examples, or their shapes.
        training: whether the network is also called with a key.

    >>> def net(w, x, *, key=None):
    ...     return jnp.tanh(x @ jnp.ones((3, 4))) @ w
    >>> part = find_fixed_part(net, jnp.ones((4, 2)), jnp.ones((5, 3)), training=False)
    >>> part.numbers, part.outputs(jnp.ones((4, 2)), part.features(jnp.ones((5, 3)))).shape
    (4, (5, 2))
    """
    example = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape[1:], jax.dtypes.canonicalize_dtype(a.dtype)), x)
    specs = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), params)
    programs: dict[tuple[int, bool], Program] = {}
    cuts, places = [], []
    seen: dict[str, int] = {}  # where each value is among the features, by how it is computed
    for keyed in (False, True)[: 2 if training else 1]:
        for size in TRIAL_SIZES:
            programs[size, keyed] = _trace(apply, specs, example, size, keyed)
        small, large = (programs[size, keyed] for size in TRIAL_SIZES)
        cuts.append(find_cut(small, large, TRIAL_SIZES))
        if not cuts[-1]:
            return None
        computed = small.expressions()
        places.append(tuple(seen.setdefault(computed[crossing.slot], len(seen)) for crossing in cuts[-1]))
    return FixedPart(apply, specs, example, tuple(cuts), tuple(places), programs)


def _trace(apply: Callable[..., Any], params: Any, example: Any, size: int, keyed: bool) -> Program:
    def function(params: Params, x: Any, key: Any) -> Any:
        return apply(params, x, key=key) if keyed else apply(params, x)

    key = jax.eval_shape(lambda: jax.random.key(0))
    return trace_program(function, params, _batch_of(example, size), key)


def _batch_of(example: Any, size: int) -> Any:
    return jax.tree.map(lambda a: jax.ShapeDtypeStruct((size, *a.shape), a.dtype), example)


def _same(a: np.ndarray, b: np.ndarray) -> bool:
    a, b = a.astype(np.float64), b.astype(np.float64)
    with np.errstate(invalid="ignore"):
        return bool(np.abs(a - b).max(initial=0.0) <= 1e-3 * np.abs(a).max(initial=0.0) + 1e-6)
