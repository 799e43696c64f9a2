"""Weather: snow, frost, fog, brightness."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from posteriax.data.corruptions.axis_maps import enlarge_matrix, on_both_axes, zoom_matrix
from posteriax.data.corruptions.colour import luminance, with_value
from posteriax.data.corruptions.line_blur import line_blur
from posteriax.data.corruptions.pixel_scale import stretch_of
from posteriax.data.corruptions.plasma import plasma, plasma_numbers
from posteriax.data.corruptions.uniforms import between, cut, normal

ICE = np.array([0.82, 0.95, 1.0], np.float32)[:, None, None]


def snow(
    u: jax.Array,
    image: jax.Array,
    mean: float,
    std: float,
    zoom: float,
    threshold: float,
    radius: float,
    sigma: float,
    mix: float,
) -> jax.Array:
    """Snowflakes: zoomed Gaussian noise above a threshold, blurred along its fall, added twice to the image.

    The image is whitened first: mix x + (1 - mix) max(x, 1.5 luminance + 0.5).
    """
    height, width = image.shape[-2:]
    stretch = stretch_of(image)
    rows, columns = round(height / stretch), round(width / stretch)  # flakes scale with the image
    for_angle, for_flakes = cut(u, (), (rows, columns))
    flakes = mean + std * normal(for_flakes)
    flakes = on_both_axes(zoom_matrix(rows, zoom), zoom_matrix(columns, zoom), flakes)
    flakes = jnp.where(flakes < threshold, 0.0, jnp.minimum(flakes, 1.0))
    flakes = on_both_axes(enlarge_matrix(height, rows), enlarge_matrix(width, columns), flakes)
    angle = between(for_angle, -135.0, -45.0)
    flakes = line_blur(flakes[None], angle, radius * stretch, sigma * stretch)
    whitened = mix * image + (1 - mix) * jnp.maximum(image, 1.5 * luminance(image) + 0.5)
    return whitened + flakes + flakes[:, ::-1, ::-1]


def frost(u: jax.Array, image: jax.Array, image_weight: float, frost_weight: float) -> jax.Array:
    """A weighted sum of the image and an ice texture."""
    texture = ice(u, *image.shape[-2:]) * ICE
    return image_weight * image + frost_weight * (texture if len(image) == 3 else luminance(texture))


def ice(u: jax.Array, height: int, width: int) -> jax.Array:
    """A procedural texture of ice on glass, (1, height, width) in [0, 1], in place of the benchmark's photographs.

    Bright veins where either of two clouds crosses 1/2, over the patches of a third.

    >>> ice(jnp.sin(jnp.arange(3 * 84.0)) ** 2, 8, 8).shape
    (1, 8, 8)
    """
    clouds = jax.vmap(partial(plasma, height=height, width=width, decay=1.5))
    one, other, patches = clouds(cut(u, (3, plasma_numbers(height, width)))[0])
    veins = 1 - jnp.minimum(jnp.abs(2 * one - 1), jnp.abs(2 * other - 1))
    return jnp.clip(0.6 * veins**8 + 0.8 * patches, 0.0, 1.0)[None]


def fog(u: jax.Array, image: jax.Array, strength: float, decay: float) -> jax.Array:
    """A plasma cloud added to the image, rescaled to roughly the original range."""
    height, width = image.shape[-2:]
    brightest = image.max()
    return (image + strength * plasma(u, height, width, decay)) * brightest / (brightest + strength)


def brightness(u: jax.Array, image: jax.Array, shift: float) -> jax.Array:
    """Add `shift` to the HSV value."""
    return with_value(image, shift)
