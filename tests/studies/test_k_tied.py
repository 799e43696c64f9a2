"""The study of the k-tied Normal: every claim, table and figure follows from its cells; its own numbers are right."""

import json
import math

import jax
import numpy as np
import pytest

import posteriax as px
from posteriax import families as q
from posteriax import priors as p
from posteriax.studies import Cell, Workbench, read_results
from posteriax.studies.k_tied import STUDY, experiments
from posteriax.studies.k_tied.experiments import HE, LENET, LSTM, MEAN_FIELD, MLP, TIED, cells, run
from posteriax.studies.k_tied.report import late_elbo_ratio, left_at_start, signal_ratio, truncation_ratio
from posteriax.studies.results import CellResult, Results, plain

PAPER = STUDY.scales["paper"]


@pytest.fixture
def results(smoke_folder):
    return read_results(smoke_folder("k-tied"))


@pytest.mark.slow  # another smoke run
def test_steps_are_timed_outside_of_the_results(results):
    assert results.times["MLP, 2-tied, seed 0"]["seconds_per_step"] > 0
    assert "clock" not in json.dumps([plain(cell.result) for cell in results.cells])


def made_up(entries):
    """Results of the first steps of the MLP, by family and seed."""
    made = [
        CellResult(
            {"network": MLP, "family": family},
            seed,
            {"first_steps": {"signal": s, "median_ratio": s, "negative_elbo": e}},
        )
        for (family, seed), (s, e) in entries.items()
    ]
    return Results("k-tied", "smoke", 2, {}, made, {}, {}, False)


def test_claims_on_first_steps_compare_the_worst_rank_with_mean_field_seed_by_seed():
    found = made_up(
        {
            (MEAN_FIELD, 0): ([9.0, 2.0, 2.0], [20.0, 12.0]),
            (MEAN_FIELD, 1): ([9.0, 1.0, 1.0], [20.0, 12.0]),  # its tied runs are not finished
            ("1-tied", 0): ([9.0, 30.0, 4.0], [20.0, 3.0]),
            ("2-tied", 0): ([9.0, 20.0, 5.0], [20.0, 4.0]),
            ("3-tied", 0): ([9.0, 40.0, 6.0], [20.0, 2.0]),
        }
    )
    assert signal_ratio(1)(found) == [10.0]
    assert STUDY.claim("MLP: signal late").values(found)[""] == [0.2]
    assert late_elbo_ratio()(found) == [3.0]


def test_truncation_ratio_is_relative_to_the_posterior_as_trained():
    result = {"scores": {"nll": 0.1}, "truncation": {"1": {"nll": 0.7}}}
    found = Results("", "smoke", 1, {}, [CellResult({"network": MLP, "family": MEAN_FIELD}, 0, result)], {}, {}, True)
    np.testing.assert_allclose(truncation_ratio(MLP, 1, "nll")(found), [7.0])


def test_shuffled_entries_have_no_structure_beyond_their_mean():
    rng = np.random.default_rng(0)
    rank_one = np.outer(rng.lognormal(size=60), rng.lognormal(size=40))
    shares = experiments.shuffled_shares(rank_one)
    assert np.linalg.matrix_rank(rank_one) == 1 and shares[:2].sum() < 0.6  # its entries differ by orders
    even = experiments.shuffled_shares(rng.normal(0.01, 0.001, (60, 40)))
    assert 1 - even[:2].sum() == pytest.approx(left_at_start(60, 40), rel=0.1)


def test_networks_that_guess_decide_nothing():
    cells = [CellResult({"network": LENET, "family": MEAN_FIELD}, 0, {"scores": {"negative_elbo": 5.9, "nll": 3.9}})]
    claim = STUDY.claim("LeNet: trained 2-tied, NLL")
    assert "worse than guessing" in claim.objection(Results("", "laptop", 1, {}, cells, {}, {}, True))


def linear_posterior(family, steps=3):
    """VI of a linear classifier of two inputs, and its data."""
    train, test = px.data.two_moons(train=64)
    net = px.zoo.mlp(inputs=2, hidden=(), classes=2, key=jax.random.key(0))
    problem = px.Problem(net, px.Categorical(), prior=p.Normal(scale=0.2))
    return px.fit(problem, train, px.VI(family, start="network"), steps=steps, key=0), train, test


@pytest.mark.slow
def test_negative_elbo_is_that_of_the_analysis_on_the_same_examples():
    posterior, train, _ = linear_posterior(q.Normal())
    found = experiments.scores(posterior, train, len(train[1]), experiments.Predicting(50))
    expected = -px.analysis.elbo(posterior, train, 50, key=experiments.EVALUATION_KEY) / len(train[1])
    assert found["negative_elbo"] == pytest.approx(expected, rel=1e-5)


def test_point_estimates_have_no_kl():
    posterior, *_ = linear_posterior({"**": q.Point(), "layers/0/weight": q.Normal()})
    own = {name: np.asarray(value[0], np.float64) for name, value in posterior.variational["layers/0/weight"].items()}
    scale = np.exp(own["log_scale"])
    kl = np.log(0.2 / scale) + (scale**2 + own["mean"] ** 2) / (2 * 0.2**2) - 0.5
    assert experiments.random_kl(posterior) == pytest.approx(kl.sum(), rel=1e-5)


@pytest.mark.slow
def test_untied_is_the_same_distribution():
    posterior, *_ = linear_posterior(q.KTied(1))
    same = experiments.untied(posterior)
    assert type(same.families["layers/0/weight"]) is q.Normal
    for name, found in px.analysis.spectra(posterior).items():
        np.testing.assert_allclose(px.analysis.spectra(same)[name].scale, found.scale, rtol=1e-5)
    assert experiments.random_kl(same) == pytest.approx(experiments.random_kl(posterior), rel=1e-5)


def test_expected_nll_averages_over_draws_and_examples():
    predictive = px.likelihoods.ClassPredictive(
        px.Categorical(), np.log([[[0.5, 0.5], [0.25, 0.75]], [[0.1, 0.9], [0.5, 0.5]]])
    )
    expected = -np.log([0.5, 0.75, 0.1, 0.5]).mean()
    assert experiments.expected_nll(predictive, np.array([0, 1])) == pytest.approx(expected, rel=1e-6)


def test_data_are_prepared_as_the_networks_take_them():
    bench = Workbench(trial=True)
    for network, shape in ((MLP, (28, 28)), (HE, (28, 28)), (LENET, (32, 32, 3)), (LSTM, (80,))):
        training = {MLP: PAPER.mlp, HE: PAPER.mlp, LENET: PAPER.lenet, LSTM: PAPER.lstm}[network]
        _, (x, y), _ = experiments.load_parts(network, training, PAPER.sizes, bench)
        assert x.shape[1:] == shape and len(x) == len(y)
    x = experiments.load_parts(MLP, PAPER.mlp, PAPER.sizes, bench)[1][0]
    assert x.min() < -0.5 and x.min() >= -1 and 0.5 < x.max() <= 1


@pytest.mark.slow
@pytest.mark.parametrize("network", [MLP, LENET, LSTM])
def test_the_papers_networks_take_a_step(network):
    settings = STUDY.one_step(PAPER)
    result = run(Cell({"network": network, "family": "2-tied"}, 0), settings, Workbench(trial=True))
    assert math.isfinite(result["scores"]["negative_elbo"])
    assert result["parameters"] == {MLP: 484_008, LENET: 2_267_408, LSTM: 2_694_273}[network]


def test_the_paper_trains_all_families_of_all_networks():
    found = {(cell.settings["network"], cell.settings["family"]) for cell in cells(PAPER, 1)}
    assert found >= {(network, family) for network in (MLP, LENET, LSTM) for family in (MEAN_FIELD, *TIED)}
