"""ResNet-50 for ImageNet (He et al. 2016), with the strides in the 3 x 3 convolutions."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from posteriax.zoo.parts.batch_norm import BatchNorm
from posteriax.zoo.parts.convolution import Conv
from posteriax.zoo.parts.dense import Dense
from posteriax.zoo.wide_resnet import Stateful

BLOCKS, STRIDES = (3, 4, 6, 3), (1, 2, 2, 2)  # of the four stages


class ConvNorm(eqx.Module):
    """A convolution without bias, and its normalisation."""

    convolution: Conv
    norm: BatchNorm

    def __init__(self, inputs: int, outputs: int, size: int, stride: int = 1, *, padding: Any = "SAME", key: Any):
        self.convolution = Conv(inputs, outputs, size, stride=stride, padding=padding, bias=False, key=key)
        self.norm = BatchNorm(outputs)

    def __call__(self, x: jax.Array, state: Any) -> tuple[jax.Array, Any]:
        return self.norm(self.convolution(x), state)


class Bottleneck(eqx.Module):
    """relu(x + f(x)): down to a quarter of the channels, a 3 x 3 convolution, and back up."""

    layers: list[ConvNorm]
    shortcut: ConvNorm | None

    def __init__(self, inputs: int, width: int, stride: int, *, key: Any):
        keys = jax.random.split(key, 4)
        shapes = ((inputs, width, 1, 1), (width, width, 3, stride), (width, 4 * width, 1, 1))
        self.layers = [ConvNorm(*shape, key=key) for shape, key in zip(shapes, keys, strict=False)]
        changes = stride > 1 or inputs != 4 * width
        self.shortcut = ConvNorm(inputs, 4 * width, 1, stride, key=keys[3]) if changes else None

    def __call__(self, x: jax.Array, state: Any) -> tuple[jax.Array, Any]:
        y = x
        for i, layer in enumerate(self.layers):
            y, state = layer(y if i == 0 else jax.nn.relu(y), state)
        if self.shortcut is not None:
            x, state = self.shortcut(x, state)
        return jax.nn.relu(x + y), state


class ResNet50(eqx.Module):
    """A 7 x 7 convolution, a pooling, bottlenecks in four stages, the mean over positions, a dense layer."""

    stem: ConvNorm
    blocks: list[Bottleneck]
    out: Dense
    remat: bool = eqx.field(static=True)

    def __init__(
        self, blocks: Sequence[int], width: int, channels: int, classes: int, *, remat: bool = False, key: Any
    ):
        keys = iter(jax.random.split(key, sum(blocks) + 2))
        self.stem = ConvNorm(channels, width, 7, 2, padding=3, key=next(keys))
        self.blocks, inputs = [], width
        for count, stride in zip(blocks, STRIDES, strict=True):
            for i in range(count):
                self.blocks.append(Bottleneck(inputs, width, 1 if i else stride, key=next(keys)))
                inputs = 4 * width
            width *= 2
        self.out = Dense(inputs, classes, init=jax.nn.initializers.normal(0.01), key=next(keys))
        self.remat = remat

    def __call__(self, x: jax.Array, state: Any) -> tuple[jax.Array, Any]:
        x, state = self.stem(x, state)
        x = _overlapping_max_pool(jax.nn.relu(x))
        for block in self.blocks:
            x, state = (eqx.filter_checkpoint(block) if self.remat else block)(x, state)
        return self.out(x.mean(axis=(0, 1))), state


def _overlapping_max_pool(x: jax.Array) -> jax.Array:
    """Windows of 3 x 3 with stride 2."""
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (3, 3, 1), (2, 2, 1), "SAME")


def resnet50(
    *,
    channels: int = 3,
    width: int = 64,
    blocks: Sequence[int] = BLOCKS,
    classes: int = 1000,
    remat: bool = False,
    key: Any,
) -> Stateful:
    """The network of rank-1 BNNs (Dusenberry et al. 2020) for ImageNet, images of 224 x 224; with its state.

    He initialisation, N(0, 0.01^2) in the last layer, and no biases but there.

    Args:
        width: channels of the first stage, before they are multiplied by four; each stage doubles them.
        blocks: of each of the four stages.
        remat: keep only the input of each block for the backward pass, and run the block again there
            (`jax.checkpoint`): less memory, for one more forward pass. Leaves inside are then drawn once per step
            whatever the estimator.

    >>> net, state = jax.eval_shape(lambda key: eqx.filter(resnet50(key=key), eqx.is_array), jax.random.key(0))
    >>> sum(leaf.size for leaf in jax.tree.leaves(eqx.filter(net, lambda leaf: leaf.dtype == jnp.float32)))
    25557032
    """
    return eqx.nn.make_with_state(ResNet50)(blocks, width, channels, classes, remat=remat, key=key)
