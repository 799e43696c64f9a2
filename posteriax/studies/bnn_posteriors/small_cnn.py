"""A convolutional network that is cheap on a CPU, where gradients of general convolutions are slow.

    14 x 14    4 x 4 kernels, stride 2    6 x 6    2 x 2 kernels, stride 2    3 x 3    dense

Both convolutions are matrix products with patches: those of the first are slices of the image, those of the second do
not overlap.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from posteriax.zoo import Dense

KERNEL, STRIDE = 4, 2


class SmallCNN(eqx.Module):
    """Two convolutions with ReLU and a dense layer, for images of one channel.

    >>> SmallCNN(14, (4, 8), 10, key=jax.random.key(0))(jnp.ones((14, 14))).shape
    (10,)
    """

    first: Dense
    second: Dense
    out: Dense

    def __init__(self, pixels: int, channels: tuple[int, int], classes: int, *, key: Any):
        places = (pixels - KERNEL) // STRIDE + 1
        if places < 2 or places % 2:
            raise ValueError(f"pixels must leave an even number of places for the first kernel, got {pixels}")
        keys = jax.random.split(key, 3)
        self.first = Dense(KERNEL**2, channels[0], key=keys[0])
        self.second = Dense(4 * channels[0], channels[1], key=keys[1])
        self.out = Dense((places // 2) ** 2 * channels[1], classes, key=keys[2])

    def __call__(self, image: jax.Array) -> jax.Array:
        units = jax.nn.relu(self.first(patches(image)))
        half = len(units) // 2
        blocks = units.reshape(half, 2, half, 2, -1).transpose(0, 2, 1, 3, 4).reshape(half, half, -1)
        return self.out(jax.nn.relu(self.second(blocks)).reshape(-1))


def patches(image: jax.Array) -> jax.Array:
    """All patches of an image, (places, places, pixels of a patch).

    >>> patches(jnp.arange(36.0).reshape(6, 6))[1, 1, :5].tolist()
    [14.0, 15.0, 16.0, 17.0, 20.0]
    """
    last = len(image) - KERNEL + 1
    slices = [image[i : i + last : STRIDE, j : j + last : STRIDE] for i in range(KERNEL) for j in range(KERNEL)]
    return jnp.stack(slices, axis=-1)
