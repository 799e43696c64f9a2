import itertools
import re

import jax
import numpy as np
import pytest
import scipy.special

import posteriax as px
from posteriax.evaluation.report.page import page
from posteriax.evaluation.robustness.recalibration import best_temperature
from posteriax.evaluation.significance import best_and_ties
from posteriax.metrics import BinnedGaps

RNG = np.random.default_rng(0)
X, Y = np.zeros((50, 2), np.float32), RNG.integers(0, 3, 50)


@pytest.fixture(scope="module")
def comparison():
    predictives = {
        name: px.likelihoods.ClassPredictive(px.Categorical(), RNG.normal(size=(4, 50, 3)).astype(np.float32))
        for name in "ab"
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
        str(scale): px.likelihoods.NormalPredictive(px.Normal(scale=scale), np.zeros((1, 50, 1), np.float32), {})
        for scale in (1.0, 2.0)
    }
    table = px.compare(predictives, (X, y), reference="1.0")
    assert table.columns == ["rmse", "nll", "crps", "coverage_90", "wasserstein"]
    assert table["1.0"]["rmse"] == pytest.approx(np.sqrt(np.mean(y**2)), rel=1e-5)
    # of Gaussians of unequal scale: |2 - 1| E|z|
    assert table["2.0"]["wasserstein"] == pytest.approx(np.sqrt(2 / np.pi), rel=5e-4)


def test_an_unknown_reference_is_refused(comparison):
    with pytest.raises(ValueError, match="'HMC' is not one of the posteriors: 'a', 'b'"):
        px.compare(comparison[1], (X, Y), reference="HMC")


def predictive_of(probs: np.ndarray) -> px.likelihoods.ClassPredictive:
    return px.likelihoods.ClassPredictive(px.Categorical(), np.log(np.maximum(probs, 1e-30))[None].astype(np.float32))


def test_pairing_sees_a_difference_that_the_errors_hide():
    """Two classifiers that are right on the same examples, one always a little surer of it."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 400)
    chance = rng.uniform(0.1, 0.9, 400)  # of the true class: it varies a lot between examples
    probs = [np.where(np.eye(2)[y] == 1, c[:, None], 1 - c[:, None]) for c in (chance, chance * 0.99)]
    table = px.compare(dict(zip("ab", map(predictive_of, probs), strict=True)), (np.zeros((400, 1), np.float32), y))
    a, b = table.rows["a"]["nll"], table.rows["b"]["nll"]
    assert b.value - a.value < a.error  # within the errors of each
    assert table.best["test"]["nll"] == ("a",)
    assert table.best["test"]["accuracy"][0] == "a"


def test_random_differences_are_ties_about_as_often_as_they_should():
    """Of two equally good predictions, the worse is called significantly worse in about 5 % of test sets."""
    rng = np.random.default_rng(1)
    called = []
    for _ in range(200):
        errors = {name: {"nll": rng.exponential(size=300)} for name in "ab"}
        called.append(len(best_and_ties(errors)["nll"]) == 1)
    assert np.mean(called) < 0.05 + 4 * np.sqrt(0.05 * 0.95 / 200)
    assert np.mean(called) > 0.0


def test_a_predictor_that_boasts_is_worse_calibrated_than_an_honest_one():
    rng = np.random.default_rng(2)
    confidence = rng.uniform(0.5, 1.0, 2000)
    right = rng.uniform(size=2000) < confidence
    calibrated = np.stack([confidence, right], axis=1)
    sure = np.stack([np.minimum(confidence + 0.2, 1.0), right], axis=1)
    assert best_and_ties({"calibrated": {"ece": calibrated}, "sure": {"ece": sure}})["ece"] == ("calibrated",)
    assert BinnedGaps().standard_error(calibrated) < 0.02
    probs = np.stack([confidence, 1 - confidence], axis=1)
    assert BinnedGaps().value(calibrated) == pytest.approx(
        float(px.metrics.ece_equal_width(probs, np.where(right, 0, 1))), abs=1e-6
    )


@pytest.fixture(scope="module")
def fitted(moons):
    net = (lambda params, x: jax.nn.tanh(x @ params["w"]) @ params["v"], weights())
    problem = px.Problem(net, px.Categorical())
    return [px.fit(problem, moons[0], px.MAP(), steps=60, key=key) for key in range(3)]


def weights():
    keys = jax.random.split(jax.random.key(0))
    return {"w": jax.random.normal(keys[0], (2, 8)), "v": jax.random.normal(keys[1], (8, 2))}


@pytest.mark.slow
def test_several_seeds_give_errors_over_seeds(fitted, moons):
    table = px.compare({"MAP": fitted, "one": fitted[0]}, moons[1])
    own = [px.evaluate(posterior.predict(moons[1][0]), moons[1][1])["nll"] for posterior in fitted]
    assert table["MAP"]["nll"] == pytest.approx(np.mean(own), rel=1e-6)
    assert table.rows["MAP"]["nll"].error == pytest.approx(np.std(own, ddof=1) / np.sqrt(3), rel=1e-6)


def test_several_sets_severities_outside_attack_and_recalibration(fitted, moons):
    x, y = moons[1]
    far = x + np.float32(20.0)
    worse = lambda kind, s: px.data.CorruptedSet(x + np.float32(0.2 * s), y, kind=kind, severity=s)  # noqa: E731
    sets = {"clean": (x, y)} | {f"{kind} {s}": worse(kind, s) for kind in "ab" for s in (1, 3)}
    table = px.compare(
        {"one": fitted[0], "two": fitted[1]},
        sets,
        reference="two",
        out={"far": far},
        attack=px.evaluation.PGD(0.05, iterations=3, low=None, high=None),
        recalibrate=moons[0],
    )
    assert list(table.sets) == [*sets, "out: far", "attacked", "recalibrated"]
    by_severity = table.severities("nll")["one"]
    assert list(by_severity) == [0, 1, 3]
    assert by_severity[0] == table.rows["one"]["nll"]
    assert by_severity[3].value == pytest.approx(
        np.mean([table.sets[f"{kind} 3"]["one"]["nll"].value for kind in "ab"])
    )
    assert set(table.sets["out: far"]["one"]) == {"auroc", "auroc_max_probability", "auroc_mutual_information", "fpr95"}
    assert table.sets["attacked"]["one"]["accuracy"].value < table["one"]["accuracy"]
    assert len(table.charts["attacked"]["one"].attack["success"]) == 4
    assert table.sets["recalibrated"]["one"]["accuracy"] == table.rows["one"]["accuracy"]
    assert table.costs["one"].parameters == 32
    assert table.costs["one"].predict_ms > 0
    text = str(table)
    for words in ("parameters", "by severity of corruption", "out: far", "attacked", "recalibrated", "* best"):
        assert words in text
    assert table.to_pandas().loc[("a 3", "one"), "nll"] == table.sets["a 3"]["one"]["nll"].value


def test_charts_show_the_surest_mistakes(fitted, moons):
    x, y = moons[1]
    predictive = fitted[0].predict(x)
    table = px.compare({"MAP": fitted[0]}, moons[1])
    chart = table.charts["test"]["MAP"]
    wrong = predictive.probs.argmax(axis=1) != y
    assert wrong.any()
    surest = np.flatnonzero(wrong)[predictive.probs.max(axis=1)[wrong].argmax()]
    assert chart.surest_wrong[0].index == surest
    np.testing.assert_array_equal(chart.surest_wrong[0].x, x[surest])
    assert chart.count.sum() == len(y)
    assert (chart.count * np.abs(chart.right - chart.confidence)).sum() / len(y) == pytest.approx(
        px.evaluate(predictive, y)["ece"], abs=1e-6
    )


@pytest.mark.slow
def test_intervals_of_a_well_specified_regression_hold_what_they_say():
    rng = np.random.default_rng(3)
    y = rng.normal(size=4000).astype(np.float32)
    right = px.likelihoods.NormalPredictive(px.Normal(scale=1.0), np.zeros((1, 4000, 1), np.float32), {})
    table = px.compare({"right": right}, (np.zeros((4000, 1), np.float32), y))
    assert table["right"]["coverage_90"] == pytest.approx(0.9, abs=4 * np.sqrt(0.09 / 4000))
    # E|X - Y| - E|X - X'| / 2 of standard normals is 1 / sqrt(pi)
    crps = px.compare({"right": right}, (np.zeros((4000, 1), np.float32), y)).rows["right"]["crps"]
    assert crps.value == pytest.approx(1 / np.sqrt(np.pi), abs=4 * crps.error + 0.003)  # 0.003: of 32 quantiles
    chart = table.charts["test"]["right"]
    np.testing.assert_allclose(chart.coverage, chart.levels, atol=4 * 0.5 / np.sqrt(4000))


def test_a_temperature_mends_overconfidence():
    rng = np.random.default_rng(4)
    logits = rng.normal(size=(3000, 3)) * 2
    y = np.array([rng.choice(3, p=p) for p in np.exp(logits) / np.exp(logits).sum(1, keepdims=True)])
    sure = px.likelihoods.ClassPredictive(px.Categorical(), (3 * logits)[None].astype(np.float32))
    assert best_temperature(sure, y) == pytest.approx(3.0, rel=0.1)


@pytest.mark.parametrize(
    ("posteriors", "data", "message"),
    [
        ({}, (X, Y), "posteriors is empty"),
        ({"a": []}, (X, Y), "'a' has no posteriors"),
        ({"a": 3}, (X, Y), "'a' must be a posterior"),
        ({"a": predictive_of(np.full((50, 3), 1 / 3))}, {}, "data is empty"),
        ({"a": predictive_of(np.full((50, 3), 1 / 3))}, {"b": (X, Y), "c": (X, Y)}, "covers one test set"),
    ],
)
def test_bad_comparisons_are_errors(posteriors, data, message):
    with pytest.raises((ValueError, TypeError), match=message):
        px.compare(posteriors, data)


def test_one_method_under_two_names_is_no_difference():
    """Six runs of one method, three under each name, in all ten ways to deal them out, on five test sets."""
    called = 0
    for seed in range(5):
        rng = np.random.default_rng(seed)
        logits = rng.normal(size=(200, 3))
        y = (logits + rng.gumbel(size=(200, 3))).argmax(axis=1)
        off = rng.normal(size=(6, 8)) @ rng.normal(size=(8, 600)) / 8  # by run, a little different everywhere
        runs = np.float32(logits + off.reshape(6, 200, 3))
        losses = -scipy.special.log_softmax(runs, axis=-1)[:, np.arange(200), y]
        for others in itertools.combinations(range(1, 6), 2):
            a = [0, *others]
            b = [i for i in range(1, 6) if i not in others]
            marked = best_and_ties({n: [{"nll": losses[i]} for i in own] for n, own in (("a", a), ("b", b))})["nll"]
            called += len(marked) == 1
    of = lambda own: [px.likelihoods.ClassPredictive(px.Categorical(), runs[i : i + 1]) for i in own]  # noqa: E731
    predictives = {"a": of(a), "b": of(b)}
    assert px.compare(predictives, (np.zeros((200, 1)), y)).best["test"]["nll"] == marked
    assert called <= 8  # of 50, each at the 5 % level; within a test set they go together


def test_errors_say_what_they_are_over(fitted, moons):
    mixed = px.compare({"MAP": fitted, "one": fitted[0]}, moons[1])
    assert mixed.rows["MAP"]["nll"].over == "seeds"
    assert mixed.rows["one"]["nll"].over == "examples"
    assert mixed.seeds == {"MAP": 3, "one": 1}
    assert "± standard error: over seeds for MAP (3), over test examples for one (one run)" in str(mixed)
    single = px.compare({"one": fitted[0]}, moons[1])
    assert "± standard error over test examples, one run each" in str(single)
    assert "± is the standard error over test examples" in page(single)
    assert "standard error over 3 seeds each" in page(px.compare({"MAP": fitted}, moons[1]))


def test_numbered_hospitals_are_no_severities(fitted, moons):
    """Only the type says that a set is corrupted: other sets have tables of their own, whatever they are called."""
    x, y = moons[1]
    sets = {"clean": (x, y), "hospital 1": (x + np.float32(0.3), y), "hospital 2": (x - np.float32(0.3), y)}
    sets["blur"] = px.data.CorruptedSet(x + np.float32(0.5), y, kind="blur", severity=2)
    table = px.compare({"one": fitted[0]}, sets)
    assert list(table.corruptions) == ["blur"]
    assert list(table.severities("nll")["one"]) == [0, 2]
    assert table.severities("nll")["one"][2].value == table.sets["blur"]["one"]["nll"].value
    printed, html = str(table), page(table)
    for name in ("hospital 1", "hospital 2"):
        nll = px.evaluate(fitted[0].predict(sets[name][0]), y)["nll"]
        shown = f"{nll:.2f} ±"
        assert table.sets[name]["one"]["nll"].value == nll
        assert re.search(rf"^{name}\s*$", printed, re.MULTILINE)  # the title of its table
        assert shown in printed[printed.index(name) :].split("└")[0]
        assert shown in table.to_markdown(name)
        assert shown in html[html.index(f"<caption>{name}</caption>") :].split("</table>")[0]
    assert "severity" not in str(px.compare({"one": fitted[0]}, {name: sets[name] for name in list(sets)[:3]}))
