"""Wide residual networks (Zagoruyko and Komodakis 2016)."""

from typing import Any

import equinox as eqx
import jax

from posteriax.zoo.parts.batch_norm import BatchNorm
from posteriax.zoo.parts.convolution import Conv
from posteriax.zoo.parts.dense import Dense

Stateful = tuple[eqx.Module, eqx.nn.State]


class Block(eqx.Module):
    """Normalisation and ReLU before each of two convolutions, and the input added."""

    norms: list[BatchNorm]
    convolutions: list[Conv]
    shortcut: Conv | None

    def __init__(self, inputs: int, outputs: int, stride: int, *, key: Any):
        keys = jax.random.split(key, 3)
        self.norms = [BatchNorm(inputs), BatchNorm(outputs)]
        self.convolutions = [
            Conv(inputs, outputs, 3, stride=stride, bias=False, key=keys[0]),
            Conv(outputs, outputs, 3, bias=False, key=keys[1]),
        ]
        changes = stride > 1 or inputs != outputs
        self.shortcut = Conv(inputs, outputs, 1, stride=stride, bias=False, key=keys[2]) if changes else None

    def __call__(self, x: jax.Array, state: Any) -> tuple[jax.Array, Any]:
        y = x
        for norm, convolution in zip(self.norms, self.convolutions, strict=True):
            y, state = norm(y, state)
            y = convolution(jax.nn.relu(y))
        return y + (x if self.shortcut is None else self.shortcut(x)), state


class WideResNet(eqx.Module):
    """Three stages of (depth - 4) / 6 blocks, with `stages` channels times `widen`, 16, 32 and 64 in the paper."""

    stem: Conv
    blocks: list[Block]
    norm: BatchNorm
    out: Dense
    remat: bool = eqx.field(static=True)

    def __init__(
        self,
        depth: int,
        widen: int,
        channels: int,
        classes: int,
        *,
        stages: tuple[int, int, int] = (16, 32, 64),
        remat: bool = False,
        key: Any,
    ):
        if (depth - 4) % 6:
            raise ValueError(f"depth must be 6 n + 4, such as 16 or 28, got {depth}")
        per_stage = (depth - 4) // 6
        keys = iter(jax.random.split(key, 3 * per_stage + 2))
        self.stem = Conv(channels, stages[0], 3, bias=False, key=next(keys))
        self.blocks, inputs = [], stages[0]
        for stage in range(3):
            for i in range(per_stage):
                outputs = stages[stage] * widen
                self.blocks.append(Block(inputs, outputs, 2 if stage and not i else 1, key=next(keys)))
                inputs = outputs
        self.norm = BatchNorm(inputs)
        self.out = Dense(inputs, classes, key=next(keys))
        self.remat = remat

    def __call__(self, x: jax.Array, state: Any) -> tuple[jax.Array, Any]:
        x = self.stem(x)
        for block in self.blocks:
            x, state = (eqx.filter_checkpoint(block) if self.remat else block)(x, state)
        x, state = self.norm(x, state)
        return self.out(jax.nn.relu(x).mean(axis=(0, 1))), state


def wide_resnet(
    *,
    depth: int = 28,
    widen: int = 10,
    channels: int = 3,
    classes: int = 10,
    stages: tuple[int, int, int] = (16, 32, 64),
    remat: bool = False,
    key: Any,
) -> Stateful:
    """WRN-28-10, the network of rank-1 BNNs (Dusenberry et al. 2020) for CIFAR, or a smaller one; with its state.

    He initialisation and no biases. As in the authors' program, the shortcuts of 1 x 1 see the input of a block itself;
    those of Zagoruyko and Komodakis see it normalised.

    Args:
        depth: 6 n + 4, for n blocks in each of three stages.
        widen: the channels of the stages are 16, 32 and 64 times this.
        stages: other channels than 16, 32 and 64; the first convolution has those of the first stage, not widened.
        remat: keep only the input of each block for the backward pass, and run the block again there
            (`jax.checkpoint`): less memory, for one more forward pass. Leaves inside are then drawn once per step
            whatever the estimator.

    >>> net, state = wide_resnet(depth=10, widen=1, key=jax.random.key(0))
    >>> sum(leaf.size for leaf in jax.tree.leaves(eqx.filter(net, eqx.is_inexact_array)))
    77850
    """
    return eqx.nn.make_with_state(WideResNet)(depth, widen, channels, classes, stages=stages, remat=remat, key=key)
