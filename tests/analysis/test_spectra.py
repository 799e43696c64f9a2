"""Spectra and the table of truncations, against NumPy and against evaluations by hand."""

import equinox as eqx
import jax
import numpy as np
import pytest
from by_hand import drawn, variational

import posteriax as px
from posteriax import families as q

KEY = jax.random.key(0)
NET = eqx.nn.MLP(2, 2, 8, 1, key=KEY)


def test_singular_values_are_numpys_and_shares_add_up():
    posterior = variational(NET)
    found = px.analysis.spectra(posterior, "layers/0/weight")
    assert list(found) == ["layers/0/weight"]
    own = posterior.variational["layers/0/weight"]
    scale = np.exp(np.asarray(own["log_scale"][0], np.float64))
    spectrum = found["layers/0/weight"]
    np.testing.assert_allclose(spectrum.scale, scale, rtol=1e-5)
    np.testing.assert_allclose(spectrum.scale_values, np.linalg.svd(scale, compute_uv=False), rtol=1e-5)
    np.testing.assert_allclose(spectrum.mean_values, np.linalg.svd(np.asarray(own["mean"][0]))[1], rtol=1e-5)
    assert spectrum.scale_explained.sum() == pytest.approx(1) == spectrum.mean_explained.sum()
    np.testing.assert_allclose(spectrum.approximation(2), scale, rtol=1e-4)
    assert np.linalg.matrix_rank(spectrum.approximation(1), tol=1e-4) == 1


def test_tied_scales_have_as_many_values_as_ties():
    posterior = variational(eqx.nn.MLP(6, 2, 8, 1, key=KEY), family=q.KTied(2))
    values = px.analysis.spectra(posterior)["layers/0/weight"].scale_values
    assert values[1] > 1e-3 * values[0] > 1e3 * values[2]


def test_convolutions_are_matrices_of_inputs_by_channels():
    posterior = variational(eqx.nn.Conv2d(2, 5, 3, key=KEY), likelihood=px.Normal(0.1))
    assert px.analysis.spectra(posterior)["weight"].scale.shape == (5, 18)


def test_draws_and_mixtures_have_moments_too():
    rng = np.random.default_rng(0)
    weights = rng.normal(size=(2, 30, 3, 4))
    posterior = drawn((lambda w, x: x @ w["w"], {"w": np.ones((3, 4))}), {"w": weights})
    spectrum = px.analysis.spectra(posterior)["w"]
    np.testing.assert_allclose(spectrum.scale, weights.reshape(60, 3, 4).std(axis=0))
    two = variational(NET, members=2)
    own = jax.tree.map(np.asarray, two.variational["layers/0/weight"])
    total = np.exp(2 * own["log_scale"]).mean(axis=0) + own["mean"].var(axis=0)
    np.testing.assert_allclose(px.analysis.spectra(two)["layers/0/weight"].scale, np.sqrt(total), rtol=1e-5)
    rank1 = variational(NET, family=q.Rank1(2), scale=0.1)  # no closed form: from draws
    assert (px.analysis.spectra(rank1)["layers/1/weight"].scale > 0).all()


@pytest.mark.slow
def test_draws_on_disk_serve_as_those_in_memory(moons, tmp_path, monkeypatch):
    from posteriax.posterior import draws

    problem = px.Problem(NET, px.Categorical())
    run = {"draws": 12, "chains": 2, "key": 0}
    memory = px.fit(problem, moons[0], px.HMC(warmup=5), **run)
    monkeypatch.setattr(draws, "IN_MEMORY_BYTES", 0)
    disk = px.fit(problem, moons[0], px.HMC(warmup=5), checkpoint=tmp_path / "run", **run)
    assert isinstance(jax.tree.leaves(disk.draws)[0], draws.StoredDraws)
    spectra = [px.analysis.spectra(posterior)["layers/0/weight"].scale for posterior in (memory, disk)]
    np.testing.assert_allclose(*spectra, rtol=1e-6)
    costs = [px.analysis.mean_field_cost(posterior, points=5).w for posterior in (memory, disk)]
    np.testing.assert_allclose(*costs)
    looks = [px.analysis.accuracies(moons[1])(posterior) for posterior in (memory, disk)]
    assert looks[0]["deterministic_accuracy"] == looks[1]["deterministic_accuracy"]


@pytest.mark.slow
def test_the_table_evaluates_every_rank(moons):
    problem = px.Problem(NET, px.Categorical())
    posterior = px.fit(problem, moons[0], px.VI(q.Normal()), steps=50, key=0)
    table = px.analysis.truncation_table(posterior, moons[1], train=moons[0], ranks=(1, 2), draws=20)
    assert list(table.rows) == ["trained", "rank 1", "rank 2"]
    by_hand = px.evaluate(px.analysis.truncate(posterior, 1).predict(moons[1][0], 20), moons[1][1])
    assert table.rows["rank 1"]["nll"] == pytest.approx(by_hand["nll"])
    assert table.rows["rank 2"]["nll"] == pytest.approx(table.rows["trained"]["nll"], rel=1e-3)  # both are of rank 2
    # means, a factor for rows and one for columns of both matrices, and the biases
    assert table.parameters == {"trained": 84, "rank 1": 16 + 10 + 16 + 10 + 20, "rank 2": 84}
    lines = str(table).splitlines()
    assert len(lines) == 4 and "negative elbo" in lines[0] and "rank 1" in lines[2]


@pytest.mark.slow
def test_the_elbo_is_that_of_the_last_training_step(moons):
    problem = px.Problem(eqx.nn.Linear(2, 2, key=KEY), px.Categorical())
    posterior = px.fit(problem, moons[0], px.VI(q.Normal(), estimator="weight"), steps=400, key=0)
    last = posterior.trace["elbo"][-100:]  # estimates from one draw and one batch each
    value = px.analysis.elbo(posterior, moons[0], draws=1000)
    assert abs(value - last.mean()) < 5 * last.std() / np.sqrt(100)
    normal = variational(eqx.nn.Linear(2, 2, key=KEY))
    prior = sum(
        (-a["log_scale"] + (np.exp(2 * np.asarray(a["log_scale"])) + np.square(a["mean"])) / 2 - 0.5).sum()
        for a in normal.variational.values()
    )
    assert px.analysis.elbo(normal, moons[0], draws=5) < -prior  # its KL alone


def test_truncation_needs_a_variational_posterior(moons):
    with pytest.raises(TypeError, match="variational posterior"):
        px.analysis.truncation_table(
            drawn(NET, jax.tree.map(lambda a: a[None, None], eqx.filter(NET, eqx.is_array))), moons[1]
        )
