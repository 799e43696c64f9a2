"""PyTorch's operations in JAX: a line each, where an operation of JAX has the same meaning.

`OPERATIONS` has a function for every operation of ATen that a program of `torch.export` may contain, under its name
without the overload ("add") or, where overloads differ, with it ("max.dim"). Functions take arguments as ATen passes
them: sizes and axes as ints, dtypes as JAX dtypes. What has no line here is decomposed by PyTorch into operations that
have one. Products, convolutions, lookups, norms, attention and recurrent layers are kept whole, so that tracing sees
which axes of a weight are its inputs.

`RANDOM` has those that draw random numbers. They take a key first, None for a deterministic pass.
"""

import math
import operator
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import DTypeLike

Array = jax.Array
Shape = Sequence[int]
OptionalKey = Array | None


# -- products ----------------------------------------------------------------------------------------------------------


def linear(x: Array, weight: Array, bias: Array | None = None) -> Array:
    y = jnp.tensordot(x, weight, axes=((-1,), (1,)))
    return y if bias is None else y + bias


def scaled_sum(x: Array, product: Array, beta: float = 1, alpha: float = 1) -> Array:
    return (x if beta == 1 else beta * x) + (product if alpha == 1 else alpha * product)


def convolution(
    x: Array,
    kernel: Array,
    bias: Array | None,
    stride: Shape,
    padding: Shape,
    dilation: Shape,
    transposed: bool,
    output_padding: Shape,
    groups: int,
) -> Array:
    axes = "DHW"[5 - x.ndim :]
    window = kernel.shape[2:]
    n = len(window)
    stride, padding, dilation, extra = (_each(value, n) for value in (stride, padding, dilation, output_padding))
    x, kernel = _promoted(x, kernel)
    if not transposed:
        settings: dict[str, Any] = {"window_strides": stride, "padding": [(p, p) for p in padding]}
        layout = "OI" + axes
    else:
        # the gradient of a convolution: inputs spread `stride` apart, and the kernel turned around
        reach = [d * (k - 1) for d, k in zip(dilation, window, strict=True)]
        pads = [(r - p, r - p + e) for r, p, e in zip(reach, padding, extra, strict=True)]
        settings = {"window_strides": (1,) * n, "padding": pads, "lhs_dilation": stride}
        kernel, layout = jnp.flip(kernel, range(2, 2 + n)), "IO" + axes
        if groups > 1:
            inputs, outputs = kernel.shape[:2]
            kernel = kernel.reshape(groups, inputs // groups, outputs, *window).swapaxes(1, 2)
            kernel, layout = kernel.reshape(groups * outputs, inputs // groups, *window), "OI" + axes
    y = lax.conv_general_dilated(
        x,
        kernel,
        rhs_dilation=dilation,
        dimension_numbers=("NC" + axes, layout, "NC" + axes),
        feature_group_count=groups,
        **settings,
    )
    return y if bias is None else y + jnp.expand_dims(bias, range(1, 1 + n))


def bilinear(x: Array, z: Array, weight: Array, bias: Array | None = None) -> Array:
    y = jnp.einsum("...i,oij,...j->...o", x, weight, z)
    return y if bias is None else y + bias


def attention(
    key: OptionalKey,
    query: Array,
    keys: Array,
    values: Array,
    attn_mask: Array | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Array:
    if enable_gqa:
        keys, values = (jnp.repeat(a, query.shape[-3] // a.shape[-3], axis=-3) for a in (keys, values))
    scores = jnp.einsum("...qd,...kd->...qk", query * (query.shape[-1] ** -0.5 if scale is None else scale), keys)
    if is_causal:
        scores = jnp.where(jnp.tril(jnp.ones(scores.shape[-2:], bool)), scores, -jnp.inf)
    if attn_mask is not None:
        scores = jnp.where(attn_mask, scores, -jnp.inf) if attn_mask.dtype == bool else scores + attn_mask
    weights = jax.nn.softmax(scores, axis=-1)
    if is_causal or attn_mask is not None:
        # a query that may see nothing sees zeros
        weights = jnp.where((scores == -jnp.inf).all(-1, keepdims=True), 0, weights)
    return dropout(key, weights, dropout_p) @ values


# -- windows of images and sequences -----------------------------------------------------------------------------------


def pool(
    x: Array, window: Shape, stride: Shape, padding: Shape, dilation: Shape, ceil_mode: bool, combine: Any, start: float
) -> Array:
    """Combine the entries of each window. The last axes are positions, as many as `window` has."""
    outer, pads = x.ndim - len(window), []
    for length, k, s, p, d in zip(x.shape[outer:], window, stride, padding, dilation, strict=True):
        reach = d * (k - 1) + 1
        count = _window_count(length, reach, s, p, ceil_mode)
        pads.append((p, max((count - 1) * s + reach - length - p, 0)))
    ones, none = (1,) * outer, ((0, 0),) * outer
    return lax.reduce_window(
        x,
        np.array(start, x.dtype),
        combine,
        ones + tuple(window),
        ones + tuple(stride),
        none + tuple(pads),
        window_dilation=ones + tuple(dilation),
    )


def _window_count(length: int, reach: int, stride: int, padding: int, ceil_mode: bool) -> int:
    rest = length + 2 * padding - reach
    if not ceil_mode:
        return rest // stride + 1
    count = -(-rest // stride) + 1
    return count - 1 if (count - 1) * stride >= length + padding else count  # a window starts before the end


def max_pool(
    n: int,
    x: Array,
    kernel_size: Shape,
    stride: Shape = (),
    padding: Shape = (0,),
    dilation: Shape = (1,),
    ceil_mode: bool = False,
) -> Array:
    window = _each(kernel_size, n)
    strides, start = _each(stride, n) if stride else window, _least(x.dtype)
    return pool(x, window, strides, _each(padding, n), _each(dilation, n), ceil_mode, lax.max, start)


def avg_pool(
    n: int,
    x: Array,
    kernel_size: Shape,
    stride: Shape = (),
    padding: Shape = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Array:
    window, pads = _each(kernel_size, n), _each(padding, n)
    strides = _each(stride, n) if stride else window
    sums = pool(x, window, strides, pads, (1,) * n, ceil_mode, lax.add, 0)
    if divisor_override is not None:
        return sums / divisor_override
    counts = np.ones(())
    for length, k, s, p in zip(x.shape[-n:], window, strides, pads, strict=True):
        first = np.arange(_window_count(length, k, s, p, ceil_mode)) * s - p
        end = np.minimum(first + k, length + p)  # what ceil_mode adds beyond the padding is not counted
        counted = end - first if count_include_pad else np.minimum(end, length) - np.maximum(first, 0)
        counts = counts[..., None] * counted
    return sums / jnp.asarray(counts, x.dtype)


def adaptive_avg_pool(n: int, x: Array, output_size: Shape) -> Array:
    sizes = _each(output_size, n)
    if all(size == 1 for size in sizes):
        return x.mean(range(x.ndim - n, x.ndim), keepdims=True)
    for axis, size in zip(range(x.ndim - n, x.ndim), sizes, strict=True):
        length = x.shape[axis]
        rows = np.zeros((size, length), np.float64)
        for row, (first, end) in enumerate(_bins(length, size)):
            rows[row, first:end] = 1 / (end - first)
        x = along_axis(x, axis, rows)
    return x


def adaptive_max_pool(n: int, x: Array, output_size: Shape) -> Array:
    for axis, size in zip(range(x.ndim - n, x.ndim), _each(output_size, n), strict=True):
        parts = [lax.slice_in_dim(x, *bounds, axis=axis).max(axis) for bounds in _bins(x.shape[axis], size)]
        x = jnp.stack(parts, axis)
    return x


def upsample_nearest(
    n: int, x: Array, output_size: Any, scale_factors: Any = None, *, exact: bool = False, **_: Any
) -> Array:
    for axis, size, factor in _resized(n, x, output_size, scale_factors):
        length = x.shape[axis]
        if size % length == 0 and (factor is None or factor == size / length):
            x = jnp.repeat(x, size // length, axis)
            continue
        step = length / size if factor is None else 1 / factor
        positions = np.floor((np.arange(size) + 0.5 * exact) * step).astype(int)
        x = jnp.take(x, np.minimum(positions, length - 1), axis)
    return x


def upsample_linear(n: int, x: Array, output_size: Any, align_corners: bool, scale_factors: Any = None) -> Array:
    for axis, size, factor in _resized(n, x, output_size, scale_factors):
        length = x.shape[axis]
        step = length / size if factor is None else 1 / factor
        if align_corners:
            positions = np.arange(size) * ((length - 1) / (size - 1) if size > 1 else 0.0)
        else:
            positions = np.maximum((np.arange(size) + 0.5) * step - 0.5, 0)
        lower = np.minimum(np.floor(positions).astype(int), length - 1)
        rows = np.zeros((size, length))
        np.add.at(rows, (np.arange(size), lower), 1 - (positions - lower))
        np.add.at(rows, (np.arange(size), np.minimum(lower + 1, length - 1)), positions - lower)
        x = along_axis(x, axis, rows)
    return x


def along_axis(x: Array, axis: int, matrix: np.ndarray) -> Array:
    """Multiply the vectors along an axis by a matrix."""
    return jnp.moveaxis(jnp.tensordot(x, jnp.asarray(matrix, x.dtype), axes=((axis,), (1,))), -1, axis)


def _resized(n: int, x: Array, sizes: Any, factors: Any) -> list[tuple[int, int, float | None]]:
    """Axis, new length and, if given, scale factor of each axis of positions."""
    axes = range(x.ndim - n, x.ndim)
    if sizes is None:
        return [(a, math.floor(x.shape[a] * f), f) for a, f in zip(axes, factors, strict=True)]
    return [(a, size, None) for a, size in zip(axes, sizes, strict=True)]


def _bins(length: int, count: int) -> list[tuple[int, int]]:
    return [(i * length // count, -(-(i + 1) * length // count)) for i in range(count)]


def pad(x: Array, widths: Shape, value: float = 0) -> Array:
    """Pad or, where a width is negative, crop. Widths come in pairs, for the last axis first."""
    pairs = [(before, after, 0) for before, after in zip(widths[-2::-2], widths[::-2], strict=True)]
    pairs = [(0, 0, 0)] * (x.ndim - len(pairs)) + pairs
    return lax.pad(x, jnp.asarray(value, x.dtype), pairs)


def pad_by(mode: str, x: Array, widths: Shape) -> Array:
    pairs = list(zip(widths[-2::-2], widths[::-2], strict=True))
    return jnp.pad(x, [(0, 0)] * (x.ndim - len(pairs)) + pairs, mode=mode)


# -- normalisation -----------------------------------------------------------------------------------------------------


def layer_norm(
    x: Array, shape: Shape, weight: Array | None = None, bias: Array | None = None, eps: float = 1e-5, *_: Any
) -> Array:
    y = _standardised(x, tuple(range(-len(shape), 0)), eps)[0]
    return _scaled(y, weight, bias)


def rms_norm(x: Array, shape: Shape, weight: Array | None = None, eps: float | None = None) -> Array:
    eps = float(jnp.finfo(x.dtype).eps) if eps is None else eps
    y = x * lax.rsqrt(jnp.square(x).mean(range(-len(shape), 0), keepdims=True) + eps)
    return y if weight is None else y * weight


def group_norm(
    x: Array, groups: int, weight: Array | None = None, bias: Array | None = None, eps: float = 1e-5, *_: Any
) -> Array:
    grouped = x.reshape(x.shape[0], groups, x.shape[1] // groups, *x.shape[2:])
    y = _standardised(grouped, tuple(range(2, grouped.ndim)), eps)[0].reshape(x.shape)
    return _scaled(y, *(_per_channel(a, x) for a in (weight, bias)))


def batch_norm_of_batch(x: Array, weight: Array | None, bias: Array | None, *rest: Any) -> tuple[Array, ...]:
    """Normalised by the statistics of the batch, which are also returned in place of updated running averages."""
    axes = (0, *range(2, x.ndim))
    y, mean, var, eps = *_standardised(x, axes, rest[-1]), rest[-1]
    count = x.size // x.shape[1]
    mean, var = mean.reshape(-1), var.reshape(-1)
    y = _scaled(y, *(_per_channel(a, x) for a in (weight, bias))).astype(x.dtype)
    return y, mean, lax.rsqrt(var + eps), mean, var * (count / max(count - 1, 1))


def batch_norm_stored(
    x: Array, weight: Array | None, bias: Array | None, mean: Array, var: Array, momentum: float, eps: float
) -> tuple[Array, ...]:
    y = (x - _per_channel(mean, x)) * _per_channel(lax.rsqrt(var + eps), x)
    return (_scaled(y, *(_per_channel(a, x) for a in (weight, bias))).astype(x.dtype),)


def batch_norm_either(
    x: Array, weight: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: float, eps: float
) -> tuple[Array, ...]:
    if training:
        return batch_norm_of_batch(x, weight, bias, eps)
    return (*batch_norm_stored(x, weight, bias, mean, var, momentum, eps), mean, var, mean, var)


def _standardised(x: Array, axes: tuple[int, ...], eps: float) -> tuple[Array, Array, Array]:
    mean = x.mean(axes, keepdims=True)
    centred = x - mean
    var = jnp.square(centred).mean(axes, keepdims=True)
    return centred * lax.rsqrt(var + eps), mean, var


def _scaled(y: Array, weight: Array | None, bias: Array | None) -> Array:
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def _per_channel(a: Array | None, x: Array) -> Any:
    return None if a is None else jnp.expand_dims(a, range(1, x.ndim - 1))


# -- recurrent layers --------------------------------------------------------------------------------------------------


def lstm_cell(gates: Array, state: tuple[Array, Array], recur: Callable[[Array], Array]) -> tuple[Array, Array]:
    h, c = state
    i, f, g, o = jnp.split(gates + recur(h), 4, axis=-1)
    c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
    return jax.nn.sigmoid(o) * jnp.tanh(c), c


def gru_cell(gates: Array, state: tuple[Array], recur: Callable[[Array], Array]) -> tuple[Array]:
    (h,) = state
    (r, z, n), (hr, hz, hn) = jnp.split(gates, 3, axis=-1), jnp.split(recur(h), 3, axis=-1)
    z = jax.nn.sigmoid(z + hz)
    return ((1 - z) * jnp.tanh(n + jax.nn.sigmoid(r + hr) * hn) + z * h,)


def rnn_cell(activation: Any, gates: Array, state: tuple[Array], recur: Callable[[Array], Array]) -> tuple[Array]:
    return (activation(gates + recur(state[0])),)


def recurrent(
    cell: Any,
    key: OptionalKey,
    x: Array,
    states: Any,
    params: Sequence[Array],
    has_biases: bool,
    num_layers: int,
    dropout_p: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Array, ...]:
    """All layers and directions: products with the inputs at once, and a loop for the rest."""
    states = tuple(states) if isinstance(states, list | tuple) else (states,)
    projected = len(states) == 2 and states[0].shape[-1] != states[1].shape[-1]  # an LSTM with proj_size
    per_layer = 2 + 2 * has_biases + projected
    x = jnp.swapaxes(x, 0, 1) if batch_first else x
    last = []
    for layer in range(num_layers):
        outputs = []
        for direction in range(1 + bidirectional):
            number = layer * (1 + bidirectional) + direction
            into, across, *others = params[number * per_layer : (number + 1) * per_layer]
            bias_in, bias_across = others[:2] if has_biases else (None, None)
            back = others[-1] if projected else None
            run = partial(_one_direction, cell, linear(x, into, bias_in), across, bias_across, back, direction == 1)
            states_after, out = run(tuple(state[number] for state in states))
            last.append(states_after)
            outputs.append(out)
        x = jnp.concatenate(outputs, -1) if bidirectional else outputs[0]
        if train and layer < num_layers - 1:
            x = dropout(None if key is None else jax.random.fold_in(key, layer), x, dropout_p)
    finals = tuple(jnp.stack(parts) for parts in zip(*last, strict=True))
    return (jnp.swapaxes(x, 0, 1) if batch_first else x, *finals)


def _one_direction(
    cell: Any, gates: Array, across: Array, bias: Any, back: Any, reverse: bool, state: tuple[Array, ...]
) -> tuple[tuple[Array, ...], Array]:
    def step(state: tuple[Array, ...], gates: Array) -> tuple[tuple[Array, ...], Array]:
        h, *rest = cell(gates, state, lambda h: linear(h, across, bias))
        h = h if back is None else linear(h, back)
        return (h, *rest), h

    return lax.scan(step, state, gates, reverse=reverse)


# -- random numbers ----------------------------------------------------------------------------------------------------


def dropout(key: OptionalKey, x: Array, p: float, train: bool | None = True) -> Array:
    if key is None or train is False or p == 0:
        return x
    return jnp.where(jax.random.bernoulli(key, 1 - p, x.shape), x / (1 - p), 0) if p < 1 else jnp.zeros_like(x)


def native_dropout(key: OptionalKey, x: Array, p: float, train: bool | None) -> tuple[Array, Array]:
    ones = jnp.ones(x.shape, x.dtype)
    mask = dropout(key, ones, p, train)
    return x * mask, mask != 0


def bernoulli(key: OptionalKey, x: Array, p: Any = None) -> Array:
    return jax.random.bernoulli(_needed(key), x if p is None else p, x.shape).astype(x.dtype)


def drawn(sampler: Any, key: OptionalKey, shape: Shape, dtype: DTypeLike = None) -> Array:
    return sampler(_needed(key), tuple(shape), jnp.float32 if dtype is None else dtype)


def drawn_like(sampler: Any, key: OptionalKey, x: Array, dtype: DTypeLike = None) -> Array:
    return sampler(_needed(key), x.shape, x.dtype if dtype is None else dtype)


def _needed(key: OptionalKey) -> Array:
    if key is None:
        raise ValueError("the module draws random numbers when it predicts, but its outputs must not be random then")
    return key


# -- shapes and indices ------------------------------------------------------------------------------------------------


def slice_axis(x: Array, axis: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Array:
    first, stop, step = slice(start, end, step).indices(x.shape[axis])
    if (first, stop, step) == (0, x.shape[axis], 1):
        return x
    return lax.slice_in_dim(x, first, max(first, stop), step, axis)


def slice_scatter(
    x: Array, values: Array, axis: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Array:
    first, stop, step = slice(start, end, step).indices(x.shape[axis])
    if (first, stop, step) == (0, x.shape[axis], 1):
        return jnp.broadcast_to(values, x.shape)
    return x.at[_along(axis % x.ndim, slice(first, stop, step))].set(values)


def expand(x: Array, shape: Shape, implicit: bool = False) -> Array:
    before = (1,) * (len(shape) - x.ndim) + x.shape
    after = tuple(old if new == -1 else new for old, new in zip(before, shape, strict=True))
    return x if after == x.shape else jnp.broadcast_to(x, after)


def split(x: Array, sizes: Any, axis: int = 0) -> list[Array]:
    ends = range(sizes, x.shape[axis], sizes) if isinstance(sizes, int) else np.cumsum(sizes)[:-1]
    return jnp.split(x, list(ends), axis)


def unbind(x: Array, axis: int = 0) -> list[Array]:
    return [lax.index_in_dim(x, i, axis, keepdims=False) for i in range(x.shape[axis])]


def squeeze(x: Array, axes: int | Shape | None = None) -> Array:
    chosen = range(x.ndim) if axes is None else [axes] if isinstance(axes, int) else axes
    return jnp.squeeze(x, tuple(axis for axis in chosen if x.shape[axis] == 1)) if x.ndim else x


def index(x: Array, indices: Sequence[Array | None]) -> Array:
    return x[tuple(slice(None) if i is None else i for i in indices)]


def index_put(x: Array, indices: Sequence[Array | None], values: Array, accumulate: bool = False) -> Array:
    chosen = x.at[tuple(slice(None) if i is None else i for i in indices)]
    return chosen.add(values) if accumulate else chosen.set(values)


def gather(x: Array, axis: int, indices: Array, sparse_grad: bool = False) -> Array:
    return x[_positions(indices, axis)] if x.ndim else x


def scatter(x: Array, axis: int, indices: Array, values: Any) -> Array:
    return x.at[_positions(indices, axis)].set(_first_entries(values, indices))


def scatter_add(x: Array, axis: int, indices: Array, values: Any) -> Array:
    return x.at[_positions(indices, axis)].add(_first_entries(values, indices))


def _positions(indices: Array, axis: int) -> tuple[Array, ...]:
    """Where entries are whose position along one axis is given for each, as index arrays."""
    grid = list(jnp.ogrid[tuple(slice(length) for length in indices.shape)])
    grid[axis] = indices
    return tuple(grid)


def _first_entries(values: Any, indices: Array) -> Any:
    return values[tuple(map(slice, indices.shape))] if np.ndim(values) else values


def _along(axis: int, chosen: Any) -> tuple[Any, ...]:
    return (slice(None),) * axis + (chosen,)


def topk(x: Array, k: int, axis: int = -1, largest: bool = True, sorted: bool = True) -> tuple[Array, Array]:
    values, indices = lax.top_k(jnp.moveaxis(x if largest else -x, axis, -1), k)
    return jnp.moveaxis(values if largest else -values, -1, axis), jnp.moveaxis(indices, -1, axis)


def sort(x: Array, axis: int = -1, descending: bool = False) -> tuple[Array, Array]:
    order = jnp.argsort(x, axis, stable=True, descending=descending)
    return jnp.take_along_axis(x, order, axis), order


def extreme(reduce: Any, locate: Any, x: Array, axis: int, keepdim: bool = False) -> tuple[Array, Array]:
    return reduce(x, axis, keepdims=keepdim), locate(x, axis, keepdims=keepdim)


# -- numbers -----------------------------------------------------------------------------------------------------------


def div(a: Any, b: Any, rounding_mode: str | None = None) -> Array:
    if rounding_mode == "floor":
        return jnp.floor_divide(a, b)
    if rounding_mode == "trunc":
        quotient = jnp.trunc(jnp.true_divide(a, b))
        return quotient.astype(jnp.result_type(a, b))
    return jnp.true_divide(a, b)


def reduced(reduce: Any, x: Array, axes: Any = None, keepdim: bool = False, dtype: DTypeLike = None) -> Array:
    return reduce(x if dtype is None else x.astype(dtype), _axes(axes), keepdims=keepdim)


def variance(
    x: Array, axes: Any = None, correction: Any = 1, keepdim: bool = False, *, root: bool = False, unbiased: bool = True
) -> Array:
    if isinstance(axes, bool):  # var(x, unbiased)
        axes, correction = None, int(axes)
    elif isinstance(correction, bool):
        correction = int(correction)
    ddof = 1 if correction is None else correction
    return (jnp.std if root else jnp.var)(x, _axes(axes), ddof=ddof, keepdims=keepdim)


def vector_norm(x: Array, order: float = 2, axes: Any = None, keepdim: bool = False, dtype: DTypeLike = None) -> Array:
    x, chosen = x if dtype is None else x.astype(dtype), _axes(axes)
    if order == 2:
        total = jnp.square(jnp.abs(x)).sum(chosen, keepdims=keepdim)
        # the gradient at zero is zero, as in PyTorch
        return jnp.where(total > 0, jnp.sqrt(jnp.where(total > 0, total, 1)), 0)
    if abs(order) == math.inf:
        return (jnp.max if order > 0 else jnp.min)(jnp.abs(x), chosen, keepdims=keepdim)
    return (jnp.abs(x) ** order).sum(chosen, keepdims=keepdim) ** (1 / order) if order else (x != 0).sum(chosen)


def softmax(function: Any, x: Array, axis: int, dtype: Any = None) -> Array:
    return function(x.astype(dtype) if dtype not in (None, False, True) else x, axis=axis)


def elu(x: Array, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Array:
    # the inner choice keeps exp from overflowing where its gradient is multiplied by zero
    return scale * jnp.where(x > 0, x, alpha * jnp.expm1(input_scale * jnp.where(x > 0, 0, x)))


def softplus(x: Array, beta: float = 1, threshold: float = 20) -> Array:
    return jnp.where(x * beta > threshold, x, jax.nn.softplus(jnp.minimum(x * beta, threshold + 1)) / beta)


def clamp(x: Array, low: Any = None, high: Any = None) -> Array:
    # at a limit the gradient is 1, as in PyTorch; that of jnp.clip is 1/2
    x = x if low is None else jnp.where(x < low, low, x)
    return x if high is None else jnp.where(x > high, high, x)


def power(x: Any, exponent: Any) -> Array:
    whole = isinstance(exponent, float) and exponent.is_integer()
    return jnp.power(x, int(exponent) if whole else exponent)


def prelu(x: Array, weight: Array) -> Array:
    shared = weight.ndim and x.ndim > 1 and weight.size > 1
    return jnp.where(x >= 0, x, (_per_channel(weight, x) if shared else weight) * x)


def convert(x: Array, dtype: DTypeLike = None, **_: Any) -> Array:
    return x if dtype is None else x.astype(dtype)


def arange(*bounds: float, dtype: DTypeLike = None) -> Array:
    return jnp.arange(*bounds, dtype=dtype)


def full(shape: Shape, value: Any, dtype: DTypeLike = None) -> Array:
    return jnp.full(tuple(shape), value, dtype)


def like(x: Array, value: Any, dtype: DTypeLike = None) -> Array:
    return jnp.full(x.shape, value, x.dtype if dtype is None else dtype)


def _axes(axes: Any) -> Any:
    return None if axes is None or axes == [] else tuple(axes) if isinstance(axes, list | tuple) else axes


def _each(values: int | Shape, n: int) -> tuple[int, ...]:
    values = (values,) if isinstance(values, int) else tuple(values)
    return values * n if len(values) == 1 else values


def _promoted(a: Array, b: Array) -> tuple[Array, Array]:
    if a.dtype == b.dtype:
        return a, b
    dtype = jnp.promote_types(a.dtype, b.dtype)
    return a.astype(dtype), b.astype(dtype)


def _least(dtype: DTypeLike) -> Any:
    return -np.inf if jnp.issubdtype(dtype, jnp.floating) else jnp.iinfo(dtype).min


def _same(x: Any, *_: Any, **__: Any) -> Any:
    return x


OPERATIONS: dict[str, Callable[..., Any]] = {
    # products
    "linear": linear,
    "matmul": jnp.matmul,
    "mm": jnp.matmul,
    "bmm": jnp.matmul,
    "mv": jnp.matmul,
    "dot": jnp.dot,
    "einsum": lambda equation, operands, path=None: jnp.einsum(equation.replace(" ", ""), *operands),
    "addmm": lambda x, a, b, beta=1, alpha=1: scaled_sum(x, a @ b, beta, alpha),
    "baddbmm": lambda x, a, b, beta=1, alpha=1: scaled_sum(x, a @ b, beta, alpha),
    "addmv": lambda x, a, b, beta=1, alpha=1: scaled_sum(x, a @ b, beta, alpha),
    "bilinear": bilinear,
    "convolution": convolution,
    "embedding": lambda weight, indices, *_: jnp.take(weight, indices, axis=0),
    # windows
    "max_pool1d": partial(max_pool, 1),
    "max_pool2d": partial(max_pool, 2),
    "max_pool3d": partial(max_pool, 3),
    "avg_pool1d": partial(avg_pool, 1),
    "avg_pool2d": partial(avg_pool, 2),
    "avg_pool3d": partial(avg_pool, 3),
    "adaptive_avg_pool1d": partial(adaptive_avg_pool, 1),
    "adaptive_avg_pool2d": partial(adaptive_avg_pool, 2),
    "_adaptive_avg_pool2d": partial(adaptive_avg_pool, 2),
    "adaptive_avg_pool3d": partial(adaptive_avg_pool, 3),
    "_adaptive_avg_pool3d": partial(adaptive_avg_pool, 3),
    # the second result, where the maxima are, is not computed: a module that uses it fails
    "adaptive_max_pool1d": lambda x, size: (adaptive_max_pool(1, x, size),),
    "adaptive_max_pool2d": lambda x, size: (adaptive_max_pool(2, x, size),),
    "max_pool2d_with_indices": lambda x, *window: (max_pool(2, x, *window),),
    "max_pool3d_with_indices": lambda x, *window: (max_pool(3, x, *window),),
    "upsample_nearest1d.vec": partial(upsample_nearest, 1),
    "upsample_nearest2d.vec": partial(upsample_nearest, 2),
    "upsample_nearest3d.vec": partial(upsample_nearest, 3),
    "_upsample_nearest_exact1d.vec": partial(upsample_nearest, 1, exact=True),
    "_upsample_nearest_exact2d.vec": partial(upsample_nearest, 2, exact=True),
    "_upsample_nearest_exact3d.vec": partial(upsample_nearest, 3, exact=True),
    "upsample_linear1d.vec": partial(upsample_linear, 1),
    "upsample_bilinear2d.vec": partial(upsample_linear, 2),
    "upsample_trilinear3d.vec": partial(upsample_linear, 3),
    "constant_pad_nd": pad,
    "reflection_pad1d": partial(pad_by, "reflect"),
    "reflection_pad2d": partial(pad_by, "reflect"),
    "reflection_pad3d": partial(pad_by, "reflect"),
    "replication_pad1d": partial(pad_by, "edge"),
    "replication_pad2d": partial(pad_by, "edge"),
    "replication_pad3d": partial(pad_by, "edge"),
    # normalisation
    "layer_norm": layer_norm,
    "rms_norm": rms_norm,
    "group_norm": group_norm,
    "native_layer_norm": lambda x, shape, weight, bias, eps: (layer_norm(x, shape, weight, bias, eps),),
    "native_group_norm": lambda x, w, b, n, c, hw, groups, eps: (group_norm(x, groups, w, b, eps),),
    "_native_batch_norm_legit_no_training": batch_norm_stored,
    "_native_batch_norm_legit_functional": batch_norm_either,
    "_native_batch_norm_legit.no_stats": lambda x, w, b, training, momentum, eps: batch_norm_of_batch(x, w, b, eps),
    # shapes
    "view": lambda x, shape: x if tuple(shape) == x.shape else x.reshape(tuple(shape)),
    "reshape": lambda x, shape: x if tuple(shape) == x.shape else x.reshape(tuple(shape)),
    "_unsafe_view": lambda x, shape: x if tuple(shape) == x.shape else x.reshape(tuple(shape)),
    "permute": lambda x, axes: jnp.transpose(x, [axis % x.ndim for axis in axes]),
    "transpose": jnp.swapaxes,
    "t": jnp.transpose,
    "unsqueeze": jnp.expand_dims,
    "squeeze": squeeze,
    "expand": expand,
    "repeat": lambda x, counts: jnp.tile(x, counts),
    "repeat_interleave.self_int": lambda x, count, axis=None, output_size=None: jnp.repeat(x, count, axis),
    "cat": lambda parts, axis=0: jnp.concatenate([a for a in parts if a.shape != (0,)], axis),
    "stack": lambda parts, axis=0: jnp.stack(parts, axis),
    "split": split,
    "split_with_sizes": split,
    "unbind": unbind,
    "flip": jnp.flip,
    "roll": lambda x, shifts, axes=(): jnp.roll(x, shifts, tuple(axes) or None),
    "diagonal": lambda x, offset=0, a=0, b=1: jnp.diagonal(x, offset, a, b),
    "tril": jnp.tril,
    "triu": jnp.triu,
    # indices
    "slice": slice_axis,
    "slice_scatter": slice_scatter,
    "select": lambda x, axis, i: lax.index_in_dim(x, i, axis, keepdims=False),
    "select_scatter": lambda x, values, axis, i: x.at[_along(axis % x.ndim, i)].set(values),
    "index": index,
    "index_put": index_put,
    "index_select": lambda x, axis, indices: jnp.take(x, indices, axis),
    "gather": gather,
    "scatter": scatter,
    "scatter_add": scatter_add,
    "where": jnp.where,
    "masked_fill": lambda x, mask, value: jnp.where(mask, jnp.asarray(value, x.dtype), x),
    "topk": topk,
    "sort": sort,
    "sort.stable": lambda x, stable=None, dim=-1, descending=False: sort(x, dim, descending),
    "argsort": lambda x, axis=-1, descending=False: sort(x, axis, descending)[1],
    # new arrays
    "full": full,
    "zeros": lambda shape, dtype=None: full(shape, 0, jnp.float32 if dtype is None else dtype),
    "ones": lambda shape, dtype=None: full(shape, 1, jnp.float32 if dtype is None else dtype),
    "empty": lambda shape, dtype=None: full(shape, 0, jnp.float32 if dtype is None else dtype),
    "full_like": like,
    "zeros_like": lambda x, dtype=None: like(x, 0, dtype),
    "ones_like": lambda x, dtype=None: like(x, 1, dtype),
    "empty_like": lambda x, dtype=None: like(x, 0, dtype),
    "new_zeros": lambda x, shape, dtype=None: full(shape, 0, x.dtype if dtype is None else dtype),
    "new_ones": lambda x, shape, dtype=None: full(shape, 1, x.dtype if dtype is None else dtype),
    "new_full": lambda x, shape, value, dtype=None: full(shape, value, x.dtype if dtype is None else dtype),
    "new_empty": lambda x, shape, dtype=None: full(shape, 0, x.dtype if dtype is None else dtype),
    "scalar_tensor": lambda value, dtype=None: jnp.asarray(value, dtype),
    "arange": arange,
    "linspace": lambda first, last, count, dtype=None: jnp.linspace(first, last, count, dtype=dtype),
    "eye": lambda n, m=None, dtype=None: jnp.eye(n, m, dtype=dtype),
    "clone": _same,
    "alias": _same,
    "contiguous": _same,
    "lift_fresh_copy": _same,
    "detach": lax.stop_gradient,
    "copy": lambda x, values, *_: jnp.broadcast_to(values, x.shape).astype(x.dtype),
    "fill": lambda x, value: jnp.broadcast_to(jnp.asarray(value, x.dtype), x.shape),
    "_to_copy": convert,
    # arithmetic
    "add": lambda a, b, alpha=1: a + (b if alpha == 1 else alpha * b),
    "sub": lambda a, b, alpha=1: a - (b if alpha == 1 else alpha * b),
    "rsub": lambda a, b, alpha=1: b - (a if alpha == 1 else alpha * a),
    "mul": jnp.multiply,
    "div": div,
    "floor_divide": jnp.floor_divide,
    "remainder": jnp.remainder,
    "fmod": jnp.fmod,
    "pow": power,
    "square": jnp.square,
    "addcmul": lambda x, a, b, value=1: x + value * a * b,
    "addcdiv": lambda x, a, b, value=1: x + value * a / b,
    "lerp": lambda a, b, weight: a + weight * (b - a),
    "neg": jnp.negative,
    "abs": jnp.abs,
    "sign": jnp.sign,
    "reciprocal": jnp.reciprocal,
    "sqrt": jnp.sqrt,
    "rsqrt": lax.rsqrt,
    "exp": jnp.exp,
    "exp2": jnp.exp2,
    "expm1": jnp.expm1,
    "log": jnp.log,
    "log2": jnp.log2,
    "log10": jnp.log10,
    "log1p": jnp.log1p,
    "logaddexp": jnp.logaddexp,
    "sin": jnp.sin,
    "cos": jnp.cos,
    "tan": jnp.tan,
    "asin": jnp.arcsin,
    "acos": jnp.arccos,
    "atan": jnp.arctan,
    "atan2": jnp.arctan2,
    "sinh": jnp.sinh,
    "cosh": jnp.cosh,
    "asinh": jnp.arcsinh,
    "acosh": jnp.arccosh,
    "atanh": jnp.arctanh,
    "erf": jax.scipy.special.erf,
    "erfc": jax.scipy.special.erfc,
    "erfinv": jax.scipy.special.erfinv,
    "lgamma": jax.scipy.special.gammaln,
    "digamma": jax.scipy.special.digamma,
    "floor": jnp.floor,
    "ceil": jnp.ceil,
    "trunc": jnp.trunc,
    "round": jnp.round,
    "frac": lambda x: x - jnp.trunc(x),
    "clamp": clamp,
    "clamp_min": clamp,
    "clamp_max": lambda x, high: clamp(x, None, high),
    "maximum": jnp.maximum,
    "minimum": jnp.minimum,
    "max.other": jnp.maximum,
    "min.other": jnp.minimum,
    "nan_to_num": lambda x, nan=None, posinf=None, neginf=None: jnp.nan_to_num(
        x, nan=nan or 0.0, posinf=posinf, neginf=neginf
    ),
    # comparisons and logic
    "eq": jnp.equal,
    "ne": jnp.not_equal,
    "lt": jnp.less,
    "le": jnp.less_equal,
    "gt": jnp.greater,
    "ge": jnp.greater_equal,
    "isnan": jnp.isnan,
    "isinf": jnp.isinf,
    "isfinite": jnp.isfinite,
    "logical_and": jnp.logical_and,
    "logical_or": jnp.logical_or,
    "logical_xor": jnp.logical_xor,
    "logical_not": jnp.logical_not,
    "bitwise_and": jnp.bitwise_and,
    "bitwise_or": jnp.bitwise_or,
    "bitwise_xor": jnp.bitwise_xor,
    "bitwise_not": jnp.bitwise_not,
    # reductions
    "sum": partial(reduced, jnp.sum),
    "sum.default": lambda x, dtype=None: reduced(jnp.sum, x, dtype=dtype),
    "mean": partial(reduced, jnp.mean),
    "mean.default": lambda x, dtype=None: reduced(jnp.mean, x, dtype=dtype),
    "prod.default": lambda x, dtype=None: reduced(jnp.prod, x, dtype=dtype),
    "prod.dim_int": partial(reduced, jnp.prod),
    "amax": partial(reduced, jnp.max),
    "amin": partial(reduced, jnp.min),
    "max.default": jnp.max,
    "min.default": jnp.min,
    "max.dim": partial(extreme, jnp.max, jnp.argmax),
    "min.dim": partial(extreme, jnp.min, jnp.argmin),
    "argmax": partial(reduced, jnp.argmax),
    "argmin": partial(reduced, jnp.argmin),
    "any": partial(reduced, jnp.any),
    "all": partial(reduced, jnp.all),
    "var": variance,
    "std": partial(variance, root=True),
    "var_mean.correction": lambda x, axes=None, **how: (variance(x, axes, **how), reduced(jnp.mean, x, axes)),
    "logsumexp": lambda x, axes, keepdim=False: jax.nn.logsumexp(x, _axes(axes), keepdims=keepdim),
    "linalg_vector_norm": vector_norm,
    "cumsum": lambda x, axis, dtype=None: jnp.cumsum(x, axis, dtype=dtype),
    "cumprod": lambda x, axis, dtype=None: jnp.cumprod(x, axis, dtype=dtype),
    # activations
    "relu": jax.nn.relu,
    "relu6": jax.nn.relu6,
    "hardtanh": clamp,
    "leaky_relu": lambda x, slope=0.01: jnp.where(x > 0, x, slope * x),
    "prelu": prelu,
    "_prelu_kernel": lambda x, weight: jnp.where(x >= 0, x, weight * x),
    "elu": elu,
    "selu": jax.nn.selu,
    "celu": lambda x, alpha=1: elu(x, alpha, 1, 1 / alpha),
    "gelu": lambda x, approximate="none": jax.nn.gelu(x, approximate=approximate == "tanh"),
    "silu": jax.nn.silu,
    "mish": jax.nn.mish,
    "sigmoid": jax.nn.sigmoid,
    "log_sigmoid": jax.nn.log_sigmoid,
    "tanh": jnp.tanh,
    "softplus": softplus,
    "softmax": partial(softmax, jax.nn.softmax),
    "_softmax": partial(softmax, jax.nn.softmax),
    "log_softmax": partial(softmax, jax.nn.log_softmax),
    "_log_softmax": partial(softmax, jax.nn.log_softmax),
    "hardsigmoid": lambda x: jnp.clip(x + 3, 0, 6) / 6,
    "hardswish": lambda x: x * (jnp.clip(x + 3, 0, 6) / 6),
    "glu": lambda x, axis=-1: jax.nn.glu(x, axis),
    # sizes, and the program's own checks
    "sym_size": lambda x, axis: x.shape[axis],
    "sym_numel": lambda x: x.size,
    "_assert_scalar": lambda *_: None,
    "_assert_tensor_metadata": lambda *_, **__: None,
    "sym_constrain_range_for_size": lambda *_, **__: None,
}

RANDOM: dict[str, Callable[..., Any]] = {
    "dropout": dropout,
    "native_dropout": native_dropout,
    "scaled_dot_product_attention": attention,
    "lstm.input": partial(recurrent, lstm_cell),
    "gru.input": partial(recurrent, gru_cell),
    "rnn_tanh.input": partial(recurrent, partial(rnn_cell, jnp.tanh)),
    "rnn_relu.input": partial(recurrent, partial(rnn_cell, jax.nn.relu)),
    "bernoulli": bernoulli,
    "rand": partial(drawn, jax.random.uniform),
    "randn": partial(drawn, jax.random.normal),
    "rand_like": partial(drawn_like, jax.random.uniform),
    "randn_like": partial(drawn_like, jax.random.normal),
}

# arithmetic with sizes, which are plain ints here
SIZES = (operator, math)
