"""`px.fit(..., until="converged")`: the rule that suits the method, limits by default, and a plain answer."""

import equinox as eqx
import jax
import known
import numpy as np
import optax
import pytest

import posteriax as px
from posteriax import families as q
from posteriax.run import fitting, until_mixed

EXACT = known.linear_regression()
X = EXACT.data[0]
NET = eqx.nn.MLP(2, 2, 8, 1, key=jax.random.key(0))
MOONS, _ = px.data.two_moons(train=60, test=1)


def fit(method, problem=EXACT.problem, data=EXACT.data, **settings):
    return px.fit(problem, data, method, key=0, **{"until": "converged", **settings})


def draws_of(posterior):
    return np.asarray(posterior.draws.network["w"])


def test_an_optimiser_ends_where_until_level_ends_it():
    method = px.MAP(optax.adam(0.02))
    posterior, same = (
        fit(method, batch_size=16),
        fit(method, batch_size=16, until=None, steps=fitting.MOST_STEPS, stop=px.run.UntilLevel()),
    )
    np.testing.assert_array_equal(posterior.mean["w"], same.mean["w"])
    assert posterior.trace.converged is True and posterior.diagnose().converged
    assert len(posterior.trace["log_joint"]) < fitting.MOST_STEPS
    error = (np.ravel(posterior.mean["w"]) - EXACT.mean) / EXACT.scales
    assert np.abs(error).max() < 0.1


@pytest.mark.slow
def test_a_sampler_ends_where_until_mixed_at_the_training_inputs_ends_it():
    posterior = fit(px.HMC(warmup=50))
    assert draws_of(posterior).shape[0] == 4  # chains
    same = fit(px.HMC(warmup=50), until=None, draws=5000, chains=4, stop=px.run.UntilMixed(X))
    np.testing.assert_array_equal(draws_of(posterior), draws_of(same))
    assert posterior.trace.converged is True and posterior.diagnose(X).converged
    error = (draws_of(posterior).mean((0, 1)).ravel() - EXACT.mean) / EXACT.scales
    assert np.abs(error).max() < 4 / np.sqrt(400)  # effective draws


def test_a_limit_that_is_too_short_is_said(tmp_path):
    posterior = fit(px.HMC(warmup=10, start="network"), draws=20, chains=2)
    assert posterior.trace.converged is False and posterior.trace.notes[-1].startswith("not converged after 20 draws")
    posterior = fit(px.MAP(optax.sgd(1e-6)), px.Problem(NET, px.Categorical()), MOONS, steps=200)
    assert posterior.trace.converged is False and posterior.trace.notes[-1].startswith("not converged: the objective")
    posterior.save(tmp_path / "a.posterior")
    assert px.load(tmp_path / "a.posterior", NET).trace.converged is False


@pytest.mark.slow
def test_seconds_end_either_kind_of_method():
    posterior = fit(px.VI(q.Normal()), px.Problem(NET, px.Categorical()), MOONS, seconds=1e-3)
    assert posterior.trace.converged is False and "time ran out" in posterior.trace.notes[-1]
    with pytest.raises(RuntimeError, match="its time is too short"):
        fit(px.HMC(warmup=100_000), seconds=0.5)


def test_without_the_argument_nothing_is_said_about_convergence():
    assert fit(px.MAP(), until=None, steps=5).trace.converged is None


@pytest.mark.slow
def test_a_loader_is_compared_at_its_first_batch():
    batches = [(X[:15], EXACT.data[1][:15]), (X[15:], EXACT.data[1][15:])]
    rule, data = px.run.UntilMixed().for_data(EXACT.problem, batches, jax.random.key(0))
    np.testing.assert_array_equal(rule.x, X[:15])
    assert data is batches
    posterior = fit(px.SGHMC(), data=batches, draws=10, chains=2)
    assert posterior.trace["checked_draws"].tolist() == [10]


def test_the_points_are_a_seeded_sample_of_large_data():
    many = np.random.default_rng(0).normal(size=(500, X.shape[1])).astype(np.float32)
    rule, _ = px.run.UntilMixed(points=30).for_data(EXACT.problem, (many, many[:, 0]), jax.random.key(0))
    assert rule.x.shape == (30, X.shape[1]) and len(rule.chosen) == 30
    again, _ = px.run.UntilMixed(points=30).for_data(EXACT.problem, (many, many[:, 0]), jax.random.key(1))
    np.testing.assert_array_equal(rule.x, again.x)


def test_chains_that_agree_but_diverge_have_not_converged(monkeypatch):
    monkeypatch.setattr(until_mixed, "excess_divergences", lambda sampler: 76)
    hmc, rule = px.HMC(warmup=50, start="network"), px.run.UntilMixed(X, rhat=1.2, effective_draws=20)
    posterior = fit(hmc, until=None, draws=2000, chains=2, stop=rule)
    assert posterior.trace["checked_rhat"][-1] < 1.2 and posterior.trace.converged is False
    assert posterior.trace.notes[-1].startswith("not converged after")
    assert "effective draws, but 76 divergent transitions" in posterior.trace.notes[-1]


def test_no_more_draws_than_fit_into_memory_by_default():
    request = fitting.RunRequest(problem=EXACT.problem, data=None, method=px.HMC(), key=0, until="converged")
    assert fitting._with_limits(request, px.Ensemble(px.HMC(), 4)).draws == fitting.MOST_DRAWS
    large = px.Problem((lambda w, x: x @ w, np.zeros((1000, 1000), np.float32)), px.Normal(scale=1.0))
    request = fitting.RunRequest(problem=large, data=None, method=px.HMC(), key=0, until="converged")
    assert fitting._with_limits(request, px.Ensemble(px.HMC(), 4)).draws == 2**28 // (4 * 4 * 1_000_000)


def test_bad_arguments_are_refused_before_anything_is_compiled(monkeypatch):
    monkeypatch.setattr("posteriax.run.fitting.Program", None)
    for settings, message in [
        ({"until": "level"}, "until must be \"converged\", got 'level'"),
        ({"stop": px.run.UntilLevel()}, "until= and stop= both say when the run ends"),
        ({"until": None, "seconds": 3, "steps": 5}, 'seconds= limits a run that ends by itself: add until="converged"'),
        ({"seconds": -1}, "seconds must be a positive number"),
        ({"draws": 5}, "MAP optimises: give either epochs= or steps="),
    ]:
        with pytest.raises(ValueError, match=message):
            fit(px.MAP(), **settings)
    with pytest.raises(ValueError, match='until="converged" is not for SWAG'):
        fit(px.SWAG())
    with pytest.raises(ValueError, match="compares chains: run several, chains=4"):
        fit(px.HMC(), chains=1)
