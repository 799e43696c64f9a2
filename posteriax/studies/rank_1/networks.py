"""Parameters of the study's networks, and widths at which two methods have the same number of them.

    matrix of d inputs and m outputs, of t taps    t d m
    BatchEnsemble of K members                     + K (d + m), and K biases
    rank-1, K components                           + 2 K (d + m), and K biases

A Wide ResNet with 160 to 640 channels has less than 1 % more parameters with the factors of four components than
without; with few channels the factors are a larger part, so that the baselines are made wider by as much.

The networks of the study, each as wide as its method needs to have the same number of parameters.
"""

import itertools
import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax
import numpy as np

from posteriax import priors as p
from posteriax import zoo
from posteriax.likelihoods import Bernoulli, Categorical
from posteriax.networks import network as with_example
from posteriax.problem import Problem
from posteriax.studies.rank_1.settings import (
    BATCH_ENSEMBLE,
    DEEP,
    DROPOUT,
    EMBEDDINGS,
    EQUAL,
    MEAN_FIELD,
    Images,
    Mortality,
    Rank1Settings,
)

TOLERANCE = 0.004  # relative difference of two numbers of parameters that count as the same


class LayerSize(NamedTuple):
    """A dense layer or a convolution: inputs, outputs, positions of its kernel, and whether it has a bias."""

    inputs: int
    outputs: int
    taps: int = 1
    bias: bool = False


class LayerSizes(NamedTuple):
    """All layers of a network, and the channels of its normalisations, with a scale and a shift each."""

    matrices: tuple[LayerSize, ...]
    norms: tuple[int, ...] = ()


def mlp_layers(inputs: int, widths: tuple[int, ...], classes: int) -> LayerSizes:
    sizes = (inputs, *widths, classes)
    return LayerSizes(tuple(LayerSize(n, m, bias=True) for n, m in itertools.pairwise(sizes)))


def wide_resnet_layers(stages: tuple[int, ...], depth: int, widen: int, channels: int, classes: int) -> LayerSizes:
    """Those of ``zoo.wide_resnet``.

    >>> parameters(wide_resnet_layers((16, 32, 64), 28, 10, 3, 10))
    36479194
    """
    matrices, norms, inputs = [LayerSize(channels, stages[0], 9)], [], stages[0]
    for stage, width in enumerate(stages):
        for block in range((depth - 4) // 6):
            outputs = width * widen
            norms += [inputs, outputs]
            matrices += [LayerSize(inputs, outputs, 9), LayerSize(outputs, outputs, 9)]
            if inputs != outputs or (stage and not block):
                matrices.append(LayerSize(inputs, outputs))
            inputs = outputs
    return LayerSizes((*matrices, LayerSize(inputs, classes, bias=True)), (*norms, inputs))


def parameters(layers: LayerSizes, *, components: int = 1, per_factor: int = 0) -> int:
    """How many a network has: `per_factor` numbers for every factor on inputs and outputs, in `components`.

    >>> parameters(mlp_layers(784, (400, 400), 10))
    478410
    """
    total = 2 * sum(layers.norms)
    for layer in layers.matrices:
        total += layer.taps * layer.inputs * layer.outputs
        total += components * (per_factor * (layer.inputs + layer.outputs) + layer.bias * layer.outputs)
    return total


def lstm_layers(units: int, variables: int, static: int) -> LayerSizes:
    """Those of ``zoo.mortality_lstm``.

    >>> parameters(lstm_layers(64, 37, 4))
    35653
    """
    return LayerSizes(
        (
            LayerSize(2 * variables, 4 * units, bias=True),
            LayerSize(units, 4 * units),
            LayerSize(units + static, 1, bias=True),
        )
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

    def distance(candidate: tuple[int, ...]) -> tuple[bool, float]:
        error = abs(count(candidate) / target - 1)
        ratios = [math.log(new / old) for new, old in zip(candidate, like, strict=True)]
        return (False, max(ratios) - min(ratios)) if error <= TOLERANCE else (True, error)

    return min(widths, key=distance)


WRN = "WRN"
INPUTS = "lstm/weight"  # the weights of the LSTM on its inputs, which stand for the paper's embeddings


def network_layers(plan: Images | Mortality, shape: Any, widths: tuple[int, ...], classes: int) -> LayerSizes:
    """LayerSizes of the network with these widths, for inputs of this shape."""
    if isinstance(plan, Mortality):
        variables, static = shape
        return lstm_layers(widths[0], variables, static)
    if plan.network == WRN:
        return wide_resnet_layers(widths, plan.depth, plan.widen, shape[-1], classes)
    return mlp_layers(int(np.prod(shape)), widths, classes)


def widths_for(
    method: str, plan: Images | Mortality, settings: Rank1Settings, shape: Any, classes: int
) -> tuple[int, ...]:
    """The widths at which a method has as many parameters as the rank-1 Gaussian network, all members together.

    Methods with one network have that of the deterministic baseline, and mean-field a standard deviation for every
    weight. Variants of the rank-1 network have its widths.
    """
    given = (plan.units,) if isinstance(plan, Mortality) else plan.widths
    matched = isinstance(plan, Mortality) or plan.matched
    if not matched or method not in (DEEP, EQUAL, BATCH_ENSEMBLE, DROPOUT, MEAN_FIELD, EMBEDDINGS):
        return given
    members = settings.members

    def count(widths: tuple[int, ...]) -> int:
        layers = network_layers(plan, shape, widths, classes)
        if method == BATCH_ENSEMBLE:
            return parameters(layers, components=members, per_factor=1)
        return (members if method == EQUAL else 1) * parameters(layers)

    target = parameters(network_layers(plan, shape, given, classes), components=members, per_factor=2)
    return closest(near(given), target, count, given)


def weight_prior_scale(method: str, plan: Images | Mortality) -> float:
    """The scale of the prior of all weights that are not factors."""
    if method in (DEEP, EQUAL, DROPOUT, EMBEDDINGS):
        return plan.prior_scale
    return {BATCH_ENSEMBLE: plan.batch_scale, MEAN_FIELD: plan.mean_field_scale}.get(method, plan.rank_1_scale)


def image_problem(
    method: str, plan: Images, settings: Rank1Settings, shape: tuple[int, ...], classes: int, seed: int
) -> Problem:
    """An image classifier with He's initial weights."""
    widths, key = widths_for(method, plan, settings, shape, classes), jax.random.key(seed)
    net: Any
    if plan.network == WRN:
        smaller = method == EQUAL and not plan.matched  # the paper's WRN-28-5
        widen = plan.widen // 2 if smaller else plan.widen
        net = zoo.wide_resnet(
            depth=plan.depth,
            widen=widen,
            channels=shape[-1],
            classes=classes,
            stages=(widths[0], widths[1], widths[2]),
            key=key,
        )
    else:
        if method == EQUAL and not plan.matched:
            widths = tuple(width // settings.members for width in widths)
        net = zoo.mlp(inputs=int(np.prod(shape)), hidden=widths, classes=classes, key=key)
        net = with_example(net, example=np.zeros(shape, np.float32))
    return Problem(net, Categorical(), prior=p.Normal(scale=weight_prior_scale(method, plan)))


def mortality_problem(method: str, plan: Mortality, settings: Rank1Settings, shape: Any, seed: int) -> Problem:
    """The LSTM over records with missing values, one logit."""
    units, (variables, static) = widths_for(method, plan, settings, shape, 1)[0], shape
    net = zoo.mortality_lstm(variables=variables, static=static, units=units, key=jax.random.key(seed))
    prior: Any = p.Normal(scale=weight_prior_scale(method, plan))
    if method == EMBEDDINGS:
        prior = {INPUTS: p.Normal(scale=plan.mean_field_scale), "**": prior}
    return Problem(net, Bernoulli(), prior=prior)
