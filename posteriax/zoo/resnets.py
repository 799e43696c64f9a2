"""Residual networks: WRN, PreResNet and ResNet-18 from one pre-activation block, and the post-activation ResNet-20 and
ResNet-50.

    pre-activation     y = x + f(x),          f: normalisation, ReLU, convolution, two or three times
    post-activation    y = act(x + f(x)),     f: convolution, normalisation, with the activation in between

The sum takes x itself, or a 1 x 1 convolution of it where the shape changes. (He et al. 2016, "Deep residual learning"
and "Identity mappings"; Zagoruyko and Komodakis 2016)
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp

from posteriax.zoo.layers import (
    BatchNorm,
    Conv,
    Dense,
    FilterResponseNorm,
    Initializer,
    Stateful,
    he_normal,
    swish,
    torch_uniform,
)

he_by_outputs: Initializer = jax.nn.initializers.variance_scaling(2.0, "fan_out", "normal")
wide_normal: Initializer = jax.nn.initializers.normal(0.1)
BOTTLENECKS_FROM = 44  # depth of a PreResNet
BLOCKS, STRIDES = (3, 4, 6, 3), (1, 2, 2, 2)  # of the four stages of ResNet-50; ResNet-18 has the same strides


class PreActivationBlock(eqx.Module):
    """Normalisation, ReLU and a convolution, for every layer, and the input added.

    Args:
        layers: inputs, outputs, kernel size and stride of each convolution.
        keys: for the convolutions, and the last one for the shortcut.
        padding: "same" as in TensorFlow, or "symmetric" as in PyTorch; they differ where the stride is 2.
        bias, init: of the convolutions.
        norm: makes a normalisation of so many channels.
        shortcut: "changes" for a 1 x 1 convolution of the input where the shape changes; "always" for one in every
            block, of the input after its first normalisation and ReLU.
    """

    norms: list[BatchNorm]
    convolutions: list[Conv]
    shortcut: Conv | None
    shortcut_of_activated: bool = eqx.field(static=True)

    def __init__(
        self,
        layers: Sequence[tuple[int, int, int, int]],
        *,
        keys: Sequence[jax.Array] | jax.Array,
        padding: Literal["same", "symmetric"] = "same",
        bias: bool = False,
        init: Initializer = he_normal,
        norm: Callable[[int], BatchNorm] = BatchNorm,
        shortcut: Literal["changes", "always"] = "changes",
    ):
        conv = partial(Conv, bias=bias, init=init)
        self.norms = [norm(inputs) for inputs, *_ in layers]
        self.convolutions = [
            conv(n, m, size, stride=stride, padding="SAME" if padding == "same" else size // 2, key=key)
            for (n, m, size, stride), key in zip(layers, keys[: len(layers)], strict=True)
        ]
        inputs, outputs, stride = layers[0][0], layers[-1][1], max(stride for *_, stride in layers)
        projects = shortcut == "always" or stride > 1 or inputs != outputs
        self.shortcut = conv(inputs, outputs, 1, stride=stride, padding=0, key=keys[-1]) if projects else None
        self.shortcut_of_activated = shortcut == "always"

    def __call__(self, x: jax.Array, state: eqx.nn.State) -> tuple[jax.Array, eqx.nn.State]:
        y = skipped = x
        for i, (norm, convolution) in enumerate(zip(self.norms, self.convolutions, strict=True)):
            y, state = norm(y, state)
            y = jax.nn.relu(y)
            if i == 0 and self.shortcut_of_activated:
                skipped = y
            y = convolution(y)
        return y + (skipped if self.shortcut is None else self.shortcut(skipped)), state


class PreActivationNetwork(eqx.Module):
    """A convolution, blocks, normalisation and ReLU, the mean over positions, and a dense layer."""

    stem: Conv
    blocks: list[PreActivationBlock]
    norm: BatchNorm
    out: Dense
    remat: bool = eqx.field(static=True)

    def __call__(self, x: jax.Array, state: eqx.nn.State) -> tuple[jax.Array, eqx.nn.State]:
        x = self.stem(x)
        for block in self.blocks:
            x, state = (eqx.filter_checkpoint(block) if self.remat else block)(x, state)
        x, state = self.norm(x, state)
        return self.out(jax.nn.relu(x).mean(axis=(0, 1))), state


class WideResNet(PreActivationNetwork):
    """Three stages of (depth - 4) / 6 blocks, with `stages` channels times `widen`, 16, 32 and 64 in the paper."""

    def __init__(
        self,
        depth: int,
        widen: int,
        channels: int,
        classes: int,
        *,
        stages: tuple[int, int, int] = (16, 32, 64),
        remat: bool = False,
        key: jax.Array,
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
                layers = [(inputs, outputs, 3, 2 if stage and not i else 1), (outputs, outputs, 3, 1)]
                self.blocks.append(PreActivationBlock(layers, keys=jax.random.split(next(keys), 3)))
                inputs = outputs
        self.norm = BatchNorm(inputs)
        self.out = Dense(inputs, classes, key=next(keys))
        self.remat = remat


def wide_resnet(
    *,
    depth: int = 28,
    widen: int = 10,
    channels: int = 3,
    classes: int = 10,
    stages: tuple[int, int, int] = (16, 32, 64),
    remat: bool = False,
    key: jax.Array,
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


class PreResNet(PreActivationNetwork):
    """Three stages of widths 16, 32 and 64; bottlenecks from depth 44 on."""

    def __init__(self, depth: int, channels: int, classes: int, *, remat: bool = False, key: jax.Array):
        bottleneck = depth >= BOTTLENECKS_FROM
        per_block = 9 if bottleneck else 6
        if depth < 8 or (depth - 2) % per_block:
            raise ValueError(f"depth must be 6 n + 2 below {BOTTLENECKS_FROM}, and 9 n + 2 from there on, got {depth}")
        per_stage = (depth - 2) // per_block
        keys = iter(jax.random.split(key, 3 * per_stage + 2))
        self.stem = Conv(channels, 16, 3, padding=1, bias=False, init=he_by_outputs, key=next(keys))
        self.blocks, inputs = [], 16
        for stage in range(3):
            for i in range(per_stage):
                width, stride = 16 * 2**stage, 2 if stage and not i else 1
                outputs = 4 * width if bottleneck else width
                layers = (
                    [(inputs, width, 1, 1), (width, width, 3, stride), (width, outputs, 1, 1)]
                    if bottleneck
                    else [(inputs, width, 3, stride), (width, width, 3, 1)]
                )
                block_keys = jax.random.split(next(keys), 4)
                block = PreActivationBlock(layers, keys=block_keys, padding="symmetric", init=he_by_outputs)
                self.blocks.append(block)
                inputs = outputs
        self.norm = BatchNorm(inputs)
        self.out = Dense(inputs, classes, init=torch_uniform, key=next(keys))
        self.remat = remat


def preresnet(
    depth: int = 20, *, channels: int = 3, classes: int = 100, remat: bool = False, key: jax.Array
) -> Stateful:
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


class ResNet18(PreActivationNetwork):
    """Four blocks of 1 to 8 times the width, each with a convolution in its shortcut."""

    def __init__(self, width: int, channels: int, classes: int, *, key: jax.Array):
        keys = jax.random.split(key, 6)
        keras_norm = partial(BatchNorm, momentum=0.99, epsilon=1e-3)
        widths = [width * 2**stage for stage in range(4)]
        self.stem = Conv(channels, width, 3, init=wide_normal, key=keys[0])
        self.blocks = [
            PreActivationBlock(
                [(n, m, 3, stride), (m, m, 3, 1)],
                keys=jax.random.split(key, 3),
                bias=True,
                init=wide_normal,
                norm=keras_norm,
                shortcut="always",
            )
            for n, m, stride, key in zip([width, *widths[:-1]], widths, STRIDES, keys[1:5], strict=True)
        ]
        self.norm = keras_norm(widths[-1])
        self.out = Dense(widths[-1], classes, init=wide_normal, key=keys[5])
        self.remat = False


def resnet18(*, channels: int = 3, width: int = 64, classes: int = 10, key: jax.Array) -> Stateful:
    """The "ResNet-18" of Swiatkowski et al. (2020): four blocks, as in an example of TensorFlow Probability.

    That example has one block per stage (ten convolutions including the shortcuts), where the ResNet-18 of He et al.
    has two. Weights start at N(0, 0.1^2), and batch normalisation has Keras's settings. Returned with its state.

    >>> net, state = resnet18(key=jax.random.key(0))
    >>> sum(leaf.size for leaf in jax.tree.leaves(eqx.filter(net, eqx.is_inexact_array)))
    4908490
    """
    return eqx.nn.make_with_state(ResNet18)(width, channels, classes, key=key)


class ConvFRN(eqx.Module):
    """A convolution and its filter response normalisation."""

    convolution: Conv
    norm: FilterResponseNorm

    def __init__(self, inputs: int, outputs: int, size: int, stride: int, *, key: jax.Array):
        self.convolution = Conv(inputs, outputs, size, stride=stride, key=key)
        self.norm = FilterResponseNorm(outputs)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.norm(self.convolution(x))


class FRNBlock(eqx.Module):
    """swish(x + f(x)), with two convolutions in f; a 1 x 1 convolution on x where the shape changes."""

    first: ConvFRN
    second: ConvFRN
    shortcut: ConvFRN | None

    def __init__(self, inputs: int, outputs: int, stride: int, *, key: jax.Array):
        keys = jax.random.split(key, 3)
        self.first = ConvFRN(inputs, outputs, 3, stride, key=keys[0])
        self.second = ConvFRN(outputs, outputs, 3, 1, key=keys[1])
        self.shortcut = ConvFRN(inputs, outputs, 1, stride, key=keys[2]) if stride > 1 else None

    def __call__(self, x: jax.Array) -> jax.Array:
        y = self.second(swish(self.first(x)))
        return swish(y + (x if self.shortcut is None else self.shortcut(x)))


class ResNetFRN(eqx.Module):
    """Three stages of blocks with 1, 2 and 4 times the width, the mean over positions, and a dense layer."""

    stem: ConvFRN
    blocks: list[FRNBlock]
    out: Dense
    remat: bool = eqx.field(static=True)

    def __init__(self, blocks: int, width: int, channels: int, classes: int, *, remat: bool = False, key: jax.Array):
        keys = iter(jax.random.split(key, 3 * blocks + 2))
        self.stem = ConvFRN(channels, width, 3, 1, key=next(keys))
        self.blocks, inputs = [], width
        for stage in range(3):
            for i in range(blocks):
                stride = 2 if stage and not i else 1
                self.blocks.append(FRNBlock(inputs, width * 2**stage, stride, key=next(keys)))
                inputs = width * 2**stage
        self.out = Dense(inputs, classes, key=next(keys))
        self.remat = remat

    def __call__(self, x: jax.Array) -> jax.Array:
        x = swish(self.stem(x))
        for block in self.blocks:
            x = (eqx.filter_checkpoint(block) if self.remat else block)(x)
        return self.out(x.mean(axis=(0, 1)))


def resnet20(
    *, channels: int = 3, width: int = 16, classes: int = 10, remat: bool = False, key: jax.Array
) -> ResNetFRN:
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


class ConvBatchNorm(eqx.Module):
    """A convolution without bias, and its normalisation."""

    convolution: Conv
    norm: BatchNorm

    def __init__(
        self,
        inputs: int,
        outputs: int,
        size: int,
        stride: int = 1,
        *,
        padding: Literal["SAME"] | int = "SAME",
        key: jax.Array,
    ):
        self.convolution = Conv(inputs, outputs, size, stride=stride, padding=padding, bias=False, key=key)
        self.norm = BatchNorm(outputs)

    def __call__(self, x: jax.Array, state: eqx.nn.State) -> tuple[jax.Array, eqx.nn.State]:
        return self.norm(self.convolution(x), state)


class Bottleneck(eqx.Module):
    """relu(x + f(x)): down to a quarter of the channels, a 3 x 3 convolution, and back up."""

    layers: list[ConvBatchNorm]
    shortcut: ConvBatchNorm | None

    def __init__(self, inputs: int, width: int, stride: int, *, key: jax.Array):
        keys = jax.random.split(key, 4)
        shapes = ((inputs, width, 1, 1), (width, width, 3, stride), (width, 4 * width, 1, 1))
        self.layers = [ConvBatchNorm(*shape, key=key) for shape, key in zip(shapes, keys, strict=False)]
        changes = stride > 1 or inputs != 4 * width
        self.shortcut = ConvBatchNorm(inputs, 4 * width, 1, stride, key=keys[3]) if changes else None

    def __call__(self, x: jax.Array, state: eqx.nn.State) -> tuple[jax.Array, eqx.nn.State]:
        y = x
        for i, layer in enumerate(self.layers):
            y, state = layer(y if i == 0 else jax.nn.relu(y), state)
        if self.shortcut is not None:
            x, state = self.shortcut(x, state)
        return jax.nn.relu(x + y), state


class ResNet50(eqx.Module):
    """A 7 x 7 convolution, a pooling, bottlenecks in four stages, the mean over positions, a dense layer."""

    stem: ConvBatchNorm
    blocks: list[Bottleneck]
    out: Dense
    remat: bool = eqx.field(static=True)

    def __init__(
        self, blocks: Sequence[int], width: int, channels: int, classes: int, *, remat: bool = False, key: jax.Array
    ):
        keys = iter(jax.random.split(key, sum(blocks) + 2))
        self.stem = ConvBatchNorm(channels, width, 7, 2, padding=3, key=next(keys))
        self.blocks, inputs = [], width
        for count, stride in zip(blocks, STRIDES, strict=True):
            for i in range(count):
                self.blocks.append(Bottleneck(inputs, width, 1 if i else stride, key=next(keys)))
                inputs = 4 * width
            width *= 2
        self.out = Dense(inputs, classes, init=jax.nn.initializers.normal(0.01), key=next(keys))
        self.remat = remat

    def __call__(self, x: jax.Array, state: eqx.nn.State) -> tuple[jax.Array, eqx.nn.State]:
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
    key: jax.Array,
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
