"""Parameters of the study's networks, and widths at which two methods have the same number of them.

    matrix of d inputs and m outputs, of t taps    t d m
    BatchEnsemble of K members                     + K (d + m), and K biases
    rank-1, K components                           + 2 K (d + m), and K biases

A Wide ResNet with 160 to 640 channels has less than 1 % more parameters with the factors of four components than
without; with few channels the factors are a larger part, so that the baselines are made wider by as much.
"""

import itertools
import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

TOLERANCE = 0.004  # relative difference of two numbers of parameters that count as the same


class Layer(NamedTuple):
    """A dense layer or a convolution: inputs, outputs, positions of its kernel, and whether it has a bias."""

    inputs: int
    outputs: int
    taps: int = 1
    bias: bool = False


class Layers(NamedTuple):
    """All layers of a network, and the channels of its normalisations, with a scale and a shift each."""

    matrices: tuple[Layer, ...]
    norms: tuple[int, ...] = ()


def mlp_layers(inputs: int, widths: tuple[int, ...], classes: int) -> Layers:
    sizes = (inputs, *widths, classes)
    return Layers(tuple(Layer(n, m, bias=True) for n, m in itertools.pairwise(sizes)))


def wide_resnet_layers(stages: tuple[int, ...], depth: int, widen: int, channels: int, classes: int) -> Layers:
    """Those of ``zoo.wide_resnet``.

    >>> parameters(wide_resnet_layers((16, 32, 64), 28, 10, 3, 10))
    36479194
    """
    matrices, norms, inputs = [Layer(channels, stages[0], 9)], [], stages[0]
    for stage, width in enumerate(stages):
        for block in range((depth - 4) // 6):
            outputs = width * widen
            norms += [inputs, outputs]
            matrices += [Layer(inputs, outputs, 9), Layer(outputs, outputs, 9)]
            if inputs != outputs or (stage and not block):
                matrices.append(Layer(inputs, outputs))
            inputs = outputs
    return Layers((*matrices, Layer(inputs, classes, bias=True)), (*norms, inputs))


def parameters(layers: Layers, *, components: int = 1, per_factor: int = 0) -> int:
    """How many a network has: `per_factor` numbers for every factor on inputs and outputs, in `components`.

    >>> parameters(mlp_layers(784, (400, 400), 10))
    478410
    """
    total = 2 * sum(layers.norms)
    for one in layers.matrices:
        total += one.taps * one.inputs * one.outputs
        total += components * (per_factor * (one.inputs + one.outputs) + one.bias * one.outputs)
    return total


def lstm_layers(units: int, variables: int, static: int) -> Layers:
    """Those of ``zoo.mortality_lstm``.

    >>> parameters(lstm_layers(64, 37, 4))
    35653
    """
    return Layers(
        (Layer(2 * variables, 4 * units, bias=True), Layer(units, 4 * units), Layer(units + static, 1, bias=True))
    )


def near(widths: tuple[int, ...]) -> Iterable[tuple[int, ...]]:
    """Widths to choose from, between about half and one and a half times the given ones.

    >>> sorted(near((2, 2)))
    [(1, 1), (2, 2), (3, 3), (4, 4)]
    """
    if len(set(widths)) == 1:  # all equal, and so are the others
        return [(width,) * len(widths) for width in range(max(1, widths[0] // 4), widths[0] * 3 // 2 + 2)]
    return itertools.product(*(range(max(1, 2 * width // 5), width * 3 // 2 + 2) for width in widths))


def closest(
    widths: Iterable[tuple[int, ...]],
    target: float,
    count: Callable[[tuple[int, ...]], int],
    like: tuple[int, ...],
) -> tuple[int, ...]:
    """The widths with `target` parameters, up to the tolerance, whose proportions are most like those of `like`.

    >>> closest([(9, 9), (10, 10), (11, 12)], 100, lambda widths: widths[0] * widths[1], like=(5, 5))
    (10, 10)
    """

    def distance(found: tuple[int, ...]) -> tuple[bool, float]:
        error = abs(count(found) / target - 1)
        ratios = [math.log(new / old) for new, old in zip(found, like, strict=True)]
        return (False, max(ratios) - min(ratios)) if error <= TOLERANCE else (True, error)

    return min(widths, key=distance)
