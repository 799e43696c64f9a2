"""Training until the objective is level: it ends at the optimum, at the same bits after a kill, and says so."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import posteriax as px
from posteriax import families as q
from posteriax.diagnostics.training import rise_and_error
from posteriax.run.until_level import FallingState, _falling
from tests import known

NET = eqx.nn.MLP(2, 2, 16, 1, key=jax.random.key(0))
TRAIN, _ = px.data.two_moons(train=80, test=1)


def fit(stop, method=px.MAP(optax.adam(0.05)), steps=3000, **settings):
    return px.fit(px.Problem(NET, px.Categorical()), TRAIN, method, key=0, stop=stop, steps=steps, **settings)


def weights(posterior):
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(posterior.mean)])


def test_the_trend_of_a_series_is_that_of_least_squares():
    series = np.random.default_rng(0).normal(size=(2, 805)).cumsum(axis=1)
    means = series[:, 5:].reshape(2, 8, 100).mean(axis=2)
    slope, covariance = np.polyfit(np.arange(8) / 8, means.T, 1, cov=True)
    rise, error = rise_and_error(series)
    np.testing.assert_allclose(rise, slope[0], rtol=1e-10)
    np.testing.assert_allclose(error, np.sqrt(covariance[0, 0]), rtol=1e-10)


def test_it_ends_at_the_optimum_and_says_so():
    exact = known.linear_regression()
    method, stop = px.MAP(optax.adam(0.02)), px.run.UntilLevel(fewest=200)
    posterior = px.fit(exact.problem, exact.data, method, steps=50_000, key=0, stop=stop, batch_size=16)
    error = (np.ravel(jax.tree.leaves(posterior.mean)[0]) - exact.mean) / exact.scales
    assert np.abs(error).max() < 0.1
    level, taken = int(posterior.trace["level_step"][0]), len(posterior.trace["log_joint"])
    assert level >= 200 and taken == level + level // 2
    diagnosis = posterior.diagnose()
    assert diagnosis.converged and diagnosis.verdict.startswith("converged")
    assert posterior.trace.converged is True and posterior.trace.notes[-1].startswith(
        "converged: the objective was level"
    )


def test_an_objective_that_is_level_because_of_the_step_size_is_not_the_end():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 5)).astype(np.float32)
    y = (x @ np.arange(1, 6) + 1e-3 * rng.normal(size=400)).astype(np.float32)
    problem = px.Problem((lambda w, x: x @ w, np.zeros((5, 1), np.float32)), px.Normal(scale="learned"))
    method = px.MAP(optax.adam(0.05))
    posterior = px.fit(problem, (x, y), method, steps=50_000, key=0, stop=px.run.UntilLevel(fewest=200), batch_size=32)
    # the learned noise is the truth's, up to a few standard errors, 1 / sqrt(2 N) = 0.035
    assert posterior.predict(x).std.mean() == pytest.approx(1e-3, rel=0.15)
    assert posterior.diagnose().converged and "of the learning rate" in posterior.trace.notes[-1]


def test_an_objective_that_still_rises_at_the_last_step_has_not_converged():
    slow = px.MAP(optax.sgd(1e-5))
    posterior = fit(px.run.UntilLevel(fewest=100, tolerance=1e-4), slow, steps=300)
    assert len(posterior.trace["log_joint"]) == 300 and posterior.trace["level_step"].tolist() == [-1]
    diagnosis = posterior.diagnose()
    assert diagnosis.converged is False and "still rising" in diagnosis.verdict
    assert posterior.trace.converged is False and posterior.trace.notes[-1].startswith("not converged: ")


def test_without_time_the_rate_falls_at_once():
    posterior = fit(px.run.UntilLevel(fewest=2000, seconds=1e-6))
    assert posterior.trace["level_step"].tolist() == [-1] and len(posterior.trace["log_joint"]) < 3000
    assert "not converged: time ran out" in posterior.trace.notes[-1]


def test_updates_fall_along_a_cosine():
    optimizer = _falling(optax.sgd(1.0))
    state = optimizer.init(jnp.zeros(()))._replace(begun=jnp.int32(2), length=jnp.int32(4))
    scales = []
    for _ in range(7):
        update, state = optimizer.update(jnp.float32(-1.0), state)
        scales.append(float(update))
    falling = (1 + np.cos(np.pi * np.arange(5) / 4)) / 2
    assert isinstance(state, FallingState)
    np.testing.assert_allclose(scales, [1, *falling, 0], atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    "method", [px.Ensemble(px.MAP(optax.adam(0.05)), 2), px.VI(q.Normal())], ids=["ensemble", "VI"]
)
def test_a_killed_run_ends_the_same(method, tmp_path, monkeypatch):
    stop = px.run.UntilLevel(fewest=64, tolerance=0.2)
    plain = fit(stop, method)
    where = {"checkpoint": tmp_path, "checkpoint_every": 1e-9}
    # early, after the first look at the objective, and when the rate has begun to fall
    for moment in (2, 64, int(plain.trace["level_step"][0])):
        take = px.run.loop._take_chunk

        def dying(program, supply, keys, run, last, take=take, moment=moment):
            if run.step >= moment:
                raise InterruptedError
            take(program, supply, keys, run, last)

        monkeypatch.setattr("posteriax.run.loop._take_chunk", dying)
        with pytest.raises(InterruptedError):
            fit(stop, method, **where)
        monkeypatch.setattr("posteriax.run.loop._take_chunk", take)
    resumed = fit(stop, method, **where)
    for name in plain.trace:
        np.testing.assert_array_equal(resumed.trace[name], plain.trace[name])
    np.testing.assert_array_equal(weights(resumed), weights(plain))
    with pytest.raises(px.run.CheckpointError, match="stopping was"):
        fit(px.run.UntilLevel(fewest=64, tolerance=0.1), method, **where)


@pytest.mark.parametrize("method", [px.SWAG(), px.Laplace()], ids=lambda method: method.name)
def test_methods_without_an_optimiser_of_their_own_are_refused(method):
    with pytest.raises(ValueError, match="for methods with an optimizer"):
        fit(px.run.UntilLevel(), method)


def test_bad_settings_are_named():
    for settings, message in [
        ({"tolerance": 0.0}, "tolerance"),
        ({"fewest": 3}, "at least 32"),
        ({"seconds": -1}, "sec"),
    ]:
        with pytest.raises(ValueError, match=message):
            px.run.UntilLevel(**settings)
