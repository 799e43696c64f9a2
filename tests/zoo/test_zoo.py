"""Architectures have the papers' sizes, train with every method, and can fit what they are given."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import posteriax as px
from posteriax import families as q
from posteriax import zoo

KEY = jax.random.key(0)


def conv(size, n, m, bias=False):
    return size * size * n * m + (m if bias else 0)


def basic_blocks(widths, per_stage, first):
    """Convolutions and normalisations of pre-activation blocks of two convolutions, with shortcuts of 1 x 1."""
    total, n = 0, first
    for stage, m in enumerate(widths):
        for i in range(per_stage):
            total += 2 * n + conv(3, n, m) + 2 * m + conv(3, m, m)
            total += conv(1, n, m) if n != m or (stage and not i) else 0
            n = m
    return total


VGG_PAIRS = [(3, 64), (64, 64), (64, 128), (128, 128), (128, 256), (256, 256), (256, 256), (256, 512)] + [
    (512, 512)
] * 5
RESNET18_PAIRS = [(64, 64), (64, 128), (128, 256), (256, 512)]
COUNTS = {
    "mlp": (lambda: zoo.mlp(key=KEY), 785 * 400 + 401 * 400 + 401 * 10),
    "uci": (lambda: zoo.uci_mlp(inputs=8, key=KEY), 9 * 50 + 51 * 2),
    "LeNet-5": (lambda: zoo.lenet5(key=KEY), 26 * 20 + (25 * 20 + 1) * 50 + 801 * 500 + 501 * 10),
    "LeNet": (lambda: zoo.lenet(key=KEY), 76 * 32 + (25 * 32 + 1) * 64 + 4097 * 512 + 513 * 100),
    "LSTM": (lambda: zoo.lstm(key=KEY), 20_000 * 128 + (128 + 128 + 1) * 4 * 128 + 129),
    "CNN-LSTM": (lambda: zoo.cnn_lstm(key=KEY), 20_000 * 128 + (5 * 128 + 1) * 64 + (64 + 129) * 512 + 129 * 2),
    "mortality": (lambda: zoo.mortality_lstm(key=KEY), (74 + 64 + 1) * 4 * 64 + 64 + 4 + 1),
    "ResNet-20": (lambda: zoo.resnet20(key=KEY), 274_042),
    "WRN-28-10": (
        lambda: zoo.wide_resnet(key=KEY),
        conv(3, 3, 16) + basic_blocks((160, 320, 640), 4, 16) + 2 * 640 + 641 * 10,
    ),
    "PreResNet-20": (
        lambda: zoo.preresnet(20, key=KEY),
        conv(3, 3, 16) + basic_blocks((16, 32, 64), 3, 16) + 2 * 64 + 65 * 100,
    ),
    "PreResNet-164": (lambda: zoo.preresnet(164, classes=10, key=KEY), 1_703_258),
    "ResNet-18": (
        lambda: zoo.resnet18(key=KEY),
        conv(3, 3, 64, True)
        + sum(
            2 * n + conv(3, n, m, True) + 2 * m + conv(3, m, m, True) + conv(1, n, m, True) for n, m in RESNET18_PAIRS
        )
        + 2 * 512
        + 513 * 10,
    ),
    "ResNet-50": (lambda: zoo.resnet50(key=KEY), 25_557_032),
    "VGG": (
        lambda: zoo.vgg_like(key=KEY),
        sum(conv(3, n, m, True) + 2 * m for n, m in VGG_PAIRS) + 513 * 512 + 2 * 512 + 513 * 10,
    ),
}


@pytest.mark.parametrize("name", COUNTS)
def test_parameters_are_counted_as_in_the_papers(name):
    build, expected = COUNTS[name]

    def params():
        net = build()
        return eqx.filter(net[0] if isinstance(net, tuple) else net, eqx.is_inexact_array)

    assert sum(leaf.size for leaf in jax.tree.leaves(jax.eval_shape(params))) == expected


def images(shape, n=64):
    rng = np.random.default_rng(0)
    return rng.normal(size=(n, *shape)).astype(np.float32), rng.integers(4, size=n)


def tokens(length, n=64):
    rng = np.random.default_rng(0)
    return rng.integers(50, size=(n, length)), rng.integers(2, size=n)


def records(n=64):
    rng = np.random.default_rng(0)
    values, observed = rng.normal(size=(n, 6, 3)), rng.random((n, 6, 3)) < 0.7
    x = {"values": values, "observed": observed, "static": rng.normal(size=(n, 2))}
    return {name: array.astype(np.float32) for name, array in x.items()}, rng.integers(2, size=n)


SMALL = {
    "mlp": (lambda: zoo.mlp(inputs=36, hidden=(32, 32), classes=4, key=KEY), lambda: images((6, 6))),
    "LeNet-5": (lambda: zoo.lenet5(shape=(16, 16, 1), classes=4, key=KEY), lambda: images((16, 16))),
    "LeNet": (lambda: zoo.lenet(shape=(8, 8, 3), classes=4, key=KEY), lambda: images((8, 8, 3))),
    "LSTM": (lambda: zoo.lstm(words=50, units=16, key=KEY), lambda: tokens(6)),
    "CNN-LSTM": (lambda: zoo.cnn_lstm(words=50, key=KEY), lambda: tokens(12)),
    "mortality": (lambda: zoo.mortality_lstm(variables=3, static=2, units=16, key=KEY), records),
    "ResNet-20": (lambda: zoo.resnet20(width=8, classes=4, key=KEY), lambda: images((8, 8, 3))),
    "WRN-10-1": (lambda: zoo.wide_resnet(depth=10, widen=1, classes=4, key=KEY), lambda: images((8, 8, 3))),
    "PreResNet-8": (lambda: zoo.preresnet(8, classes=4, key=KEY), lambda: images((8, 8, 3))),
    "ResNet-18": (lambda: zoo.resnet18(classes=4, key=KEY), lambda: images((8, 8, 3))),
    "ResNet-50": (lambda: zoo.resnet50(classes=4, key=KEY), lambda: images((32, 32, 3))),
    "VGG": (lambda: zoo.vgg_like(classes=4, key=KEY), lambda: images((32, 32, 3))),
}
QUICK = ("mlp", "LeNet-5", "LSTM", "mortality")
METHODS = {
    "MAP": (px.MAP(), {"steps": 1}),
    "mean-field": (px.VI(q.Normal()), {"steps": 1}),
    "k-tied": (px.VI(q.KTied(2)), {"steps": 1}),
    "rank-1": (px.VI(q.Rank1(components=2)), {"steps": 1}),
    "SWAG": (px.SWAG(), {"epochs": 4}),
}


def problem_of(name):
    net, data = SMALL[name][0](), SMALL[name][1]()
    single = name in ("LSTM", "mortality")
    return px.Problem(net, px.Bernoulli() if single else px.Categorical()), data


def cases():
    for name in SMALL:
        for method in METHODS:
            quick = name in QUICK and method in ("MAP", "mean-field")
            yield pytest.param(name, method, marks=() if quick else pytest.mark.slow)


@pytest.mark.parametrize(("name", "method"), list(cases()))
def test_every_method_takes_a_step(name, method):
    problem, data = problem_of(name)
    settings, length = METHODS[method]
    posterior = px.fit(problem, data, settings, key=0, batch_size=16, **length)
    few = jax.tree.map(lambda a: a[:4], data[0])
    probs = posterior.predict(few, draws=2).probs
    assert probs.shape[0] == 4
    np.testing.assert_allclose(probs.sum(axis=-1), 1.0, atol=1e-5)


@pytest.mark.parametrize(
    "name",
    [name if name in ("mlp", "LeNet-5", "LSTM") else pytest.param(name, marks=pytest.mark.slow) for name in SMALL],
)
def test_random_labels_of_64_examples_can_be_learned(name):
    problem, data = problem_of(name)
    posterior = px.fit(problem, data, px.MAP(optax.adam(3e-3)), steps=400, batch_size=64, key=0)
    assert px.evaluate(posterior.predict(data[0]), data[1])["accuracy"] > 0.95


def test_the_recurrence_is_that_of_equinox():
    ours, theirs = zoo.LSTM(3, 5, key=KEY), eqx.nn.LSTMCell(3, 5, key=KEY)
    theirs = eqx.tree_at(
        lambda cell: (cell.weight_ih, cell.weight_hh, cell.bias), theirs, (ours.weight.T, ours.recurrent.T, ours.bias)
    )
    sequence = jax.random.normal(KEY, (7, 3))
    state = (jnp.zeros(5), jnp.zeros(5))
    for element in sequence:
        state = theirs(element, state)
    np.testing.assert_allclose(ours(sequence)[-1], state[0], atol=1e-6)


def test_pooling_is_that_of_a_window():
    x = jax.random.normal(KEY, (7, 6, 3))
    window = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (2, 2, 1), (2, 2, 1), "VALID")
    np.testing.assert_array_equal(zoo.max_pool(x), window)
    mean = jax.lax.reduce_window(x, 0.0, jax.lax.add, (3, 3, 1), (3, 3, 1), "VALID") / 9
    np.testing.assert_allclose(zoo.average_pool(x, 3), mean, atol=1e-6)
