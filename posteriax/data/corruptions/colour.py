"""Colour: luminance, and changes of saturation and value (HSV) without computing hue angles.

A pixel with largest channel v (value), smallest channel m and saturation s = (v - m) / v equals v (1 - s t), where
t = (v - x) / (v - m) in [0, 1] encodes its hue by channel. New v and s with the same t keep the hue. Grey pixels have
the hue of red. A single-channel image has a value but no saturation.
"""

import jax
import jax.numpy as jnp
import numpy as np

LUMINANCE = np.array([0.299, 0.587, 0.114], np.float32)


def luminance(image: jax.Array) -> jax.Array:
    """(3 or 1, height, width) to (1, height, width).

    >>> luminance(jnp.ones((3, 1, 1))).round(3).item()
    1.0
    """
    return image if len(image) == 1 else jnp.tensordot(LUMINANCE, image, 1, precision="highest")[None]


def with_value(image: jax.Array, shift: float) -> jax.Array:
    """Add `shift` to the value, keeping hue and saturation.

    >>> with_value(jnp.array([0.5, 0.25, 0.0]).reshape(3, 1, 1), 0.5).ravel().tolist()
    [1.0, 0.5, 0.0]
    """
    value = image.max(axis=0)
    shifted = jnp.clip(value + shift, 0.0, 1.0)
    return jnp.where(value > 0, image * shifted / jnp.where(value > 0, value, 1.0), shifted)


def with_saturation(image: jax.Array, scale: float, shift: float) -> jax.Array:
    """Map the saturation s to scale s + shift, keeping hue and value.

    >>> with_saturation(jnp.array([0.5, 0.25, 0.25]).reshape(3, 1, 1), 2.0, 0.0).ravel().tolist()
    [0.5, 0.0, 0.0]
    """
    value, smallest = image.max(axis=0), image.min(axis=0)
    spread = value - smallest
    saturation = spread / jnp.where(value > 0, value, 1.0)
    red = jnp.array([0.0, 1.0, 1.0])[:, None, None]
    hue = jnp.where(spread > 0, (value - image) / jnp.where(spread > 0, spread, 1.0), red)
    return value * (1 - jnp.clip(saturation * scale + shift, 0.0, 1.0) * hue)
