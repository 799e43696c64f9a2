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


@pytest.mark.slow
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
        params = jax.tree.unflatten(jax.tree.structure(posterior.problem.latents), leaves).network
        probs.append(jax.nn.softmax(posterior.problem.outputs(params, x)))
    assert found["deterministic_accuracy"] == pytest.approx((np.mean(probs, axis=0).argmax(axis=-1) == y).mean())
    assert found["chance_accuracy"] == max((y == 0).mean(), (y == 1).mean())
    weights = [posterior.variational[f"layers/{i}/weight"] for i in range(3)]
    alpha = [2 * (np.asarray(w["log_scale"]) - np.log(np.abs(w["mean"]))) for w in weights]
    assert found["log_alpha"] == pytest.approx(np.median(np.concatenate([a.reshape(-1) for a in alpha])), rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("outputs", ["scalar", 1])
def test_bernoulli_outputs_serve_in_either_shape(outputs, moons):
    posterior = variational(eqx.nn.MLP(2, outputs, 16, 1, key=jax.random.key(0)), likelihood=px.Bernoulli())
    x, y = moons[1]
    found = px.analysis.accuracies(moons[1], draws=6)(posterior)
    predictive = posterior.predict(x, 6)
    assert found["ensemble_accuracy"] == pytest.approx(px.evaluate(predictive, y)["accuracy"])
    logits = np.asarray(predictive.outputs).reshape(6, -1)
    assert found["stochastic_accuracy"] == pytest.approx(((logits > 0) == y).mean())


@pytest.mark.slow
def test_a_run_traces_them(moons):
    problem = px.Problem(NET, px.Categorical(), prior=p.LogUniform())
    watch = px.run.Watch(px.analysis.accuracies(moons[1]), every=30)
    posterior = px.fit(problem, moons[0], px.VI(q.MultiplicativeNormal("layer")), steps=60, key=0, watch=watch)
    found = px.analysis.phase_transition(posterior)
    last = px.analysis.accuracies(moons[1])(posterior)
    assert found.steps.tolist() == [30, 60]
    assert found.ensemble[-1] == last["ensemble_accuracy"] and found.log_alpha[-1] == last["log_alpha"]


def test_the_transition_is_where_the_means_stay_lost():
    steps = np.arange(1, 7) * 100
    ensemble = np.array([0.7, 0.9, 0.9, 0.9, 0.9, 0.9])
    deterministic = np.array([0.7, 0.9, 0.4, 0.8, 0.1, 0.1])
    made = PhaseTransition(steps, ensemble, deterministic, ensemble, np.full(6, np.nan), chance=0.1)
    assert made.transition == 500
    never = PhaseTransition(steps, ensemble, ensemble, ensemble, np.full(6, np.nan), chance=0.1)
    assert never.transition is None
    poor = np.full(6, 0.4)  # below chance there is nothing to lose
    assert PhaseTransition(steps, poor, poor, poor, np.full(6, np.nan), chance=0.5).transition is None


def test_a_run_that_watched_nothing_says_so(moons):
    posterior = px.fit(px.Problem(NET, px.Categorical()), moons[0], px.MAP(), steps=2, key=0)
    with pytest.raises(ValueError, match="recorded no accuracies"):
        px.analysis.phase_transition(posterior)
