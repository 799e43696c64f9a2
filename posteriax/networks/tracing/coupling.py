"""Whether a network's outputs for one example depend on the others in its batch, as with batch statistics.

Every value of the program either depends on no data, or has an axis along which each entry depends on one example, or
counts as coupled. If the outputs have such an axis, no example depends on another. If not, the program may still treat
them alone, by operations that are not known here, and trial decides.
"""

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import jax
import numpy as np
from jax.extend.core import JaxprEqn

from posteriax.networks.tracing.interpretation import Interpretation
from posteriax.networks.tracing.program import ELEMENTWISE, Inputs, Kind, array_type, spec_of_example

if TYPE_CHECKING:
    from posteriax.networks.network import Network

Axis = int  # along which each entry depends on one example; or one of these
_NO_DATA = -1
_COUPLED = -2


def couples_examples(net: "Network", x: Inputs) -> bool:
    """Whether the outputs for one example depend on the others in its batch, as with batch statistics."""
    if jax.tree.leaves(x)[0].shape[0] < 2:
        return False
    return not examples_are_independent(net, spec_of_example(x)) and _coupled_in_trial(net, x)


def examples_are_independent(net: "Network", example: Inputs) -> bool:
    """Whether the program shows that no output depends on several examples. False if it does not tell."""
    try:
        program = net.programs.for_any_size(example)
    except Exception:  # it may accept the inputs of a trial
        return False
    inputs = [0 if kind == Kind.DATA else _NO_DATA for kind in (program.kinds[slot] for slot in program.inputs)]
    return set(_ExampleAxes().outputs(program.closed.jaxpr, inputs)) <= {0, _NO_DATA}


def _coupled_in_trial(net: "Network", x: Inputs) -> bool:
    """Run the same example in two different batches.

    The rows are spread over x and the weights get some noise, so that neither sorted data nor a zero-initialised head
    hides a dependence.
    """
    n = jax.tree.leaves(x)[0].shape[0]
    rows = np.linspace(0, n - 1, min(n, 8)).astype(int)
    copies = np.where(np.arange(len(rows)) == 0, rows[0], rows[-1])  # the first row with copies of the last
    rng = np.random.default_rng(0)
    params = jax.tree.map(lambda w: np.asarray(w + rng.normal(size=w.shape), w.dtype), jax.device_get(net.params))
    apply = jax.jit(net.apply)
    with_others, with_copies = (
        np.asarray(apply(params, jax.tree.map(lambda a, r=r: np.asarray(a[r]), x)), np.float64)[0]
        for r in (rows, copies)
    )
    scale = np.abs(with_others).max()
    with np.errstate(invalid="ignore"):  # infinite outputs tell nothing
        return bool(np.abs(with_others - with_copies).max() > 1e-3 * scale + 1e-6)


class _ExampleAxes(Interpretation[Axis]):
    CONSTANT = _NO_DATA

    def results(self, eqn: JaxprEqn, operands: list[Axis]) -> list[Axis]:
        if all(axis == _NO_DATA for axis in operands):
            return [_NO_DATA] * len(eqn.outvars)
        rule = _RULES.get(eqn.primitive.name)
        if _COUPLED in operands or rule is None:
            return [_COUPLED] * len(eqn.outvars)
        return [rule(eqn, operands)] * len(eqn.outvars)

    def join(self, chooser: Axis, values: Sequence[Axis]) -> Axis:
        return _common(values) if chooser == _NO_DATA else _COUPLED

    def entry(self, value: Axis) -> Axis:
        return value - 1 if value > 0 else _NO_DATA if value == _NO_DATA else _COUPLED

    def stack(self, value: Axis) -> Axis:
        return _stacked(value, 0)


def _common(axes: Sequence[Axis]) -> Axis:
    """The axis of all values that depend on data."""
    different = set(axes) - {_NO_DATA}
    return _NO_DATA if not different else different.pop() if len(different) == 1 else _COUPLED


def _kept(axis: Axis, gone: Sequence[int]) -> Axis:
    """The axis after others are removed."""
    return _COUPLED if axis in gone else axis - sum(a < axis for a in gone)


def _stacked(axis: Axis, new: int) -> Axis:
    """The axis after a new one is inserted."""
    return axis if axis < new else axis + 1


def _outside(parameter: str) -> Callable[[JaxprEqn, list[Axis]], Axis]:
    """The rule for operations along the axes that a parameter names: the others stay."""

    def rule(eqn: JaxprEqn, operands: list[Axis]) -> Axis:
        axis, along = _common(operands), eqn.params[parameter]
        return _COUPLED if axis == along or (parameter == "dimensions" and axis in along) else axis

    return rule


def _reshape(eqn: JaxprEqn, operands: list[Axis]) -> Axis:
    before, after, axis = array_type(eqn.invars[0]).shape, array_type(eqn.outvars[0]).shape, operands[0]
    same = [
        new
        for new, size in enumerate(after)
        if size == before[axis] and math.prod(after[:new]) == math.prod(before[:axis])
    ]
    return same[0] if same else _COUPLED


def _all_of_it(eqn: JaxprEqn, operands: list[Axis]) -> Axis:
    """The rule for slices and for windows: the axis of examples must be taken as it is, from a single operand."""
    axis, params = operands[0], eqn.params
    if axis < 0 or any(other != _NO_DATA for other in operands[1:]):
        return _COUPLED
    if "window_dimensions" in params:
        sizes = [params[name][axis] for name in ("window_dimensions", "window_strides", "base_dilation")]
        return axis if sizes == [1, 1, 1] and tuple(params["padding"][axis]) == (0, 0) else _COUPLED
    if "padding_config" in params:
        return axis if tuple(params["padding_config"][axis]) == (0, 0, 0) else _COUPLED
    is_all = array_type(eqn.outvars[0]).shape[axis] == array_type(eqn.invars[0]).shape[axis]
    return axis if is_all else _COUPLED


def _product(eqn: JaxprEqn, operands: list[Axis]) -> Axis:
    contracted, batch = eqn.params["dimension_numbers"]
    positions = []
    for side, axis in enumerate(operands):
        if axis in batch[side]:
            positions.append(batch[side].index(axis))
        elif axis in contracted[side] or (axis >= 0 and operands[1 - side] != _NO_DATA):
            return _COUPLED
        elif axis >= 0:
            before = 0 if side == 0 else array_type(eqn.invars[0]).ndim - len(contracted[0]) - len(batch[0])
            positions.append(len(batch[side]) + before + _kept(axis, (*contracted[side], *batch[side])))
    return _common(positions)


def _convolution(eqn: JaxprEqn, operands: list[Axis]) -> Axis:
    numbers = eqn.params["dimension_numbers"]
    examples_apart = operands == [numbers.lhs_spec[0], _NO_DATA] and eqn.params["batch_group_count"] == 1
    return numbers.out_spec[0] if examples_apart else _COUPLED


def _gather(eqn: JaxprEqn, operands: list[Axis]) -> Axis:
    (axis, index_axis), numbers = operands, eqn.params["dimension_numbers"]
    if axis >= 0 and index_axis == _NO_DATA:
        gone = (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)
        if axis in gone or axis in numbers.start_index_map:
            return _COUPLED
        return numbers.offset_dims[_kept(axis, gone)]
    positions = [a for a in range(array_type(eqn.outvars[0]).ndim) if a not in numbers.offset_dims]
    pairs = zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True)
    if index_axis < len(positions) and (axis == _NO_DATA or (axis, index_axis) in pairs):
        return positions[index_axis]
    return _COUPLED


_RULES: dict[str, Callable[[JaxprEqn, list[Axis]], Axis]] = {
    **dict.fromkeys(ELEMENTWISE, lambda eqn, operands: _common(operands)),
    **dict.fromkeys(
        ("reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "reduce_and", "reduce_or", "argmax", "argmin"),
        lambda eqn, operands: _kept(operands[0], eqn.params["axes"]),
    ),
    **dict.fromkeys(("concatenate", "sort"), _outside("dimension")),
    **dict.fromkeys(("split", "cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"), _outside("axis")),
    "rev": _outside("dimensions"),
    **dict.fromkeys(
        ("slice", "dynamic_slice", "pad", "reduce_window_sum", "reduce_window_max", "reduce_window_min"), _all_of_it
    ),
    "broadcast_in_dim": lambda eqn, operands: eqn.params["broadcast_dimensions"][operands[0]],
    "stack": lambda eqn, operands: _stacked(_common(operands), eqn.params["axis"]),
    "transpose": lambda eqn, operands: eqn.params["permutation"].index(operands[0]),
    "squeeze": lambda eqn, operands: _kept(operands[0], eqn.params["dimensions"]),
    "reshape": _reshape,
    "dot_general": _product,
    "conv_general_dilated": _convolution,
    "gather": _gather,
}
