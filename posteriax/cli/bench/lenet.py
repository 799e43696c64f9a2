"""A small convolutional network with average pooling (LeCun et al. 1998), a plain function."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from posteriax.cli.bench.mlp import mlp

IMAGE = (28, 28, 1)
SHAPES = ((5, 5, 1, 6), (5, 5, 6, 16), (256, 120), (120, 84), (84, 10))


def lenet(weights: list[tuple[jax.Array, jax.Array]], x: jax.Array) -> jax.Array:
    """Logits of images (N, 28, 28, 1)."""
    for kernel, bias in weights[:2]:
        x = lax.conv_general_dilated(x, kernel, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        x = jax.nn.relu(x + bias)
        x = lax.reduce_window(x, 0.0, lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "VALID") / 4
    return mlp(weights[2:], x.reshape(len(x), -1))


def lenet_weights() -> Any:
    """He-initialised weights."""
    keys = jax.random.split(jax.random.key(0), len(SHAPES))
    return [
        (jax.random.normal(key, shape) * np.sqrt(2 / np.prod(shape[:-1])), jnp.zeros(shape[-1]))
        for key, shape in zip(keys, SHAPES, strict=True)
    ]
