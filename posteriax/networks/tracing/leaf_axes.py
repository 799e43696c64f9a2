"""Which axes of a leaf are inputs and which are outputs, read off its program.

Each leaf is followed through the program, keeping track of its axes: transposed, reshaped, split, normalised, passed
into loops. The operation that combines it with data tells what the axes are:

| operation | inputs | outputs |
| --- | --- | --- |
| product (dot_general) | contracted axes | free axes |
| convolution | input channels (window: positions) | output channels |
| row lookup (gather) | the indexed axis | the others |
| addition, concatenation | none | all |

Axes that count independent copies (batch axes of a product, layers of a scan) are neither. If a leaf is used in ways
that disagree (tied embeddings), or by any other operation, the program does not tell and the convention holds.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import jax
import numpy as np
from jax.extend.core import JaxprEqn, Var

from posteriax.networks.leaf import Axes
from posteriax.networks.tracing.interpretation import Interpretation
from posteriax.networks.tracing.program import Inputs, Kind, NetworkPrograms, array_type

LeafAxes = tuple[tuple[int, ...], ...]  # for each axis of a value, the axes of the leaf in it


class Trail(NamedTuple):
    """Where the axes of a leaf are in a value that contains it.

    Args:
        axes: for each axis of the value, the axes of the leaf in it.
        indexed: the axes of the leaf of which the program took one entry.
    """

    axes: LeafAxes
    indexed: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Contents:
    """What is known about a value: whether it depends on data, otherwise the trails of the leaves in it."""

    data: bool = False
    trails: dict[int, Trail] = field(default_factory=dict)  # by number of the leaf

    def moved(self, move: Callable[[LeafAxes], LeafAxes], indexed: Sequence[int] = ()) -> dict[int, Trail]:
        """The trails after an operation that moves axes and takes one entry of others."""
        return {
            leaf: Trail(move(trail.axes), trail.indexed.union(_axes_in(trail.axes, indexed)))
            for leaf, trail in self.trails.items()
        }


_NOTHING = Contents()
_DATA = Contents(data=True)
_AXES_STAY = ("convert_element_type", "copy", "rev", "slice", "dynamic_slice", "pad", "tile")
_ADDITIONS = ("add", "sub", "add_any", "concatenate", "select_n")


def find_axes(programs: NetworkPrograms, example: Inputs) -> tuple[Axes | None, ...]:
    """The axes of each leaf, in flattening order; None if the program does not tell.

    Args:
        programs: of the network.
        example: shape and dtype of one example, without the leading axis.

    >>> import jax.numpy as jnp
    >>> def attend(w, x):
    ...     return jnp.einsum("bi,ihd->bhd", x, w)
    >>> find_axes(NetworkPrograms(attend, jnp.ones((6, 2, 4))), jax.ShapeDtypeStruct((6,), jnp.float32))
    (Axes(inputs=(0,), outputs=(1, 2), positions=(), lookup=False),)
    """
    shapes = [leaf.shape for leaf in jax.tree.leaves(programs.params)]
    try:
        program = programs.for_any_size(example)
    except Exception:  # running the network will raise the same error with more context
        return (None,) * len(shapes)
    inputs = [_DATA if program.kinds[slot] == Kind.DATA else _NOTHING for slot in program.inputs]
    for leaf, shape in enumerate(shapes):
        inputs[leaf] = Contents(trails={leaf: Trail(tuple((axis,) for axis in range(len(shape))))})
    uses = _LeafUses(shapes)
    uses.outputs(program.closed.jaxpr, inputs)
    return tuple(next(iter(axes)) if len(axes) == 1 else None for axes in uses.axes)


class _LeafUses(Interpretation[Contents]):
    CONSTANT = _NOTHING

    def __init__(self, shapes: Sequence[tuple[int, ...]]):
        self.shapes = shapes
        self.axes: list[set[Axes | None]] = [set() for _ in shapes]  # one for each use; None if it does not tell

    def results(self, eqn: JaxprEqn, operands: list[Contents]) -> list[Contents]:
        if any(value.data for value in operands):
            return [_DATA] * len(eqn.outvars)
        if not any(value.trails for value in operands):
            return [_NOTHING] * len(eqn.outvars)
        if len(eqn.outvars) > 1:
            return [Contents(trails=_elementwise(eqn, operands, out)) for out in eqn.outvars]
        return [Contents(trails=_moved(eqn, operands))]

    def visit(self, eqn: JaxprEqn, operands: list[Contents]) -> None:
        """Note what an operation with data tells about the leaves in it."""
        if len(eqn.outvars) > 1 or not any(value.data for value in operands):
            return
        for position, value in enumerate(operands):
            for leaf, trail in value.trails.items():
                self.axes[leaf].add(_axes_of_use(eqn, position, trail, self.shapes[leaf]))

    def join(self, chooser: Contents, values: Sequence[Contents]) -> Contents:
        if chooser.data or any(value.data for value in values):
            return _DATA
        first, *others = values
        return Contents(trails={i: t for i, t in first.trails.items() if all(v.trails.get(i) == t for v in others)})

    def entry(self, value: Contents) -> Contents:
        return Contents(value.data, value.moved(lambda axes: axes[1:], indexed=[0]))

    def stack(self, value: Contents) -> Contents:
        return Contents(value.data, value.moved(lambda axes: ((), *axes)))


def _axes_of_use(eqn: JaxprEqn, position: int, trail: Trail, shape: tuple[int, ...]) -> Axes | None:
    name, all_axes = eqn.primitive.name, tuple(range(len(shape)))
    if name == "dot_general":
        return _axes_in_product(eqn, position, trail, shape)
    if name == "conv_general_dilated":
        return _axes_in_convolution(eqn, position, trail.axes)
    if name == "gather" and position == 0:
        return _axes_in_lookup(eqn, trail.axes, shape)
    # in the steps of a loop, one number per feature is the scale of a normalisation
    is_scale = trail.indexed and len(shape) - len(trail.indexed) <= 1
    return Axes((), all_axes) if name in _ADDITIONS or is_scale else None


def _axes_in_product(eqn: JaxprEqn, position: int, trail: Trail, shape: tuple[int, ...]) -> Axes | None:
    contracted, batch = eqn.params["dimension_numbers"]
    inputs = _axes_in(trail.axes, contracted[position])
    copies = _axes_in(trail.axes, batch[position])
    free = [axis for axis in range(len(trail.axes)) if axis not in (*contracted[position], *batch[position])]
    outputs = _axes_in(trail.axes, free)
    if not inputs or set(inputs) & {*outputs, *copies}:  # an axis that was split and used in parts
        return None
    lost = set(range(len(shape))) - {*inputs, *outputs, *copies, *trail.indexed}
    return Axes(inputs, outputs) if all(shape[axis] == 1 for axis in lost) else None


def _axes_in_convolution(eqn: JaxprEqn, position: int, axes: LeafAxes) -> Axes | None:
    if position != 1:
        return None
    out, into, *window = eqn.params["dimension_numbers"].rhs_spec
    inputs, outputs, positions = (_axes_in(axes, chosen) for chosen in ([into], [out], window))
    if not inputs or set(inputs) & {*outputs, *positions} or set(outputs) & set(positions):
        return None
    return Axes(inputs, outputs, positions)


def _axes_in_lookup(eqn: JaxprEqn, axes: LeafAxes, shape: tuple[int, ...]) -> Axes | None:
    sizes, operand = eqn.params["slice_sizes"], array_type(eqn.invars[0]).shape
    chosen = [a for a in eqn.params["dimension_numbers"].start_index_map if sizes[a] == 1 and operand[a] > 1]
    if len(chosen) != 1:
        return None
    inputs = _axes_in(axes, chosen)
    outputs = tuple(axis for axis in range(len(shape)) if axis not in inputs)
    return Axes(inputs, outputs, lookup=True) if inputs else None


def _axes_in(axes: LeafAxes, chosen: Sequence[int]) -> tuple[int, ...]:
    return tuple(sorted({leaf_axis for axis in chosen for leaf_axis in axes[axis]}))


def _moved(eqn: JaxprEqn, operands: list[Contents]) -> dict[int, Trail]:
    """The trails after an operation without data."""
    name, params, out = eqn.primitive.name, eqn.params, array_type(eqn.outvars[0]).shape
    value, before = operands[0], array_type(eqn.invars[0]).shape
    if name == "dot_general":
        return _through_product(eqn, operands)
    if name == "conv_general_dilated":
        return {}
    if name == "transpose":
        return value.moved(lambda axes: tuple(axes[axis] for axis in params["permutation"]))
    if name == "reshape":
        return value.moved(lambda axes: _reshaped(axes, before, out))
    if name == "squeeze":
        gone = params["dimensions"]
        return value.moved(lambda axes: tuple(a for i, a in enumerate(axes) if i not in gone), gone)
    if name == "broadcast_in_dim":
        return value.moved(lambda axes: _placed(axes, params["broadcast_dimensions"], len(out)))
    if name == "gather":
        numbers = params["dimension_numbers"]
        gone = (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)
        kept = [axis for axis in range(len(before)) if axis not in gone]
        return value.moved(lambda axes: _placed([axes[i] for i in kept], numbers.offset_dims, len(out)), gone)
    if name in _AXES_STAY:
        return value.trails
    return _elementwise(eqn, operands, eqn.outvars[0])


def _placed(axes: Sequence[tuple[int, ...]], positions: Sequence[int], rank: int) -> LeafAxes:
    """Axes at these positions of a value, among new ones."""
    by_position = dict(zip(positions, axes, strict=True))
    return tuple(by_position.get(axis, ()) for axis in range(rank))


def _through_product(eqn: JaxprEqn, operands: list[Contents]) -> dict[int, Trail]:
    """Products between leaves: free axes remain, after the batch axes."""
    contracted, batch = eqn.params["dimension_numbers"]
    ranks = [array_type(atom).ndim for atom in eqn.invars]
    free = [[a for a in range(ranks[i]) if a not in (*contracted[i], *batch[i])] for i in (0, 1)]
    left = operands[0].moved(
        lambda axes: (*(axes[a] for a in batch[0]), *(axes[a] for a in free[0]), *[()] * len(free[1]))
    )
    right = operands[1].moved(
        lambda axes: (*(axes[a] for a in batch[1]), *[()] * len(free[0]), *(axes[a] for a in free[1]))
    )
    return left | right


def _elementwise(eqn: JaxprEqn, operands: list[Contents], out: Var) -> dict[int, Trail]:
    """An operation that keeps axes in place, judging by its operands' shapes; others (reductions) end the trail."""
    trails: dict[int, Trail] = {}
    joins = eqn.primitive.name in ("concatenate", "split")
    for atom, value in zip(eqn.invars, operands, strict=True):
        before, after = array_type(atom).shape, array_type(out).shape
        if before == after or (joins and len(before) == len(after)):
            trails = value.trails | trails
    return trails


def _reshaped(axes: LeafAxes, before: Sequence[int], after: Sequence[int]) -> LeafAxes:
    """Where axes go in a reshape: merged axes stay together, and each part of a split axis keeps it.

    >>> _reshaped(((0,), (1,), (2,)), (6, 2, 4), (6, 8))
    ((0,), (1, 2))
    >>> _reshaped(((0,), (1,)), (6, 8), (6, 2, 4))
    ((0,), (1,), (1,))
    >>> _reshaped(((0,), (1,), (2,)), (4, 3, 3), (6, 6))
    ((0, 1), (1, 2))
    """
    if math.prod(before) == 0:
        return ((),) * len(after)
    # the last axis varies fastest: an axis spans the strides from that of the next axis to its own
    old_strides, new_strides = (np.cumprod([1, *reversed(shape)])[::-1] for shape in (before, after))
    moved: list[tuple[int, ...]] = []
    for new, size in enumerate(after):
        sources = [
            old
            for old in range(len(before))
            if size > 1
            and before[old] > 1
            and old_strides[old + 1] < new_strides[new]
            and old_strides[old] > new_strides[new + 1]
        ]
        moved.append(_axes_in(axes, sources))
    return tuple(moved)
