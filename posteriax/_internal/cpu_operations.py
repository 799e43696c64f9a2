"""Rewriting traced programs with operations that XLA compiles well for CPUs.

A rule takes an operation of the program and returns what to call in its place, or None to keep it. There are rules for
convolutions, max-pooling's gradient, narrow products and long sums; results differ by rounding only. `cpu_tuning`
decides which are used.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product
from math import prod
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Primitive, jaxpr_as_fun
from jax.extend.core.primitives import conv_general_dilated_p

from posteriax._internal.merged_calls import merge_equal_calls

Replacement = Callable[..., jax.Array]  # takes the operands of the operation
Rule = Callable[[JaxprEqn], Replacement | None]
OperationParams = Mapping[str, Any]
ChannelsLastConvolution = Callable[[jax.Array, jax.Array, OperationParams], jax.Array]

MANY = 32  # input channels
NARROW = 16  # outputs; from 32 on there is no difference
LONG = 256  # examples; products over fewer take microseconds
PART = 16  # examples whose contributions to a kernel's gradient are computed together; twice as many of
LARGE_IMAGE = 1024  # positions
LANES = 2  # loops over such parts that run at the same time
LARGE = 2**14  # entries of an array that is worth taking in parts or stages
WINDOW = 32  # the longest axis that XLA sums without cutting it into windows
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
    one product of matrices for each of them. Gradients of kernels are summed over parts of the batch, and those of the
    inputs of strided or shrinking convolutions are computed without multiplying by zeros.
    """
    params = eqn.params
    x, kernel, out = (cast(jax.core.ShapedArray, v.aval) for v in (*eqn.invars, *eqn.outvars))
    if not (jnp.issubdtype(x.dtype, jnp.floating) and x.dtype == kernel.dtype == out.dtype and out.size and x.size):
        return None
    if _products_are_faster(params, kernel.shape, out.shape):
        replacement = partial(_products, params=params)
    elif _has_phases(params, kernel.shape):
        return partial(_channels_last, params=params, convolve=_by_phase)
    elif _grows(params, x.shape, kernel.shape, out.shape):
        return partial(_channels_last, params=params, convolve=_by_source)
    elif params["batch_group_count"] == 1 and params["dimension_numbers"] != _channels_last_numbers(x.ndim):
        replacement = partial(_channels_last, params=params)
    else:
        return None
    part = _examples_in_a_part(eqn)
    if part is None:
        return replacement
    numbers = params["dimension_numbers"]
    return partial(_sum_over_parts, convolve=replacement, axes=(numbers.lhs_spec[1], numbers.rhs_spec[1]), part=part)


def _examples_in_a_part(eqn: JaxprEqn) -> int | None:
    """How many examples `_sum_over_parts` takes at a time; None if it does not apply.

    It applies to the gradient of a kernel: a convolution whose window is an entire image, with few outputs, and whose
    input channels are the examples.
    """
    params, (x, kernel), out = eqn.params, (v.aval.shape for v in eqn.invars), eqn.outvars[0].aval.shape  # type: ignore[attr-defined]
    numbers = params["dimension_numbers"]
    positions = prod(out[axis] for axis in numbers.out_spec[2:])
    window = prod(kernel[axis] for axis in numbers.rhs_spec[2:])
    grouped = params["feature_group_count"] > 1 or params["batch_group_count"] > 1
    if grouped or positions >= window or prod(x) < LARGE or _is_divided(eqn):
        return None
    part = PART if window < LARGE_IMAGE else 2 * PART
    return None if x[numbers.lhs_spec[1]] % (LANES * part) else part


def _is_divided(eqn: JaxprEqn) -> bool:
    """Whether the compiler divides the program over devices, which have different examples then."""
    with eqn.ctx.manager:
        return jax.sharding.AxisType.Auto in jax.sharding.get_abstract_mesh().axis_types


def _sum_over_parts(
    x: jax.Array, kernel: jax.Array, *, convolve: Replacement, axes: tuple[int, int], part: int
) -> jax.Array:
    """A convolution as a sum over parts of its input channels, in loops that run at the same time.

    XLA computes a kernel's gradient on one thread, and rearranges both operands before. With two loops both threads of
    a small machine work, and what a few examples need stays in a core's cache.

    Args:
        convolve: the convolution, of a part of x and the matching part of the kernel.
        axes: the axes of input channels in x and in the kernel.
        part: how many of them to take at a time.
    """
    count = x.shape[axes[0]] // (LANES * part)

    def term(i: jax.Array | int) -> jax.Array:
        x_part, kernel_part = (
            lax.dynamic_slice_in_dim(operand, i * part, part, axis)
            for operand, axis in zip((x, kernel), axes, strict=True)
        )
        return convolve(x_part, kernel_part)

    zeros = jnp.zeros(jax.eval_shape(term, 0).shape, x.dtype)
    lanes = [lax.fori_loop(i * count, (i + 1) * count, lambda j, total: total + term(j), zeros) for i in range(LANES)]
    return sum(lanes[1:], start=lanes[0])


def _channels_last_numbers(rank: int) -> lax.ConvDimensionNumbers:
    spatial = tuple(range(1, rank - 1))
    images, kernel = (0, rank - 1, *spatial), (rank - 1, rank - 2, *range(rank - 2))
    return lax.ConvDimensionNumbers(images, kernel, images)


def _convolve(x: jax.Array, kernel: jax.Array, params: OperationParams) -> jax.Array:
    """A convolution of channels-last operands."""
    return conv_general_dilated_p.bind(x, kernel, **{**params, "dimension_numbers": _channels_last_numbers(x.ndim)})


def _channels_last(
    x: jax.Array, kernel: jax.Array, *, params: OperationParams, convolve: ChannelsLastConvolution = _convolve
) -> jax.Array:
    """The same convolution of rearranged operands."""
    (batch, channels, *spatial), (outs, ins, *window), out = params["dimension_numbers"]
    y = convolve(x.transpose(batch, *spatial, channels), kernel.transpose(*window, ins, outs), params)
    order = [0] * x.ndim  # of y's axes (batch, *spatial, channels) in the result
    for axis, result_axis in zip((0, x.ndim - 1, *range(1, x.ndim - 1)), out, strict=True):
        order[result_axis] = axis
    return y.transpose(order)


def _grows(params: OperationParams, x: Sequence[int], kernel: Sequence[int], out: Sequence[int]) -> bool:
    """Whether `_by_source` applies and is faster: to the gradient of a two-dimensional convolution's inputs, if it has
    no padding and a large kernel."""
    numbers = params["dimension_numbers"]
    plain = max(params["feature_group_count"], params["batch_group_count"], *params["window_strides"]) == 1
    plain = plain and max(*params["rhs_dilation"], *params["lhs_dilation"]) == 1
    before, after = (
        prod(shape[a] for a in spec[2:]) for shape, spec in ((x, numbers.lhs_spec), (out, numbers.out_spec))
    )
    return plain and len(x) == 4 and after >= 2 * before and x[numbers.lhs_spec[1]] >= MANY and prod(x) >= LARGE


def _by_source(x: jax.Array, kernel: jax.Array, params: OperationParams) -> jax.Array:
    """A convolution whose outputs are more than its inputs, as what each input adds to the outputs around it.

    A product for each position of the input, instead of the output, takes fewer multiplications. There is one for each
    row of the kernel; its columns are shifted into place and added, and then the rows.
    """
    batch, height, width, channels = x.shape
    rows, columns, _, outputs = kernel.shape
    (top, bottom), (left, right) = params["padding"]
    full_height, full_width = height + top + bottom - rows + 1, width + left + right - columns + 1
    flat, zero = x.reshape(-1, channels), jnp.zeros((), x.dtype)

    def row(i: int) -> jax.Array:
        weights = kernel[i].transpose(1, 0, 2).reshape(channels, columns * outputs)
        added = jnp.matmul(flat, weights, precision=params["precision"]).reshape(batch, height, width, columns, outputs)
        added = lax.optimization_barrier(added)  # or every shift would be computed with a product of its own
        shifted = [
            lax.pad(
                added[:, :, :, j], zero, [(0, 0, 0), (0, 0, 0), (left - j, full_width - width - left + j, 0), (0, 0, 0)]
            )
            for j in range(columns)
        ]
        total = lax.optimization_barrier(sum(shifted[1:], start=shifted[0]))
        return lax.pad(total, zero, [(0, 0, 0), (top - i, full_height - height - top + i, 0), (0, 0, 0), (0, 0, 0)])

    placed = [row(i) for i in range(rows)]
    return sum(placed[1:], start=placed[0])


def _has_phases(params: OperationParams, kernel: Sequence[int]) -> bool:
    """Whether `_by_phase` applies and is faster: to the gradient of a strided convolution's inputs."""
    steps, window = params["lhs_dilation"], [kernel[axis] for axis in params["dimension_numbers"].rhs_spec[2:]]
    plain = max(*params["window_strides"], *params["rhs_dilation"], params["feature_group_count"]) == 1
    return plain and params["batch_group_count"] == 1 and max(steps) > 1 and max(window) > 1


def _by_phase(x: jax.Array, kernel: jax.Array, params: OperationParams) -> jax.Array:
    """A convolution of images with zeros between their entries, without multiplying by zeros.

    An output at position step * n + r only meets every step-th entry of the kernel, from one that depends on r. So the
    outputs of each phase r are a small convolution of the images as they are. All phases are computed as channels of
    one convolution, and interleaved.
    """
    axes, steps, outputs = range(x.ndim - 2), params["lhs_dilation"], kernel.shape[-1]
    phases = [
        _phases_of_axis(size, length, step, low, high)
        for size, length, step, (low, high) in zip(
            x.shape[1:-1], kernel.shape[:-2], steps, params["padding"], strict=True
        )
    ]

    def kernel_of(chosen: tuple[int, ...]) -> jax.Array:
        part = kernel[
            tuple(slice(axis.first[r], None, step) for axis, step, r in zip(phases, steps, chosen, strict=True))
        ]
        around = [
            (axis.shift[r], axis.taps - axis.shift[r] - length)
            for axis, r, length in zip(phases, chosen, part.shape, strict=False)
        ]
        return jnp.pad(part, [*around, (0, 0), (0, 0)])

    kernels = jnp.concatenate([kernel_of(chosen) for chosen in product(*map(range, steps))], axis=-1)
    cut = [(min(low, 0), min(high, 0), 0) for low, high in (axis.padding for axis in phases)]
    added = [(max(low, 0), max(high, 0)) for low, high in (axis.padding for axis in phases)]
    x = lax.pad(x, jnp.zeros((), x.dtype), [(0, 0, 0), *cut, (0, 0, 0)])
    y = _convolve(x, kernels, {**params, "lhs_dilation": (1,) * len(axes), "padding": tuple(added)})
    counts = y.shape[1:-1]
    y = y.reshape(-1, *counts, *steps, outputs)
    y = y.transpose(0, *(axis for a in axes for axis in (1 + a, 1 + len(axes) + a)), y.ndim - 1)
    y = y.reshape(-1, *(count * step for count, step in zip(counts, steps, strict=True)), outputs)
    return y[(slice(None), *(slice(axis.length) for axis in phases))]


class _Phases(NamedTuple):
    """How the phases of one axis are computed by one convolution.

    `first` entry of the kernel that each phase meets, and its `shift` from the start of a kernel of `taps` entries;
    the `padding` of that convolution, and the `length` of the interleaved result.
    """

    first: list[int]
    shift: list[int]
    taps: int
    padding: tuple[int, int]
    length: int


def _phases_of_axis(size: int, kernel: int, step: int, low: int, high: int) -> _Phases:
    """Entry i of the kernel meets entry (n step + r + i - low) / step of the image: for every step-th i."""
    first = [(low - r) % step for r in range(step)]
    begins = [(r + i - low) // step for r, i in enumerate(first)]  # in the image, for n = 0
    start = min(begins)
    taps = max(begin - start + max(0, -(-(kernel - i) // step)) for begin, i in zip(begins, first, strict=True))
    length = (size - 1) * step + 1 + low + high - kernel + 1
    count = -(-length // step)
    return _Phases(first, [begin - start for begin in begins], taps, (-start, count + taps - 1 - size + start), length)


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


def faster_sum(eqn: JaxprEqn) -> Replacement | None:
    """What to call in place of a sum over several axes, or a long one, that keeps the last axis; None to keep it.

    The gradients of a layer's bias and of a normalisation's scales are such sums, over all examples and positions. XLA
    cuts every axis longer than 32 into windows; that sum is neither fused with what computes its terms nor
    vectorised, nor is one over several axes at once. Summing the innermost of them first is, and leaves little to do.
    """
    x = cast(jax.core.ShapedArray, eqn.invars[0].aval)
    axes = sorted(eqn.params["axes"])
    if not axes or axes[-1] == x.ndim - 1 or x.size < LARGE or not jnp.issubdtype(x.dtype, jnp.floating):
        return None
    if _is_divided(eqn):
        return None
    length = x.shape[axes[-1]]
    inner = next((n for n in range(min(length, WINDOW), 3, -1) if length % n == 0), None)
    if inner is None or (axes == [axes[-1]] and inner == length):
        return None
    return partial(_sum_in_stages, params=eqn.params, inner=inner)


def _sum_in_stages(x: jax.Array, *, params: OperationParams, inner: int) -> jax.Array:
    """The sum over groups of `inner` neighbours along the innermost axis, then over everything else."""
    axes = sorted(params["axes"])
    last = axes[-1]
    split = x.reshape(*x.shape[:last], -1, inner, *x.shape[last + 1 :])
    first = lax.optimization_barrier(lax.reduce_sum_p.bind(split, **{**params, "axes": (last + 1,)}))
    return lax.reduce_sum_p.bind(first, **{**params, "axes": tuple(axes)})
