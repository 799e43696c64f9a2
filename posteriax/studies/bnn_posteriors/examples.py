"""Networks and examples of a target."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from posteriax import priors as p
from posteriax import zoo
from posteriax.problem import Categorical, Problem
from posteriax.problem import network as with_example
from posteriax.studies.bnn_posteriors.settings import Target
from posteriax.studies.bnn_posteriors.small_cnn import SmallCNN
from posteriax.studies.bnn_posteriors.small_cnn_lstm import SmallCNNLSTM
from posteriax.studies.workbench import Workbench

UNKNOWN = 2  # the index of rare words
OUTSIDE = {"fashion_mnist": "mnist", "cifar10": "cifar100", "fashion_small": "made-up/mnist"}  # by data set


class Examples(NamedTuple):
    """Training and test examples of one seed, as the network takes them, and the test images as they were."""

    train: tuple[np.ndarray, np.ndarray]
    test: tuple[np.ndarray, np.ndarray]
    images: np.ndarray


def load_examples(bench: Workbench, target: Target, seed: int, *, held_out: bool = False) -> Examples:
    """A random part of the data set, another one for every seed.

    Args:
        bench: has the data.
        target: which data, and how many.
        seed: of the random part.
        held_out: whether to take the test examples from the rest of the training set, for choosing recipes.
    """
    data = bench.load(target.data)
    rng = np.random.default_rng((seed, 3))
    (x, y), (x_test, y_test) = data.train, data.test
    order, order_test = rng.permutation(len(y)), rng.permutation(len(y_test))
    rows, rows_test = order[: target.train], order_test[: target.test]
    if held_out:
        x_test, y_test, rows_test = x, y, order[target.train :][: target.test]
    images = x_test[rows_test]
    return Examples((prepare(target, x[rows]), y[rows]), (prepare(target, images), y_test[rows_test]), images)


def load_outside(bench: Workbench, target: Target, seed: int) -> np.ndarray | None:
    """Inputs from another data set, as many as test examples; None if there is none of the same shape."""
    if target.data not in OUTSIDE:
        return None
    x = bench.load(OUTSIDE[target.data]).test[0]
    return prepare(target, x[np.random.default_rng((seed, 4)).permutation(len(x))[: target.test]])


def prepare(target: Target, x: np.ndarray) -> np.ndarray:
    """Images averaged down and scaled, or reviews cut to their last words."""
    if target.words:
        last = x[:, -target.length :]
        return np.where(last < target.words, last, UNKNOWN).astype(np.int32)
    return ((average_down(x, target.pixels) - target.centre) / target.spread).astype(np.float32)


def average_down(images: np.ndarray, pixels: int) -> np.ndarray:
    """Images with so many pixels a side, each the average of a block.

    >>> average_down(np.arange(16.0).reshape(1, 4, 4), 2).tolist()
    [[[2.5, 4.5], [10.5, 12.5]]]
    """
    side = images.shape[1] // pixels
    blocks = images.reshape(len(images), pixels, side, pixels, side, *images.shape[3:])
    return np.asarray(blocks.mean(axis=(2, 4)))


def _mlp(target: Target, shape: tuple[int, ...], classes: int, key: Any) -> Any:
    return zoo.MLP((math.prod(shape), *target.widths, classes), key=key)


def _cnn(target: Target, shape: tuple[int, ...], classes: int, key: Any) -> Any:
    return SmallCNN(shape[0], (target.widths[0], target.widths[1]), classes, key=key)


def _cnn_lstm(target: Target, shape: tuple[int, ...], classes: int, key: Any) -> Any:
    features, channels, units = target.widths
    return zoo.CNNLSTM(target.words, features, channels, units, classes, key=key)


def _small_cnn_lstm(target: Target, shape: tuple[int, ...], classes: int, key: Any) -> Any:
    features, channels, units = target.widths
    return SmallCNNLSTM(target.words, features, channels, units, classes, key=key)


def _resnet(target: Target, shape: tuple[int, ...], classes: int, key: Any) -> Any:
    return zoo.resnet20(classes=classes, key=key)


NETWORKS: dict[str, Callable[[Target, tuple[int, ...], int, Any], Any]] = {
    "MLP": _mlp,
    "CNN": _cnn,
    "CNN-LSTM": _cnn_lstm,
    "small CNN-LSTM": _small_cnn_lstm,
    "ResNet-20": _resnet,
}


def problem_of(
    target: Target,
    examples: Examples,
    *,
    temperature: float = 1.0,
    prior: p.Prior | dict[str, p.Prior] | None = None,
) -> Problem:
    """The problem of a target; by default with its Gaussian prior, at T = 1.

    The network's initial weights are the same for all seeds, so that compiled programs can be used again; the members
    of an ensemble, and chains, start at shuffled ones.
    """
    classes = 2 if target.words else 10
    net = NETWORKS[target.network](target, examples.train[0].shape[1:], classes, jax.random.key(0))
    if isinstance(prior, dict):
        net = with_example(net, example=examples.train[0][:1])  # EmpCov must know which axis is the inputs'
    return Problem(net, Categorical(), prior or p.Normal(math.sqrt(target.prior_variance)), temperature)
