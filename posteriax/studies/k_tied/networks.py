"""The three networks of the k-tied Normal's experiments, their data and their variational families.

    MLP    784-400-400-10 on MNIST, pixels in [-1, 1]         every layer tied
    LeNet  two convolutions and two dense layers, CIFAR-100   dense layers tied; the rest mean-field
    LSTM   embeddings and states of 128, IMDB                 both matrices of the LSTM tied; the rest point estimates

Biases are never tied. Priors are N(0, 0.2^2), one of the two scales that the paper chose from, or He's,
N(0, 2 / fan_in).
"""

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from posteriax import families as q
from posteriax import priors as p
from posteriax import zoo
from posteriax.data.sets.data_set import DataSet
from posteriax.likelihoods.classes import Bernoulli, Categorical
from posteriax.networks.network import network as with_example
from posteriax.problem import Problem
from posteriax.studies.workbench import Workbench

MLP, LENET, LSTM, HE = "MLP", "LeNet", "LSTM", "MLP with He prior"
MEAN_FIELD = "mean-field"
RANKS = (1, 2, 3)
TIED = {f"{k}-tied": k for k in RANKS}
PRIOR_SCALE = 0.2
UNKNOWN = 2  # the index of rare words
# the matrices whose standard deviations are tied, analysed and truncated
LEAVES = {MLP: "layers/*/weight", HE: "layers/*/weight", LENET: "*/weight", LSTM: "lstm/*"}


@dataclass(frozen=True)
class Training:
    """Data and length of training of one network.

    Args:
        data: name of the data set.
        examples, tests: how many examples are used for training and for testing.
        batch_size, steps: of the run to convergence.
        rate: Adam's; 0 for the optimiser that VI has by default, whose rates fall to 0.
        annealing: the part of the run over which the KL's weight grows from 0 to 1.
        families: which are trained.
    """

    data: str
    examples: int
    tests: int
    batch_size: int
    steps: int
    rate: float = 0.0
    annealing: float = 0.0
    families: tuple[str, ...] = (MEAN_FIELD, "2-tied")


@dataclass(frozen=True)
class Sizes:
    """What is made smaller below the paper's scale.

    Args:
        hidden: units of the MLP's hidden layers.
        pool: images for the LeNet are averaged over squares of so many pixels.
        units, words, length: of the LSTM: its states, the size of its vocabulary, the words that it reads of a review.
    """

    hidden: tuple[int, ...] = (400, 400)
    pool: int = 1
    units: int = 128
    words: int = 20_000
    length: int = 80


def load_parts(network: str, training: Training, sizes: Sizes, bench: Workbench) -> tuple[DataSet, Any, Any]:
    """The data set, and ``(x, y)`` for training and for testing as the network takes them."""
    data = bench.load(training.data)
    parts = []
    for number, (part, count) in enumerate(((data.train, training.examples), (data.test, training.tests))):
        x, y = part
        if network == LSTM:  # reviews are sorted by their label
            order = np.random.default_rng(number).permutation(len(y))
            x, y = x[order], y[order]
        parts.append((_prepare(network, x[:count], sizes), y[:count]))
    return data, parts[0], parts[1]


def _prepare(network: str, x: np.ndarray, sizes: Sizes) -> np.ndarray:
    if network == LSTM:
        last = x[:, -sizes.length :]
        return np.where(last < sizes.words, last, UNKNOWN)
    if network == LENET:
        return average_pixels(x, sizes.pool)
    return 2 * x - 1


def average_pixels(images: np.ndarray, pool: int) -> np.ndarray:
    """Images, (N, height, width, channels), averaged over squares of `pool` pixels.

    >>> average_pixels(np.arange(16.0).reshape(1, 4, 4, 1), 2)[0, :, :, 0].tolist()
    [[2.5, 4.5], [10.5, 12.5]]
    """
    count, height, width, channels = images.shape
    squares = images.reshape(count, height // pool, pool, width // pool, pool, channels)
    return squares.mean(axis=(2, 4), dtype=images.dtype)


def build_problem(network: str, data: DataSet, example: np.ndarray, sizes: Sizes, seed: int) -> Problem:
    """The network with He's initial weights, its likelihood and its prior."""
    key = jax.random.key(seed)
    prior: Any = p.HeNormal() if network == HE else p.Normal(scale=PRIOR_SCALE)
    if network == LENET:
        return Problem(zoo.lenet(shape=example.shape, classes=len(data.classes), key=key), Categorical(), prior=prior)
    if network == LSTM:
        return Problem(zoo.lstm(words=sizes.words, units=sizes.units, key=key), Bernoulli(), prior=prior)
    net = zoo.mlp(inputs=example.size, hidden=sizes.hidden, classes=len(data.classes), key=key)
    return Problem(with_example(net, example=example), Categorical(), prior=prior)


def family_of(network: str, name: str) -> Any:
    """The variational family: mean-field, or tied in the network's own places.

    >>> family_of(MLP, "2-tied"), family_of(LENET, "mean-field")["**"]
    (KTied(k=2, scale=0.01), Normal(scale=0.01))
    """
    untied = q.Normal(0.01)
    own = q.KTied(TIED[name]) if name in TIED else untied
    if network == LENET:
        return {"convolutions/**": untied, "**": own}
    if network == LSTM:
        return {"**": q.Point(), "lstm/weight": own, "lstm/recurrent": own}
    return own
