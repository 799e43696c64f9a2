"""Checks of convolutions and pooling, whose combinations some releases of XLA compute wrongly."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from posteriax.cli.doctor.checks import SLACK, Check, Truth, U, normals, sums_of_products

WINDOW = (1, 2, 2, 1)


def conv(x: jax.Array, kernel: jax.Array) -> jax.Array:
    return lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def average_pool(x: jax.Array) -> jax.Array:
    return lax.reduce_window(x, 0.0, lax.add, WINDOW, WINDOW, "VALID") / 4


def max_pool(x: jax.Array) -> jax.Array:
    return lax.reduce_window(x, -jnp.inf, lax.max, WINDOW, WINDOW, "VALID")


def local_layer(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """Two convolutions of one input, relu and average pooling: a layer with the `local` estimator, its noise fixed."""
    scale = jnp.sqrt(conv(x * x, jnp.full_like(kernel, 1e-4)) + 1e-16)
    return average_pool(jax.nn.relu(conv(x, kernel) + scale))


def neighbours64(x: np.ndarray) -> np.ndarray:
    """The 3 x 3 neighbours of every pixel in the last two axes, 0 beyond the border."""
    padded = np.pad(x.astype(np.float64), ((0, 0), (1, 1), (1, 1), (0, 0)))
    return np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))


def conv64(x: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    """The convolution by its definition: a product for every position in the window."""
    return np.tensordot(neighbours64(x), kernel.astype(np.float64), ((4, 5, 3), (0, 1, 2)))


def input_gradient64(slope: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    """The convolution's transpose: the convolution with the kernel rotated by 180 degrees."""
    return conv64(slope, kernel[::-1, ::-1].transpose(0, 1, 3, 2))


def kernel_gradient64(x: np.ndarray, slope: np.ndarray) -> np.ndarray:
    return np.einsum("nrcxab,nrco->abxo", neighbours64(x), slope.astype(np.float64))


def windows64(x: np.ndarray) -> np.ndarray:
    """The entries of every 2 x 2 window in the last axis."""
    return np.stack([x[:, a::2, b::2].astype(np.float64) for a in (0, 1) for b in (0, 1)], axis=-1)


def from_windows64(windows: np.ndarray) -> np.ndarray:
    """The inverse of `windows64`."""
    n, rows, columns, channels, _ = windows.shape
    cut = windows.reshape(n, rows, columns, channels, 2, 2).transpose(0, 1, 4, 2, 5, 3)
    return cut.reshape(n, 2 * rows, 2 * columns, channels)


def _spread(x: np.ndarray, slope: np.ndarray) -> np.ndarray:
    return from_windows64(np.repeat(slope[..., None] / 4, 4, axis=-1))


def _max(x: np.ndarray) -> Truth:
    return Truth(windows64(x).max(-1), 0.0)


def _max_gradient(x: np.ndarray, slope: np.ndarray) -> Truth:
    windows = windows64(x)
    return Truth(from_windows64((windows == windows.max(-1, keepdims=True)) * slope[..., None].astype(np.float64)), 0.0)


def _local_layer(x: np.ndarray, kernel: np.ndarray) -> Truth:
    small = np.full(kernel.shape, np.float32(1e-4))
    scale = np.sqrt(conv64(x.astype(np.float64) ** 2, small) + 1e-16)
    terms = np.prod(kernel.shape[:-1]) + SLACK
    # rounding of all steps, relative to the sum of magnitudes: the square root halves it, relu and pooling keep it
    bound = 2 * terms * U * (conv64(np.abs(x), np.abs(kernel)) + scale)
    return Truth(windows64(np.maximum(conv64(x, kernel) + scale, 0)).mean(-1), windows64(bound).mean(-1))


def gradient(function: Callable[..., jax.Array], argument: int = 0) -> Callable[..., jax.Array]:
    """The gradient with respect to one argument; its last input is the slope of the result."""
    return lambda *inputs: jax.vjp(function, *inputs[:-1])[1](inputs[-1])[argument]


IMAGES, KERNEL, SLOPE, POOLED = (3, 8, 8, 5), (3, 3, 5, 7), (3, 8, 8, 7), (3, 4, 4, 5)
FORWARD = sums_of_products(conv64, 9 * 5 + SLACK)
IN_INPUT = sums_of_products(lambda x, kernel, slope: input_gradient64(slope, kernel), 9 * 7 + SLACK)
IN_KERNEL = sums_of_products(lambda x, kernel, slope: kernel_gradient64(x, slope), 3 * 8 * 8 + SLACK)
AVERAGE = sums_of_products(lambda x: windows64(x).mean(-1), SLACK)
CHECKS = (
    Check("convolution", conv, FORWARD, normals(IMAGES, KERNEL)),
    Check("convolution, gradient of the input", gradient(conv), IN_INPUT, normals(IMAGES, KERNEL, SLOPE)),
    Check("convolution, gradient of the kernel", gradient(conv, 1), IN_KERNEL, normals(IMAGES, KERNEL, SLOPE)),
    Check("average pooling", average_pool, AVERAGE, normals(IMAGES)),
    Check(
        "average pooling, gradient",
        gradient(average_pool),
        sums_of_products(_spread, SLACK),
        normals(IMAGES, POOLED),
    ),
    Check("max pooling", max_pool, _max, normals(IMAGES)),
    Check("max pooling, gradient", gradient(max_pool), _max_gradient, normals(IMAGES, POOLED)),
    Check("two convolutions, relu, pooling", local_layer, _local_layer, normals((3, 6, 6, 32), (3, 3, 32, 64))),
    Check("the same, fewer channels", local_layer, _local_layer, normals((3, 8, 8, 8), (3, 3, 8, 16))),
)
