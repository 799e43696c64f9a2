import pickle
from dataclasses import replace

import equinox as eqx
import jax
import known
import numpy as np
import pytest
import scipy.stats

import posteriax as px
from posteriax import families as q
from posteriax import priors as p
from posteriax._internal import memory
from posteriax.posterior import PosteriorFileError, Trace, prediction


@pytest.fixture(scope="module")
def net():
    return eqx.nn.MLP(2, 2, 8, 1, key=jax.random.key(0))


@pytest.fixture(scope="module")
def posteriors(net, moons):
    problem = px.Problem(net, px.Categorical(), {"**": p.HeNormal(), "**/bias": p.Laplace(0.5)}, temperature=0.9)
    families = {"**": q.KTied(2), "layers/0": q.ZeroMeanNormal(), "layers/1/bias": q.Point()}
    return {
        "MAP": px.fit(problem, moons[0], px.MAP(), steps=5, key=0),
        "VI": px.fit(problem, moons[0], px.VI(families), steps=5, key=0),
        "HMC": px.fit(problem, moons[0], px.HMC(warmup=5, start="network"), draws=6, chains=2, key=0),
    }


def test_samples_have_the_networks_own_structure(posteriors, net):
    for posterior in posteriors.values():
        sample = posterior.sample(0, 7)
        assert jax.tree.structure(sample) == jax.tree.structure(eqx.filter(net, eqx.is_inexact_array))
        for leaf, own in zip(
            jax.tree.leaves(sample), jax.tree.leaves(eqx.filter(net, eqx.is_inexact_array)), strict=True
        ):
            assert leaf.shape == (7, *own.shape)


def test_draws_are_spread_evenly_over_chains(posteriors):
    hmc = posteriors["HMC"]
    flat = np.asarray(hmc.draws.network.layers[0].weight).reshape(12, 8, 2)
    predicted = hmc.predict(np.zeros((1, 2)), draws=4).outputs
    np.testing.assert_array_equal(predicted, hmc.predict(np.zeros((1, 2))).outputs[[0, 3, 6, 9]])
    some = np.asarray(hmc.sample(0, 24).layers[0].weight)
    np.testing.assert_array_equal(np.sort(some, axis=0), np.sort(np.concatenate([flat, flat]), axis=0))
    assert not np.array_equal(hmc.sample(0, 1).layers[0].weight, hmc.sample(7, 1).layers[0].weight)
    assert hmc.predict(np.zeros((3, 2)), draws=100).outputs.shape == (12, 3, 2)


def test_chains_and_their_draws_are_counted(posteriors):
    hmc, point = posteriors["HMC"], posteriors["MAP"]
    assert (hmc.chains, hmc.draws_per_chain, hmc.support) == (2, 6, 12)
    assert (point.chains, point.draws_per_chain, point.support) == (1, 1, 1)


def test_the_evidence_of_laplace_is_that_of_linear_regression():
    exact = known.linear_regression()
    x, y = (np.asarray(a, np.float64) for a in exact.data)
    truth = scipy.stats.multivariate_normal(np.zeros(len(y)), 0.25 * np.eye(len(y)) + x @ x.T).logpdf(y)
    posterior = px.fit(exact.problem, exact.data, px.Laplace(structure="full"), epochs=1, key=0)
    assert isinstance(posterior.log_evidence, float)
    assert posterior.log_evidence == pytest.approx(truth, rel=1e-4)  # float32 sums of 30 terms


def test_there_is_no_evidence_where_the_method_estimates_none(posteriors):
    assert [posterior.log_evidence for posterior in posteriors.values()] == [None] * 3
    assert replace(posteriors["MAP"], trace=Trace({"log_evidence": np.array(np.nan)})).log_evidence is None  # cold
    assert replace(posteriors["MAP"], trace=Trace({"log_evidence": np.array([-3.0, -2.0])})).log_evidence == -2.0


def test_the_mean_is_the_mean_of_the_draws(posteriors):
    vi = posteriors["VI"]
    draws = vi.sample(0, 4000).layers[1].weight
    error = 5 * np.asarray(draws.std(axis=0)) / np.sqrt(4000)
    assert np.all(np.abs(vi.mean.layers[1].weight - draws.mean(axis=0)) < error + 1e-7)
    assert np.all(np.asarray(vi.mean.layers[0].weight) == 0.0)


@pytest.mark.slow
def test_parameters_are_counted(posteriors, net, moons):
    weights = 2 * 8 + 8 + 8 * 2 + 2
    assert posteriors["MAP"].num_parameters == weights
    assert posteriors["HMC"].num_parameters == 2 * 6 * weights
    tied = px.fit(px.Problem(net, px.Categorical()), moons[0], px.VI(q.KTied(1)), steps=1, key=0)
    assert tied.num_parameters == weights + (2 + 8) + 8 + (8 + 2) + 2  # biases stay mean-field


@pytest.mark.parametrize("name", ["MAP", "VI", "HMC"])
def test_chunks_of_prediction_change_nothing(posteriors, name, monkeypatch):
    x = np.random.default_rng(0).normal(size=(50, 2)).astype(np.float32)
    whole = posteriors[name].predict(x, draws=9).outputs
    monkeypatch.setattr(memory, "EXAMPLES_AT_ONCE", 7)
    monkeypatch.setattr(memory, "WORKING_BYTES", 1000)
    np.testing.assert_allclose(posteriors[name].predict(x, draws=9).outputs, whole, rtol=1e-5, atol=1e-6)


def test_the_working_memory_of_prediction_is_bounded(monkeypatch):
    """A wide hidden layer: at 1024 examples it would need 64 MB, so fewer are taken at once under a budget of 8 MB."""
    problem = px.Problem(eqx.nn.MLP(2, 2, 16_384, 1, key=jax.random.key(0)), px.Categorical())
    monkeypatch.setattr(memory, "WORKING_BYTES", 8 * 2**20)
    for program in (prediction.apply_draws, prediction.sum_draws):
        plan = prediction.plan_program(program, problem, np.zeros((5000, 2), np.float32), 100, problem.latents)
        assert plan.rows < 1024
        analysis = plan.run.memory_analysis()
        assert analysis.temp_size_in_bytes + analysis.output_size_in_bytes <= 8 * 2**20
        assert plan.draws * 4 * problem.network.num_parameters <= 8 * 2**20


@pytest.mark.parametrize("name", ["VI", "HMC"])
def test_reduced_predictions_are_those_of_all_draws(posteriors, name, monkeypatch):
    x = np.random.default_rng(0).normal(size=(50, 2)).astype(np.float32)
    monkeypatch.setattr(memory, "EXAMPLES_AT_ONCE", 7)
    monkeypatch.setattr(memory, "WORKING_BYTES", 4000)  # two draws at once: the last chunk is partly filled
    whole, reduced = (posteriors[name].predict(x, draws=9, reduce=reduce) for reduce in (False, True))
    y = np.arange(50) % 2
    for a, b in (
        (whole.probs, reduced.probs),
        (whole.entropy(), reduced.entropy()),
        (whole.mutual_information(), reduced.mutual_information()),
        (whole.log_prob(y), reduced.log_prob(y)),
    ):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=2e-6)
    np.testing.assert_allclose(whole.std, reduced.std, atol=1e-3)  # a difference of sums, in float32
    assert px.evaluate(reduced, y) == pytest.approx(px.evaluate(whole, y), abs=1e-4)
    with pytest.raises(ValueError, match="predict with reduce=False"):
        reduced.quantile(0.5)


@pytest.mark.slow
def test_reduced_regressions_keep_mean_and_std(moons):
    x, y = moons[0][0], moons[0][0][:, :1]
    problem = px.Problem(eqx.nn.MLP(2, 1, 8, 1, key=jax.random.key(0)), px.Normal(scale="learned"))
    posterior = px.fit(problem, (x, y), px.VI(q.Normal(scale=0.1)), steps=5, key=0)
    whole, reduced = (posterior.predict(x, draws=20, reduce=reduce) for reduce in (False, True))
    np.testing.assert_allclose(whole.mean, reduced.mean, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(whole.std, reduced.std, rtol=1e-3)
    with pytest.raises(ValueError, match="log_prob needs the outputs of every draw"):
        reduced.log_prob(y)
    assert px.evaluate(reduced, y) == pytest.approx({"rmse": px.evaluate(whole, y)["rmse"]}, rel=1e-4)


@pytest.mark.parametrize("name", ["MAP", "VI", "HMC"])
def test_a_saved_posterior_comes_back_the_same(posteriors, net, name, tmp_path):
    posterior = posteriors[name]
    posterior.save(tmp_path / "run.posterior")
    again = px.load(tmp_path / "run.posterior", net)
    x = np.random.default_rng(0).normal(size=(5, 2)).astype(np.float32)
    np.testing.assert_array_equal(again.predict(x, draws=6).outputs, posterior.predict(x, draws=6).outputs)
    assert again.trace.notes == posterior.trace.notes
    assert again.problem.temperature == 0.9
    assert again.problem.prior == posterior.problem.prior
    for key in posterior.trace:
        np.testing.assert_array_equal(again.trace[key], posterior.trace[key])
    assert [f.name for f in tmp_path.iterdir()] == ["run.posterior"]


def test_another_networks_posterior_is_refused(posteriors, tmp_path):
    posteriors["VI"].save(tmp_path / "run.posterior")
    with pytest.raises(PosteriorFileError, match=r"leaf layers/0/weight is \(8, 2\) float32 in the file, but \(9, 2\)"):
        px.load(tmp_path / "run.posterior", eqx.nn.MLP(2, 2, 9, 1, key=jax.random.key(0)))
    with pytest.raises(PosteriorFileError, match=r"leaves .* are missing"):
        px.load(tmp_path / "run.posterior", eqx.nn.MLP(2, 2, 8, 2, key=jax.random.key(0)))


def test_a_damaged_file_is_the_one_documented_error_or_the_right_posterior(posteriors, net, tmp_path):
    path = tmp_path / "run.posterior"
    posteriors["VI"].save(path)
    good = path.read_bytes()
    expected = posteriors["VI"].predict(np.zeros((1, 2)), draws=2).outputs
    rng = np.random.default_rng(0)
    for trial in range(150):
        at, kind = int(rng.integers(len(good))), trial % 3
        bad = bytearray(good)
        if kind == 0:
            bad[at] ^= 1 << int(rng.integers(8))
        elif kind == 1:
            del bad[at : at + int(rng.integers(1, 50))]
        else:
            bad[at:at] = bytes(rng.integers(0, 256, int(rng.integers(1, 50)), dtype=np.uint8))
        path.write_bytes(bad)
        try:
            loaded = px.load(path, net)
        except PosteriorFileError:
            continue
        np.testing.assert_array_equal(loaded.predict(np.zeros((1, 2)), draws=2).outputs, expected)
    path.write_bytes(b"")
    with pytest.raises(PosteriorFileError):
        px.load(path, net)


def test_a_missing_file_is_the_usual_error(net, tmp_path):
    with pytest.raises(FileNotFoundError):
        px.load(tmp_path / "none.posterior", net)


def test_numbers_of_numpys_own_types_can_be_saved(net, moons, tmp_path):
    prior = {"layers/*/w*": p.Normal(np.float32(0.5)), "layers/*/b*": p.Normal(2.0), "layers/*/*s": p.Normal(3.0)}
    problem = px.Problem(net, px.Categorical(), prior, temperature=np.float32(0.5))
    px.fit(problem, moons[0], px.MAP(), steps=1, key=0).save(tmp_path / "run.posterior")
    again = px.load(tmp_path / "run.posterior", net)
    assert again.problem.leaf_scales == problem.leaf_scales  # the patterns kept their order


def test_a_network_that_couples_examples_is_never_cut(monkeypatch):
    """Whatever the memory: batch statistics of half the examples would be other statistics."""
    net = (lambda params, x: (h := x @ params["w"]) - h.mean(axis=0), {"w": np.eye(2, 3, dtype=np.float32)})
    (x, y), _ = px.data.two_moons(train=50)
    posterior = px.fit(px.Problem(net, px.Categorical()), (x, y), px.MAP(), steps=2, key=0)
    whole = posterior.predict(x).probs
    monkeypatch.setattr(memory, "WORKING_BYTES", 1000)
    np.testing.assert_allclose(posterior.predict(x).probs, whole, rtol=1e-5)


@pytest.mark.slow
def test_a_posterior_can_be_pickled_and_printed_in_a_line(moons):
    (x, y), _ = moons
    net = eqx.nn.MLP(2, 2, 4, 1, key=jax.random.key(0))
    for problem in (px.Problem(net, px.Categorical()), px.Problem(net, px.Categorical(), fixed="layers/0")):
        posterior = px.fit(problem, (x, y), px.VI(), steps=2, key=0)
        again = pickle.loads(pickle.dumps(posterior))
        assert (again.predict(x, 5).probs == posterior.predict(x, 5).probs).all()
        assert repr(again) == f"VariationalPosterior({problem.network.num_parameters} weights, Categorical())"


def test_a_network_that_was_made_by_hand_cannot_be_pickled(moons):
    net = px.networks.Network(lambda params, x, *, key=None: x @ params["w"], {"w": np.ones((2, 2), np.float32)})
    posterior = px.fit(px.Problem(net, px.Categorical()), moons[0], px.MAP(), steps=2, key=0)
    with pytest.raises(TypeError, match=r"use \.save"):
        pickle.dumps(posterior)
