"""What held-out rows choose: the noise that the data have, and a prior with which the ensemble predicts well."""

import pickle

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import norm
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

import posteriax as px
from posteriax.sklearn import BayesianMLPClassifier, BayesianMLPRegressor
from posteriax.tabular import held_out_choice
from posteriax.tabular.held_out_choice import Perceptron, assign_folds, choose, fit_ensemble

CONSTANT, PREDICTED = px.Normal("learned"), px.Normal("predicted")


def line(noise, rows=400, seed=0):
    """y = x_1 + noise, in standard units."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 2)).astype(np.float32)
    y = x[:, 0] + noise(x) * rng.normal(size=rows)
    return x, (y / y.std()).astype(np.float32), y.std()


@pytest.mark.parametrize(
    ("noise", "chosen"),
    [(lambda x: 0.3, CONSTANT), (lambda x: 0.3 * np.exp(1.2 * x[:, 1]), PREDICTED)],
    ids=["constant", "predicted"],
)
def test_the_noise_of_the_data_is_chosen_and_its_size_is_right(noise, chosen):
    x, y, scale = line(noise)
    perceptron = Perceptron(2, (16,), 1, "tanh", CONSTANT)
    choice = choose([perceptron], (x, y), seed=0, others=[(PREDICTED, 2)], factors=(0.3, 1.0))
    assert choice.perceptron.likelihood == chosen
    posterior = fit_ensemble(choice, (x, y), seed=0)
    sizes = np.asarray(posterior.predict(x).std[:, 0]) * scale
    expected = np.broadcast_to(noise(x), sizes.shape)
    # sixteen hidden units and 400 rows: a standard deviation is known to 1 / sqrt(2 * 400 / 35 weights), a fifth
    assert np.median(np.abs(np.log(sizes / expected))) < 0.2


def test_rows_are_held_out_once_each_and_classes_evenly():
    labels = np.repeat([0, 1], [60, 20])
    fold = assign_folds(labels, 0, 80)
    assert np.bincount(fold).tolist() == [20] * 4
    assert np.bincount(fold[labels == 1]).tolist() == [5] * 4
    many = assign_folds(np.zeros(5000), 0, 5000)
    assert (many == 0).sum() == 1000 and (many == -1).sum() == 4000


def test_default_estimators_do_better_than_a_linear_model_whose_prior_is_tight():
    x, y = load_iris(return_X_y=True)
    x, x_test, y, y_test = train_test_split(x, y, test_size=0.3, random_state=7, stratify=y)
    model = BayesianMLPClassifier(random_state=0).fit(x, y)
    linear = LogisticRegression(max_iter=1000).fit(x, y)
    assert log_loss(y_test, model.predict_proba(x_test)) < log_loss(y_test, linear.predict_proba(x_test))
    assert model.outcome_.status == "converged"
    assert model.outcome_.details[0].startswith("chosen by the log score of held-out rows: 128 tanh, a prior of ")
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict_proba(x_test), model.predict_proba(x_test))


def test_a_regressor_predicts_noise_and_survives_pickle():
    x, y, _ = line(lambda x: 0.3 * np.exp(x[:, 1]), rows=320)
    model = BayesianMLPRegressor(hidden_layer_sizes=(16,), random_state=0).fit(x, 100 * y)
    _, std = model.predict(x, return_std=True)
    low, high = (std[x[:, 1] < -1].mean(), std[x[:, 1] > 1].mean())
    assert high > 4 * low  # exp(2) = 7.4
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(x), model.predict(x))
    with pytest.raises(ValueError, match="noise must be one of 'auto', 'constant', 'predicted', got 'none'"):
        BayesianMLPRegressor(noise="none").fit(x, y)
    with pytest.raises(ValueError, match="is for likelihood"):
        BayesianMLPRegressor(likelihood="poisson", noise="predicted").fit(x, np.round(np.exp(y)))


def test_a_program_is_compiled_once_for_a_shape():
    x, y, _ = line(lambda x: 0.3, rows=60)
    programs = held_out_choice._programs()
    BayesianMLPRegressor(random_state=0).fit(x, y)
    before = [program._cache_size() for program in programs]
    BayesianMLPRegressor(random_state=1).fit(x + 1, 2 * y)
    assert [program._cache_size() for program in programs] == before


def test_ordinal_classes_have_a_single_output_and_cut_points():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(120, 2))
    y = np.digitize(x[:, 0] + 0.2 * rng.logistic(size=120), [-1.0, 0.0, 1.0])
    model = BayesianMLPClassifier(likelihood="ordinal", hidden_layer_sizes=(8,), random_state=0).fit(x, y)
    assert model.posterior_.predict(x[:3].astype(np.float32)).outputs.shape[1:] == (3, 1)
    assert model.predict_proba(x).shape == (120, 4)
    assert model.score(x, y) > 0.7


def test_several_targets_are_predicted_each_in_its_own_units():
    rng = np.random.default_rng(4)
    x = rng.normal(size=(320, 2)).astype(np.float32)
    y = np.column_stack([1e6 + 50 * (x[:, 0] + 0.2 * rng.normal(size=320)), x[:, 1] + 0.5 * rng.normal(size=320)])
    model = BayesianMLPRegressor(hidden_layer_sizes=(8,), noise="predicted", random_state=0).fit(x[:280], y[:280])
    mean, std = model.predict(x[280:], return_std=True)
    assert mean.shape == std.shape == (40, 2)
    # 40 test rows: a root mean square is known to 1 / sqrt(80), 11 %; 280 rows teach about 40 weights: 7 % more
    off = np.sqrt(np.square(mean - y[280:]).mean(axis=0)) / [10.0, 0.5]
    assert (np.abs(off - 1) < 0.4).all()
    assert (np.abs(np.median(std, axis=0) / [10.0, 0.5] - 1) < 0.3).all()
    assert model.predict_interval(x[:5]).shape == (5, 2, 2)
    assert model.predict_quantiles(x[:5]).shape == (5, 2, 3)
    assert model.sample_y(x[:5], 4).shape == (5, 2, 4)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(x), model.predict(x))
    predictive = model.posterior_.predict(model._standardised(x))  # equally weighted Gaussians, in the targets' units
    means, stds = (np.asarray(moment, np.float64) for moment in predictive.moments_per_draw)
    exact = logsumexp(norm(means, stds).logpdf(y).sum(axis=-1), axis=0) - np.log(len(means))
    np.testing.assert_allclose(predictive.log_prob(y), exact, rtol=1e-4, atol=1e-3)
