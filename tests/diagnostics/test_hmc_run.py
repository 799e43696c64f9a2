"""A small real HMC run: what posteriax says of it and what ArviZ says."""

import sys
import warnings

import known
import numpy as np
import pytest

import posteriax as px

with warnings.catch_warnings():
    warnings.simplefilter("ignore", FutureWarning)
    import arviz as az


@pytest.fixture(scope="module")
def posterior():
    exact = known.linear_regression()
    return px.fit(exact.problem, exact.data, px.HMC(warmup=100, start="network"), draws=200, chains=4, key=0)


@pytest.mark.slow
def test_diagnosis_agrees_with_arviz(posterior):
    diagnosis = posterior.diagnose(known.linear_regression().data[0])
    data = posterior.to_arviz()
    (leaf,) = diagnosis.leaves
    assert leaf.worst_rhat == pytest.approx(float(az.rhat(data)["w"].max()), rel=1e-4)  # ArviZ's are in float32
    assert leaf.smallest_ess == pytest.approx(float(az.ess(data, method="bulk")["w"].min()), rel=1e-4)
    assert diagnosis.sampler.ebfmi == pytest.approx(az.bfmi(data), rel=1e-4)


def test_a_loaded_posterior_has_the_same_diagnosis(posterior, tmp_path):
    posterior.save(tmp_path / "run.posterior")
    loaded = px.load(tmp_path / "run.posterior", posterior.problem.network)
    x = known.linear_regression().data[0]
    assert loaded.diagnose(x) == posterior.diagnose(x)


def test_arviz_gets_the_draws_and_their_statistics(posterior):
    data = posterior.to_arviz()
    np.testing.assert_array_equal(data.posterior["w"], posterior.draws.network["w"])
    assert data.posterior["w"].dims[:2] == ("chain", "draw")
    theirs = {"diverging", "acceptance_rate", "step_size", "n_steps", "lp", "energy"}
    assert set(data.sample_stats) == theirs | {"accepted", "cut"}  # which ArviZ has no name for
    for ours, theirs in (("log_joint", "lp"), ("divergent", "diverging"), ("leapfrogs", "n_steps")):
        np.testing.assert_array_equal(data.sample_stats[theirs], posterior.trace[ours][:, 100:])


def test_the_log_joint_belongs_to_the_draw(posterior):
    exact = known.linear_regression()
    data = posterior.to_arviz()
    for chain, draw in ((0, 0), (3, 199)):
        params = {"w": data.posterior["w"].to_numpy()[chain, draw]}
        expected = float(exact.problem.log_joint(params, exact.data))
        assert float(data.sample_stats["lp"][chain, draw]) == pytest.approx(expected, rel=1e-4)


def test_the_data_can_be_saved(posterior, tmp_path):
    nested = px.Problem(
        (lambda params, x: x @ params["fc"]["w"], {"fc": posterior.problem.latents.network}), px.Normal(scale=1.0)
    )
    moved = type(posterior)(nested, posterior.trace, posterior.draws._replace(network={"fc": posterior.draws.network}))
    moved.to_arviz().to_netcdf(str(tmp_path / "run.nc"))
    assert az.from_netcdf(str(tmp_path / "run.nc")).posterior["fc.w"].shape == (4, 200, 4, 1)


def test_one_chain_has_a_chain_axis(posterior):
    exact = known.linear_regression()
    one = px.fit(exact.problem, exact.data, px.HMC(warmup=5, start="network"), draws=10, key=0).to_arviz()
    assert one.posterior["w"].shape == (1, 10, 4, 1)
    assert one.sample_stats["lp"].shape == (1, 10)


def test_without_arviz_it_says_how_to_get_it(posterior, monkeypatch):
    monkeypatch.setitem(sys.modules, "arviz", None)
    with pytest.raises(ImportError, match=r"pip install 'posteriax\[arviz\]'"):
        posterior.to_arviz()
