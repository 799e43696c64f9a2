"""Convolutions over one or two axes, pooling, and the shape of images; channels-last.

Pooling is over windows that do not overlap, by a reshape: faster than a window reduction, and so is its gradient.
"""

from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp

from posteriax.zoo.parts.dense import Initializer, he_normal


class Conv(eqx.Module):
    """A convolution of one example, (..., channels), with a kernel (..., inputs, outputs); an image of one channel may
    also come as (height, width).

    >>> Conv(3, 8, 3, stride=2, key=jax.random.key(0))(jnp.ones((6, 6, 3))).shape
    (3, 3, 8)
    >>> Conv(4, 8, 5, axes=1, padding="VALID", key=jax.random.key(0))(jnp.ones((10, 4))).shape
    (6, 8)
    """

    weight: jax.Array
    bias: jax.Array | None
    stride: int = eqx.field(static=True)
    padding: str | list[tuple[int, int]] = eqx.field(static=True)

    def __init__(
        self,
        inputs: int,
        outputs: int,
        size: int,
        *,
        key: jax.Array,
        stride: int = 1,
        padding: Literal["SAME", "VALID"] | int = "SAME",
        axes: int = 2,
        bias: bool = True,
        init: Initializer = he_normal,
    ):
        self.weight = init(key, (*[size] * axes, inputs, outputs), jnp.float32)
        self.bias = jnp.zeros(outputs) if bias else None
        self.stride = stride
        self.padding = [(padding, padding)] * axes if isinstance(padding, int) else padding

    def __call__(self, x: jax.Array) -> jax.Array:
        axes, channels = self.weight.ndim - 2, self.weight.shape[-2]
        if x.ndim == axes and channels == 1:
            x = x[..., None]
        if x.ndim != axes + 1 or x.shape[-1] != channels:
            expected = f"(height, width, {channels})" if axes == 2 else f"(length, {channels})"
            raise ValueError(f"a convolution takes one example of shape {expected}, channels last, but got {x.shape}")
        names = ("NWC", "WIO", "NWC") if axes == 1 else ("NHWC", "HWIO", "NHWC")
        y = jax.lax.conv_general_dilated(
            x[None], self.weight, (self.stride,) * axes, self.padding, dimension_numbers=names
        )[0]
        return y if self.bias is None else y + self.bias


def max_pool(x: jax.Array, size: int = 2) -> jax.Array:
    """The largest value of each window; incomplete windows are left out.

    >>> import jax.numpy as jnp
    >>> max_pool(jnp.arange(16.0).reshape(4, 4, 1))[..., 0].tolist()
    [[5.0, 7.0], [13.0, 15.0]]
    """
    return _windows(x, size).max(axis=_window_axes(x))


def average_pool(x: jax.Array, size: int = 2) -> jax.Array:
    """The mean of each window."""
    return _windows(x, size).mean(axis=_window_axes(x))


def _windows(x: jax.Array, size: int) -> jax.Array:
    *positions, channels = x.shape
    x = x[tuple(slice(n // size * size) for n in positions)]
    return x.reshape(*(part for n in positions for part in (n // size, size)), channels)


def _window_axes(x: jax.Array) -> tuple[int, ...]:
    return tuple(range(1, 2 * (x.ndim - 1), 2))


def check_shape(x: jax.Array, shape: tuple[int, int, int]) -> None:
    """Raise unless an example has this shape, (height, width, channels); one channel may be left out.

    >>> check_shape(jax.numpy.zeros((28, 28)), (28, 28, 1))
    """
    if x.shape not in (shape, shape[:2] if shape[-1] == 1 else shape):
        raise ValueError(f"it was built for images of shape {shape}, channels last, but got {x.shape}")
