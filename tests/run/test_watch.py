"""Watching a posterior while it is fitted."""

import equinox as eqx
import jax
import numpy as np
import pytest

import posteriax as px
from posteriax import families as q

NET = eqx.nn.MLP(2, 2, 8, 1, key=jax.random.key(0))


def fit(moons, watch=None, method=None, **settings):
    settings = {"steps": 50, **settings}
    return px.fit(px.Problem(NET, px.Categorical()), moons[0], method or px.MAP(), key=0, watch=watch, **settings)


@pytest.mark.slow
def test_it_sees_the_posterior_of_a_run_of_that_length_and_changes_nothing(moons):
    import optax

    steady = px.MAP(optax.adam(1e-2))  # no schedule: a shorter run is the beginning of a longer one
    seen = []
    watch = px.run.Watch(lambda p: seen.append(p.mean.layers[0].weight) or {"step": len(seen), "only": 1.0}, every=20)
    watched = fit(moons, watch, steady)
    plain = fit(moons, method=steady)
    np.testing.assert_array_equal(watched.mean.layers[0].weight, plain.mean.layers[0].weight)
    np.testing.assert_array_equal(seen[0], fit(moons, method=steady, steps=20).mean.layers[0].weight)
    assert watched.trace["watched_step"].tolist() == [20, 40, 50]
    assert watched.trace["step"].tolist() == [1, 2, 3]


@pytest.mark.slow
def test_a_resumed_run_remembers_what_it_saw(moons, tmp_path):
    calls = []

    def look(posterior):
        calls.append(posterior)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return {"seen": len(calls)}

    with pytest.raises(KeyboardInterrupt):
        fit(moons, px.run.Watch(look, every=10), checkpoint=tmp_path / "run", checkpoint_every=1e-9)
    resumed = fit(moons, px.run.Watch(look, every=10), checkpoint=tmp_path / "run")
    assert resumed.trace["watched_step"].tolist() == [10, 20, 30, 40, 50]
    assert resumed.trace["seen"].tolist() == [1, 2, 4, 5, 6]
    plain = fit(moons)
    np.testing.assert_array_equal(resumed.mean.layers[0].weight, plain.mean.layers[0].weight)


@pytest.mark.slow
def test_it_survives_a_file_and_serves_ensembles_of_vi(moons, tmp_path):
    watch = px.run.Watch(lambda p: px.evaluate(p.predict(moons[1][0], 5), moons[1][1]), every=25)
    posterior = fit(moons, watch, px.Ensemble(px.VI(q.Normal()), 2))
    posterior.save(tmp_path / "a.posterior")
    again = px.load(tmp_path / "a.posterior", NET)
    np.testing.assert_array_equal(again.trace["nll"], posterior.trace["nll"])
    assert again.trace["watched_step"].tolist() == [25, 50]


@pytest.mark.slow
def test_bad_watches_are_said(moons):
    with pytest.raises(ValueError, match="every"):
        px.run.Watch(lambda p: {}, every=0)
    with pytest.raises(TypeError, match="numbers by name"):
        px.run.Watch("accuracy", every=1)
    with pytest.raises(TypeError, match="numbers by name, got float"):
        fit(moons, px.run.Watch(lambda p: 1.0, every=10))
    with pytest.raises(ValueError, match="the run itself records log_joint"):
        fit(moons, px.run.Watch(lambda p: {"log_joint": 1.0}, every=10))
    with pytest.raises(ValueError, match="methods that optimise"):
        px.fit(px.Problem(NET, px.Categorical()), moons[0], px.HMC(), draws=2, key=0, watch=px.run.Watch(dict, every=1))
