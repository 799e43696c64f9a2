"""Noise: Gaussian, shot, impulse and speckle noise, drawn for every pixel and channel.

Here and in the neighbouring files, an image is (channels, height, width) in [0, 1], `u` holds as many uniform numbers
as the suite states for the kind, and results are clipped afterwards.
"""

import jax
import jax.numpy as jnp

from posteriax.data.corruptions.uniforms import cut, normal

FEW = 10.0  # photons; rates below it are drawn by summing probabilities
MOST_OF_FEW = 32  # P(count > 32 | rate 10) < 1e-8


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


def poisson(u: jax.Array, rate: jax.Array) -> jax.Array:
    """Poisson counts with these rates, as floats, each from one uniform number strictly between 0 and 1.

    For rates below 10, the smallest k with u < P(count <= k), by summing probabilities. Above, the Cornish-Fisher
    expansion of the quantile in powers of 1 / sqrt(rate) at z, the normal quantile of u,

        k = floor( r + sqrt(r) z + 1/3 + z^2 / 6 - (2 z + z^3) / (72 sqrt(r)) )

    whose distribution is within 0.001 of the Poisson distribution in total variation. JAX's own sampler is exact, but
    uses rejection on entire arrays and takes tens of times as long.

    >>> poisson(jnp.array([0.5, 0.5, 0.975]), jnp.array([0.0, 100.0, 100.0])).tolist()
    [0.0, 100.0, 120.0]
    """
    return jnp.where(rate < FEW, _by_summing(u, jnp.minimum(rate, FEW)), _by_expansion(u, jnp.maximum(rate, FEW)))


def _by_summing(u: jax.Array, rate: jax.Array) -> jax.Array:
    probability = jnp.exp(-rate)
    below, count = probability, jnp.zeros_like(rate)
    for k in range(1, MOST_OF_FEW + 1):
        count = count + (u >= below)
        probability = probability * rate / k
        below = below + probability
    return count


def _by_expansion(u: jax.Array, rate: jax.Array) -> jax.Array:
    z, root = normal(u), jnp.sqrt(rate)
    count = jnp.floor(rate + root * z + 1 / 3 + z**2 / 6 - (2 * z + z**3) / (72 * root))
    return jnp.maximum(count, 0.0)  # the expansion undershoots for u < 1e-5
