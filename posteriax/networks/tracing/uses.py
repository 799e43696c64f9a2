"""How a network uses each of its leaves, read off its jaxpr.

Estimators that draw noise per example (`local`, `flipout`) are only correct for a leaf that is used once: a second
use, a loop, or examples merged with another axis would silently get independent draws. The network is traced at two
batch sizes; the axes whose length differs are the axes of examples.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax

TRIAL_SIZES = (5, 7)  # any two sizes will do

_CALLS = ("jit", "pjit", "closed_call", "core_call")
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


def find_uses(apply: Any, params: Any, example: Any) -> list[Use]:
    """The use of every leaf of `params`, in flattening order.

    Args:
        apply: the network, as ``apply(params, x, key=...)``.
        params: its params, or their shapes.
        example: shape and dtype of one example, without the leading axis.
    """
    specs = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), params)
    count = len(jax.tree.leaves(specs))
    try:
        small, large = (_trace(apply, specs, example, size) for size in TRIAL_SIZES)
        if not _same_structure(small, large):
            raise ValueError("the program depends on the batch size")
        if _holds(small, "custom_vjp_call"):
            # Quax rejects it on any traced value, and activations are traced values
            reason = "the network has a function with a gradient of its own (custom_vjp)"
            return [Use(None, reason=reason, dispatchable=False)] * count
    except Exception as error:
        reason = f"the network could not be traced at {TRIAL_SIZES} examples: {str(error).strip().splitlines()[0]}"
        return [Use(None, reason=reason, dispatchable=False)] * count
    return [_follow(small, large, i) for i in range(count)]


def _trace(apply: Any, params: Any, example: Any, size: int) -> Any:
    x = jax.tree.map(lambda a: jax.ShapeDtypeStruct((size, *a.shape), a.dtype), example)
    key = jax.eval_shape(lambda: jax.random.key(0))
    return jax.make_jaxpr(lambda p, a, k: apply(p, a, key=k))(params, x, key).jaxpr


def _holds(jaxpr: Any, name: str) -> bool:
    """Whether the program contains a primitive whose name starts with `name`."""
    for eqn in jaxpr.eqns:
        if eqn.primitive.name.startswith(name):
            return True
        for value in jax.tree.leaves(eqn.params, is_leaf=lambda v: hasattr(v, "eqns") or hasattr(v, "jaxpr")):
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns") and _holds(inner, name):
                return True
    return False


def _same_structure(a: Any, b: Any) -> bool:
    return [eqn.primitive for eqn in a.eqns] == [eqn.primitive for eqn in b.eqns]


class _PassesOut(Exception):
    """The leaf is returned unused by the inner program, as its output number `index`."""

    def __init__(self, index: int):
        self.index = index


def _follow(small: Any, large: Any, index: int, *, inner: bool = False) -> Use:
    """Follow input number `index` of a jaxpr to its single use."""
    variable = small.invars[index]
    while True:
        consumers = [(n, i) for n, eqn in enumerate(small.eqns) for i, v in enumerate(eqn.invars) if v is variable]
        leaving = [i for i, v in enumerate(small.outvars) if v is variable]
        if inner and len(leaving) == 1 and not consumers:
            raise _PassesOut(leaving[0])
        if leaving:
            return Use(None, reason="it is an output of the network")
        if not consumers:
            return Use(None, reason="the network does not use it")
        if len(consumers) > 1:
            return Use(None, reason=f"it is used {len(consumers)} times")
        (n, position), name = consumers[0], small.eqns[consumers[0][0]].primitive.name
        eqn = small.eqns[n]
        if name in _RESHAPES and position == 0:
            variable = eqn.outvars[0]
        elif name in _CALLS:
            twin = large.eqns[n].params["jaxpr"].jaxpr
            if not _same_structure(eqn.params["jaxpr"].jaxpr, twin):
                return Use(None, reason="the program depends on the batch size")
            try:
                return _follow(eqn.params["jaxpr"].jaxpr, twin, position, inner=True)
            except _PassesOut as passed:
                variable = eqn.outvars[passed.index]
        elif position in _CONTRACTIONS.get(name, ()):
            return _meeting(name, eqn, large.eqns[n], position)
        elif name == "scan" and position >= eqn.params["num_consts"] + eqn.params["num_carry"]:
            # Quax would slice every array that a random array consists of
            return Use(None, reason="a loop runs over its first axis", dispatchable=False)
        elif name in ("scan", "while"):
            return Use(None, reason="it is used in a loop", in_loop=_inside_scan(eqn, large.eqns[n], position))
        else:
            return Use(None, reason=f"it is used by {name}")


def _inside_scan(small: Any, large: Any, position: int) -> Use | None:
    """The use of a scan's constant inside its body, if there is one."""
    if small.primitive.name != "scan" or position >= small.params["num_consts"]:
        return None
    body, twin = small.params["jaxpr"].jaxpr, large.params["jaxpr"].jaxpr
    if not _same_structure(body, twin):
        return None
    try:
        use = _follow(body, twin, position, inner=True)
    except _PassesOut:
        return None
    return use if use.primitive is not None else use.in_loop


def _meeting(name: str, small: Any, large: Any, position: int) -> Use:
    other = 1 if position == 0 else 0  # gather's second operand holds the indices
    axes = _example_axes(small.invars[other].aval.shape, large.invars[other].aval.shape)
    rank = small.invars[other].aval.ndim
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
    if name == "gather" and not is_row_lookup(small.params, small.invars[0].aval.shape):
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


def _example_axes(small: Sequence[int], large: Sequence[int]) -> tuple[int, ...] | None:
    """The axis of examples, if any; None if examples are merged with another axis or spread over several."""
    differing = [axis for axis, sizes in enumerate(zip(small, large, strict=True)) if sizes[0] != sizes[1]]
    if not differing:
        return ()
    pure = [axis for axis in differing if (small[axis], large[axis]) == TRIAL_SIZES]
    return (pure[0],) if len(differing) == 1 and pure else None


def spec_of_example(x: Any) -> Any:
    """Shape and dtype of one example of `x`."""
    return jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape[1:], jax.dtypes.canonicalize_dtype(a.dtype)), x)
