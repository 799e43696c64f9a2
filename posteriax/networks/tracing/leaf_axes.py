"""Which axes of a leaf are inputs and which are outputs, read off the network's jaxpr.

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
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from posteriax.networks.leaf import Axes

Trail = tuple[tuple[int, ...], ...]  # for each axis of a value, the axes of the leaf in it

_SAME_PLACE = ("convert_element_type", "copy", "rev", "slice", "dynamic_slice", "pad", "tile")
_ELEMENTWISE_MEETINGS = ("add", "sub", "add_any", "concatenate", "select_n")


@dataclass
class _Value:
    """What is known about a value: whether it depends on data, and the trails of the leaves it contains."""

    data: bool = False
    trails: dict[int, Trail] = field(default_factory=dict)


@dataclass
class _Found:
    """The axes found for each leaf, one set per use; None for a use that does not tell."""

    shapes: list[tuple[int, ...]]
    axes: dict[int, set[Axes | None]] = field(default_factory=dict)
    copies: dict[int, set[int]] = field(default_factory=dict)  # axes that the program indexes one entry at a time

    def take_one(self, leaf: int, axes: Sequence[int]) -> None:
        self.copies.setdefault(leaf, set()).update(axes)

    def add(self, leaf: int, axes: Axes | None) -> None:
        self.axes.setdefault(leaf, set()).add(axes)


def find_axes(apply: Any, params: Any, inputs: Any) -> tuple[Axes | None, ...]:
    """The axes of each leaf of `params`, in flattening order; None if the program does not tell.

    Args:
        apply: the network, as ``apply(params, x, key=...)``.
        params: its params, or their shapes.
        inputs: some inputs, with a leading axis of examples, or their shapes.

    >>> import jax.numpy as jnp
    >>> def attend(w, x, *, key=None):
    ...     return jnp.einsum("bi,ihd->bhd", x, w)
    >>> find_axes(attend, jnp.ones((6, 2, 4)), jnp.ones((5, 6)))
    (Axes(inputs=(0,), outputs=(1, 2), positions=(), lookup=False),)
    """
    leaves = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in jax.tree.leaves(params)]
    specs = jax.tree.unflatten(jax.tree.structure(params), leaves)
    x = jax.tree.map(lambda a: jax.ShapeDtypeStruct((2, *a.shape[1:]), jax.dtypes.canonicalize_dtype(a.dtype)), inputs)
    try:
        closed = jax.make_jaxpr(lambda p, a, k: apply(p, a, key=k))(specs, x, jax.eval_shape(lambda: jax.random.key(0)))
    except Exception:  # running the network will raise the same error with more context
        return (None,) * len(leaves)
    found = _Found([leaf.shape for leaf in leaves])
    own = [_Value(trails={i: tuple((axis,) for axis in range(leaf.ndim))}) for i, leaf in enumerate(leaves)]
    data = [_Value(data=True) for _ in jax.tree.leaves(x)]
    _walk(closed.jaxpr, [*own, *data, _Value()], found)
    said = [found.axes.get(i, {None}) for i in range(len(leaves))]
    return tuple(next(iter(axes)) if len(axes) == 1 else None for axes in said)


def _walk(jaxpr: Any, inputs: Sequence[_Value], found: _Found) -> list[_Value]:
    """Follow all values through a program; returns what is known about its outputs."""
    known: dict[Any, _Value] = dict(zip(jaxpr.invars, inputs, strict=True))

    def read(variable: Any) -> _Value:
        return known.get(variable, _Value()) if not hasattr(variable, "val") else _Value()

    for eqn in jaxpr.eqns:
        results = _follow(eqn, [read(v) for v in eqn.invars], found)
        known.update(zip(eqn.outvars, results, strict=True))
    return [read(v) for v in jaxpr.outvars]


def _follow(eqn: Any, values: list[_Value], found: _Found) -> list[_Value]:
    name = eqn.primitive.name
    data = any(value.data for value in values)
    if name == "scan":
        return _follow_scan(eqn, values, found)
    if name in ("while", "cond"):
        return _follow_branches(eqn, values, found)
    inner = _inner(eqn)
    if inner is not None:
        return _walk(inner, values, found)
    if not any(value.trails for value in values):
        return [_Value(data) for _ in eqn.outvars]
    if len(eqn.outvars) > 1:
        return [_Value(data, _elementwise(eqn, values, out)) for out in eqn.outvars]
    if data and _meet(eqn, values, found):
        return [_Value(True)]
    return [_Value(data, {} if data else _move(eqn, values, found))]


def _inner(eqn: Any) -> Any:
    """The program that an equation calls with its operands, if it is such a call."""
    for value in eqn.params.values():
        inner = getattr(value, "jaxpr", value)
        if hasattr(inner, "eqns") and len(inner.invars) == len(eqn.invars):
            return inner
    return None


def _follow_scan(eqn: Any, values: list[_Value], found: _Found) -> list[_Value]:
    consts, carry = eqn.params["num_consts"], eqn.params["num_carry"]
    body = eqn.params["jaxpr"].jaxpr
    for value in values[consts + carry :]:  # the first axis counts steps
        for leaf, trail in value.trails.items():
            found.take_one(leaf, trail[0])
    scanned = [_Value(v.data, {i: trail[1:] for i, trail in v.trails.items()}) for v in values[consts + carry :]]
    carried = values[consts : consts + carry]
    for _ in range(2):  # first to find which carried values depend on data
        outputs = _walk(body, [*values[:consts], *carried, *scanned], _Found(found.shapes))
        carried = [_Value(a.data or b.data, a.trails) for a, b in zip(carried, outputs, strict=False)]
    outputs = _walk(body, [*values[:consts], *carried, *scanned], found)
    stacked = [_Value(v.data, {i: ((), *trail) for i, trail in v.trails.items()}) for v in outputs[carry:]]
    return outputs[:carry] + stacked


def _follow_branches(eqn: Any, values: list[_Value], found: _Found) -> list[_Value]:
    if eqn.primitive.name == "cond":
        branches = [_walk(branch.jaxpr, values[1:], found) for branch in eqn.params["branches"]]
        return [_Value(values[0].data or any(v.data for v in each)) for each in zip(*branches, strict=True)]
    first, second = eqn.params["cond_nconsts"], eqn.params["cond_nconsts"] + eqn.params["body_nconsts"]
    outputs = _walk(eqn.params["body_jaxpr"].jaxpr, values[first:], found)
    return [_Value(a.data or b.data) for a, b in zip(values[second:], outputs, strict=True)]


def _meet(eqn: Any, values: list[_Value], found: _Found) -> bool:
    """Record what an operation with data tells about the leaves in it."""
    name = eqn.primitive.name
    for position, value in enumerate(values):
        if value.data:
            continue
        for leaf, trail in value.trails.items():
            if name == "dot_general":
                axes = _of_product(eqn, position, trail, found.shapes[leaf], found.copies.get(leaf, set()))
            elif name == "conv_general_dilated":
                axes = _of_convolution(eqn, position, trail)
            elif name == "gather" and position == 0:
                axes = _of_lookup(eqn, trail, found.shapes[leaf])
            elif name in _ELEMENTWISE_MEETINGS:
                axes = Axes((), tuple(range(len(found.shapes[leaf]))))
            else:
                # one number per feature in each step of a loop: the scale of a normalisation
                copies = found.copies.get(leaf, set())
                scales = copies and len(found.shapes[leaf]) - len(copies) <= 1
                axes = Axes((), tuple(range(len(found.shapes[leaf])))) if scales else None
            found.add(leaf, axes)
    return True


def _of_product(eqn: Any, position: int, trail: Trail, shape: tuple[int, ...], taken: set[int]) -> Axes | None:
    contracted, batch = eqn.params["dimension_numbers"]
    inputs = _axes_in(trail, contracted[position])
    copies = _axes_in(trail, batch[position])
    free = [axis for axis in range(len(trail)) if axis not in (*contracted[position], *batch[position])]
    outputs = _axes_in(trail, free)
    if not inputs or set(inputs) & {*outputs, *copies}:  # an axis that was split and used in parts
        return None
    lost = set(range(len(shape))) - {*inputs, *outputs, *copies, *taken}
    return Axes(inputs, outputs) if all(shape[axis] == 1 for axis in lost) else None


def _of_convolution(eqn: Any, position: int, trail: Trail) -> Axes | None:
    if position != 1:
        return None
    out, into, *window = eqn.params["dimension_numbers"].rhs_spec
    inputs, outputs, positions = (_axes_in(trail, axes) for axes in ([into], [out], window))
    if not inputs or set(inputs) & {*outputs, *positions} or set(outputs) & set(positions):
        return None
    return Axes(inputs, outputs, positions)


def _of_lookup(eqn: Any, trail: Trail, shape: tuple[int, ...]) -> Axes | None:
    sizes, operand = eqn.params["slice_sizes"], eqn.invars[0].aval.shape
    chosen = [a for a in eqn.params["dimension_numbers"].start_index_map if sizes[a] == 1 and operand[a] > 1]
    if len(chosen) != 1:
        return None
    inputs = _axes_in(trail, chosen)
    outputs = tuple(axis for axis in range(len(shape)) if axis not in inputs)
    return Axes(inputs, outputs, lookup=True) if inputs else None


def _axes_in(trail: Trail, axes: Sequence[int]) -> tuple[int, ...]:
    return tuple(sorted({own for axis in axes for own in trail[axis]}))


def _move(eqn: Any, values: list[_Value], found: _Found) -> dict[int, Trail]:
    """The trails after an operation without data."""
    name, params, out = eqn.primitive.name, eqn.params, eqn.outvars[0].aval.shape
    if name == "dot_general":
        return _through_product(eqn, values)
    trails = {} if name == "conv_general_dilated" else values[0].trails
    if name == "transpose":
        return {i: tuple(t[axis] for axis in params["permutation"]) for i, t in trails.items()}
    if name == "reshape":
        return {i: _reshaped(t, eqn.invars[0].aval.shape, out) for i, t in trails.items()}
    if name == "squeeze":
        gone = {axis % eqn.invars[0].aval.ndim for axis in params["dimensions"]}
        for leaf, trail in trails.items():
            found.take_one(leaf, _axes_in(trail, sorted(gone)))
        return {i: tuple(own for axis, own in enumerate(t) if axis not in gone) for i, t in trails.items()}
    if name == "broadcast_in_dim":
        places = params["broadcast_dimensions"]
        return {
            i: tuple(t[places.index(axis)] if axis in places else () for axis in range(len(out)))
            for i, t in trails.items()
        }
    if name == "gather":
        numbers = params["dimension_numbers"]
        gone = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
        kept = [axis for axis in range(eqn.invars[0].aval.ndim) if axis not in gone]
        for leaf, trail in trails.items():
            found.take_one(leaf, _axes_in(trail, sorted(gone)))
        placed = dict(zip(numbers.offset_dims, kept, strict=True))
        return {
            i: tuple(t[placed[axis]] if axis in placed else () for axis in range(len(out))) for i, t in trails.items()
        }
    if name in _SAME_PLACE:
        return trails
    return _elementwise(eqn, values, eqn.outvars[0])


def _through_product(eqn: Any, values: list[_Value]) -> dict[int, Trail]:
    """Products between leaves: free axes remain, after the batch axes."""
    contracted, batch = eqn.params["dimension_numbers"]
    moved: dict[int, Trail] = {}
    free = [
        [a for a in range(eqn.invars[side].aval.ndim) if a not in (*contracted[side], *batch[side])] for side in (0, 1)
    ]
    for side in (0, 1):
        for leaf, trail in values[side].trails.items():
            before = [trail[a] for a in batch[side]] + [()] * (len(free[0]) if side == 1 else 0)
            after = [()] * (len(free[1]) if side == 0 else 0)
            moved[leaf] = (*before, *(trail[a] for a in free[side]), *after)
    return moved


def _elementwise(eqn: Any, values: list[_Value], out: Any) -> dict[int, Trail]:
    """An operation that keeps axes in place, judging by its operands' shapes; others (reductions) end the trail."""
    joined: dict[int, Trail] = {}
    if any(value.data for value in values):
        return joined
    for variable, value in zip(eqn.invars, values, strict=True):
        same = variable.aval.ndim == out.aval.ndim and all(
            a == b or (eqn.primitive.name in ("concatenate", "split"))
            for a, b in zip(variable.aval.shape, out.aval.shape, strict=True)
        )
        if same:
            joined |= {leaf: trail for leaf, trail in value.trails.items() if leaf not in joined}
    return joined


def _reshaped(trail: Trail, before: Sequence[int], after: Sequence[int]) -> Trail:
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
    own, new = (np.cumprod([1, *reversed(shape)])[::-1] for shape in (before, after))
    moved: list[tuple[int, ...]] = []
    for axis, size in enumerate(after):
        held = [
            one
            for old in range(len(before))
            if size > 1 and before[old] > 1 and own[old + 1] < new[axis] and own[old] > new[axis + 1]
            for one in trail[old]
        ]
        moved.append(tuple(sorted(set(held))))
    return tuple(moved)
