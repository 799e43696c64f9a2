"""Baselines predict what scikit-learn's models predict, with finite scores and honest intervals."""

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.model_selection import KFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import posteriax as px
from posteriax.tabular import baselines, fit_baselines
from posteriax.tabular.baseline_files import load_baseline, save_baseline
from posteriax.tabular.baselines import PENALTIES

TREES = 40


@pytest.fixture(scope="module", autouse=True)
def small_models():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(baselines, "TREES", TREES)
        patch.setattr(baselines, "MOST_ROUNDS", 40)
        yield


@pytest.fixture(scope="module")
def iris():
    x, y = load_iris(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(x))
    x, y = x[order].astype(np.float32), y[order]
    return (x[:100], y[:100]), (x[100:], y[100:])


@pytest.fixture(scope="module")
def of_iris(iris):
    return fit_baselines(*iris[0], "classification")


@pytest.fixture(scope="module")
def line():
    """y = 1e7 + 3 x1 - 2 x2 + noise of standard deviation 2, in the target's own units."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(700, 4))
    y = 1e7 + 3 * x[:, 0] - 2 * x[:, 1] + 2 * rng.normal(size=700)
    return (x[:300], y[:300]), (x[300:], y[300:])


def test_probabilities_are_those_of_the_models(iris, of_iris):
    (x, y), (x_test, _) = iris
    linear = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)).fit(x.astype(np.float64), y)
    found = of_iris["logistic regression"].predict(x_test).probs
    np.testing.assert_allclose(found, linear.predict_proba(x_test), atol=1e-5)
    forest = RandomForestClassifier(TREES, max_samples=len(x), random_state=0).fit(x.astype(np.float64), y)
    smoothed = (TREES * forest.predict_proba(x_test) + 1) / (TREES + 3)
    np.testing.assert_allclose(of_iris["random forest"].predict(x_test).probs, smoothed, atol=1e-5)


def test_a_baseline_read_from_its_file_predicts_the_same(tmp_path, iris, of_iris, line):
    two = fit_baselines(iris[0][0], (iris[0][1] == 2).astype(int), "classification", classes=3)  # one is never seen
    numbers = fit_baselines(*line[0], "regression")
    for models, x in ((of_iris, iris[1][0]), (two, iris[1][0]), (numbers, line[1][0].astype(np.float32))):
        for name, baseline in models.items():
            save_baseline(baseline, tmp_path / "a.baseline")
            loaded = load_baseline(tmp_path / "a.baseline").predict(x)
            # sums of trees in another order, then logarithms or standardised values in float32
            np.testing.assert_allclose(loaded.outputs, baseline.predict(x).outputs, rtol=1e-5, atol=1e-5, err_msg=name)
            np.testing.assert_allclose(loaded.std, baseline.predict(x).std, rtol=1e-5)


def test_no_score_is_infinite_and_a_separable_problem_is_solved(iris, of_iris):
    for baseline in of_iris.values():
        scores = px.evaluate(baseline.predict(iris[1][0]), iris[1][1])
        assert scores["accuracy"] >= 0.9
        assert scores["nll"] < 0.4
        assert baseline.description.endswith(".")
        assert baseline.seconds > 0


def test_numbers_have_the_models_means_and_the_spread_of_held_out_errors(line):
    (x, y), (x_test, y_test) = line
    found = fit_baselines(x, y, "regression")
    make = make_pipeline(StandardScaler(), RidgeCV(PENALTIES))
    off = y - cross_val_predict(make, x, y, cv=KFold(5, shuffle=True, random_state=0))
    predictive = found["ridge regression"].predict(x_test)
    # to float32's precision of a standardised value
    np.testing.assert_allclose(predictive.mean[:, 0], make.fit(x, y).predict(x_test), atol=1e-5 * y.std(), rtol=0)
    np.testing.assert_allclose(predictive.std, np.sqrt(np.mean(off**2)), rtol=1e-5)
    for name, baseline in found.items():
        scores = px.evaluate(baseline.predict(x_test), y_test)
        # three standard errors of a share of 400 rows, and of the spread itself, which 300 rows estimate
        assert abs(scores["coverage_90"] - 0.9) < 3 * np.sqrt(0.09 / 400) + 0.03, name
        assert scores["rmse"] < 1.6 * 2


def test_spreads_that_depend_on_the_row_are_found():
    """y = sin(x1) + e, e ~ N(0, (0.05 + 0.3 [x2 > 0])^2): the best possible scores are those of the truth."""
    rng = np.random.default_rng(2)
    x = rng.uniform(-2, 2, size=(1200, 2))
    spread = 0.05 + 0.3 * (x[:, 1] > 0)
    y = 1e5 + 40 * (np.sin(x[:, 0]) + spread * rng.normal(size=1200))
    names = ["gradient boosting", "distributional boosting", "gaussian process"]
    found = fit_baselines(x[:600], y[:600], "regression", names=names)
    scores = {name: px.evaluate(found[name].predict(x[600:]), y[600:]) for name in names}
    best = 0.5 * np.log(2 * np.pi * np.e) + np.log(40 * spread[600:]).mean()
    # 600 rows teach the two spreads to about 10 %, and the curve, by boosting's coarse steps, to a part of the smaller
    assert best - 0.1 < scores["distributional boosting"]["nll"] < best + 0.5
    assert scores["distributional boosting"]["nll"] < scores["gradient boosting"]["nll"] - 0.2
    # a smooth curve by 600 rows, half of them noisier than the process believes: off by less than half the noise
    assert scores["gaussian process"]["rmse"] < np.sqrt(1 + 0.5**2) * 40 * np.sqrt(np.mean(spread[600:] ** 2))
    for name in names:
        assert abs(scores[name]["coverage_90"] - 0.9) < 3 * np.sqrt(0.09 / 600) + 0.03, name


def test_catboost_read_from_its_file_predicts_the_same(tmp_path, iris, line):
    pytest.importorskip("catboost")
    constant = lambda x: np.insert(x, 2, 1.0, axis=1).astype(np.float32)  # noqa: E731  # a column that no tree can use
    two = (iris[0][1] == 2).astype(int)
    fitted = lambda train, task: fit_baselines(*train, task, names=["catboost"])["catboost"]  # noqa: E731
    for baseline, x in (
        (fitted((constant(iris[0][0]), iris[0][1]), "classification"), constant(iris[1][0])),
        (fitted((iris[0][0], two), "classification"), iris[1][0]),
        (fitted((constant(line[0][0]), line[0][1]), "regression"), constant(line[1][0])),
    ):
        save_baseline(baseline, tmp_path / "a.baseline")
        loaded, own = load_baseline(tmp_path / "a.baseline").predict(x), baseline.predict(x)
        # thresholds and values are float32; outputs and their logarithms or standardised values are too
        np.testing.assert_allclose(loaded.outputs, own.outputs, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(loaded.std, own.std, rtol=1e-5)
        assert own.outputs.std(axis=1).min() > 0  # they depend on the row
    assert " rounds, as many as are best in 5-fold validation; " in baseline.description
    assert px.evaluate(own, line[1][1])["rmse"] < np.std(line[1][1]) / 1.5  # 40 rounds of a line whose noise is 2


def test_a_class_that_was_not_seen_has_a_small_probability(iris):
    (x, y), (x_test, _) = iris
    for baseline in fit_baselines(x, y, "classification", classes=5).values():
        probs = baseline.predict(x_test).probs
        np.testing.assert_allclose(probs[:, 3:], 1 / 105, rtol=1e-5)
        np.testing.assert_allclose(probs.sum(axis=1), 1, rtol=1e-5)


def test_large_data_are_sampled_and_every_class_is_kept(monkeypatch):
    monkeypatch.setattr(baselines, "FEWEST_ROWS", 50)
    monkeypatch.setattr(baselines, "CELLS", 400)
    x, y = np.random.default_rng(0).normal(size=(1000, 4)), np.zeros(1000, int)
    y[:400], y[999] = 1, 2  # a single row of the last class
    rows = baselines.BaselineRows.sampled(x, y, "classification", None, 10_000, seed=0)
    assert 100 <= len(rows.x) <= 103
    assert set(rows.y) == {0, 1, 2}
    assert rows.note == f" Fitted to {len(rows.x)} of 1,000 rows."
    assert all("of 1,000 rows" in own.description for own in fit_baselines(x, y, "classification").values())


def test_tiny_data_and_odd_classes_are_fitted():
    x = np.arange(12.0)[:, None]
    two_of_one = np.repeat([0, 1], [10, 2])
    assert list(fit_baselines(x, two_of_one, "classification"))[:3] == [
        "logistic regression",
        "random forest",
        "gradient boosting",
    ]
    alone = np.repeat([0, 1], [11, 1])
    assert set(fit_baselines(x, alone, "classification")) == set(baselines.MODELS_OF_CLASSES)
    assert set(fit_baselines(x, 2 * x[:, 0], "regression")) == set(baselines.MODELS_OF_NUMBERS)
    constant = fit_baselines(x, np.ones(12), "regression")  # CatBoost would refuse it
    assert len(constant) == 5
    assert np.isfinite(constant["ridge regression"].predict(x).std).all()


def test_images_are_rows_of_pixels():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 60)
    x = rng.normal(size=(60, 4, 4)) + y[:, None, None]
    found = fit_baselines(x, y, "classification")["logistic regression"]
    assert found.predict(x).probs.shape == (60, 2)


@pytest.mark.parametrize(
    ("y", "task", "error"),
    [
        (np.zeros(5), "ranking", 'task must be "classification" or "regression"'),
        (np.zeros(5), "classification", "labels 0, 1, ... of a whole-number dtype"),
        (np.zeros((5, 2)), "regression", "one target per row"),
        (np.zeros(4), "regression", "4"),
    ],
)
def test_what_cannot_be_fitted_is_refused(y, task, error):
    with pytest.raises((ValueError, TypeError), match=error):
        fit_baselines(np.zeros((5, 1)), y, task)
