"""ResNet-18 with pre-activation, as the k-tied Normal's experiments have it."""

from typing import Any

import equinox as eqx
import jax

from posteriax.zoo.parts.batch_norm import BatchNorm
from posteriax.zoo.parts.convolution import Conv
from posteriax.zoo.parts.dense import Dense
from posteriax.zoo.wide_resnet import Stateful

WIDTHS, STRIDES = (64, 128, 256, 512), (1, 2, 2, 2)


class Block(eqx.Module):
    """Normalisation and ReLU before each of two convolutions; the input is added by a convolution of 1 x 1."""

    norms: list[BatchNorm]
    convolutions: list[Conv]
    shortcut: Conv

    def __init__(self, inputs: int, outputs: int, stride: int, *, key: Any):
        keys = jax.random.split(key, 3)
        self.norms = [BatchNorm(inputs, momentum=0.99), BatchNorm(outputs, momentum=0.99)]
        self.convolutions = [
            Conv(inputs, outputs, 3, stride=stride, key=keys[0]),
            Conv(outputs, outputs, 3, key=keys[1]),
        ]
        self.shortcut = Conv(inputs, outputs, 1, stride=stride, padding="VALID", key=keys[2])

    def __call__(self, x: jax.Array, state: Any) -> tuple[jax.Array, Any]:
        x, state = self.norms[0](x, state)
        x = jax.nn.relu(x)
        y, state = self.norms[1](self.convolutions[0](x), state)
        return self.shortcut(x) + self.convolutions[1](jax.nn.relu(y)), state


class ResNet18(eqx.Module):
    """A convolution, four blocks of 64 to 512 channels, the mean over positions, and a dense layer."""

    stem: Conv
    blocks: list[Block]
    norm: BatchNorm
    out: Dense

    def __init__(self, channels: int, classes: int, *, key: Any):
        keys = jax.random.split(key, 6)
        self.stem = Conv(channels, WIDTHS[0], 3, key=keys[0])
        inputs = (WIDTHS[0], *WIDTHS[:-1])
        stages = zip(inputs, WIDTHS, STRIDES, keys[1:5], strict=True)
        self.blocks = [Block(n, m, stride, key=key) for n, m, stride, key in stages]
        self.norm = BatchNorm(WIDTHS[-1], momentum=0.99)
        self.out = Dense(WIDTHS[-1], classes, key=keys[5])

    def __call__(self, x: jax.Array, state: Any) -> tuple[jax.Array, Any]:
        x = self.stem(x)
        for block in self.blocks:
            x, state = block(x, state)
        x, state = self.norm(x, state)
        return self.out(jax.nn.relu(x).mean(axis=(0, 1))), state


def resnet18(*, channels: int = 3, classes: int = 10, key: Any) -> Stateful:
    """The "ResNet-18" of Swiatkowski et al. (2020): four blocks, as in an example of TensorFlow Probability.

    That example has one block per stage (ten convolutions including the shortcuts), where the ResNet-18 of He et al.
    has two. Uses He initialisation, since the paper gives none for the means. Returned with its state.

    >>> net, state = resnet18(key=jax.random.key(0))
    >>> sum(leaf.size for leaf in jax.tree.leaves(eqx.filter(net, eqx.is_inexact_array)))
    4908490
    """
    return eqx.nn.make_with_state(ResNet18)(channels, classes, key=key)
