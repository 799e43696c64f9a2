"""Architectures have the papers' sizes, train with every method, and can fit what they are given."""

import equinox as eqx
import jax
import numpy as np
import optax
import pytest

import posteriax as px
from posteriax import families as q
from posteriax import zoo
from posteriax.families.blocks import parameter_shapes
from posteriax.methods import Task

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


def transformer(features, depth, pixels, patches):
    """A vision transformer but for its last layer."""
    block = 4 * features + (features + 1) * 3 * features + (features + 1) * features
    block += (features + 1) * 4 * features + (4 * features + 1) * features
    return (pixels + 1) * features + features + (patches + 1) * features + depth * block + 2 * features


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
    "ViT-Ti/16": (lambda: zoo.vit(shape=(224, 224, 3), patch=16, classes=1000, key=KEY), 5_717_416),
    "ViT-tiny": (lambda: zoo.vit_tiny(key=KEY), transformer(64, 6, 4 * 4 * 3, 64) + 65 * 10),
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


# The parameters of q in the papers' experiments, by the families that each leaf has there.
TIED = {
    "mlp": (lambda: zoo.mlp(key=KEY), (28, 28), "float32", {"**": q.Normal()}, lambda k: {"**": q.KTied(k)}),
    "LeNet": (
        lambda: zoo.lenet(key=KEY),
        (32, 32, 3),
        "float32",
        {"**": q.Normal()},
        lambda k: {"convolutions/**": q.Normal(), "**": q.KTied(k)},  # only the dense layers are tied
    ),
    "LSTM": (
        lambda: zoo.lstm(key=KEY),
        (80,),
        "int32",
        {"**": q.Point(), "lstm/weight": q.Normal(), "lstm/recurrent": q.Normal()},
        lambda k: {"**": q.Point(), "lstm/weight": q.KTied(k), "lstm/recurrent": q.KTied(k)},
    ),
}
# Swiatkowski et al. (2020), Figure 6, in thousands: mean-field, then k = 1, 2 and 3; and exactly
IN_THOUSANDS = {"mlp": (957, 482, 484, 486), "LeNet": (4405, 2262, 2268, 2273), "LSTM": (2823, 2693, 2694, 2695)}
EXACTLY = {
    "mlp": (956_820, 481_614, 484_008, 486_402),
    "LeNet": (4_405_320, 2_262_188, 2_267_408, 2_272_628),
    "LSTM": (2_822_785, 2_692_993, 2_694_273, 2_695_553),
}


def variational_parameters(net, example, families):
    """How many numbers px.VI trains, counted without training."""
    likelihood = px.Bernoulli() if isinstance(net, zoo.LSTMClassifier) else px.Categorical()
    problem, _ = px.Problem(net, likelihood).reading(np.zeros((2, *example.shape), example.dtype))
    task = Task(problem=problem, example=example, num_examples=2, steps=1)
    kernel = px.VI(families, estimator="weight").bind(task)
    return sum(leaf.size for leaf in jax.tree.leaves(parameter_shapes(kernel.blocks, problem)))


@pytest.mark.parametrize("name", TIED)
def test_tied_posteriors_have_as_many_parameters_as_in_the_paper(name):
    build, shape, dtype, mean_field, tied = TIED[name]
    net, example = build(), jax.ShapeDtypeStruct(shape, dtype)
    counts = tuple(variational_parameters(net, example, families) for families in (mean_field, *map(tied, (1, 2, 3))))
    assert counts == EXACTLY[name]
    # the paper rounds up or down
    assert all(abs(count / 1000 - said) < 1 for count, said in zip(counts, IN_THOUSANDS[name], strict=True))


@pytest.mark.slow
def test_kernels_alone_can_be_random():
    """As in the ResNet-18 of Swiatkowski et al.; its batch normalisation has leaves called weight, too."""
    net, state = zoo.resnet18(width=4, key=KEY)
    families = {"**": q.Point(), "**/weight": q.Normal(), "**/norm/weight": q.Point()}
    kernels = 9 * 3 * 4 + 32 * 10 + sum(9 * n * m + 9 * m * m + n * m for n, m in [(4, 4), (4, 8), (8, 16), (16, 32)])
    total = sum(leaf.size for leaf in jax.tree.leaves(eqx.filter(net, eqx.is_inexact_array)))
    count = variational_parameters((net, state), jax.ShapeDtypeStruct((8, 8, 3), "float32"), families)
    assert count == total + kernels


def images(shape, n=64):
    rng = np.random.default_rng(0)
    return rng.normal(size=(n, *shape)).astype(np.float32), rng.integers(4, size=n)


def tokens(length, n=64):
    rng = np.random.default_rng(0)
    return rng.integers(50, size=(n, length)), rng.integers(2, size=n)


def table(n=64):
    rng = np.random.default_rng(0)
    return rng.normal(size=(n, 8)).astype(np.float32), rng.normal(size=n).astype(np.float32)


def records(n=64):
    rng = np.random.default_rng(0)
    values, observed = rng.normal(size=(n, 6, 3)), rng.random((n, 6, 3)) < 0.7
    x = {"values": values, "observed": observed, "static": rng.normal(size=(n, 2))}
    return {name: array.astype(np.float32) for name, array in x.items()}, rng.integers(2, size=n)


# narrow and shallow, so that they compile fast
SMALL = {
    "mlp": (lambda: zoo.mlp(inputs=36, hidden=(32, 32), classes=4, key=KEY), lambda: images((6, 6))),
    "uci": (lambda: zoo.uci_mlp(inputs=8, key=KEY), table),
    "LeNet-5": (lambda: zoo.lenet5(shape=(16, 16, 1), classes=4, key=KEY), lambda: images((16, 16))),
    "LeNet": (lambda: zoo.lenet(shape=(8, 8, 3), classes=4, key=KEY), lambda: images((8, 8, 3))),
    "LSTM": (lambda: zoo.lstm(words=50, units=16, key=KEY), lambda: tokens(6)),
    "CNN-LSTM": (lambda: zoo.CNNLSTM(50, 16, 8, 16, 2, key=KEY), lambda: tokens(12)),
    "mortality": (lambda: zoo.mortality_lstm(variables=3, static=2, units=32, key=KEY), records),
    "ResNet-8-FRN": (lambda: zoo.ResNetFRN(1, 8, 3, 4, key=KEY), lambda: images((8, 8, 3))),
    "WRN-10-1": (lambda: zoo.wide_resnet(depth=10, widen=1, classes=4, key=KEY), lambda: images((8, 8, 3))),
    "PreResNet-8": (lambda: zoo.preresnet(8, classes=4, key=KEY), lambda: images((8, 8, 3))),
    "ResNet-18": (lambda: zoo.resnet18(width=8, classes=4, key=KEY), lambda: images((8, 8, 3))),
    "ResNet-14": (
        lambda: zoo.resnet50(width=8, blocks=(1, 1, 1, 1), classes=4, key=KEY),
        lambda: images((16, 16, 3)),
    ),
    "VGG": (lambda: zoo.vgg_like(width=8, classes=4, key=KEY), lambda: images((32, 32, 3))),
    "ViT": (
        lambda: zoo.vit(shape=(8, 8, 3), features=16, depth=3, heads=2, classes=4, key=KEY),
        lambda: images((8, 8, 3)),
    ),
}
# the networks of the papers, where a step takes seconds
FULL = {
    "ResNet-20-FRN": (lambda: zoo.resnet20(classes=4, key=KEY), lambda: images((16, 16, 3))),
    "PreResNet-20": (lambda: zoo.preresnet(20, classes=4, key=KEY), lambda: images((16, 16, 3))),
    "ResNet-18 at full width": (lambda: zoo.resnet18(classes=4, key=KEY), lambda: images((8, 8, 3))),
    "ViT-tiny": (lambda: zoo.vit_tiny(shape=(16, 16, 3), classes=4, key=KEY), lambda: images((16, 16, 3))),
}
NETWORKS = SMALL | FULL
METHODS = {
    "MAP": (px.MAP(), {"steps": 1}),
    "mean-field": (px.VI(q.Normal()), {"steps": 1}),
    "k-tied": (px.VI(q.KTied(2)), {"steps": 1}),
    "rank-1": (px.VI(q.Rank1(components=2)), {"steps": 1}),
    "SWAG": (px.SWAG(), {"epochs": 4}),
}
LIKELIHOODS = {"LSTM": px.Bernoulli(), "mortality": px.Bernoulli(), "uci": px.Normal(scale="predicted")}


def problem_of(name):
    build, data = NETWORKS[name]
    return px.Problem(build(), LIKELIHOODS.get(name, px.Categorical())), data()


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", NETWORKS)
def test_every_method_takes_a_step(name, method):
    problem, data = problem_of(name)
    settings, length = METHODS[method]
    posterior = px.fit(problem, data, settings, key=0, batch_size=16, **length)
    before, after = jax.tree.leaves(problem.network.params), jax.tree.leaves(posterior.sample(KEY, 1))
    assert all(np.isfinite(leaf).all() for leaf in after)
    assert all((old != new[0]).any() for old, new in zip(before, after, strict=True))
    few = jax.tree.map(lambda a: a[:4], data[0])
    assert np.isfinite(posterior.predict(few, draws=2).log_prob(data[1][:4])).all()


RATES = {"mortality": 1e-2}
STEPS = {"LeNet-5": 100}  # a step of which takes 10 ms; the others need 400


@pytest.mark.parametrize(
    "name", [name if name == "uci" else pytest.param(name, marks=pytest.mark.slow) for name in NETWORKS]
)
def test_64_examples_with_random_targets_can_be_learned(name):
    problem, data = problem_of(name)
    method, steps = px.MAP(optax.adam(RATES.get(name, 3e-3))), STEPS.get(name, 400)
    posterior = px.fit(problem, data, method, steps=steps, batch_size=64, key=0)
    scores = px.evaluate(posterior.predict(data[0]), data[1])
    if name == "uci":
        assert scores["nll"] < 0  # the best constant takes log(2 pi e) / 2 = 1.42
    else:
        assert scores["accuracy"] == 1.0
        assert scores["nll"] < 0.1  # guessing takes log 2 or log 4
