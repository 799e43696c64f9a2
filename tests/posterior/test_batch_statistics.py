import equinox as eqx
import jax
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


X = px.data.two_moons(train=90, test=40)[0][0]


def networks():
    module = Norm()
    return {"linen": (module, module.init(jax.random.key(0), X)), "nnx": NNX(nnx.Rngs(0))}


def by_hand(params, x, batches, names):
    """The network with the statistics of `batches`, averaged."""
    first, norm, last = (params[name] for name in names)
    hidden = [b @ first["kernel"] + first["bias"] for b in batches]
    mean = np.mean([h.mean(axis=0) for h in hidden], axis=0)
    variance = np.mean([h.var(axis=0) for h in hidden], axis=0)
    normed = (x @ first["kernel"] + first["bias"] - mean) / np.sqrt(variance + 1e-5) * norm["scale"] + norm["bias"]
    return np.maximum(normed, 0.0) @ last["kernel"] + last["bias"]


def given_by_draws(framework, count=3):
    """A posterior of a few random weights."""
    problem = px.Problem(networks()[framework], px.Categorical())
    rng = np.random.default_rng(1)
    draws = jax.tree.map(lambda a: rng.normal(size=(1, count, *a.shape)).astype(np.float32), problem.latents)
    return DrawsPosterior(problem, Trace({}), draws)


@pytest.mark.parametrize("framework", ["linen", "nnx"])
@pytest.mark.parametrize("batch_size", [90, 30])
def test_every_draw_normalises_by_statistics_of_its_own(framework, batch_size, moons):
    given, x = given_by_draws(framework), moons[1][0]
    logits = px.with_batch_statistics(given, X, batch_size=batch_size).predict(x).outputs
    batches = X[np.random.default_rng(0).permutation(90)].reshape(-1, batch_size, 2)
    names = ("Dense_0", "BatchNorm_0", "Dense_1") if framework == "linen" else ("hidden", "norm", "out")
    for i in range(3):
        params = jax.tree.map(lambda a, i=i: a[0, i].astype(np.float64), given.draws.network)
        np.testing.assert_allclose(logits[i], by_hand(params, x, batches, names), atol=5e-5)


@pytest.mark.parametrize("framework", ["linen", "nnx"])
def test_predictions_do_not_depend_on_the_company(framework):
    given = given_by_draws(framework)
    measured = px.with_batch_statistics(given, X)
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
    problem = px.Problem(networks()["nnx"], px.Categorical())
    fitted = px.fit(problem, (X, np.arange(90) % 2), px.Ensemble(px.SWAG(), 2), epochs=4, key=0)
    posterior = px.with_batch_statistics(fitted, X)
    jax.tree.map(np.testing.assert_array_equal, posterior.sample(1, 3), fitted.sample(1, 3))
    assert posterior.predict(moons[1][0], draws=4, reduce=True).probs.shape == (40, 2)
    again = px.with_batch_statistics(posterior, X)
    np.testing.assert_array_equal(again.predict(X, draws=4).probs, posterior.predict(X, draws=4).probs)


def test_what_cannot_be_had_is_said(moons, tmp_path):
    plain = px.Problem(eqx.nn.MLP(2, 2, 4, 1, key=jax.random.key(0)), px.Categorical())
    fitted = px.fit(plain, moons[0], px.MAP(), steps=1, key=0)
    with pytest.raises(TypeError, match="must have BatchNorm layers of Flax, Equinox"):
        px.with_batch_statistics(fitted, X)
    normed = px.with_batch_statistics(given_by_draws("nnx"), X)
    with pytest.raises(TypeError, match="save the one it was made from"):
        normed.save(tmp_path / "run.posterior")
