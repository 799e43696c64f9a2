"""Weather: snow, frost, fog, brightness. Frost and fog are made of plasma clouds."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from posteriax.data.corruptions.blur import line_blur
from posteriax.data.corruptions.image_operations import (
    enlarge_matrix,
    length_scale,
    luminance,
    on_both_axes,
    with_value,
    zoom_matrix,
)
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
    scale = length_scale(image)
    rows, columns = round(height / scale), round(width / scale)  # flakes scale with the image
    for_angle, for_flakes = cut(u, (), (rows, columns))
    flakes = mean + std * normal(for_flakes)
    flakes = on_both_axes(zoom_matrix(rows, zoom), zoom_matrix(columns, zoom), flakes)
    flakes = jnp.where(flakes < threshold, 0.0, jnp.minimum(flakes, 1.0))
    flakes = on_both_axes(enlarge_matrix(height, rows), enlarge_matrix(width, columns), flakes)
    angle = between(for_angle, -135.0, -45.0)
    flakes = line_blur(flakes[None], angle, radius * scale, sigma * scale)
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
    first, second, patches = clouds(cut(u, (3, plasma_numbers(height, width)))[0])
    veins = 1 - jnp.minimum(jnp.abs(2 * first - 1), jnp.abs(2 * second - 1))
    return jnp.clip(0.6 * veins**8 + 0.8 * patches, 0.0, 1.0)[None]


def fog(u: jax.Array, image: jax.Array, strength: float, decay: float) -> jax.Array:
    """A plasma cloud added to the image, rescaled to roughly the original range."""
    height, width = image.shape[-2:]
    brightest = image.max()
    return (image + strength * plasma(u, height, width, decay)) * brightest / (brightest + strength)


def brightness(u: jax.Array, image: jax.Array, shift: float) -> jax.Array:
    """Add `shift` to the HSV value."""
    return with_value(image, shift)


def plasma_numbers(height: int, width: int) -> int:
    """How many uniform numbers a cloud of this size needs.

    >>> plasma_numbers(28, 28)  # 4 + 16 + ... + 32^2
    1364
    """
    return sum(_grids(height, width))


def plasma(u: jax.Array, height: int, width: int, decay: float) -> jax.Array:
    """A plasma cloud (height, width): the diamond-square algorithm on a torus whose side is a power of 2, cut to size
    after its values are scaled to span [0, 1].

    A grid of corners gets the centre of each square (mean of 4 corners + noise), then the midpoint of each edge (mean
    of its 2 corners and the 2 adjacent centres + noise). The new grid has twice the side, and the noise shrinks by
    decay^2, since the benchmark applies its decay to both a factor and the range of the noise. In matrices, for a grid
    c:

        g = E c E' + S E c E' S' + noise at middles            E: spreads a line of pixels over every second one
        c <- g + (S g + g S') / 2 + noise at edges             S: the mean of the two neighbours

    (Matrix products compile ten times as fast as the equivalent shifts and interleaving.)

    >>> cloud = plasma(jnp.sin(jnp.arange(340.0)) ** 2, 16, 16, decay=2.0)
    >>> cloud.shape, cloud.min().item(), cloud.max().item()
    ((16, 16), 0.0, 1.0)
    """
    grid = jnp.zeros((1, 1))
    parts = cut(u, *((size,) for size in _grids(height, width)))
    for level, numbers in enumerate(parts):
        side = 2 ** (level + 1)
        noise = between(numbers.reshape(side, side), -1.0, 1.0) * decay ** (-2 * level)
        spread = np.eye(side)[:, ::2]
        beside = (np.roll(np.eye(side), 1, axis=0) + np.roll(np.eye(side), -1, axis=0)) / 2
        odd = np.arange(side) % 2
        middles, edges = odd[:, None] & odd, odd[:, None] ^ odd
        grid = on_both_axes(spread, spread, grid) + on_both_axes(beside @ spread, beside @ spread, grid)
        grid = grid + middles * noise
        along = on_both_axes(beside, np.eye(side), grid) + on_both_axes(np.eye(side), beside, grid)
        grid = grid + along / 2 + edges * noise
    cloud = grid - grid.min()
    return (cloud / cloud.max())[:height, :width]


def _grids(height: int, width: int) -> list[int]:
    doublings = (max(height, width) - 1).bit_length()
    return [4 ** (level + 1) for level in range(doublings)]
