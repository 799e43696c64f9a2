"""Checks of convolutions and pooling, whose combinations some releases of XLA compute wrongly."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from posteriax.cli.doctor.checks import SLACK, Check, Truth, U, normals

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


def conv64(x: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    """The convolution by its definition: a product for every position in the window."""
    n, rows, columns, _ = x.shape
    padded = np.pad(x.astype(np.float64), ((0, 0), (1, 1), (1, 1), (0, 0)))
    out = np.zeros((n, rows, columns, kernel.shape[-1]))
    for a in range(3):
        for b in range(3):
            out += padded[:, a : a + rows, b : b + columns] @ kernel[a, b].astype(np.float64)
    return out


def input_gradient64(slope: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    """The convolution's transpose: the convolution with the kernel rotated by 180 degrees."""
    return conv64(slope, kernel[::-1, ::-1].transpose(0, 1, 3, 2))


def kernel_gradient64(x: np.ndarray, slope: np.ndarray) -> np.ndarray:
    rows, columns = x.shape[1:3]
    padded = np.pad(x.astype(np.float64), ((0, 0), (1, 1), (1, 1), (0, 0)))
    axes = ([0, 1, 2], [0, 1, 2])
    parts = [
        np.tensordot(padded[:, a : a + rows, b : b + columns], slope.astype(np.float64), axes)
        for a in range(3)
        for b in range(3)
    ]
    return np.stack(parts).reshape(3, 3, x.shape[-1], slope.shape[-1])


def windows64(x: np.ndarray) -> np.ndarray:
    """The entries of every 2 x 2 window in the last axis."""
    n, rows, columns, channels = x.shape
    cut = x.astype(np.float64).reshape(n, rows // 2, 2, columns // 2, 2, channels)
    return cut.transpose(0, 1, 3, 5, 2, 4).reshape(n, rows // 2, columns // 2, channels, 4)


def from_windows64(windows: np.ndarray) -> np.ndarray:
    """The inverse of `windows64`."""
    n, rows, columns, channels, _ = windows.shape
    cut = windows.reshape(n, rows, columns, channels, 2, 2).transpose(0, 1, 4, 2, 5, 3)
    return cut.reshape(n, 2 * rows, 2 * columns, channels)


def _forward(x: np.ndarray, kernel: np.ndarray) -> Truth:
    terms = np.prod(kernel.shape[:-1]) + SLACK
    return Truth(conv64(x, kernel), terms * U * conv64(np.abs(x), np.abs(kernel)))


def _in_input(x: np.ndarray, kernel: np.ndarray, slope: np.ndarray) -> Truth:
    terms = 9 * kernel.shape[-1] + SLACK
    return Truth(input_gradient64(slope, kernel), terms * U * input_gradient64(np.abs(slope), np.abs(kernel)))


def _in_kernel(x: np.ndarray, kernel: np.ndarray, slope: np.ndarray) -> Truth:
    terms = np.prod(x.shape[:3]) + SLACK
    return Truth(kernel_gradient64(x, slope), terms * U * kernel_gradient64(np.abs(x), np.abs(slope)))


def _average(x: np.ndarray) -> Truth:
    return Truth(windows64(x).mean(-1), SLACK * U * np.abs(windows64(x)).mean(-1))


def _average_gradient(x: np.ndarray, slope: np.ndarray) -> Truth:
    value = from_windows64(np.repeat(slope.astype(np.float64)[..., None] / 4, 4, axis=-1))
    return Truth(value, SLACK * U * np.abs(value))


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


IMAGES, KERNEL, SLOPE = (3, 8, 8, 5), (3, 3, 5, 7), (3, 8, 8, 7)
POOLED = (3, 4, 4, 5)
CHECKS = (
    Check("convolution", conv, _forward, normals(IMAGES, KERNEL)),
    Check(
        "convolution, gradient of the input",
        lambda x, kernel, slope: jax.vjp(conv, x, kernel)[1](slope)[0],
        _in_input,
        normals(IMAGES, KERNEL, SLOPE),
    ),
    Check(
        "convolution, gradient of the kernel",
        lambda x, kernel, slope: jax.vjp(conv, x, kernel)[1](slope)[1],
        _in_kernel,
        normals(IMAGES, KERNEL, SLOPE),
    ),
    Check("average pooling", average_pool, _average, normals(IMAGES)),
    Check(
        "average pooling, gradient",
        lambda x, slope: jax.vjp(average_pool, x)[1](slope)[0],
        _average_gradient,
        normals(IMAGES, POOLED),
    ),
    Check("max pooling", max_pool, _max, normals(IMAGES)),
    Check(
        "max pooling, gradient",
        lambda x, slope: jax.vjp(max_pool, x)[1](slope)[0],
        _max_gradient,
        normals(IMAGES, POOLED),
    ),
    Check("two convolutions, relu, pooling", local_layer, _local_layer, normals((3, 6, 6, 32), (3, 3, 32, 64))),
    Check("the same, fewer channels", local_layer, _local_layer, normals((3, 8, 8, 8), (3, 3, 8, 16))),
)
