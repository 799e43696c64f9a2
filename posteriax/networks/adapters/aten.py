"""PyTorch's operations in JAX: a line each, where an operation of JAX has the same meaning.

`OPERATIONS` has a function for every operation of ATen that a program of `torch.export` may contain, under its name
without the overload ("add") or, where overloads differ, with it ("max.dim"). Functions take arguments as ATen passes
them: sizes and axes as ints, dtypes as JAX dtypes. What has no line here is decomposed by PyTorch into operations that
have one. Layers are kept whole, so that tracing sees which axes of a weight are its inputs.

`RANDOM` has those that draw random numbers. They take a key first, None for a deterministic pass.
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

from posteriax.networks.adapters import torch_layers as layers

Array = jax.Array
Shape = Sequence[int]
OptionalDType = DTypeLike | None


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
    return lax.broadcast_in_dim(
        x, after, tuple(range(len(shape) - x.ndim, len(shape)))
    )  # whatever the number of examples


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


def reduced(reduce: Any, x: Array, axes: Any = None, keepdim: bool = False, dtype: OptionalDType = None) -> Array:
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


def vector_norm(
    x: Array, order: float = 2, axes: Any = None, keepdim: bool = False, dtype: OptionalDType = None
) -> Array:
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
    return jnp.where(x >= 0, x, (layers.per_channel(weight, x) if shared else weight) * x)


def convert(x: Array, dtype: OptionalDType = None, **_: Any) -> Array:
    return x if dtype is None else x.astype(dtype)


def full(shape: Shape, value: Any, dtype: OptionalDType = None) -> Array:
    return jnp.full(tuple(shape), value, dtype)


def like(x: Array, value: Any, dtype: OptionalDType = None) -> Array:
    return jnp.full(x.shape, value, x.dtype if dtype is None else dtype)


def _axes(axes: Any) -> Any:
    return None if axes is None or axes == [] else tuple(axes) if isinstance(axes, list | tuple) else axes


def _same(x: Any, *_: Any, **__: Any) -> Any:
    return x


OPERATIONS: dict[str, Callable[..., Any]] = {
    # products
    "linear": layers.linear,
    "matmul": layers.matmul,
    "mm": layers.matmul,
    "bmm": layers.matmul,
    "mv": jnp.matmul,
    "dot": jnp.dot,
    "einsum": lambda equation, operands, path=None: jnp.einsum(equation.replace(" ", ""), *operands),
    "addmm": lambda x, a, b, beta=1, alpha=1: layers.scaled_sum(x, a @ b, beta, alpha),
    "baddbmm": lambda x, a, b, beta=1, alpha=1: layers.scaled_sum(x, layers.matmul(a, b), beta, alpha),
    "addmv": lambda x, a, b, beta=1, alpha=1: layers.scaled_sum(x, a @ b, beta, alpha),
    "bilinear": layers.bilinear,
    "convolution": layers.convolution,
    "embedding": lambda weight, indices, *_: jnp.take(weight, indices, axis=0),
    # windows
    "max_pool1d": partial(layers.max_pool, 1),
    "max_pool2d": partial(layers.max_pool, 2),
    "max_pool3d": partial(layers.max_pool, 3),
    "avg_pool1d": partial(layers.avg_pool, 1),
    "avg_pool2d": partial(layers.avg_pool, 2),
    "avg_pool3d": partial(layers.avg_pool, 3),
    "adaptive_avg_pool1d": partial(layers.adaptive_avg_pool, 1),
    "adaptive_avg_pool2d": partial(layers.adaptive_avg_pool, 2),
    "_adaptive_avg_pool2d": partial(layers.adaptive_avg_pool, 2),
    "adaptive_avg_pool3d": partial(layers.adaptive_avg_pool, 3),
    "_adaptive_avg_pool3d": partial(layers.adaptive_avg_pool, 3),
    # the second result, where the maxima are, is not computed: a module that uses it fails
    "adaptive_max_pool1d": lambda x, size: (layers.adaptive_max_pool(1, x, size),),
    "adaptive_max_pool2d": lambda x, size: (layers.adaptive_max_pool(2, x, size),),
    "max_pool2d_with_indices": lambda x, *window: (layers.max_pool(2, x, *window),),
    "max_pool3d_with_indices": lambda x, *window: (layers.max_pool(3, x, *window),),
    "upsample_nearest1d.vec": partial(layers.upsample_nearest, 1),
    "upsample_nearest2d.vec": partial(layers.upsample_nearest, 2),
    "upsample_nearest3d.vec": partial(layers.upsample_nearest, 3),
    "_upsample_nearest_exact1d.vec": partial(layers.upsample_nearest, 1, exact=True),
    "_upsample_nearest_exact2d.vec": partial(layers.upsample_nearest, 2, exact=True),
    "_upsample_nearest_exact3d.vec": partial(layers.upsample_nearest, 3, exact=True),
    "upsample_linear1d.vec": partial(layers.upsample_linear, 1),
    "upsample_bilinear2d.vec": partial(layers.upsample_linear, 2),
    "upsample_trilinear3d.vec": partial(layers.upsample_linear, 3),
    "constant_pad_nd": layers.pad,
    "reflection_pad1d": partial(layers.pad_by, "reflect"),
    "reflection_pad2d": partial(layers.pad_by, "reflect"),
    "reflection_pad3d": partial(layers.pad_by, "reflect"),
    "replication_pad1d": partial(layers.pad_by, "edge"),
    "replication_pad2d": partial(layers.pad_by, "edge"),
    "replication_pad3d": partial(layers.pad_by, "edge"),
    # normalisation
    "layer_norm": layers.layer_norm,
    "rms_norm": layers.rms_norm,
    "group_norm": layers.group_norm,
    "native_layer_norm": lambda x, shape, weight, bias, eps: (layers.layer_norm(x, shape, weight, bias, eps),),
    "native_group_norm": lambda x, w, b, n, c, hw, groups, eps: (layers.group_norm(x, groups, w, b, eps),),
    "_native_batch_norm_legit_no_training": layers.batch_norm_stored,
    "_native_batch_norm_legit_functional": layers.batch_norm_either,
    "_native_batch_norm_legit.no_stats": lambda x, w, b, training, momentum, eps: layers.batch_norm_of_batch(
        x, w, b, eps
    ),
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
    "arange": lambda *bounds, dtype=None: convert(jnp.arange(*bounds), dtype),
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
    "_assert_async": lambda *_: None,
    "_assert_scalar": lambda *_: None,
    "_assert_tensor_metadata": lambda *_, **__: None,
    "sym_constrain_range_for_size": lambda *_, **__: None,
}

RANDOM: dict[str, Callable[..., Any]] = {
    "dropout": layers.dropout,
    "native_dropout": layers.native_dropout,
    "scaled_dot_product_attention": layers.attention,
    "lstm.input": partial(layers.recurrent, layers.lstm_cell),
    "gru.input": partial(layers.recurrent, layers.gru_cell),
    "rnn_tanh.input": partial(layers.recurrent, partial(layers.rnn_cell, jnp.tanh)),
    "rnn_relu.input": partial(layers.recurrent, partial(layers.rnn_cell, jax.nn.relu)),
    "bernoulli": layers.bernoulli,
    "rand": partial(layers.drawn, jax.random.uniform),
    "randn": partial(layers.drawn, jax.random.normal),
    "rand_like": partial(layers.drawn_like, jax.random.uniform),
    "randn_like": partial(layers.drawn_like, jax.random.normal),
}
