"""scikit-learn estimators: their own checks, pipelines, weights, labels, intervals, pickle."""

import pickle

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.estimator_checks import estimator_checks_generator

import posteriax as px
import posteriax.sklearn
from posteriax import families as q
from posteriax.sklearn import BayesianMLPClassifier, BayesianMLPRegressor

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
SHORT = {"length": {"steps": 200, "batch_size": 512}, "n_draws": 10, "random_state": 0}
ESTIMATORS = [BayesianMLPClassifier("map", **SHORT), BayesianMLPRegressor("map", **SHORT)]
# those that fit least often run every day; all of them in the slow suite
DAILY = {
    "check_estimators_unfitted",
    "check_sample_weight_equivalence_on_dense_data",
    "check_no_attributes_set_in_init",
    "check_n_features_in_after_fitting",
}


def checks(daily):
    for estimator in ESTIMATORS:
        for own, check in estimator_checks_generator(estimator):
            name = getattr(check, "func", check).__name__
            if daily == (name in DAILY):
                marks = () if daily else pytest.mark.slow
                yield pytest.param(own, check, id=f"{type(estimator).__name__}-{name}", marks=marks)


@pytest.mark.parametrize(("estimator", "check"), [*checks(True), *checks(False)])
def test_scikit_learns_own_checks(estimator, check, monkeypatch):
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")
    check(estimator)


@pytest.fixture(scope="module")
def cancer():
    data = load_breast_cancer(as_frame=True)
    labels = data.target.map({0: "malignant", 1: "benign"})
    return train_test_split(data.data, labels, random_state=0, stratify=labels)


@pytest.fixture(scope="module")
def classifier(cancer):
    return BayesianMLPClassifier("map", **SHORT | {"length": {"steps": 500}}).fit(cancer[0], cancer[2])


@pytest.mark.as_shipped
def test_string_labels_and_feature_names(cancer, classifier):
    _, x_test, _, y_test = cancer
    assert list(classifier.classes_) == ["benign", "malignant"]
    assert set(classifier.predict(x_test)) <= {"benign", "malignant"}
    assert list(classifier.feature_names_in_) == list(x_test.columns)
    assert classifier.score(x_test, y_test) > 0.93  # logistic regression has 0.97; a standard error is 0.013
    np.testing.assert_allclose(classifier.predict_proba(x_test).sum(axis=1), 1.0)
    with pytest.raises(ValueError, match="feature names should match"):
        classifier.predict(x_test[x_test.columns[::-1]])


@pytest.mark.slow
def test_a_pickled_estimator_predicts_the_same(cancer, classifier):
    again = pickle.loads(pickle.dumps(classifier))
    np.testing.assert_array_equal(again.predict_proba(cancer[1]), classifier.predict_proba(cancer[1]))
    assert not hasattr(clone(classifier), "posterior_")


@pytest.mark.slow
def test_a_grid_over_methods_in_a_pipeline(cancer):
    x, _, y, _ = cancer
    model = make_pipeline(StandardScaler(), BayesianMLPClassifier(**SHORT))
    search = GridSearchCV(
        model, {"bayesianmlpclassifier__method": ["map", px.VI(q.KTied(2))]}, cv=2, error_score="raise"
    )
    assert search.fit(x, y).best_score_ > 0.9


@pytest.mark.parametrize("class_weight", ["balanced", {0: 1.5, 1: 0.75}], ids=["balanced", "by class"])
def test_class_weights_are_weights_of_rows(class_weight):
    """Of rows that count several times already; scikit-learn says which, for as many repeated rows."""
    rng = np.random.default_rng(0)
    x, count = rng.normal(size=(40, 2)), rng.integers(1, 4, 40)
    y = (x[:, 0] + rng.normal(size=40) > 0.6).astype(int)
    settings = {"hidden_layer_sizes": (4,), "length": {"steps": 60}, "random_state": 0}
    model = BayesianMLPClassifier("map", class_weight=class_weight, **settings).fit(x, y, count)
    of_repeated = compute_sample_weight(class_weight, y.repeat(count))
    first = np.cumsum(count) - count  # of each row's copies
    by_row = BayesianMLPClassifier("map", **settings).fit(x, y, count * of_repeated[first])
    # the moments of the columns do not take class weights; sums round in float64, and rarely a bit of float32 after it
    np.testing.assert_allclose(model.predict_proba(x), by_row.predict_proba(x), atol=1e-5)


@pytest.fixture(scope="module")
def diabetes():
    return train_test_split(*load_diabetes(return_X_y=True), random_state=0)


@pytest.fixture(scope="module")
def regressor(diabetes):
    x, _, y, _ = diabetes
    return BayesianMLPRegressor("mean-field", length={"steps": 2000, "batch_size": 64}, random_state=0).fit(x, y)


@pytest.mark.as_shipped
def test_a_regressor_has_means_deviations_intervals_and_draws(diabetes, regressor):
    _, x_test, _, y_test = diabetes
    mean, std = regressor.predict(x_test, return_std=True)
    intervals = regressor.predict_interval(x_test, 0.9)
    assert regressor.score(x_test, y_test) > 0.2 and mean.shape == std.shape == y_test.shape
    inside = ((intervals[:, 0] <= y_test) & (y_test <= intervals[:, 1])).mean()
    assert abs(inside - 0.9) < 4 * np.sqrt(0.9 * 0.1 / len(y_test))
    np.testing.assert_allclose(regressor.predict_quantiles(x_test, (0.05, 0.95)), intervals, rtol=1e-5)
    draws = regressor.sample_y(x_test, 4000)
    assert (np.abs(draws.mean(axis=1) - mean) < 5 * std / np.sqrt(4000)).all()


def test_conformal_intervals_hold_their_level(diabetes):
    x, x_test, y, y_test = diabetes
    model = BayesianMLPRegressor("map", calibration_fraction=0.3, **SHORT).fit(x, y)
    low, high = model.predict_interval(x_test, 0.9).T
    inside = ((low <= y_test) & (y_test <= high)).mean()
    # two sources of error: the held-out scores and the test rows
    assert inside > 0.9 - 3 * np.sqrt(0.09 * (1 / len(y_test) + 1 / (0.3 * len(y))))


@pytest.mark.slow
def test_any_network():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 3))
    net = eqx.nn.MLP(3, 1, 8, 1, key=jax.random.key(0))
    assert BayesianMLPRegressor("map", net=net, **SHORT).fit(x, x[:, 0]).score(x, x[:, 0]) > 0.8
    net = eqx.nn.MLP(3, 2, 8, 1, key=jax.random.key(0))
    model = BayesianMLPClassifier("map", net=net, **SHORT).fit(x, x[:, 0] > 0)
    assert model.score(x, x[:, 0] > 0) > 0.9


def test_the_former_names_for_networks_of_ones_own_say_the_new_ones():
    net = eqx.nn.MLP(3, 1, 8, 1, key=jax.random.key(0))
    for name, estimator in (("Classifier", BayesianMLPClassifier), ("Regressor", BayesianMLPRegressor)):
        with pytest.warns(DeprecationWarning, match=rf"now BayesianMLP{name}\(net=net"):
            make = getattr(posteriax.sklearn, f"BayesianNet{name}")
        model = make(net, "map", n_draws=7)
        assert isinstance(model, estimator) and (model.net, model.method, model.n_draws) == (net, "map", 7)


@pytest.mark.slow
def test_images_and_counts():
    rng = np.random.default_rng(0)
    images = rng.normal(size=(60, 4, 4))
    net = eqx.nn.Sequential([eqx.nn.Lambda(jnp.ravel), eqx.nn.Linear(16, 2, key=jax.random.key(0))])
    bright = images.mean(axis=(1, 2)) > 0
    assert BayesianMLPClassifier("map", net=net, **SHORT).fit(images, bright).score(images, bright) > 0.9
    x = rng.normal(size=(200, 1))
    y = rng.poisson(np.exp(1 + x[:, 0]))
    model = BayesianMLPRegressor("map", hidden_layer_sizes=(8,), likelihood="poisson", **SHORT).fit(x, y)
    draws = model.sample_y(x, 500)
    assert (draws == np.round(draws)).all() and draws.min() >= 0
    # a Poisson's variance is its mean: the mean of 500 draws has that standard error
    mean = model.predict(x)
    assert np.abs((draws.mean(axis=1) - mean) / np.sqrt(mean / 500)).max() < 5
    with pytest.raises(
        ValueError, match="likelihood must be one of 'normal', 'student-t', 'poisson', 'negative-binomial'"
    ):
        BayesianMLPRegressor("map", likelihood="gamma", **SHORT).fit(x, y)


@pytest.mark.slow
def test_a_tuned_prior_fits_data_better_that_need_another():
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, size=(150, 1))
    y = np.sin(6 * x[:, 0]) + 0.05 * rng.normal(size=150)  # steeper than N(0, 2 / fan-in) expects
    models = [BayesianMLPRegressor("map", prior=prior, random_state=0).fit(x, y) for prior in (None, "tuned")]
    fixed, tuned = (model.score(x, y) for model in models)
    assert tuned > 0.98 and tuned >= fixed


@pytest.mark.slow
def test_laplace_as_an_object_is_as_wide_as_by_name(recwarn):
    """Of a linear model, for which the object runs for 200 epochs and the name for one: the same Gaussian.

    Both have converged, and no warning says otherwise: by name, the search for the mode has, before that one epoch.
    """
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    y = X @ [1.0, -1.0, 0.5] + 0.5 * rng.normal(size=60)
    spreads = []
    for method in (px.Laplace(), "laplace"):
        model = BayesianMLPRegressor(method, hidden_layer_sizes=(), random_state=0).fit(X, y)
        spreads.append(model.posterior_.predict(X[:5].astype(np.float32), key=0).outputs.std(axis=0))
    # the same draws around the same mode, as far as Adam has come there: 1e-3 of a standard deviation
    np.testing.assert_allclose(spreads[0], spreads[1], rtol=0.01)
    assert model.outcome_.status == "converged"
    assert not [warning for warning in recwarn.list if issubclass(warning.category, ConvergenceWarning)]


@pytest.mark.slow
def test_a_warm_start_goes_on_from_the_first_fit(diabetes):
    x, _, y, _ = diabetes
    model = BayesianMLPRegressor("map", warm_start=True, **SHORT).fit(x, y)
    first = model.posterior_.trace["log_joint"]
    again = model.fit(x, y).posterior_.trace["log_joint"]
    assert again[0] > first[0]


def test_a_run_that_is_too_short_says_so(diabetes):
    x, _, y, _ = diabetes
    with pytest.warns(ConvergenceWarning, match="converged"):
        BayesianMLPRegressor("mean-field", length={"steps": 200}, random_state=0).fit(x, y)


def test_errors_say_what_to_do(cancer):
    with pytest.raises(NotFittedError):
        BayesianMLPClassifier().predict(cancer[1])
    with pytest.raises(ValueError, match="unknown method 'mcmc'; there are map"):
        BayesianMLPClassifier("mcmc").fit(cancer[0], cancer[2])
    with pytest.raises(ValueError, match="calibration_fraction"):
        BayesianMLPClassifier("map", **SHORT).fit(cancer[0], cancer[2]).predict_set(cancer[1])
    frame = pd.DataFrame({"a": [1.0, np.nan], "b": [0.0, 1.0]})
    with pytest.raises(ValueError, match="contains NaN"):
        BayesianMLPClassifier("map").fit(frame, [0, 1])


def test_lengths_and_budgets_that_make_no_sense_are_refused(cancer):
    x, y = cancer[0], cancer[2]
    with pytest.raises(TypeError, match=r'length must be a dictionary such as {"steps": 2000}, got 100'):
        BayesianMLPClassifier("map", length=100).fit(x, y)
    with pytest.raises(ValueError, match=r"90s, 10m or 1h; got .soon."):
        BayesianMLPClassifier("map", budget="soon").fit(x, y)
    with pytest.raises(ValueError, match=r"X has values up to 1e\+308, too large to standardise"):
        BayesianMLPClassifier("map").fit(np.full((20, 1), 1e308) * (np.arange(20)[:, None] % 2), np.arange(20) % 2)


@pytest.mark.slow
def test_a_length_of_laplace_is_that_of_the_search_for_its_mode(cancer):
    kept = {"random_state": 0, "length": {"steps": 50}, "n_draws": 5}
    model = BayesianMLPClassifier("laplace", budget="60s", **kept).fit(cancer[0], cancer[2])
    at_mode = BayesianMLPClassifier("map", **kept).fit(cancer[0], cancer[2])
    means = (jax.tree.leaves(fitted.posterior_.mean) for fitted in (model, at_mode))
    for mean, expected in zip(*means, strict=True):
        np.testing.assert_allclose(mean, expected, rtol=1e-4, atol=1e-5)
