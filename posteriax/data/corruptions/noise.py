"""Pixel-wise noise.

Here and in the neighbouring files, an image is (channels, height, width) in [0, 1], `u` holds as many uniform numbers
as the suite states for the kind, and results are clipped afterwards.
"""

import jax
import jax.numpy as jnp

from posteriax.data.corruptions.poisson import poisson
from posteriax.data.corruptions.uniforms import cut, normal


def gaussian_noise(u: jax.Array, image: jax.Array, std: float) -> jax.Array:
    """Adds N(0, std^2), as a sensor does in low light."""
    return image + std * normal(cut(u, image.shape)[0])


def shot_noise(u: jax.Array, image: jax.Array, rate: float) -> jax.Array:
    """Poisson(rate x) / rate: `rate` photons for a white pixel."""
    return poisson(cut(u, image.shape)[0], image * rate) / rate


def impulse_noise(u: jax.Array, image: jax.Array, amount: float) -> jax.Array:
    """Sets a fraction `amount` of the values to 0 or 1 with equal probability: salt and pepper."""
    (v,) = cut(u, image.shape)
    return jnp.where(v < amount / 2, 0.0, jnp.where(v < amount, 1.0, image))


def speckle_noise(u: jax.Array, image: jax.Array, std: float) -> jax.Array:
    """x + x N(0, std^2)."""
    return image * (1 + std * normal(cut(u, image.shape)[0]))
