"""Accuracies traced during training."""

import equinox as eqx
import jax
import numpy as np
import pytest
from by_hand import variational

import posteriax as px
from posteriax import families as q
from posteriax import priors as p
from posteriax.analysis.phase_transition import PhaseTransition

NET = eqx.nn.MLP(2, 2, 16, 2, key=jax.random.key(0))


def test_accuracies_are_those_of_draws_of_the_mean_and_of_the_average(moons):
    posterior = variational(NET, members=2, scale=0.3)
    x, y = moons[1]
    found = px.analysis.accuracies(moons[1], draws=8)(posterior)
    outputs = np.asarray(posterior.predict(x, 8).outputs)
    assert found["stochastic_accuracy"] == pytest.approx((outputs.argmax(axis=-1) == y).mean())
    assert found["ensemble_accuracy"] == pytest.approx(px.evaluate(posterior.predict(x, 8), y)["accuracy"])
    probs = []
    for member in range(2):
        leaves = [posterior.variational[name]["mean"][member] for name in posterior.problem.leaf_names]
        params = jax.tree.unflatten(jax.tree.structure(posterior.problem.unknowns), leaves).network
        probs.append(jax.nn.softmax(posterior.problem.outputs(params, x)))
    assert found["deterministic_accuracy"] == pytest.approx((np.mean(probs, axis=0).argmax(axis=-1) == y).mean())
    assert found["chance_accuracy"] == max((y == 0).mean(), (y == 1).mean())
    weights = [posterior.variational[f"layers/{i}/weight"] for i in range(3)]
    alpha = [2 * (np.asarray(w["log_scale"]) - np.log(np.abs(w["mean"]))) for w in weights]
    assert found["log_alpha"] == pytest.approx(np.median(np.concatenate([a.reshape(-1) for a in alpha])), rel=1e-4)


def test_a_run_traces_them_and_bernoulli_outputs_serve(moons):
    net = eqx.nn.MLP(2, "scalar", 16, 1, key=jax.random.key(0))
    problem = px.Problem(net, px.Bernoulli(), prior=p.LogUniform())
    watch = px.Watch(px.analysis.accuracies(moons[1]), every=30)
    posterior = px.fit(problem, moons[0], px.VI(q.MultiplicativeNormal("layer")), steps=60, key=0, watch=watch)
    found = px.analysis.phase_transition(posterior)
    assert found.steps.tolist() == [30, 60]
    assert all(((v >= 0) & (v <= 1)).all() for v in (found.stochastic, found.deterministic, found.ensemble))
    assert np.isfinite(found.log_alpha).all()


def test_the_transition_is_where_the_means_stay_lost():
    steps = np.arange(1, 7) * 100
    ensemble = np.array([0.7, 0.9, 0.9, 0.9, 0.9, 0.9])
    deterministic = np.array([0.7, 0.9, 0.4, 0.8, 0.1, 0.1])
    made = PhaseTransition(steps, ensemble, deterministic, ensemble, np.full(6, np.nan), chance=0.1)
    assert made.transition == 500
    never = PhaseTransition(steps, ensemble, ensemble, ensemble, np.full(6, np.nan), chance=0.1)
    assert never.transition is None


def test_a_run_that_watched_nothing_says_so(moons):
    posterior = px.fit(px.Problem(NET, px.Categorical()), moons[0], px.MAP(), steps=2, key=0)
    with pytest.raises(ValueError, match="watched no accuracies"):
        px.analysis.phase_transition(posterior)
