"""Rewriting traced programs with operations that XLA compiles well for CPUs.

A rule takes an operation of the program and returns what to call in its place, or None to keep it. There are rules for
convolutions, max-pooling's gradient and narrow products; results differ by rounding only. `cpu_tuning` decides which
are used.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product
from math import prod
from typing import Any, cast

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Primitive, jaxpr_as_fun
from jax.extend.core.primitives import conv_general_dilated_p

from posteriax._internal.merged_calls import merge_equal_calls

Replacement = Callable[..., jax.Array]  # takes the operands of the operation
Rule = Callable[[JaxprEqn], Replacement | None]
OperationParams = Mapping[str, Any]

NARROW = 16  # outputs; from 32 on there is no difference
LONG = 256  # examples; products over fewer take microseconds
MOST_POSITIONS = 121  # of an output computed by products, one for each: the gradient of an 11 x 11 kernel


def rewritten(fun: Callable[..., Any], rules: Mapping[Primitive, Rule], *, merge: bool = False) -> Callable[..., Any]:
    """`fun` with some of its operations replaced, also inside its loops, branches and inner functions.

    The program is rewritten as it will be compiled, after differentiation and vectorisation.

    Args:
        fun: a function of arrays; call the result inside `jit`.
        rules: what to replace each primitive by; its replacement takes the same operands.
        merge: whether to make equal calls as one (:mod:`posteriax._internal.merged_calls`).

    >>> import jax.numpy as jnp
    >>> from jax.extend.core.primitives import sin_p
    >>> rewritten(lambda x: 2 * jnp.sin(x), {sin_p: lambda eqn: jnp.cos})(0.0)
    Array(2., dtype=float32, weak_type=True)
    """

    def with_replacements(*args: Any) -> Any:
        program, spec = jax.make_jaxpr(fun, return_shape=True)(*args)
        outputs = jaxpr_as_fun(_Rewriting(rules, merge).closed(program))(*jax.tree.leaves(args))
        return jax.tree.unflatten(jax.tree.structure(spec), outputs)

    return with_replacements


class _Rewriting:
    """One pass over a program. A part in which nothing is replaced is returned as the same object."""

    def __init__(self, rules: Mapping[Primitive, Rule], merge: bool):
        self.rules, self.merge = rules, merge
        self.known: dict[int, tuple[Jaxpr, Jaxpr]] = {}  # by id of the first, which is kept alive: often shared

    def closed(self, program: ClosedJaxpr) -> ClosedJaxpr:
        inner = self.jaxpr(program.jaxpr)
        return program if inner is program.jaxpr else program.replace(jaxpr=inner)

    def jaxpr(self, jaxpr: Jaxpr) -> Jaxpr:
        if id(jaxpr) not in self.known:
            merged = merge_equal_calls(jaxpr.eqns) if self.merge else jaxpr.eqns
            eqns = [self.eqn(eqn) for eqn in merged]
            changed = merged is not jaxpr.eqns or any(new is not old for new, old in zip(eqns, merged, strict=True))
            self.known[id(jaxpr)] = jaxpr, jaxpr.replace(eqns=eqns) if changed else jaxpr
        return self.known[id(jaxpr)][1]

    def eqn(self, eqn: JaxprEqn) -> JaxprEqn:
        rule = self.rules.get(eqn.primitive)
        replacement = rule(eqn) if rule else None
        if replacement is not None:
            return _call(replacement, eqn)
        params = {name: self.param(value) for name, value in eqn.params.items()}
        changed = any(value is not eqn.params[name] for name, value in params.items())
        return eqn.replace(params=params) if changed else eqn

    def param(self, value: Any) -> Any:
        if isinstance(value, ClosedJaxpr):
            return self.closed(value)
        if isinstance(value, Jaxpr):
            return self.jaxpr(value)
        if isinstance(value, tuple) and any(isinstance(part, ClosedJaxpr) for part in value):  # branches
            parts = tuple(self.param(part) for part in value)
            return value if all(new is old for new, old in zip(parts, value, strict=True)) else parts
        return value


def _call(function: Callable[..., Any], eqn: JaxprEqn) -> JaxprEqn:
    """An equation that calls the function with the operands of another."""
    with eqn.ctx.manager:
        call = jax.make_jaxpr(jax.jit(function))(*(v.aval for v in eqn.invars)).jaxpr.eqns[0]
    return call.replace(invars=eqn.invars, outvars=eqn.outvars, source_info=eqn.source_info, ctx=eqn.ctx)


def faster_convolution(eqn: JaxprEqn) -> Replacement | None:
    """What to call in place of a convolution; None if it is best as it is.

    XLA has fast, multi-threaded convolutions for CPUs, but only for channels-last images and kernels (NHWC, HWIO). It
    rearranges other layouts at the top level of a program, but not inside loops, where all steps of a run are: there
    it uses plain nested loops, 20 to 100 times slower. Every gradient with respect to a kernel has such a layout.

    The replacement is the same convolution in the fast layout or, if its output has few positions and that is faster,
    one product of matrices for each of them.
    """
    params = eqn.params
    x, kernel, out = (cast(jax.core.ShapedArray, v.aval) for v in (*eqn.invars, *eqn.outvars))
    if not (jnp.issubdtype(x.dtype, jnp.floating) and x.dtype == kernel.dtype == out.dtype and out.size and x.size):
        return None
    if _products_are_faster(params, kernel.shape, out.shape):
        return partial(_products, params=params)
    if params["batch_group_count"] == 1 and params["dimension_numbers"] != _channels_last_numbers(x.ndim):
        return partial(_channels_last, params=params)
    return None


def _channels_last_numbers(rank: int) -> lax.ConvDimensionNumbers:
    spatial = tuple(range(1, rank - 1))
    images, kernel = (0, rank - 1, *spatial), (rank - 1, rank - 2, *range(rank - 2))
    return lax.ConvDimensionNumbers(images, kernel, images)


def _channels_last(x: jax.Array, kernel: jax.Array, *, params: OperationParams) -> jax.Array:
    """The same convolution of rearranged operands."""
    (batch, channels, *spatial), (outs, ins, *window), out = params["dimension_numbers"]
    y = conv_general_dilated_p.bind(
        x.transpose(batch, *spatial, channels),
        kernel.transpose(*window, ins, outs),
        **{**params, "dimension_numbers": _channels_last_numbers(x.ndim)},
    )
    order = [0] * x.ndim  # of y's axes (batch, *spatial, channels) in the result
    for axis, result_axis in zip((0, x.ndim - 1, *range(1, x.ndim - 1)), out, strict=True):
        order[result_axis] = axis
    return y.transpose(order)


def _products_are_faster(params: OperationParams, kernel: Sequence[int], out: Sequence[int]) -> bool:
    """Whether `_products` applies and is faster: by a measured rule (docs/decisions, convolutions)."""
    numbers = params["dimension_numbers"]
    positions = prod(out[axis] for axis in numbers.out_spec[2:])
    window = prod(kernel[axis] for axis in numbers.rhs_spec[2:])
    if params["feature_group_count"] > 1 or any(step > 1 for step in params["lhs_dilation"]):
        return False
    if positions > min(window, MOST_POSITIONS):
        return False
    return positions == 1 or params["batch_group_count"] > 1 or any(step > 1 for step in params["rhs_dilation"])


def _products(x: jax.Array, kernel: jax.Array, *, params: OperationParams) -> jax.Array:
    """One product of matrices for each position of the output.

    The gradient with respect to a kernel is a convolution whose window is an entire image and whose output has the
    kernel's few positions: for each, a product of the shifted inputs with the gradients of the outputs, over all
    examples and positions of the image.
    """
    (batch, channels, *spatial), (outs, ins, *window), out = params["dimension_numbers"]
    x = x.transpose(channels, *spatial, batch)
    kernel = kernel.transpose(ins, *window, outs)
    lengths, groups = kernel.shape[1:-1], params["batch_group_count"]
    x = lax.pad(x, jnp.zeros((), x.dtype), [(0, 0, 0), *((low, high, 0) for low, high in params["padding"]), (0, 0, 0)])
    spans = [(n - 1) * step + 1 for n, step in zip(lengths, params["rhs_dilation"], strict=True)]
    strides = params["window_strides"]
    counts = [(n - span) // step + 1 for n, span, step in zip(x.shape[1:-1], spans, strides, strict=True)]
    flat_kernel = kernel.reshape(-1, groups, kernel.shape[-1] // groups)

    def at(position: tuple[int, ...]) -> jax.Array:
        first = [i * step for i, step in zip(position, strides, strict=True)]
        last = [i + span for i, span in zip(first, spans, strict=True)]
        part = lax.slice(x, (0, *first, 0), (x.shape[0], *last, x.shape[-1]), (1, *params["rhs_dilation"], 1))
        part = part.reshape(len(flat_kernel), groups, -1)
        by_group = jnp.einsum("kgb,kgo->bgo", part, flat_kernel, precision=params["precision"])
        return by_group.reshape(by_group.shape[0], -1)

    y = jnp.stack([at(position) for position in product(*map(range, counts))])  # (positions, batch, outputs)
    y = y.reshape(*counts, *y.shape[1:])
    order = [0] * y.ndim
    for axis, result_axis in zip((y.ndim - 2, y.ndim - 1, *range(y.ndim - 2)), out, strict=True):
        order[result_axis] = axis
    return y.transpose(order)


def faster_max_pool_gradient(eqn: JaxprEqn) -> Replacement | None:
    """What to call in place of a max-pooling's gradient; None if its windows overlap or are padded.

    XLA scatters the gradient of each window to its largest entry one at a time. If windows do not overlap, comparing
    all entries with the position of the largest does the same in vector instructions: 3 to 5 times faster.
    """
    params = eqn.params
    if params["select_prim"] is not lax.ge_p or params["window_strides"] != params["window_dimensions"]:
        return None
    return (
        None if any(sum(map(abs, pad)) for pad in params["padding"]) else partial(_gradient_at_largest, params=params)
    )


def _gradient_at_largest(gradient: jax.Array, x: jax.Array, *, params: OperationParams) -> jax.Array:
    """Each window's gradient at its first largest entry, 0 elsewhere."""
    window = params["window_dimensions"]
    covered = x[tuple(slice(n * length) for n, length in zip(gradient.shape, window, strict=True))]
    shape = [part for n, length in zip(gradient.shape, window, strict=True) for part in (n, length)]
    inside = tuple(range(1, 2 * x.ndim, 2))  # the axes within windows
    position = jnp.arange(prod(window)).reshape([n for length in window for n in (1, length)])
    windows = covered.reshape(shape)
    # not less, instead of equal: a window with a NaN still passes its gradient on, so it stays visible
    largest = ~(windows < windows.max(axis=inside, keepdims=True))
    first = jnp.where(largest, position, position.size).min(axis=inside, keepdims=True)
    spread = jnp.where(position == first, gradient.reshape(first.shape), 0).reshape(covered.shape)
    return jnp.pad(spread, [(0, n - m) for n, m in zip(x.shape, covered.shape, strict=True)])


def faster_narrow_product(eqn: JaxprEqn) -> Replacement | None:
    """What to call in place of a product of a narrow matrix and a wide one over the rows of the wide one, else None.

    The gradient of a dense layer's weights is a product over all examples, (inputs, N) x (N, outputs). With few
    outputs, as in the last layer of most networks, XLA takes 2 to 5 times as long for a result of shape (inputs,
    outputs) as for its transpose, and turns a transposed product into the slow one by itself. A barrier keeps it from
    doing so.
    """
    shapes = [v.aval.shape for v in eqn.invars]  # type: ignore[attr-defined]
    over, batch = eqn.params["dimension_numbers"]
    if any(len(shape) != 2 for shape in shapes) or any(map(len, batch)) or any(len(axes) != 1 for axes in over):
        return None
    widths = [shape[1 - axis] for shape, (axis,) in zip(shapes, over, strict=True)]
    narrow = int(widths[1] < widths[0])  # which operand
    wide = 1 - narrow
    if widths[narrow] > NARROW or widths[wide] < 2 * widths[narrow] or over[wide] != (0,) or shapes[wide][0] < LONG:
        return None
    params = eqn.params | {"dimension_numbers": ((over[narrow], over[wide]), batch)}

    def narrow_first(*operands: jax.Array) -> jax.Array:
        product = lax.optimization_barrier(lax.dot_general_p.bind(operands[narrow], operands[wide], **params))
        return product.T if narrow else product

    return narrow_first
