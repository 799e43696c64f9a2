"""LeNets: two convolutions, each with a pooling, and two dense layers (LeCun et al. 1998)."""

from collections.abc import Callable
from typing import Literal

import equinox as eqx
import jax

from posteriax.zoo.layers import Conv, Dense, Initializer, check_shape, he_normal, max_pool, torch_uniform

Activation = Callable[[jax.Array], jax.Array]


class LeNet(eqx.Module):
    """Convolutions with kernels of 5 x 5 and ReLU, max-pooling of 2 x 2, and two dense layers."""

    convolutions: list[Conv]
    dense: Dense
    out: Dense
    shape: tuple[int, int, int] = eqx.field(static=True)
    activation: Activation = eqx.field(static=True)

    def __init__(
        self,
        shape: tuple[int, int, int],
        channels: tuple[int, int],
        hidden: int,
        classes: int,
        *,
        padding: Literal["SAME", "VALID"],
        init: Initializer,
        activation: Activation = jax.nn.relu,
        key: jax.Array,
    ):
        keys = jax.random.split(key, 4)
        pairs = zip((shape[-1], channels[0]), channels, keys[:2], strict=True)
        self.convolutions = [Conv(n, m, 5, padding=padding, init=init, key=key) for n, m, key in pairs]
        lost = 4 if padding == "VALID" else 0
        height, width = (((n - lost) // 2 - lost) // 2 for n in shape[:2])
        self.dense = Dense(height * width * channels[1], hidden, init=init, key=keys[2])
        self.out = Dense(hidden, classes, init=init, key=keys[3])
        self.shape = shape
        self.activation = activation

    def __call__(self, x: jax.Array) -> jax.Array:
        check_shape(x, self.shape)
        for convolution in self.convolutions:
            x = max_pool(jax.nn.relu(convolution(x)))
        return self.out(self.activation(self.dense(x.reshape(-1))))


def lenet5(
    *,
    shape: tuple[int, int, int] = (28, 28, 1),
    channels: tuple[int, int] = (20, 50),
    hidden: int = 500,
    classes: int = 10,
    activation: Activation = jax.nn.relu,
    key: jax.Array,
) -> LeNet:
    """LeNet-5 as Caffe has it, the network of Variance Networks (Neklyudov et al. 2019) for MNIST.

    20 and 50 channels, convolutions without padding, 500 hidden units; ReLU after the convolutions too, which Caffe's
    own example lacks, and weights uniform within 1 / sqrt(fan_in), as in the authors' program. `activation` is the one
    after the first dense layer: ``jnp.abs`` suits weights with mean 0.

    >>> sum(leaf.size for leaf in jax.tree.leaves(lenet5(key=jax.random.key(0))))
    431080
    """
    return LeNet(shape, channels, hidden, classes, padding="VALID", init=torch_uniform, activation=activation, key=key)


def lenet(*, shape: tuple[int, int, int] = (32, 32, 3), classes: int = 100, key: jax.Array) -> LeNet:
    """The LeNet of the k-tied Normal (Swiatkowski et al. 2020) for CIFAR-100: 32 and 64 channels, 512 units, He.

    The paper's text says 3 x 3 kernels; its parameter counts match 5 x 5, which are used here.

    >>> sum(leaf.size for leaf in jax.tree.leaves(lenet(key=jax.random.key(0))))
    2202660
    """
    return LeNet(shape, (32, 64), 512, classes, padding="SAME", init=he_normal, key=key)
