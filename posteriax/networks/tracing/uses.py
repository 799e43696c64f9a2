"""How a network uses each of its leaves, read off its program.

Estimators that draw noise per example (`local`, `flipout`) are only correct for a leaf that is used once: a second
use, a loop, or examples merged with another axis would silently get independent draws. The network is traced at two
batch sizes; the axes whose length differs are the axes of examples.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
from jax.extend.core import JaxprEqn

from posteriax.networks.tracing.program import (
    TRIAL_SIZES,
    Inputs,
    Kind,
    NetworkPrograms,
    Slot,
    TracedProgram,
    all_equations,
    array_type,
    axes_of_examples,
)

_RESHAPES = ("transpose", "reshape", "squeeze", "broadcast_in_dim", "convert_element_type", "copy")
_CONTRACTIONS = {"dot_general": (0, 1), "conv_general_dilated": (1,), "gather": (0,), "add": (0, 1)}


@dataclass(frozen=True)
class Use:
    """The single place where a leaf is combined with data, or the reason why there is no such place.

    Args:
        primitive: "dot_general", "conv_general_dilated", "gather" or "add"; None if the leaf must be a plain draw.
        example_axis: the axis of examples in the other operand; None if they have no axis of their own.
        meets_examples: whether the other operand depends on examples at all, even if merged with another axis.
        other_axes: whether one example uses the leaf several times there (positions of a sequence or an image).
        reason: why `primitive` is None.
        dispatchable: whether the program accepts an array type in place of the leaf.
        in_loop: the use inside a loop, if that is the reason; for arrays that are drawn outside the loop.
    """

    primitive: str | None
    example_axis: int | None = None
    other_axes: bool = False
    meets_examples: bool = True
    reason: str = ""
    dispatchable: bool = True
    in_loop: "Use | None" = None


def find_uses(programs: NetworkPrograms, example: Inputs) -> list[Use]:
    """The use of every leaf, in flattening order, when the network is called with a key.

    Args:
        programs: of the network.
        example: shape and dtype of one example, without the leading axis.
    """
    count = len(jax.tree.leaves(programs.params))
    try:
        small, large = programs.pair(example, keyed=True)
        if small.shape != large.shape:
            raise ValueError("the program depends on the batch size")
    except Exception as error:
        reason = f"the network could not be traced at {TRIAL_SIZES} examples: {str(error).strip().splitlines()[0]}"
        return [Use(None, reason=reason, dispatchable=False)] * count
    if any(eqn.primitive.name.startswith("custom_vjp_call") for eqn in all_equations(small.closed.jaxpr)):
        # Quax rejects it on any traced value, and activations are traced values
        reason = "the network has a function with a gradient of its own (custom_vjp)"
        return [Use(None, reason=reason, dispatchable=False)] * count
    return [_follow(small, large, slot) for slot in small.inputs[:count]]


def _follow(small: TracedProgram, large: TracedProgram, slot: Slot) -> Use:
    """Follow a value to its single use."""
    while True:
        consumers = [
            (number, position)
            for number, step in enumerate(small.steps)
            for position, operand in enumerate(step.operands)
            if operand == slot
        ]
        if slot in small.outputs:
            return Use(None, reason="it is an output of the network")
        if not consumers:
            return Use(None, reason="the network does not use it")
        if len(consumers) > 1:
            return Use(None, reason=f"it is used {len(consumers)} times")
        ((number, position),) = consumers
        step, eqn = small.steps[number], small.steps[number].eqn
        if step.checkpoint:  # Quax turns a random array into a plain draw there
            return Use(None, reason=f"it is used by {step.checkpoint}")
        if step.name in _RESHAPES and position == 0:
            (slot,) = step.outputs
        elif position in _CONTRACTIONS.get(step.name, ()):
            return _meeting(step.name, eqn, large.steps[number].eqn, position)
        elif step.name == "scan" and position >= eqn.params["num_consts"] + eqn.params["num_carry"]:
            # Quax would slice every array that a random array consists of
            return Use(None, reason="a loop runs over its first axis", dispatchable=False)
        elif step.name in ("scan", "while"):
            in_loop = _inside_scan(eqn, large.steps[number].eqn, position)
            return Use(None, reason="it is used in a loop", in_loop=in_loop)
        else:
            return Use(None, reason=f"it is used by {step.name}")


def _inside_scan(small: JaxprEqn, large: JaxprEqn, position: int) -> Use | None:
    """The use of a scan's constant inside its body, if there is one."""
    if small.primitive.name != "scan" or position >= small.params["num_consts"]:
        return None
    bodies = (eqn.params["jaxpr"] for eqn in (small, large))
    body, twin = (TracedProgram(closed, [Kind.RANDOM] * len(closed.jaxpr.invars)) for closed in bodies)
    if body.shape != twin.shape:
        return None
    use = _follow(body, twin, body.inputs[position])
    return use if use.primitive is not None else use.in_loop


def _meeting(name: str, small: JaxprEqn, large: JaxprEqn, position: int) -> Use:
    other = 1 if position == 0 else 0  # gather's second operand holds the indices
    axes = axes_of_examples(array_type(small.invars[other]).shape, array_type(large.invars[other]).shape)
    rank = array_type(small.invars[other]).ndim
    if name == "dot_general":
        contracted, batch = small.params["dimension_numbers"]
        if batch[0]:
            return Use(None, reason="it is contracted along a batch axis")
        rank -= len(contracted[other])
        if any(axis in contracted[other] for axis in axes or ()):
            return Use(None, reason="it is contracted over examples")
    if name == "conv_general_dilated":
        batch_axis = small.params["dimension_numbers"].lhs_spec[0]
        if small.params["batch_group_count"] != 1 or any(axis != batch_axis for axis in axes or ()):
            return Use(None, reason="its convolution mixes examples")
        return Use(name, axes[0] if axes else None, other_axes=True, meets_examples=axes != ())
    if name == "gather" and not is_row_lookup(small.params, array_type(small.invars[0]).shape):
        return Use(None, reason="it is not indexed by rows")
    if name == "gather":
        rank -= 1  # the index vector's own axis
    if axes is None:
        return Use(name, None, other_axes=True)
    return Use(name, axes[0] if axes else None, other_axes=rank > 1, meets_examples=bool(axes))


def is_row_lookup(params: dict[str, Any], shape: Sequence[int]) -> bool:
    """Whether a gather takes whole rows of a matrix, as an embedding does.

    Indexing gives a row number; a vmapped slice gives a row and a column number, but for a slice as wide as the matrix
    the column can only be 0.
    """
    numbers = params["dimension_numbers"]
    return (
        len(shape) == 2
        and tuple(numbers.start_index_map) in ((0,), (0, 1))
        and tuple(numbers.collapsed_slice_dims) in ((), (0,))
        and not numbers.operand_batching_dims
        and tuple(params["slice_sizes"]) == (1, shape[1])
    )
