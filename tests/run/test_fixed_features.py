"""Runs with fixed leaves: the known posterior of a last layer, every method, files, and what is computed once."""

import re
from collections import deque
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import posteriax as px
from posteriax import families as q
from posteriax import priors as p
from posteriax.diagnostics import ess_mean
from posteriax.posterior import prediction
from posteriax.run import fixed_features

NOISE, SCALE = 0.4, 1.3
RNG = np.random.default_rng(3)
ENCODER = RNG.normal(size=(2, 3)).astype(np.float32)
X = RNG.normal(size=(40, 2)).astype(np.float32)
Y = (np.sin(2 * X[:, :1]) + NOISE * RNG.normal(size=(40, 1))).astype(np.float32)
ONCE = "the outputs of the fixed part, 3 numbers per example, were computed once"


def encode_and_combine(params, x):
    return jnp.tanh(x @ params["encoder"]) @ params["head"]


def regression(**more):
    net = encode_and_combine, {"encoder": ENCODER, "head": np.zeros((3, 1), np.float32)}
    return px.Problem(net, px.Normal(scale=NOISE), p.Normal(SCALE), fixed="encoder", **more)


def exact():
    """Mean and covariance of Bayesian linear regression on the features."""
    features = np.tanh(X.astype(np.float64) @ ENCODER)
    covariance = np.linalg.inv(features.T @ features / NOISE**2 + np.eye(3) / SCALE**2)
    return covariance @ features.T @ Y[:, 0] / NOISE**2, covariance


@pytest.mark.slow
def test_hmc_of_a_last_layer_has_the_posterior_of_linear_regression():
    posterior = px.fit(regression(), (X, Y), px.HMC(), draws=500, chains=4, key=0)
    mean, covariance = exact()
    draws = np.asarray(posterior.draws.network["head"])[..., 0]
    error = np.sqrt(np.diag(covariance) / ess_mean(draws))
    assert (np.abs(draws.mean(axis=(0, 1)) - mean) < 4 * error).all()
    squares = (draws - mean) ** 2
    spread = np.sqrt(squares.reshape(-1, 3).var(axis=0) / ess_mean(squares))
    assert (np.abs(squares.mean(axis=(0, 1)) - np.diag(covariance)) < 4 * spread).all()
    assert ONCE in posterior.trace.notes
    assert [row.name for row in posterior.diagnose(X).leaves] == ["head"]


@pytest.mark.slow
def test_full_covariance_and_map_find_the_same_posterior():
    mean, covariance = exact()
    vi = px.fit(regression(), (X, Y), px.VI(q.FullCovariance()), steps=200, batch_size=40, key=0)
    draws = np.asarray(vi.sample(0, 20_000)["head"])[..., 0]
    np.testing.assert_allclose(draws.mean(axis=0), mean, atol=5 * np.sqrt(np.diag(covariance).max() / 20_000))
    np.testing.assert_allclose(np.cov(draws.T), covariance, atol=0.05 * np.diag(covariance).max())
    adam = px.MAP(optax.adam(optax.cosine_decay_schedule(0.05, 2000)))
    mode = px.fit(regression(), (X, Y), adam, steps=2000, batch_size=40, key=0)
    np.testing.assert_allclose(mode.mean["head"][:, 0], mean, atol=1e-3)
    np.testing.assert_array_equal(mode.mean["encoder"], ENCODER)


NET = eqx.nn.MLP(2, 2, 6, 1, key=jax.random.key(0))
MIXED = {"layers/1/weight": q.Rank1(2), "layers/1/bias": q.Rank1(2)}
METHODS = {"VI, flipout": (px.VI(q.KTied(1), estimator="flipout"), {"steps": 5})}
SLOW_METHODS = {
    "SWAG": (px.SWAG(rank=2), {"epochs": 4}),
    "VI, rank-1": (px.Ensemble(px.VI(MIXED), 2), {"steps": 5}),
    "Ensemble": (px.Ensemble(px.MAP(), 2, starts=lambda key: px.network(NET).params), {"steps": 5}),
    "SGHMC": (px.SGHMC(1e-4, warmup_epochs=1), {"draws": 3}),
    "NUTS": (px.NUTS(warmup=5, max_doublings=3), {"draws": 3, "chains": 2}),
    "MCLMC": (px.MCLMC(warmup=5), {"draws": 3, "chains": 2}),
    "HMC in parts": (px.HMC(warmup=5, micro_batches=3), {"draws": 3}),
    "VI, multiplicative": (px.VI(q.MultiplicativeNormal()), {"steps": 5}),
    "VI, matrix normal": (px.VI(q.MatrixNormal()), {"steps": 5}),
    "VI, dropout": (px.VI(q.Dropout(0.1)), {"steps": 5}),
    "VI, zero mean": (px.VI(q.ZeroMeanNormal(), estimator="local"), {"steps": 5}),
}


@pytest.mark.parametrize("name", [*METHODS, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW_METHODS)])
def test_every_method_infers_a_last_layer(name, moons, tmp_path):
    (x, y), (x_test, _) = moons
    method, length = (METHODS | SLOW_METHODS)[name]
    posterior = px.fit(px.Problem(NET, px.Categorical(), fixed="!layers/1"), (x, y), method, key=0, **length)
    assert "the outputs of the fixed part, 6 numbers per example, were computed once" in posterior.trace.notes
    predictive = posterior.predict(x_test, draws=4)
    whole = px.network(NET)
    if "rank-1" not in name:  # whose factors are not drawn as params
        draws = posterior.sample(0, 3)
        assert jax.tree.structure(draws) == jax.tree.structure(whole.params)
        assert all(leaf.shape[0] == 3 for leaf in jax.tree.leaves(draws))
        np.testing.assert_array_equal(draws.layers[0].weight[2], NET.layers[0].weight)
        assert draws.layers[0].weight.strides[0] == 0  # a view of one copy
    posterior.save(tmp_path / "run.posterior")
    other = eqx.nn.MLP(2, 2, 6, 1, key=jax.random.key(7))  # its own weights do not matter
    again = px.load(tmp_path / "run.posterior", other)
    np.testing.assert_array_equal(again.predict(x_test, draws=4).probs, predictive.probs)
    assert again.problem.leaf_names == ["layers/1/weight", "layers/1/bias"]


def fit_points(problem, x=X, **more):
    return px.fit(problem, (x, Y), px.MAP(), steps=20, batch_size=8, key=0, **more)


def test_a_run_on_features_takes_the_same_steps_as_one_on_inputs(monkeypatch):
    once = fit_points(regression())
    monkeypatch.setattr(fixed_features, "RESIDENT_BYTES", 100)
    every_step = fit_points(regression())
    assert "the fixed part is computed at every step: its outputs, 3 numbers per example" in every_step.trace.notes[0]
    np.testing.assert_allclose(once.mean["head"], every_step.mean["head"], rtol=1e-4)
    np.testing.assert_allclose(once.trace["log_joint"], every_step.trace["log_joint"], rtol=1e-4)


def test_features_of_a_memory_map_are_computed_in_chunks(tmp_path, monkeypatch):
    np.save(tmp_path / "x.npy", X)
    monkeypatch.setattr("posteriax._internal.memory.EXAMPLES_AT_ONCE", 7)
    mapped = fit_points(regression(), np.load(tmp_path / "x.npy", mmap_mode="r"))
    assert ONCE in mapped.trace.notes
    np.testing.assert_allclose(mapped.mean["head"], fit_points(regression()).mean["head"], rtol=1e-5)


def test_a_loader_and_coupled_features_are_computed_at_every_step():
    loader = deque([(X[:20], Y[:20]), (X[20:], Y[20:])])  # it has a length, and can be iterated again and again
    loaded = px.fit(regression(), loader, px.MAP(), steps=2, key=0)
    assert "inputs come from a loader" in loaded.trace.notes[0]

    def standardised(params, x):
        hidden = x @ params["encoder"]
        return (hidden - hidden.mean(axis=0)) @ params["head"]

    net = standardised, regression().network.fixed.full_network.params
    coupled = fit_points(px.Problem(net, px.Normal(scale=NOISE), fixed="encoder"))
    assert any("it couples the examples of a batch" in note for note in coupled.trace.notes)


def test_prediction_computes_the_fixed_part_once_for_all_draws():
    """The compiled program multiplies by the encoder outside the loop over draws."""
    problem = regression()
    draws = jax.tree.map(lambda leaf: jnp.zeros((9, *leaf.shape)), problem.latents)
    jaxpr = jax.make_jaxpr(lambda d, x: prediction.apply_draws(problem, d, x, 9))(draws, X).jaxpr
    loop = next(eqn for eqn in jaxpr.eqns if eqn.primitive.name == "scan")
    assert "dot_general" in [eqn.primitive.name for eqn in jaxpr.eqns]
    assert str(loop.params["jaxpr"]).count("dot_general") == 1


@pytest.mark.slow
def test_the_trained_network_of_a_posterior_starts_another_problem(moons):
    (x, y), _ = moons
    trained = px.fit(px.Problem(NET, px.Categorical()), (x, y), px.MAP(), steps=30, key=0)
    head = px.Problem(trained.network, px.Categorical(), fixed="!layers/1")
    outputs = head.network.apply(head.network.params, x)
    np.testing.assert_allclose(outputs, trained.problem.network.apply(trained.mean, x), rtol=1e-6)
    further = px.fit(head, (x, y), px.MAP(), steps=5, key=0)
    np.testing.assert_array_equal(further.network.params.layers[0].weight, trained.mean.layers[0].weight)
    assert further.network.num_parameters == trained.network.num_parameters


def test_a_file_for_another_network_is_refused(tmp_path):
    fit_points(regression()).save(tmp_path / "run.posterior")
    net = encode_and_combine, {"encoder": np.zeros((4, 3), np.float32), "head": np.zeros((3, 1), np.float32)}
    with pytest.raises(px.posterior.PosteriorFileError, match=r"leaf encoder is \(2, 3\)"):
        px.load(tmp_path / "run.posterior", net)
    with pytest.raises(px.posterior.PosteriorFileError, match="encoder"):
        px.load(tmp_path / "run.posterior", (lambda w, x: x @ w["head"], {"head": np.zeros((3, 1), np.float32)}))


def test_a_file_holds_fixed_leaves_once(tmp_path):
    net = encode_and_combine, {"encoder": np.ones((2, 500), np.float32), "head": np.zeros((500, 1), np.float32)}
    problem = px.Problem(net, px.Normal(scale=1.0), fixed="encoder")
    posterior = px.fit(problem, (X, Y), px.SGLD(1e-6, warmup_epochs=1), draws=50, key=0)
    assert posterior.num_parameters == 50 * 500
    posterior.save(tmp_path / "run.posterior")
    numbers = 50 * 500 + 2 * 500
    assert (tmp_path / "run.posterior").stat().st_size < 4 * numbers + 40_000


@pytest.mark.slow
def test_the_example_of_the_page_on_networks_runs_as_printed(capsys):
    page = (Path(__file__).parents[2] / "docs" / "networks.md").read_text()
    code = re.search(r"## A pre-trained part.*?```python\n(.*?)```", page, re.DOTALL).group(1)
    space = {}
    exec(compile(code, "networks.md", "exec"), space)
    assert "the outputs of the fixed part, 50 numbers per example, were computed once" in capsys.readouterr().out
    assert space["posterior"].draws.network.layers[2].weight.shape == (4, 100, 2, 50)
    assert px.evaluate(space["posterior"].predict(space["x_test"]), space["y_test"])["accuracy"] > 0.9
