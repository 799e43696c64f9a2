"""Baselines are rows beside posteriors: scores, distances, costs, marks, charts; and what failed is not scored."""

import numpy as np
import pytest

import posteriax as px
from posteriax.evaluation.report.page import page


@pytest.fixture(scope="module")
def posterior(moons):
    problem = px.Problem((lambda w, x: x @ w, np.zeros((2, 2), np.float32)), px.Categorical())
    return px.fit(problem, moons[0], px.MAP(), steps=30, key=0)


@pytest.fixture(scope="module")
def table(posterior, moons):
    good = px.evaluation.Baseline(lambda x: posterior.predict(x), "The same network.", seconds=2.5)
    bad = px.evaluation.Baseline(
        lambda x: px.likelihoods.ClassPredictive(px.Categorical(), np.zeros((1, len(x), 2), np.float32)), "A coin."
    )
    return px.compare(
        {"MAP": posterior, "other": posterior, "same": good, "coin": bad},
        {"test": moons[1], "shifted": (moons[1][0] + np.float32(0.1), moons[1][1])},
        reference="MAP",
        out={"far": moons[1][0] + np.float32(9)},
        attack=px.evaluation.FGSM(0.1, low=None, high=None),
        conformal=moons[0],
        runs={"swag": px.evaluation.RunEnd("failed", ("Infinite.",)), "MAP": px.evaluation.RunEnd("converged")},
    )


@pytest.mark.slow
def test_a_baseline_is_scored_on_every_set_that_needs_only_predictions(table):
    assert table["same"] == table["MAP"] | {"total_variation": table["same"]["total_variation"]}
    assert list(table.sets["shifted"]) == list(table.sets["out: far"]) == ["MAP", "other", "same", "coin"]
    assert list(table.sets["attacked"]) == ["MAP", "other"]  # it has no gradient
    assert table.baselines == {"same": "The same network.", "coin": "A coin."}


def test_its_distance_to_the_reference_is_shown_but_never_the_best(table):
    assert table["same"]["total_variation"] == pytest.approx(0, abs=1e-6)
    assert table["coin"]["total_variation"] > 0.01
    assert table.best["test"]["total_variation"] == ("other",)
    assert "same" in table.best["test"]["nll"]


def test_its_cost_has_no_parameters(table):
    assert table.costs["same"].parameters is None
    assert table.costs["same"].train_seconds == 2.5
    assert table.costs["same"].predict_ms > 0
    assert "baseline" in page(table)
    assert "2.5" in table.to_markdown()


def test_runs_that_failed_are_kept_but_not_scored(posterior, moons, table):
    assert table.runs["swag"].status == "failed"
    assert "swag failed and was not scored." in str(table)
    with pytest.raises(ValueError, match="'MAP' failed: leave it out"):
        px.compare({"MAP": posterior}, moons[1], runs={"MAP": px.evaluation.RunEnd("failed")})
    with pytest.raises(ValueError, match="'HMC', which is not one of the posteriors: 'MAP'"):
        px.compare({"MAP": posterior}, moons[1], runs={"HMC": px.evaluation.RunEnd("converged")})
    with pytest.raises(ValueError, match="status must be one of 'converged'"):
        px.evaluation.RunEnd("fine")


@pytest.mark.slow
def test_two_halves_of_a_sampled_reference_are_the_floor_of_distances(posterior, moons):
    """Against the same distance, computed from the probabilities of each half of the draws."""
    truth = px.fit(posterior.problem, moons[0], px.HMC(warmup=10), draws=20, chains=2, key=0)
    table = px.compare({"MAP": posterior, "HMC": truth}, moons[1], reference="HMC")
    probs = np.exp(np.asarray(truth.predict(moons[1][0]).log_probs_per_draw))
    expected = np.abs(probs[:20].mean(axis=0) - probs[20:].mean(axis=0)).sum(axis=1).mean() / 2
    assert table.floor["total_variation"].value == pytest.approx(expected, rel=1e-4)
    assert px.compare({"MAP": posterior, "HMC": truth}, moons[1], reference="MAP").floor == {}
