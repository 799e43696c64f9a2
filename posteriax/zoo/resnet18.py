"""ResNet-18 with pre-activation, as the k-tied Normal's experiments have it."""

from typing import Any

import equinox as eqx
import jax

from posteriax.zoo.parts.batch_norm import BatchNorm
from posteriax.zoo.parts.convolution import Conv
from posteriax.zoo.parts.dense import Dense, Initializer
from posteriax.zoo.wide_resnet import Stateful

STRIDES = (1, 2, 2, 2)
wide_normal: Initializer = jax.nn.initializers.normal(0.1)


class Block(eqx.Module):
    """Normalisation and ReLU before each of two convolutions; the input is added by a convolution of 1 x 1."""

    norms: list[BatchNorm]
    convolutions: list[Conv]
    shortcut: Conv

    def __init__(self, inputs: int, outputs: int, stride: int, *, key: Any):
        keys = jax.random.split(key, 3)
        self.norms = [_norm(inputs), _norm(outputs)]
        self.convolutions = [
            Conv(inputs, outputs, 3, stride=stride, init=wide_normal, key=keys[0]),
            Conv(outputs, outputs, 3, init=wide_normal, key=keys[1]),
        ]
        self.shortcut = Conv(inputs, outputs, 1, stride=stride, padding="VALID", init=wide_normal, key=keys[2])

    def __call__(self, x: jax.Array, state: Any) -> tuple[jax.Array, Any]:
        x, state = self.norms[0](x, state)
        x = jax.nn.relu(x)
        y, state = self.norms[1](self.convolutions[0](x), state)
        return self.shortcut(x) + self.convolutions[1](jax.nn.relu(y)), state


class ResNet18(eqx.Module):
    """A convolution, four blocks of 1 to 8 times the width, the mean over positions, and a dense layer."""

    stem: Conv
    blocks: list[Block]
    norm: BatchNorm
    out: Dense

    def __init__(self, width: int, channels: int, classes: int, *, key: Any):
        keys = jax.random.split(key, 6)
        widths = [width * 2**stage for stage in range(4)]
        self.stem = Conv(channels, width, 3, init=wide_normal, key=keys[0])
        stages = zip([width, *widths[:-1]], widths, STRIDES, keys[1:5], strict=True)
        self.blocks = [Block(n, m, stride, key=key) for n, m, stride, key in stages]
        self.norm = _norm(widths[-1])
        self.out = Dense(widths[-1], classes, init=wide_normal, key=keys[5])

    def __call__(self, x: jax.Array, state: Any) -> tuple[jax.Array, Any]:
        x = self.stem(x)
        for block in self.blocks:
            x, state = block(x, state)
        x, state = self.norm(x, state)
        return self.out(jax.nn.relu(x).mean(axis=(0, 1))), state


def _norm(channels: int) -> BatchNorm:
    return BatchNorm(channels, momentum=0.99, epsilon=1e-3)


def resnet18(*, channels: int = 3, width: int = 64, classes: int = 10, key: Any) -> Stateful:
    """The "ResNet-18" of Swiatkowski et al. (2020): four blocks, as in an example of TensorFlow Probability.

    That example has one block per stage (ten convolutions including the shortcuts), where the ResNet-18 of He et al.
    has two. Weights start at N(0, 0.1^2), and batch normalisation has Keras's settings. Returned with its state.

    >>> net, state = resnet18(key=jax.random.key(0))
    >>> sum(leaf.size for leaf in jax.tree.leaves(eqx.filter(net, eqx.is_inexact_array)))
    4908490
    """
    return eqx.nn.make_with_state(ResNet18)(width, channels, classes, key=key)
