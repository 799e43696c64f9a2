"""Convolutions in the form that XLA compiles well for CPUs.

XLA has fast, multi-threaded convolutions for CPUs, but only for channels-last images and kernels (NHWC, HWIO). It
rearranges other layouts at the top level of a program, but not inside loops, where all steps of a run are: there it
uses plain nested loops, 20 to 100 times slower. Every gradient with respect to a kernel has such a layout.

`faster_convolution` replaces a convolution by the same one in the fast layout or, if its output has few positions and
that is faster, by one product of matrices for each of them. Results differ by rounding only.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product
from math import prod
from typing import Any, cast

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import JaxprEqn
from jax.extend.core.primitives import conv_general_dilated_p

MOST_POSITIONS = 121  # of an output computed by products, one for each: the gradient of an 11 x 11 kernel


def faster_convolution(eqn: JaxprEqn) -> Callable[..., jax.Array] | None:
    """What to call in place of a convolution; None if it is best as it is."""
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


def _channels_last(x: jax.Array, kernel: jax.Array, *, params: Mapping[str, Any]) -> jax.Array:
    """The same convolution of rearranged operands."""
    (batch, channels, *spatial), (outs, ins, *window), out = params["dimension_numbers"]
    y = conv_general_dilated_p.bind(
        x.transpose(batch, *spatial, channels),
        kernel.transpose(*window, ins, outs),
        **{**params, "dimension_numbers": _channels_last_numbers(x.ndim)},
    )
    order = [0] * x.ndim  # of y's axes (batch, *spatial, channels) in the result
    for axis, place in zip((0, x.ndim - 1, *range(1, x.ndim - 1)), out, strict=True):
        order[place] = axis
    return y.transpose(order)


def _products_are_faster(params: Mapping[str, Any], kernel: Sequence[int], out: Sequence[int]) -> bool:
    """Whether `_products` applies and is faster: by a measured rule (docs/decisions, convolutions)."""
    numbers = params["dimension_numbers"]
    positions = prod(out[axis] for axis in numbers.out_spec[2:])
    window = prod(kernel[axis] for axis in numbers.rhs_spec[2:])
    if params["feature_group_count"] > 1 or any(step > 1 for step in params["lhs_dilation"]):
        return False
    if positions > min(window, MOST_POSITIONS):
        return False
    return positions == 1 or params["batch_group_count"] > 1 or any(step > 1 for step in params["rhs_dilation"])


def _products(x: jax.Array, kernel: jax.Array, *, params: Mapping[str, Any]) -> jax.Array:
    """One product of matrices for each position of the output.

    The gradient with respect to a kernel is a convolution whose window is a whole image and whose output has the
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

    def at(place: tuple[int, ...]) -> jax.Array:
        first = [i * step for i, step in zip(place, strides, strict=True)]
        last = [i + span for i, span in zip(first, spans, strict=True)]
        part = lax.slice(x, (0, *first, 0), (x.shape[0], *last, x.shape[-1]), (1, *params["rhs_dilation"], 1))
        part = part.reshape(len(flat_kernel), groups, -1)
        by_group = jnp.einsum("kgb,kgo->bgo", part, flat_kernel, precision=params["precision"])
        return by_group.reshape(by_group.shape[0], -1)

    y = jnp.stack([at(place) for place in product(*map(range, counts))])  # (positions, batch, outputs)
    y = y.reshape(*counts, *y.shape[1:])
    order = [0] * y.ndim
    for axis, place in zip((y.ndim - 2, y.ndim - 1, *range(y.ndim - 2)), out, strict=True):
        order[place] = axis
    return y.transpose(order)
