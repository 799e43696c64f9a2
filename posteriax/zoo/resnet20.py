"""ResNet-20 with filter response normalisation and Swish: a ResNet that does not couple the examples of a batch."""

from typing import Any

import equinox as eqx
import jax

from posteriax.zoo.parts.convolution import Conv
from posteriax.zoo.parts.dense import Dense
from posteriax.zoo.parts.filter_response_norm import FilterResponseNorm


class ConvNorm(eqx.Module):
    """A convolution and its normalisation."""

    convolution: Conv
    norm: FilterResponseNorm

    def __init__(self, inputs: int, outputs: int, size: int, stride: int, *, key: Any):
        self.convolution = Conv(inputs, outputs, size, stride=stride, key=key)
        self.norm = FilterResponseNorm(outputs)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.norm(self.convolution(x))


class Block(eqx.Module):
    """swish(x + f(x)), with two convolutions in f; a 1 x 1 convolution on x where the shape changes."""

    first: ConvNorm
    second: ConvNorm
    shortcut: ConvNorm | None

    def __init__(self, inputs: int, outputs: int, stride: int, *, key: Any):
        keys = jax.random.split(key, 3)
        self.first = ConvNorm(inputs, outputs, 3, stride, key=keys[0])
        self.second = ConvNorm(outputs, outputs, 3, 1, key=keys[1])
        self.shortcut = ConvNorm(inputs, outputs, 1, stride, key=keys[2]) if stride > 1 else None

    def __call__(self, x: jax.Array) -> jax.Array:
        y = self.second(jax.nn.swish(self.first(x)))
        return jax.nn.swish(y + (x if self.shortcut is None else self.shortcut(x)))


class ResNetFRN(eqx.Module):
    """Three stages of blocks with 1, 2 and 4 times the width, the mean over positions, and a dense layer."""

    stem: ConvNorm
    blocks: list[Block]
    out: Dense
    remat: bool = eqx.field(static=True)

    def __init__(self, blocks: int, width: int, channels: int, classes: int, *, remat: bool = False, key: Any):
        keys = iter(jax.random.split(key, 3 * blocks + 2))
        self.stem = ConvNorm(channels, width, 3, 1, key=next(keys))
        self.blocks, inputs = [], width
        for stage in range(3):
            for i in range(blocks):
                stride = 2 if stage and not i else 1
                self.blocks.append(Block(inputs, width * 2**stage, stride, key=next(keys)))
                inputs = width * 2**stage
        self.out = Dense(inputs, classes, key=next(keys))
        self.remat = remat

    def __call__(self, x: jax.Array) -> jax.Array:
        x = jax.nn.swish(self.stem(x))
        for block in self.blocks:
            x = (eqx.filter_checkpoint(block) if self.remat else block)(x)
        return self.out(x.mean(axis=(0, 1)))


def resnet20(*, channels: int = 3, width: int = 16, classes: int = 10, remat: bool = False, key: Any) -> ResNetFRN:
    """The network of "What Are Bayesian Neural Network Posteriors Really Like?" (Izmailov et al. 2021) for CIFAR.

    Depth 20, widths 16, 32 and 64, biases, He initialisation; the mean over positions is their 8 x 8 average pooling.

    Args:
        width: channels of the first stage; the others have two and four times as many.
        remat: keep only the input of each block for the backward pass, and run the block again there
            (`jax.checkpoint`): less memory, for one more forward pass. Leaves inside are then drawn once per step
            whatever the estimator.

    >>> sum(leaf.size for leaf in jax.tree.leaves(resnet20(key=jax.random.key(0))))
    274042
    """
    return ResNetFRN(3, width, channels, classes, remat=remat, key=key)
