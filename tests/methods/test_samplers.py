"""What all samplers share. That they sample what they should is in test_known_posteriors.py."""

import jax
import known
import numpy as np
import pytest

import posteriax as px
from posteriax.diagnostics import ess_bulk
from posteriax.posterior import draws as draw_files


@pytest.fixture(scope="module")
def gaussian():
    return known.correlated_gaussian()


def chain_of(gaussian, method, draws, **more):
    posterior = px.fit(gaussian.problem, gaussian.data, method, draws=draws, key=0, **more)
    return np.asarray(posterior.draws.network["w"])[..., 0], posterior


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda thin: px.SGHMC(1e-3, warmup_epochs=10, epochs_per_draw=thin), id="SGHMC"),
        pytest.param(lambda thin: px.HMC(warmup=10, thin=thin), id="HMC", marks=pytest.mark.slow),
    ],
)
def test_a_thinned_chain_is_every_thin_th_state(gaussian, make):
    every, _ = chain_of(gaussian, make(1), 21)
    thinned, posterior = chain_of(gaussian, make(3), 7)
    np.testing.assert_array_equal(thinned, every[:, 2::3])
    assert posterior.trace.warmup == 10
    assert len(posterior.trace["log_joint"]) == 10 + 21


@pytest.mark.slow
def test_a_run_is_continued_for_more_draws(gaussian, tmp_path):
    method = px.HMC(warmup=10, thin=2)
    whole, _ = chain_of(gaussian, method, 30, chains=2)
    some, _ = chain_of(gaussian, method, 12, chains=2, checkpoint=tmp_path)
    more, posterior = chain_of(gaussian, method, 30, chains=2, checkpoint=tmp_path)
    np.testing.assert_array_equal(some, whole[:, :12])
    np.testing.assert_array_equal(more, whole)
    assert posterior.trace["log_joint"].shape == (2, 10 + 60)
    with pytest.raises(px.run.CheckpointError, match="already holds 30 draws, more than the 12 requested"):
        chain_of(gaussian, method, 12, chains=2, checkpoint=tmp_path)


@pytest.mark.slow
def test_draws_on_disk_are_the_draws_in_memory(gaussian, tmp_path, monkeypatch):
    method = px.HMC(warmup=5)
    in_memory, expected = chain_of(gaussian, method, 40, chains=2)
    chain_of(gaussian, method, 17, chains=2, checkpoint=tmp_path / "run")  # two shards
    monkeypatch.setattr(draw_files, "IN_MEMORY_BYTES", 0)
    monkeypatch.setattr(draw_files, "BLOCK_BYTES", 100)
    posterior = px.fit(gaussian.problem, gaussian.data, method, draws=40, chains=2, key=0, checkpoint=tmp_path / "run")
    stored = posterior.draws.network["w"]
    assert isinstance(stored, draw_files.StoredDraws)
    assert (stored.shape, stored.dtype, stored.size, len(stored)) == ((2, 40, 2, 1), np.float32, 160, 2)
    np.testing.assert_array_equal(np.asarray(stored)[..., 0], in_memory)
    chains, draws = np.array([1, 0, 1]), np.array([39, 3, 3])
    np.testing.assert_array_equal(stored[chains, draws][..., 0], in_memory[chains, draws])
    np.testing.assert_allclose(posterior.mean["w"], expected.mean["w"], rtol=1e-6)
    x = gaussian.data[0]
    np.testing.assert_array_equal(posterior.predict(x).mean, expected.predict(x).mean)
    np.testing.assert_array_equal(posterior.sample(0, 5)["w"], expected.sample(0, 5)["w"])
    for one, name in ((posterior, "stored"), (expected, "memory")):
        one.save(tmp_path / name)
    assert (tmp_path / "stored").read_bytes() == (tmp_path / "memory").read_bytes()
    assert str(posterior.diagnose()) == str(expected.diagnose())
    with pytest.raises(TypeError, match=r"indexed by chain and draw"):
        stored[0]


@pytest.fixture(scope="module")
def small_net():
    keys = jax.random.split(jax.random.key(0), 2)
    weights = {"w": 0.3 * jax.random.normal(keys[0], (2, 16)), "v": 0.3 * jax.random.normal(keys[1], (16, 2))}
    data, _ = px.data.two_moons(train=200, test=1)
    net = (lambda params, x: jax.nn.tanh(x @ params["w"]) @ params["v"], weights)
    return px.Problem(net, px.Categorical(), px.priors.Normal(0.3)), data


@pytest.mark.slow
def test_micro_batches_and_devices_change_nothing_but_rounding(small_net, two_devices):
    """Twenty transitions of about fifty leapfrogs each; the dynamics of this problem are not chaotic."""
    problem, data = small_net
    mesh = jax.make_mesh((1, 2), ("members", "data"), devices=jax.devices()[:2])
    draws = []
    for parts, where in ((1, None), (7, None), (64, None), (3, mesh)):
        method = px.HMC(step_size=0.01, start="network", warmup=1, micro_batches=parts)
        posterior = px.fit(problem, data, method, draws=20, key=0, mesh=where)
        assert posterior.trace["accepted"].mean() > 0.5
        draws.append(jax.tree.leaves(posterior.draws))
    for other in draws[1:]:
        for one, two in zip(draws[0], other, strict=True):
            np.testing.assert_allclose(one, two, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("method", [px.NUTS, px.MCLMC])
def test_other_samplers_take_micro_batches_too(small_net, method):
    problem, data = small_net
    # from the network's own weights: the climb of start="map" would magnify the rounding of sums in another order
    posterior = px.fit(problem, data, method(warmup=5, start="network", micro_batches=7), draws=2, key=0)
    whole = px.fit(problem, data, method(warmup=5, start="network"), draws=2, key=0)
    for one, two in zip(jax.tree.leaves(posterior.draws), jax.tree.leaves(whole.draws), strict=True):
        np.testing.assert_allclose(one, two, atol=1e-3)


@pytest.mark.slow
def test_chains_start_from_the_members_of_a_fitted_ensemble(small_net):
    problem, data = small_net
    ensemble = px.fit(problem, data, px.Ensemble(px.MAP(), 2), steps=50, key=0)
    for method in (px.HMC(start=ensemble, step_size=1e-6, trajectory=1e-6, warmup=1), px.SGLD(1e-12, start=ensemble)):
        posterior = px.fit(problem, data, method, draws=1, chains=2, key=1)
        for start, draw in zip(jax.tree.leaves(ensemble.draws), jax.tree.leaves(posterior.draws), strict=True):
            np.testing.assert_allclose(draw[:, 0], start[:, 0], atol=1e-4)
    other = px.Problem((lambda params, x: x @ params["u"], {"u": np.zeros((2, 2), np.float32)}), px.Categorical())
    with pytest.raises(ValueError, match="start is a posterior of another network"):
        px.fit(other, data, px.HMC(start=ensemble), draws=1, key=0)


@pytest.mark.slow
def test_accepting_in_double_precision(small_net):
    problem, data = small_net
    with pytest.raises(ValueError, match="jax_enable_x64"):
        px.fit(problem, data, px.HMC(float64_accept=True), draws=1, key=0)
    with jax.enable_x64(True):
        method = px.HMC(float64_accept=True, step_size=0.05, start="network", warmup=5)
        posterior = px.fit(problem, data, method, draws=5, chains=2, key=0)
    assert jax.tree.leaves(posterior.draws)[0].dtype == np.float32  # the trajectory keeps the weights' precision
    assert posterior.trace["accepted"].any()


@pytest.mark.slow
def test_effective_draws_agree_with_arviz(gaussian):
    import arviz as az

    draws, _ = chain_of(gaussian, px.NUTS(warmup=100), 300, chains=4)
    for i in range(2):
        assert ess_bulk(draws)[i] == pytest.approx(az.ess(draws[..., i]), rel=1e-6)


@pytest.mark.parametrize("method", [px.HMC(), px.NUTS(), px.MCLMC(), px.SGLD(1e-3)])
def test_no_draws_is_an_error(gaussian, method):
    with pytest.raises(ValueError, match="draws must be a whole number of at least 1, got 0"):
        px.fit(gaussian.problem, gaussian.data, method, draws=0, key=0)


@pytest.mark.parametrize(
    ("kind", "bad"),
    [
        *((px.HMC, bad) for bad in ({"thin": 0}, {"micro_batches": 0}, {"start": "nowhere"}, {"warmup": 0})),
        *((px.NUTS, bad) for bad in ({"max_doublings": 0}, {"target_acceptance": 1.0}, {"step_size": -1.0})),
        *((px.MCLMC, bad) for bad in ({"energy_variance": 0.0}, {"length": -1.0})),
        *((px.SGHMC, bad) for bad in ({"momentum": 1.0}, {"step_size": 0.0}, {"preconditioner": "adam"})),
        *(
            (px.SGHMC, bad)
            for bad in ({"epochs_per_draw": 0}, {"start": "map"}, {"cyclical": True, "first_step_size": 1.0})
        ),
    ],
)
def test_bad_settings_are_errors_that_name_them(kind, bad):
    with pytest.raises(ValueError, match=next(reversed(bad))):
        kind(**bad)


def test_more_parts_than_examples_is_an_error(gaussian):
    with pytest.raises(ValueError, match="micro_batches=3 is more than there are examples, 2"):
        px.fit(gaussian.problem, gaussian.data, px.HMC(micro_batches=3), draws=1, key=0)
