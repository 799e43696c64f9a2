import equinox as eqx
import jax
import numpy as np
import optax
import pytest

import posteriax as px
from posteriax import families as q
from posteriax.methods.ensemble import member_starts, shuffle_weights


@pytest.fixture(scope="module")
def problem():
    return px.Problem(eqx.nn.MLP(2, 2, 8, 1, key=jax.random.key(0)), px.Categorical())


@pytest.mark.slow
def test_members_differ_and_the_first_is_the_single_run(problem, moons):
    alone = px.fit(problem, moons[0], px.MAP(), steps=30, key=5)
    several = px.fit(problem, moons[0], px.Ensemble(px.MAP(), members=3), steps=30, key=5)
    weights = np.asarray(several.draws.network.layers[0].weight)
    assert weights.shape == (3, 1, 8, 2)
    np.testing.assert_allclose(weights[0, 0], alone.draws.network.layers[0].weight[0, 0], rtol=1e-5)
    assert np.abs(weights[1] - weights[2]).max() > 0.01


def test_the_mixture_predicts_the_mean_of_its_members(problem, moons):
    ensemble = px.fit(problem, moons[0], px.Ensemble(px.MAP(), members=3), steps=30, key=5)
    x = moons[1][0]
    members = [
        jax.nn.softmax(problem.network.apply(jax.tree.map(lambda a, m=m: a[m, 0], ensemble.draws.network), x))
        for m in range(3)
    ]
    np.testing.assert_allclose(ensemble.predict(x).probs, np.mean(members, axis=0), atol=1e-6)
    assert ensemble.num_parameters == 3 * problem.network.num_parameters


@pytest.mark.slow
def test_an_ensemble_of_variational_posteriors_draws_evenly_from_its_members(problem, moons):
    ensemble = px.fit(problem, moons[0], px.Ensemble(px.VI(q.Normal(scale=1e-6)), members=2), steps=5, key=0)
    draws = np.asarray(ensemble.sample(0, 10).layers[0].weight)
    means = np.asarray(ensemble.variational["layers/0/weight"]["mean"])
    for i in range(10):
        np.testing.assert_allclose(draws[i], means[i % 2], atol=1e-4)


def test_members_are_placed_on_devices_first(problem):
    from posteriax.run.layout import members_mesh

    devices = jax.device_count()
    for members in (1, 2, 3, 4):
        most = max(n for n in range(1, devices + 1) if members % n == 0)
        assert members_mesh(members, None).size == most


def test_shuffled_weights_are_a_permutation_and_vectors_are_kept(problem):
    old = problem.latents
    new = shuffle_weights(jax.random.key(1), old)
    for a, b in zip(jax.tree.leaves(old), jax.tree.leaves(new), strict=True):
        np.testing.assert_array_equal(np.sort(a, axis=None), np.sort(b, axis=None))
        assert (a.ndim == 1) == np.array_equal(a, b)


@pytest.mark.slow
def test_starts_can_be_a_function(problem, moons):
    def fresh(key):
        return eqx.filter(eqx.nn.MLP(2, 2, 8, 1, key=key), eqx.is_inexact_array)

    posterior = px.fit(problem, moons[0], px.Ensemble(px.MAP(), 2, starts=fresh), steps=1, key=0)
    weights = np.asarray(posterior.draws.network.layers[0].weight)
    assert np.abs(weights[0] - weights[1]).max() > 0.05


def test_a_methods_own_start_goes_before_the_ensembles(problem):
    """A start at the prior is the same draw, whoever asks for it."""
    key, member = jax.random.key(3), np.int32(1)
    draw = problem.sample_prior(key)
    for of_method, of_ensemble in (("prior", "shuffle"), ("map", "prior"), ("prior", "network")):
        start = member_starts(of_method, of_ensemble, problem, members=2).start_of(key, member)
        jax.tree.map(np.testing.assert_array_equal, start, draw)
    own = member_starts("network", "network", problem, members=2).start_of(key, member)
    jax.tree.map(np.testing.assert_array_equal, own, problem.latents)


@pytest.mark.slow
def test_members_can_start_at_the_draws_of_a_posterior(problem, moons):
    fitted = px.fit(problem, moons[0], px.Ensemble(px.MAP(), 2), steps=5, key=0)
    again = px.fit(problem, moons[0], px.Ensemble(px.MAP(optax.sgd(0.0)), 2, starts=fitted), steps=1, key=1)
    jax.tree.map(np.testing.assert_array_equal, again.draws, fitted.draws)


def test_nested_ensembles_and_chains_twice_are_refused(problem, moons):
    with pytest.raises(TypeError, match="one Ensemble"):
        px.Ensemble(px.Ensemble(px.MAP(), 2), 2)
    with pytest.raises(ValueError, match="both set the number of chains"):
        px.fit(problem, moons[0], px.Ensemble(px.HMC(), 2), draws=2, chains=2, key=0)
