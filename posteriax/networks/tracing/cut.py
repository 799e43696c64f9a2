"""Where to cut a program, so that the part before the cut can be computed once and its results kept.

The part before the cut depends on data and constants only; the part after it gets the values that cross the cut. All
expensive steps on data come before the cut. Cheap ones (elementwise, reshapes, lookups) come before or after it,
whichever leaves less to keep: a minimum cut of the graph of values, each with the capacity of its bytes per example.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from posteriax.networks.tracing.program import TRIAL_SIZES, Kind, Slot, TracedProgram, axes_of_examples

_UNLIMITED = 2**30  # SciPy's flows are 32-bit; bytes per example beyond this are never kept


class Crossing(NamedTuple):
    """A value that crosses the cut, and its axis of examples."""

    slot: Slot
    axis: int


def find_cut(small: TracedProgram, large: TracedProgram) -> tuple[Crossing, ...]:
    """The values to keep, from the program at both trial sizes.

    Empty if nothing is worth keeping or the program cannot be cut.
    """
    if small.shape != large.shape or not any(s.kind == Kind.DATA and not s.is_cheap for s in small.steps):
        return ()
    data = [slot for slot, kind in enumerate(small.kinds) if kind == Kind.DATA]
    axes = {slot: axes_of_examples(small.avals[slot].shape, large.avals[slot].shape) for slot in data}
    bytes_of = {slot: _bytes_per_example(small, slot) for slot, pure in axes.items() if pure}
    return tuple(Crossing(slot, (axes[slot] or ())[0]) for slot in _minimum_cut(small, data, bytes_of))


def _bytes_per_example(program: TracedProgram, slot: Slot) -> int:
    aval = program.avals[slot]
    return int(np.prod(aval.shape, dtype=np.int64)) // TRIAL_SIZES[0] * np.dtype(aval.dtype).itemsize


def _minimum_cut(program: TracedProgram, slots: Sequence[Slot], bytes_of: dict[Slot, int]) -> list[Slot]:
    """The cheapest set of values that separates inputs and results of expensive steps from where they are needed."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import breadth_first_order, maximum_flow

    # every value is two nodes, joined by an edge with the value's bytes as capacity: its computation and its use
    node = {slot: 2 * i for i, slot in enumerate(slots)}
    source, sink = 2 * len(slots), 2 * len(slots) + 1
    edges = {(node[slot], node[slot] + 1): min(bytes_of.get(slot, _UNLIMITED), _UNLIMITED) for slot in slots}
    edges |= {(source, node[slot]): _UNLIMITED for slot in program.inputs if slot in node}
    edges |= {(node[slot] + 1, sink): _UNLIMITED for slot in program.outputs if slot in node}
    for step in program.steps:
        read = [slot for slot in step.inputs if slot in node]
        if step.kind == Kind.RANDOM:
            edges |= {(node[slot] + 1, sink): _UNLIMITED for slot in read}
        elif step.kind == Kind.DATA and step.is_cheap:
            edges |= {(node[slot] + 1, node[out]): _UNLIMITED for slot in read for out in step.outputs}
        elif step.kind == Kind.DATA:
            edges |= {(source, node[out]): _UNLIMITED for out in step.outputs}
    rows, columns = np.array(list(edges)).T
    capacity = csr_array((np.array(list(edges.values()), np.int32), (rows, columns)), shape=(sink + 1, sink + 1))
    result = maximum_flow(capacity, source, sink)
    if result.flow_value >= _UNLIMITED:
        return []
    # of all minimum cuts the last one, which leaves the fewest steps after it: its nodes can still reach the sink
    residual = csr_array(((capacity - result.flow) > 0).T)
    after = set(breadth_first_order(residual, sink, return_predecessors=False).tolist())
    return [slot for slot in slots if node[slot] + 1 in after and node[slot] not in after]
