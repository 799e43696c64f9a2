"""Residual networks with pre-activation for small images (He et al. 2016, "Identity mappings")."""

from typing import Any

import equinox as eqx
import jax

from posteriax.zoo.parts.batch_norm import BatchNorm
from posteriax.zoo.parts.convolution import Conv
from posteriax.zoo.parts.dense import Dense, Initializer, torch_uniform
from posteriax.zoo.wide_resnet import Stateful

he_by_outputs: Initializer = jax.nn.initializers.variance_scaling(2.0, "fan_out", "normal")
BOTTLENECKS_FROM = 44


class Block(eqx.Module):
    """Normalisation, ReLU and a convolution, two or three times (a bottleneck), and the input added."""

    norms: list[BatchNorm]
    convolutions: list[Conv]
    shortcut: Conv | None

    def __init__(self, inputs: int, width: int, stride: int, bottleneck: bool, *, key: Any):
        keys = jax.random.split(key, 4)
        outputs = 4 * width if bottleneck else width
        shapes = (
            [(inputs, width, 1, 1), (width, width, 3, stride), (width, outputs, 1, 1)]
            if bottleneck
            else [(inputs, width, 3, stride), (width, width, 3, 1)]
        )
        self.norms = [BatchNorm(n) for n, *_ in shapes]
        self.convolutions = [
            Conv(n, m, size, stride=s, padding=size // 2, bias=False, init=he_by_outputs, key=key)
            for (n, m, size, s), key in zip(shapes, keys, strict=False)
        ]
        changes = stride > 1 or inputs != outputs
        self.shortcut = (
            Conv(inputs, outputs, 1, stride=stride, padding=0, bias=False, init=he_by_outputs, key=keys[3])
            if changes
            else None
        )

    def __call__(self, x: jax.Array, state: Any) -> tuple[jax.Array, Any]:
        y = x
        for norm, convolution in zip(self.norms, self.convolutions, strict=True):
            y, state = norm(y, state)
            y = convolution(jax.nn.relu(y))
        return y + (x if self.shortcut is None else self.shortcut(x)), state


class PreResNet(eqx.Module):
    """Three stages of widths 16, 32 and 64; bottlenecks from depth 44 on."""

    stem: Conv
    blocks: list[Block]
    norm: BatchNorm
    out: Dense
    remat: bool = eqx.field(static=True)

    def __init__(self, depth: int, channels: int, classes: int, *, remat: bool = False, key: Any):
        bottleneck = depth >= BOTTLENECKS_FROM
        layers = 9 if bottleneck else 6
        if depth < 8 or (depth - 2) % layers:
            raise ValueError(f"depth must be 6 n + 2 below {BOTTLENECKS_FROM}, and 9 n + 2 from there on, got {depth}")
        per_stage = (depth - 2) // layers
        keys = iter(jax.random.split(key, 3 * per_stage + 2))
        self.stem = Conv(channels, 16, 3, padding=1, bias=False, init=he_by_outputs, key=next(keys))
        self.blocks, inputs = [], 16
        for stage in range(3):
            for i in range(per_stage):
                width = 16 * 2**stage
                self.blocks.append(Block(inputs, width, 2 if stage and not i else 1, bottleneck, key=next(keys)))
                inputs = 4 * width if bottleneck else width
        self.norm = BatchNorm(inputs)
        self.out = Dense(inputs, classes, init=torch_uniform, key=next(keys))
        self.remat = remat

    def __call__(self, x: jax.Array, state: Any) -> tuple[jax.Array, Any]:
        x = self.stem(x)
        for block in self.blocks:
            x, state = (eqx.filter_checkpoint(block) if self.remat else block)(x, state)
        x, state = self.norm(x, state)
        return self.out(jax.nn.relu(x).mean(axis=(0, 1))), state


def preresnet(depth: int = 20, *, channels: int = 3, classes: int = 100, remat: bool = False, key: Any) -> Stateful:
    """The PreResNets on which Farquhar et al. (2020) compare SWAG with its diagonal form; with its state.

    Normal weights of variance 2 / fan_out, as in the program of SWAG (Maddox et al. 2019).

    Args:
        depth: 6 n + 2 below 44; 9 n + 2 from there on, with bottlenecks.
        remat: keep only the input of each block for the backward pass, and run the block again there
            (`jax.checkpoint`): less memory, for one more forward pass. Leaves inside are then drawn once per step
            whatever the estimator.

    >>> net, state = preresnet(8, classes=10, key=jax.random.key(0))
    >>> sum(leaf.size for leaf in jax.tree.leaves(eqx.filter(net, eqx.is_inexact_array)))
    77850
    """
    return eqx.nn.make_with_state(PreResNet)(depth, channels, classes, remat=remat, key=key)
