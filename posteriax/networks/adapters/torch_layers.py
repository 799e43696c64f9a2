"""What PyTorch's layers compute: products, windows of images, normalisation, attention, recurrence, dropout.

Images and sequences have their channels first, and weights PyTorch's layouts: `out, in` matrices and `out, in, ...`
kernels. Each weight meets data in one product, one convolution or one loop, so that tracing sees its axes.
"""

import math
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
OptionalDType = DTypeLike | None
OptionalKey = Array | None  # None for a deterministic pass


# -- products ----------------------------------------------------------------------------------------------------------


def linear(x: Array, weight: Array, bias: Array | None = None) -> Array:
    y = jnp.tensordot(x, weight, axes=((-1,), (1,)))
    return y if bias is None else y + bias


def matmul(a: Array, b: Array) -> Array:
    if a.ndim < 3 or a.shape[:-2] != b.shape[:-2]:
        return jnp.matmul(a, b)
    # the same program for one example and for several: jnp.matmul treats axes of length 1 separately
    copies = tuple(range(a.ndim - 2))
    return lax.dot_general(*_promoted(a, b), (((a.ndim - 1,), (b.ndim - 2,)), (copies, copies)))


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
    scores = matmul(query * (query.shape[-1] ** -0.5 if scale is None else scale), jnp.swapaxes(keys, -2, -1))
    if is_causal:
        scores = jnp.where(jnp.tril(jnp.ones(scores.shape[-2:], bool)), scores, -jnp.inf)
    if attn_mask is not None:
        scores = jnp.where(attn_mask, scores, -jnp.inf) if attn_mask.dtype == bool else scores + attn_mask
    weights = jax.nn.softmax(scores, axis=-1)
    if is_causal or attn_mask is not None:
        # a query that may see nothing sees zeros
        weights = jnp.where((scores == -jnp.inf).all(-1, keepdims=True), 0, weights)
    return matmul(dropout(key, weights, dropout_p), values)


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
    return _scaled(y, *(per_channel(a, x) for a in (weight, bias)))


def batch_norm_of_batch(x: Array, weight: Array | None, bias: Array | None, *rest: Any) -> tuple[Array, ...]:
    """Normalised by the statistics of the batch, which are also returned in place of updated running averages."""
    axes = (0, *range(2, x.ndim))
    y, mean, var, eps = *_standardised(x, axes, rest[-1]), rest[-1]
    count = x.size // x.shape[1]
    mean, var = mean.reshape(-1), var.reshape(-1)
    y = _scaled(y, *(per_channel(a, x) for a in (weight, bias))).astype(x.dtype)
    return y, mean, lax.rsqrt(var + eps), mean, var * (count / max(count - 1, 1))


def batch_norm_stored(
    x: Array, weight: Array | None, bias: Array | None, mean: Array, var: Array, momentum: float, eps: float
) -> tuple[Array, ...]:
    y = (x - per_channel(mean, x)) * per_channel(lax.rsqrt(var + eps), x)
    return (_scaled(y, *(per_channel(a, x) for a in (weight, bias))).astype(x.dtype),)


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


def per_channel(a: Array | None, x: Array) -> Any:
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


def drawn(sampler: Any, key: OptionalKey, shape: Shape, dtype: OptionalDType = None) -> Array:
    return sampler(_needed(key), tuple(shape), jnp.float32 if dtype is None else dtype)


def drawn_like(sampler: Any, key: OptionalKey, x: Array, dtype: OptionalDType = None) -> Array:
    return sampler(_needed(key), x.shape, x.dtype if dtype is None else dtype)


def _needed(key: OptionalKey) -> Array:
    if key is None:
        raise ValueError("the module draws random numbers when it predicts, but its outputs must not be random then")
    return key


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
