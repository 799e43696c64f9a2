"""Where to cut a program, so that the part before the cut can be computed once and its results kept.

The part before the cut depends on data and constants only; the part after it gets the values that cross the cut. All
expensive steps on data come before the cut. Cheap ones (elementwise, reshapes, lookups) come before or after it,
whichever leaves less to keep: a minimum cut of the graph of values, each with the capacity of its bytes per example.

The part of a network that depends on fixed leaves and inputs only: cut off, so that it can be computed once.

    apply(params, x)  =  apply(params, features(x))         features: the values that cross the cut, for every example

The network is traced at two batch sizes and cut. :class:`Features` take the place
 of x anywhere: a pytree of arrays with a leading axis of examples, from which the network continues.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from posteriax.networks.tracing.traced_program import Kind, Slot, TracedProgram, trace_program

_UNLIMITED = 2**30  # SciPy's flows are 32-bit; bytes per example beyond this are never kept


class Crossing(NamedTuple):
    """A value that crosses the cut, and its axis of examples."""

    slot: Slot
    axis: int


def find_cut(small: TracedProgram, large: TracedProgram, sizes: tuple[int, int]) -> tuple[Crossing, ...]:
    """The values to keep; empty if nothing is worth keeping or the program cannot be cut.

    Args:
        small, large: the program at two batch sizes, to recognise axes of examples.
        sizes: the two sizes.
    """
    if small.shape != large.shape or not any(s.kind == Kind.DATA and not s.is_cheap for s in small.steps):
        return ()
    axes = {
        slot: _axis_of_examples(small.avals[slot].shape, large.avals[slot].shape, sizes)
        for slot, kind in enumerate(small.kinds)
        if kind == Kind.DATA
    }
    bytes_of = {slot: _bytes(small.avals[slot], sizes[0]) for slot, axis in axes.items() if axis is not None}
    crossing = _minimum_cut(small, list(axes), bytes_of)
    return tuple(Crossing(slot, axes[slot]) for slot in crossing)  # type: ignore[arg-type]


def _axis_of_examples(small: Sequence[int], large: Sequence[int], sizes: tuple[int, int]) -> int | None:
    """The only axis whose length is the batch size; None if there is none, or examples are merged with another axis."""
    differing = [axis for axis, lengths in enumerate(zip(small, large, strict=True)) if lengths[0] != lengths[1]]
    if len(differing) != 1 or (small[differing[0]], large[differing[0]]) != sizes:
        return None
    return differing[0]


def _bytes(aval: Any, examples: int) -> int:
    return int(np.prod(aval.shape, dtype=np.int64)) // examples * np.dtype(aval.dtype).itemsize


def _minimum_cut(program: TracedProgram, slots: Sequence[Slot], bytes_of: dict[Slot, int]) -> list[Slot]:
    """The cheapest set of values that separates inputs and results of expensive steps from where they are needed."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import breadth_first_order, maximum_flow

    # every value is two nodes, joined by an edge with the value's bytes as capacity: its computation and its use
    place = {slot: 2 * i for i, slot in enumerate(slots)}
    source, sink = 2 * len(slots), 2 * len(slots) + 1
    edges = {(place[slot], place[slot] + 1): min(bytes_of.get(slot, _UNLIMITED), _UNLIMITED) for slot in slots}
    edges |= {(source, place[slot]): _UNLIMITED for slot in program.inputs if slot in place}
    edges |= {(place[slot] + 1, sink): _UNLIMITED for slot in program.outputs if slot in place}
    for step in program.steps:
        read = [slot for slot in step.inputs if slot in place]
        if step.kind == Kind.RANDOM:
            edges |= {(place[slot] + 1, sink): _UNLIMITED for slot in read}
        elif step.kind == Kind.DATA and step.is_cheap:
            edges |= {(place[slot] + 1, place[out]): _UNLIMITED for slot in read for out in step.outputs}
        elif step.kind == Kind.DATA:
            edges |= {(source, place[out]): _UNLIMITED for out in step.outputs}
    rows, columns = np.array(list(edges)).T
    capacity = csr_array((np.array(list(edges.values()), np.int32), (rows, columns)), shape=(sink + 1, sink + 1))
    result = maximum_flow(capacity, source, sink)
    if result.flow_value >= _UNLIMITED:
        return []
    # of all minimum cuts the last one, which leaves the fewest steps after it: its nodes can still reach the sink
    residual = csr_array(((capacity - result.flow) > 0).T)
    after = set(breadth_first_order(residual, sink, return_predecessors=False).tolist())
    return [slot for slot in slots if place[slot] + 1 in after and place[slot] not in after]


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
    _programs: dict[tuple[int, bool], TracedProgram] = field(default_factory=dict, repr=False)

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

    def _slots_of_x(self, program: TracedProgram) -> list[int]:
        return program.inputs[len(jax.tree.leaves(self.params)) : -1]

    def _program(self, size: int, keyed: bool) -> TracedProgram:
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
    programs: dict[tuple[int, bool], TracedProgram] = {}
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


def _trace(apply: Callable[..., Any], params: Any, example: Any, size: int, keyed: bool) -> TracedProgram:
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
