"""Blur along a line: each pixel becomes a weighted mean of those ahead of it in one direction.

    out(p) = sum_i w_i image(p + round(i d)),   w_i ~ exp(-i^2 / 2 sigma^2), i = 0..2 radius,   d = (cos, sin) angle

One-sided, like ImageMagick's motion blur; border pixels are repeated.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np


def line_blur(image: jax.Array, angle: jax.Array, radius: float, sigma: float) -> jax.Array:
    """An image (channels, height, width), blurred in the direction `angle` (degrees from the horizontal).

    >>> line_blur(jnp.ones((1, 4, 4)), 30.0, radius=2, sigma=1.0).round(6).mean().item()
    1.0
    """
    reach = min(math.ceil(2 * radius), math.ceil(4 * sigma))  # weights further away are below 0.001
    weights = np.exp(-0.5 * (np.arange(reach + 1) / sigma) ** 2)
    weights = (weights / weights.sum()).astype(np.float32)
    padded = jnp.pad(image, ((0, 0), (reach, reach), (reach, reach)), mode="edge")
    radians = jnp.deg2rad(angle)
    direction = jnp.stack([jnp.sin(radians), jnp.cos(radians)])

    def add(total: jax.Array, tap: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        step, weight = tap
        down, right = jnp.ceil(step * direction - 0.5).astype(jnp.int32) + reach
        return total + weight * jax.lax.dynamic_slice(padded, (0, down, right), image.shape), None

    return jax.lax.scan(add, jnp.zeros_like(image), (jnp.arange(reach + 1.0), weights))[0]
