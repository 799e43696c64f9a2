"""Networks and examples of a target.

Two networks are cheap on a CPU. The CNN, because its convolutions are matrix products with patches: gradients of
general convolutions are slow.

    14 x 14    4 x 4 kernels, stride 2    6 x 6    2 x 2 kernels, stride 2    3 x 3    dense

The CNN-LSTM, where there are more words in the batch than in the vocabulary, because it multiplies every row of the
vocabulary by the kernels, once, instead of every word of every review; the rest is looking up rows:

    conv(embedding)[i] = sum_j  embedding[word[i + j]] K[j]  =  sum_j  (embedding K[j])[word[i + j]]

Full-batch gradients of 500 reviews of 100 words out of 1,000 take half the time.
"""

import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from posteriax import priors as p
from posteriax import zoo
from posteriax.likelihoods import Categorical
from posteriax.networks import network as with_example
from posteriax.problem import Problem
from posteriax.studies.bnn_posteriors.settings import Target
from posteriax.studies.workbench import Examples, Workbench, average_pixels, last_words
from posteriax.zoo import CNNLSTM, Dense, max_pool

KERNEL, STRIDE = 4, 2
CLASSES = {"cifar100": 100}  # all other images have ten
FIRST_LAYERS = {"MLP": "layers/0/weight", "LeNet": "convolutions/0/weight"}  # that EmpCov is the prior of
LENET_KERNEL = 5


class SmallCNN(eqx.Module):
    """Two convolutions with ReLU and a dense layer, for images of one channel.

    >>> SmallCNN(14, (4, 8), 10, key=jax.random.key(0))(jnp.ones((14, 14))).shape
    (10,)
    """

    first: Dense
    second: Dense
    out: Dense

    def __init__(self, pixels: int, channels: tuple[int, int], classes: int, *, key: Any):
        positions = (pixels - KERNEL) // STRIDE + 1
        if positions < 2 or positions % 2:
            raise ValueError(f"pixels must leave an even number of positions for the first kernel, got {pixels}")
        keys = jax.random.split(key, 3)
        self.first = Dense(KERNEL**2, channels[0], key=keys[0])
        self.second = Dense(4 * channels[0], channels[1], key=keys[1])
        self.out = Dense((positions // 2) ** 2 * channels[1], classes, key=keys[2])

    def __call__(self, image: jax.Array) -> jax.Array:
        units = jax.nn.relu(self.first(patches(image)))
        half = len(units) // 2
        blocks = units.reshape(half, 2, half, 2, -1).transpose(0, 2, 1, 3, 4).reshape(half, half, -1)
        return self.out(jax.nn.relu(self.second(blocks)).reshape(-1))


def patches(image: jax.Array) -> jax.Array:
    """All patches of an image, (positions, positions, pixels of a patch).

    >>> patches(jnp.arange(36.0).reshape(6, 6))[1, 1, :5].tolist()
    [14.0, 15.0, 16.0, 17.0, 20.0]
    """
    last = len(image) - KERNEL + 1
    slices = [image[i : i + last : STRIDE, j : j + last : STRIDE] for i in range(KERNEL) for j in range(KERNEL)]
    return jnp.stack(slices, axis=-1)


class SmallCNNLSTM(CNNLSTM):
    """The same function of the same weights as `px.zoo.CNNLSTM`.

    >>> net = SmallCNNLSTM(1000, 8, 8, 8, 2, key=jax.random.key(0))
    >>> net(jax.numpy.arange(100)).shape, sum(leaf.size for leaf in jax.tree.leaves(net))
    ((2,), 8890)
    """

    # inherited, but type checkers expect a module without its own to take its fields
    def __init__(self, words: int, features: int, channels: int, units: int, classes: int, *, key: Any):
        super().__init__(words, features, channels, units, classes, key=key)

    def __call__(self, tokens: jax.Array) -> jax.Array:
        kernels = self.convolution.weight
        positions = len(tokens) - len(kernels) + 1
        looked_up = [(self.embedding.weight @ kernel)[tokens[j : j + positions]] for j, kernel in enumerate(kernels)]
        words = max_pool(jax.nn.relu(sum(looked_up) + self.convolution.bias), 4)
        return self.out(self.lstm(words)[-1])


OUTSIDE = {"fashion_mnist": "mnist", "cifar10": "cifar100", "fashion_small": "made-up/mnist"}  # by data set


class TargetExamples(NamedTuple):
    """Training and test examples of one seed, as the network takes them, and the test images as they were."""

    train: Examples
    test: Examples
    images: np.ndarray


def load_examples(bench: Workbench, target: Target, seed: int, *, held_out: bool = False) -> TargetExamples:
    """A random subset of the data set, different for each seed.

    Args:
        bench: has the data.
        target: which data, and how many.
        seed: of the random subset.
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
    return TargetExamples((prepare(target, x[rows]), y[rows]), (prepare(target, images), y_test[rows_test]), images)


def load_outside(bench: Workbench, target: Target, seed: int) -> np.ndarray | None:
    """Inputs from another data set, as many as test examples; None if there is none of the same shape."""
    if target.data not in OUTSIDE:
        return None
    x = bench.load(OUTSIDE[target.data]).test[0]
    return prepare(target, x[np.random.default_rng((seed, 4)).permutation(len(x))[: target.test]])


def prepare(target: Target, x: np.ndarray) -> np.ndarray:
    """Images averaged down and scaled, or reviews cut to their last words."""
    if target.words:
        return last_words(x, target.length, target.words)
    centre = np.asarray(target.centres or target.centre, np.float32)
    return ((average_pixels(x, x.shape[1] // target.pixels) - centre) / target.spread).astype(np.float32)


def build_network(target: Target, shape: tuple[int, ...], classes: int, key: jax.Array) -> Any:
    """The network of a target, for inputs of this shape."""
    if target.network == "MLP":
        return zoo.MLP((math.prod(shape), *target.widths, classes), key=key)
    if target.network == "CNN":
        return SmallCNN(shape[0], (target.widths[0], target.widths[1]), classes, key=key)
    if target.network == "ResNet-20":
        return zoo.resnet20(classes=classes, key=key)
    if target.network == "LeNet":
        return zoo.lenet5(shape=shape, channels=target.widths[:2], hidden=target.widths[2], classes=classes, key=key)  # type: ignore[arg-type]
    features, channels, units = target.widths
    kind = {"CNN-LSTM": CNNLSTM, "small CNN-LSTM": SmallCNNLSTM}[target.network]
    return kind(target.words, features, channels, units, classes, key=key)


def build_problem(
    target: Target,
    examples: TargetExamples,
    *,
    temperature: float = 1.0,
    prior: p.Prior | dict[str, p.Prior] | None = None,
) -> Problem:
    """The problem of a target; by default with its Gaussian prior, at T = 1.

    The network's initial weights are the same for all seeds, so that compiled programs can be used again; the members
    of an ensemble, and chains, start at shuffled ones.
    """
    classes = 2 if target.words else CLASSES.get(target.data.removeprefix("made-up/"), 10)
    net = build_network(target, examples.train[0].shape[1:], classes, jax.random.key(0))
    if isinstance(prior, dict):
        net = with_example(net, example=examples.train[0][:1])  # EmpCov must know which axis is the inputs'
    return Problem(net, Categorical(), prior or p.Normal(math.sqrt(target.prior_variance)), temperature)
