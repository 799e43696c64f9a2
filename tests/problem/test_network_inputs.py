"""Functions of the inputs in front of a network, and what is said about images that it cannot take."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import posteriax as px
from posteriax.data import Normalise, channels_first

KEY = jax.random.key(0)
BYTES = np.random.default_rng(0).integers(256, size=(12, 8, 8, 3), dtype=np.uint8)
LABELS = np.arange(12) % 3
WORDS = np.zeros((len(LABELS), 7), np.int32)


def convolution():
    layers = [eqx.nn.Conv2d(3, 4, 3, key=KEY), eqx.nn.Lambda(lambda x: x.mean((1, 2))), eqx.nn.Linear(4, 3, key=KEY)]
    return eqx.nn.Sequential(layers)


def test_the_mean_and_deviation_are_those_of_numpy_for_each_channel():
    found = Normalise.of(BYTES)
    np.testing.assert_allclose(found.mean, BYTES.mean(axis=(0, 1, 2)))
    np.testing.assert_allclose(found.std, BYTES.std(axis=(0, 1, 2)))
    np.testing.assert_allclose(Normalise.of(BYTES[..., 0]).std, BYTES[..., 0].std())
    values = np.asarray(found(BYTES))
    assert values.dtype == np.float32
    np.testing.assert_allclose(values, (BYTES - np.array(found.mean)) / np.array(found.std), rtol=1e-4, atol=1e-6)


def test_large_images_are_measured_in_blocks(monkeypatch):
    whole = Normalise.of(BYTES)
    monkeypatch.setattr("posteriax.data.inputs.BLOCK", 1000)
    np.testing.assert_allclose(Normalise.of(BYTES).std, whole.std)


@pytest.mark.slow
def test_bytes_trained_and_predicted_through_the_network_are_as_if_normalised_before():
    scale = Normalise.of(BYTES)
    before = np.asarray(channels_first(scale(BYTES)))
    inside = px.Problem(px.network(convolution(), inputs=[scale, channels_first]), px.Categorical())
    outside = px.Problem(convolution(), px.Categorical())
    one = px.fit(inside, (BYTES, LABELS), px.MAP(), steps=3, batch_size=5, key=0)
    two = px.fit(outside, (before, LABELS), px.MAP(), steps=3, batch_size=5, key=0)
    np.testing.assert_allclose(one.predict(BYTES).probs, two.predict(before).probs, rtol=1e-5)


def test_batch_statistics_are_measured_behind_the_inputs():
    class Normed(eqx.Module):
        norm: eqx.nn.BatchNorm
        out: eqx.nn.Linear

        def __init__(self):
            self.norm = eqx.nn.BatchNorm(4, axis_name="batch", mode="batch")
            self.out = eqx.nn.Linear(4, 2, key=KEY)

        def __call__(self, x, state):
            x, state = self.norm(x, state)
            return self.out(x), state

    plain = px.network(eqx.nn.make_with_state(Normed)())
    shifted = px.network(plain, inputs=lambda x: 3 * x + 1)
    x = jax.random.normal(KEY, (6, 4))
    apart = zip(
        jax.tree.leaves(shifted.batch_statistics.measure(shifted.params, x)),
        jax.tree.leaves(plain.batch_statistics.measure(plain.params, 3 * x + 1)),
        strict=True,
    )
    for a, b in apart:
        np.testing.assert_allclose(a, b, rtol=1e-5)
    stored = plain.batch_statistics.stored
    np.testing.assert_allclose(
        shifted.batch_statistics.apply(shifted.params, stored, x),
        plain.batch_statistics.apply(plain.params, stored, 3 * x + 1),
        rtol=1e-5,
    )


def scaled(x):
    return (x / 255).astype(np.float32)


def resnet():
    return px.zoo.resnet20(width=2, key=KEY)


@pytest.mark.parametrize(
    ("net", "x", "error"),
    [
        (convolution, scaled(BYTES), r"It takes its channels first: px.network\(net, inputs=px.data.channels_first\)$"),
        (convolution, BYTES, r"It takes floating-point inputs, channels first: px.network\(net, inputs=\[px.data.Norm"),
        (resnet, BYTES, r"It takes floating-point inputs: px.network\(net, inputs=px.data.Normalise\(mean, std\)\)$"),
        (resnet, scaled(BYTES.transpose(0, 3, 1, 2)), r"It takes its channels last: x.transpose\(0, 2, 3, 1\)$"),
        (
            resnet,
            scaled(BYTES[..., 0]),
            r"takes one example of shape \(height, width, 3\), channels last, but got \(8, 8",
        ),
        (lambda: px.zoo.mlp(key=KEY), scaled(BYTES), "a dense layer takes 784 inputs, but got 192$"),
        (
            lambda: px.zoo.lenet5(key=KEY),
            scaled(BYTES[..., 0]),
            r"built for images of shape \(28, 28, 1\), channels last, but got \(8, 8\)$",
        ),
        (lambda: px.zoo.vgg_like(width=2, key=KEY), scaled(BYTES), r"of shape \(32, 32, 3\), .* got \(8, 8, 3\)$"),
        (lambda: px.zoo.vit_tiny(key=KEY), scaled(BYTES), r"of shape \(32, 32, 3\), .* got \(8, 8, 3\)$"),
        (
            lambda: px.zoo.vit_tiny(shape=(8, 8, 3), key=KEY),
            scaled(BYTES.transpose(0, 3, 1, 2)),
            r"It takes its channels last: x.transpose\(0, 2, 3, 1\)$",
        ),
        (lambda: px.zoo.lstm(words=9, units=2, key=KEY), scaled(BYTES[:, 0, :, 0]), "an embedding takes whole numbers"),
        (lambda: px.zoo.lstm(words=9, units=2, key=KEY), WORDS.reshape(-1, 7, 1), r"one sequence of shape \(time, 2\)"),
        (lambda: px.zoo.CNNLSTM(9, 2, 2, 2, 2, key=KEY), WORDS, "sequences of at least 8 words, but got 7$"),
    ],
)
def test_images_that_a_network_cannot_take_are_explained_in_one_line(net, x, error):
    with pytest.raises(ValueError, match=error) as caught:
        px.fit(px.Problem(net(), px.Categorical()), (x, LABELS), px.MAP(), steps=1, key=0)
    assert "\n" not in str(caught.value)


def test_grey_images_need_no_axis_of_channels():
    net = px.zoo.Conv(1, 4, 3, key=KEY)
    image = jnp.ones((8, 8))
    np.testing.assert_array_equal(net(image), net(image[..., None]))


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: Normalise(0.0, 0.0), "std must be positive numbers"),
        (lambda: Normalise(np.nan, 1.0), "mean must be numbers"),
        (lambda: Normalise((1.0, 2.0), 1.0)(BYTES), "Normalise has 2 channels, but x has 3 in its last axis"),
        (lambda: Normalise.of(BYTES[0, 0]), r"x must be images .* got \(8, 3\)"),
        (lambda: channels_first(BYTES[0, 0]), r"channels_first takes images .* got \(8, 3\)"),
        (lambda: px.network(convolution(), inputs=3), "inputs must be a function of a batch of x"),
    ],
)
def test_bad_settings_are_named(make, error):
    with pytest.raises((ValueError, TypeError), match=error):
        make()
