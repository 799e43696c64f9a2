import os
import re
from pathlib import Path

os.environ.setdefault("KERAS_BACKEND", "jax")

import equinox as eqx
import haiku as hk
import jax
import keras
import numpy as np
import pytest
from flax import linen as nn
from flax import nnx

import posteriax as px
from posteriax.posterior import DrawsPosterior
from posteriax.posterior.trace import Trace


class Linen(nn.Module):
    @nn.compact
    def __call__(self, x, train=True):
        hidden = nn.BatchNorm(use_running_average=not train, momentum=0.9, use_fast_variance=False)(nn.Dense(6)(x))
        return nn.Dense(2)(nn.Dropout(0.5, deterministic=not train)(nn.relu(hidden)))


class Norm(nn.Module):
    """No dropout: its training pass needs no key."""

    @nn.compact
    def __call__(self, x, train=True):
        hidden = nn.BatchNorm(use_running_average=not train, momentum=0.9, use_fast_variance=False)(nn.Dense(6)(x))
        return nn.Dense(2)(nn.relu(hidden))


class NNX(nnx.Module):
    def __init__(self, rngs):
        self.hidden, self.out = nnx.Linear(2, 6, rngs=rngs), nnx.Linear(6, 2, rngs=rngs)
        self.norm = nnx.BatchNorm(6, momentum=0.9, use_fast_variance=False, rngs=rngs)

    def __call__(self, x):
        return self.out(nnx.relu(self.norm(self.hidden(x))))


class Equinox(eqx.Module):
    hidden: eqx.nn.Linear
    norm: eqx.nn.BatchNorm
    out: eqx.nn.Linear

    def __init__(self, key):
        one, two = jax.random.split(key)
        self.hidden, self.out = eqx.nn.Linear(2, 6, key=one), eqx.nn.Linear(6, 2, key=two)
        self.norm = eqx.nn.BatchNorm(6, axis_name="batch", mode="batch")

    def __call__(self, x, state):
        x, state = self.norm(self.hidden(x), state)
        return self.out(jax.nn.relu(x)), state


def haiku_norm(x, is_training=True):
    hidden = hk.BatchNorm(True, True, 0.9, name="norm")(hk.Linear(6, name="first")(x), is_training)
    return hk.Linear(2, name="last")(jax.nn.relu(hidden))


X = px.data.two_moons(train=90, test=40)[0][0]
LEAVES = {"linen": ("Dense_0", "BatchNorm_0", "Dense_1"), "nnx": ("hidden", "norm", "out")}
FRAMEWORKS = ["linen", "nnx", "equinox", "haiku", "keras"]
HOW = {
    "linen": 'px.network(net, call={"train": False})',
    "nnx": "module.eval()",
    "equinox": "eqx.nn.inference_mode(module)",
    "haiku": 'px.network(net, call={"is_training": False})',
    "keras": 'px.network(model) without call={"training": True}',
}


def network_of(framework):
    """The same network of each library, which normalises by the batch."""
    if framework == "linen":
        return Norm(), Norm().init(jax.random.key(0), X)
    if framework == "nnx":
        return NNX(nnx.Rngs(0))
    if framework == "equinox":
        return eqx.nn.make_with_state(Equinox)(jax.random.key(0))
    if framework == "haiku":
        transformed = hk.transform_with_state(haiku_norm)
        return transformed, *transformed.init(jax.random.key(0), X)
    return px.network(keras_model(), call={"training": True})


def keras_model():
    layers = keras.layers
    norm = layers.BatchNormalization(epsilon=1e-5, name="norm")
    return keras.Sequential(
        [keras.Input((2,)), layers.Dense(6, name="first"), norm, layers.ReLU(), layers.Dense(2, name="last")]
    )


def by_stored_statistics(framework):
    """The same networks, switched as docs/networks.md says."""
    if framework == "keras":
        return px.network(keras_model())
    net = network_of(framework)
    if framework == "linen":
        return px.network(net, call={"train": False})
    if framework == "haiku":
        return px.network(net, call={"is_training": False})
    if framework == "equinox":
        return eqx.nn.inference_mode(net[0]), net[1]
    net.eval()
    return net


def named(params, framework):
    """Float64 params by Flax's names: first layer, normalisation, last layer."""
    if framework == "equinox":
        layers = [{"kernel": layer.weight.T, "bias": layer.bias} for layer in (params.hidden, params.out)]
        layers.insert(1, {"scale": params.norm.weight, "bias": params.norm.bias})
    elif framework == "haiku":
        layers = [{"kernel": params[name]["w"], "bias": params[name]["b"]} for name in ("first", "last")]
        layers.insert(1, {"scale": params["norm"]["scale"], "bias": params["norm"]["offset"]})
    elif framework == "keras":
        layers = [{"kernel": params[f"{name}/kernel"], "bias": params[f"{name}/bias"]} for name in ("first", "last")]
        layers.insert(1, {"scale": params["norm/gamma"], "bias": params["norm/beta"]})
    else:
        layers = [params[name] for name in LEAVES[framework]]
    layers = jax.tree.map(lambda a: np.asarray(a, np.float64), layers)
    return dict(zip(("first", "norm", "last"), layers, strict=True))


def by_hand(params, x, batches, names):
    """The network with the statistics of `batches`, averaged."""
    first, norm, last = (params[name] for name in names)
    hidden = [b @ first["kernel"] + first["bias"] for b in batches]
    mean = np.mean([h.mean(axis=0) for h in hidden], axis=0)
    variance = np.mean([h.var(axis=0) for h in hidden], axis=0)
    normed = (x @ first["kernel"] + first["bias"] - mean) / np.sqrt(variance + 1e-5) * norm["scale"] + norm["bias"]
    return np.maximum(normed, 0.0) @ last["kernel"] + last["bias"]


def given_by_draws(framework, count=3, net=None):
    """A posterior of a few random weights."""
    problem, _ = px.Problem(network_of(framework) if net is None else net, px.Categorical()).reading(X[:2])
    rng = np.random.default_rng(1)
    draws = jax.tree.map(lambda a: rng.normal(size=(1, count, *a.shape)).astype(np.float32), problem.latents)
    return DrawsPosterior(problem, Trace({}), draws)


@pytest.mark.slow
@pytest.mark.parametrize("framework", ["linen", "nnx"])
@pytest.mark.parametrize("batch_size", [90, 30])
def test_every_draw_normalises_by_statistics_of_its_own(framework, batch_size, moons):
    given, x = given_by_draws(framework), moons[1][0]
    logits = px.posterior.with_batch_statistics(given, X, batch_size=batch_size).predict(x).outputs
    batches = X[np.random.default_rng(0).permutation(90)].reshape(-1, batch_size, 2)
    names = ("Dense_0", "BatchNorm_0", "Dense_1") if framework == "linen" else ("hidden", "norm", "out")
    for i in range(3):
        params = jax.tree.map(lambda a, i=i: a[0, i].astype(np.float64), given.draws.network)
        np.testing.assert_allclose(logits[i], by_hand(params, x, batches, names), atol=5e-5)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_its_network_has_the_statistics_measured_at_the_mean_weights(framework, moons):
    """atol: the largest of some float32 outputs of size 10 is off by a few units of 1e-6, as above."""
    given, x = given_by_draws(framework), moons[1][0]
    net = px.posterior.with_batch_statistics(given, X, batch_size=30).network
    batches = X[np.random.default_rng(0).permutation(90)].reshape(-1, 30, 2)
    expected = by_hand(named(given.mean, framework), x, batches, ("first", "norm", "last"))
    np.testing.assert_allclose(net.apply(net.params, x), expected, atol=5e-5)
    last = {"linen": "Dense_1", "nnx": "out", "equinox": "out"}.get(framework, "last")
    head = px.Problem(net, px.Categorical(), fixed=f"!{last}")
    np.testing.assert_allclose(head.outputs(head.network.params, x), expected, atol=5e-5)
    assert not head.couples_examples(X)


@pytest.mark.slow
def test_a_posterior_of_the_last_layer_keeps_the_measured_statistics_in_its_file(tmp_path):
    y = np.arange(90) % 2
    net = px.posterior.with_batch_statistics(given_by_draws("nnx"), X).network
    head = px.Problem(net, px.Categorical(), fixed="!out")
    hmc = px.HMC(warmup=2, step_size=0.01, trajectory=0.03, start="network")
    posterior = px.fit(head, (X, y), hmc, draws=4, chains=2, key=0)
    posterior.save(tmp_path / "head.posterior")
    again = px.load(tmp_path / "head.posterior", by_stored_statistics("nnx"))  # with its own weights and statistics
    np.testing.assert_array_equal(again.predict(X).outputs, posterior.predict(X).outputs)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_file_is_for_a_network_in_the_same_mode(framework, tmp_path, recwarn):
    by_batch, stored = network_of(framework), by_stored_statistics(framework)
    for saved, other, words in (
        (by_batch, stored, "uses stored statistics here, but used those of the batch"),
        (stored, by_batch, "uses the statistics of the batch here, but used stored ones"),
    ):
        posterior = given_by_draws(framework, net=saved)
        posterior.save(tmp_path / "run.posterior")
        outputs = px.load(tmp_path / "run.posterior", saved).predict(X).outputs
        np.testing.assert_array_equal(outputs, posterior.predict(X).outputs)
        with pytest.raises(ValueError, match=words) as error:
            px.load(tmp_path / "run.posterior", other)
        assert HOW[framework] in str(error.value)
    assert not recwarn.list


def test_a_file_that_does_not_say_how_it_was_normalised_is_loaded_with_a_warning(tmp_path):
    problem = px.Problem(network_of("nnx"), px.Categorical())  # has read no inputs, like those of older files
    draws = jax.tree.map(lambda a: np.asarray(a)[None, None], problem.latents)
    DrawsPosterior(problem, Trace({}), draws).save(tmp_path / "run.posterior")
    with pytest.warns(UserWarning, match=r"does not say whether .* module.eval\(\)"):
        px.load(tmp_path / "run.posterior", network_of("nnx"))


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_refusal_says_how_to_use_stored_statistics(framework):
    problem = px.Problem(network_of(framework), px.Categorical())
    with pytest.raises(ValueError, match=r"px.posterior.with_batch_statistics\(posterior, x\).network") as error:
        px.fit(problem, (X, np.arange(90) % 2), px.HMC(), draws=1, key=0)
    assert HOW[framework] in str(error.value)
    assert not px.Problem(by_stored_statistics(framework), px.Categorical()).couples_examples(X)


@pytest.mark.parametrize("framework", ["linen", "nnx"])
def test_predictions_do_not_depend_on_the_company(framework):
    given = given_by_draws(framework)
    measured = px.posterior.with_batch_statistics(given, X)
    gaps = [np.abs(post.predict(X).probs[:5] - post.predict(X[:5]).probs).max() for post in (given, measured)]
    assert gaps[0] > 1e-2
    assert gaps[1] < 1e-5


def test_dropout_is_off_while_statistics_are_measured_and_used():
    module = Linen()
    variables = module.init({"params": jax.random.key(0), "dropout": jax.random.key(1)}, X)
    known = px.network((module, variables)).batch_statistics
    measured = known.measure(variables["params"], X)
    outputs = known.apply(variables["params"], measured, X)
    expected = by_hand(jax.tree.map(np.asarray, variables["params"]), X, [X], ("Dense_0", "BatchNorm_0", "Dense_1"))
    np.testing.assert_allclose(outputs, expected, atol=2e-5)


@pytest.mark.slow
def test_weights_are_unchanged_and_members_of_an_ensemble_work(moons):
    problem = px.Problem(network_of("nnx"), px.Categorical())
    fitted = px.fit(problem, (X, np.arange(90) % 2), px.Ensemble(px.SWAG(), 2), epochs=4, key=0)
    posterior = px.posterior.with_batch_statistics(fitted, X)
    jax.tree.map(np.testing.assert_array_equal, posterior.sample(1, 3), fitted.sample(1, 3))
    assert posterior.predict(moons[1][0], draws=4, reduce=True).probs.shape == (40, 2)
    again = px.posterior.with_batch_statistics(posterior, X)
    np.testing.assert_array_equal(again.predict(X, draws=4).probs, posterior.predict(X, draws=4).probs)


@pytest.mark.slow
def test_the_example_of_the_page_on_networks_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parents[2] / "docs" / "networks.md").read_text()
    code = re.search(r"## Batch normalisation.*?```python\n(.*?)```", page, re.DOTALL).group(1)
    space = {}
    exec(compile(code, "networks.md", "exec"), space)
    predicted, again = (space[name].predict(space["x_test"]) for name in ("posterior", "again"))
    np.testing.assert_array_equal(again.outputs, predicted.outputs)
    assert px.evaluate(predicted, space["y_test"])["accuracy"] > 0.9


def test_what_cannot_be_had_is_said(moons, tmp_path):
    plain = px.Problem(eqx.nn.MLP(2, 2, 4, 1, key=jax.random.key(0)), px.Categorical())
    fitted = px.fit(plain, moons[0], px.MAP(), steps=1, key=0)
    with pytest.raises(TypeError, match="must have BatchNorm layers of Flax, Equinox"):
        px.posterior.with_batch_statistics(fitted, X)
    normed = px.posterior.with_batch_statistics(given_by_draws("nnx"), X)
    with pytest.raises(TypeError, match="save the one it was made from"):
        normed.save(tmp_path / "run.posterior")
