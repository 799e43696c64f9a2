import numpy as np
import pytest

import posteriax as px

RNG = np.random.default_rng(0)
X, Y = np.zeros((50, 2), np.float32), RNG.integers(0, 3, 50)


@pytest.fixture(scope="module")
def comparison():
    predictives = {
        name: px.ClassPredictive(px.Categorical(), RNG.normal(size=(4, 50, 3)).astype(np.float32)) for name in "ab"
    }
    return px.compare(predictives, (X, Y), reference="b"), predictives


def test_scores_are_those_of_evaluate_and_distances_those_of_metrics(comparison):
    table, predictives = comparison
    row = table["a"]
    for name, value in px.evaluate(predictives["a"], Y).items():
        assert row[name] == value
    ours, theirs = predictives["a"].probs, predictives["b"].probs
    assert row["agreement"] == pytest.approx(float(px.metrics.agreement(ours, theirs)))
    assert row["total_variation"] == pytest.approx(float(px.metrics.total_variation(ours, theirs)), rel=1e-5)
    assert table["b"]["agreement"] == 1.0
    assert table["b"]["total_variation"] == 0.0


def test_evaluate_agrees_with_the_metrics(comparison):
    _, predictives = comparison
    scores = px.evaluate(predictives["a"], Y)
    probs = predictives["a"].probs
    assert list(scores) == ["accuracy", "nll", "ece", "brier"]
    assert scores["accuracy"] == pytest.approx(float(px.metrics.accuracy(probs, Y)))
    assert scores["nll"] == pytest.approx(float(px.metrics.nll(probs, Y)), rel=1e-5)
    assert scores["brier"] == pytest.approx(float(px.metrics.brier(probs, Y)), rel=1e-5)
    assert scores["ece"] == pytest.approx(float(px.metrics.ece_equal_width(probs, Y)))


def test_the_table_goes_to_text_markdown_and_pandas(comparison):
    table, _ = comparison
    assert "total variation ↓" in str(table)
    assert "distances to b" in str(table)
    lines = table.to_markdown().splitlines()
    assert len(lines) == 4
    assert len({line.count("|") for line in lines}) == 1
    frame = table.to_pandas()
    assert frame.loc["a", "nll"] == table["a"]["nll"]


def test_regressions_are_compared_by_rmse_nll_and_wasserstein():
    y = RNG.normal(size=50).astype(np.float32)
    predictives = {
        str(scale): px.NormalPredictive(px.Normal(scale=scale), np.zeros((1, 50, 1), np.float32), {})
        for scale in (1.0, 2.0)
    }
    table = px.compare(predictives, (X, y), reference="1.0")
    assert table.columns == ["rmse", "nll", "wasserstein"]
    assert table["1.0"]["rmse"] == pytest.approx(np.sqrt(np.mean(y**2)), rel=1e-5)
    assert table["2.0"]["wasserstein"] == pytest.approx(np.sqrt(2 / np.pi), rel=0.02)


def test_an_unknown_reference_is_refused(comparison):
    with pytest.raises(ValueError, match="'HMC' is none of the posteriors: 'a', 'b'"):
        px.compare(comparison[1], (X, Y), reference="HMC")
