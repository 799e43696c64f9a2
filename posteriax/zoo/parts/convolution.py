"""Convolutions over one or two axes, channels-last."""

from typing import Any, Literal

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
    padding: Any = eqx.field(static=True)

    def __init__(
        self,
        inputs: int,
        outputs: int,
        size: int,
        *,
        key: Any,
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
