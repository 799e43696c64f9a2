"""Leave-one-out scores against their closed form, and mixtures whose weights are known."""

import numpy as np
import pytest

import posteriax as px
from posteriax.evaluation.stacking import mix, stacking_weights
from posteriax.posterior import DrawsPosterior, Trace
from posteriax.problem import Latents

pytest.importorskip("arviz")
DRAWS = 4000
rng = np.random.default_rng(0)
X = rng.normal(size=(40, 3)).astype(np.float32)
Y = (X @ [1.0, -1.0, 0.5] + 0.5 * rng.normal(size=40)).astype(np.float32)
PROBLEM = px.Problem((lambda w, x: x @ w, np.zeros((3, 1), np.float32)), px.Normal(scale=0.5))


def gaussian_posterior(x, y):
    """Mean and covariance of w under N(0, 1) and noise of 0.5."""
    precision = np.eye(3) + x.T @ x / 0.25
    return np.linalg.solve(precision, x.T @ y / 0.25), np.linalg.inv(precision)


def drawn(draws):
    """A posterior of these draws, (chains, draws, 3)."""
    return DrawsPosterior(PROBLEM, Trace({}), Latents(np.asarray(draws, np.float32)[..., None], {}))


def test_leave_one_out_scores_are_those_of_the_posterior_without_the_row():
    mean, covariance = gaussian_posterior(X.astype(float), Y.astype(float))
    draws = np.random.default_rng(1).multivariate_normal(mean, covariance, (4, DRAWS // 4))
    scores = px.loo(drawn(draws), (X, Y))
    exact = []
    for i in range(len(Y)):
        others = np.arange(len(Y)) != i
        center, spread = gaussian_posterior(X[others].astype(float), Y[others].astype(float))
        variance = X[i] @ spread @ X[i] + 0.25
        exact.append(-0.5 * np.log(2 * np.pi * variance) - (Y[i] - X[i] @ center) ** 2 / 2 / variance)
    assert not len(scores.bad) and (scores.khat < 0.5).all()
    # with k < 0.5 the importance weights have a variance of about 1 for these rows: 1 / sqrt(draws), four times
    np.testing.assert_allclose(scores.pointwise, exact, atol=4 / np.sqrt(DRAWS))
    assert scores.elpd == pytest.approx(np.sum(exact), abs=4 * np.sqrt(len(Y) / DRAWS))
    assert 1 < scores.effective_parameters < 5  # three weights


def test_a_row_that_the_draws_cannot_do_without_is_named():
    y = Y.copy()
    y[7] += 20.0  # forty standard deviations
    mean, covariance = gaussian_posterior(X.astype(float), y.astype(float))
    draws = np.random.default_rng(1).multivariate_normal(mean, covariance, (4, 250))
    scores = px.loo(drawn(draws), (X, y))
    assert scores.bad[0] == 7
    assert "7 (" in str(scores) and "heavy tails" in str(scores)
    with pytest.raises(ValueError, match="at least 100 draws, got 4: for a mode or an ensemble"):
        px.loo(drawn(draws[:, :1]), (X, y))


def test_weights_of_a_known_mixture_are_found():
    """y ~ 0.3 N(-1, 1) + 0.7 N(1, 1): the weight's standard error is that of maximum likelihood."""
    count = 4000
    own = np.random.default_rng(2)
    y = np.where(own.uniform(size=count) < 0.3, -1.0, 1.0) + own.normal(size=count)
    scores = np.stack([-0.5 * (y + 1) ** 2, -0.5 * (y - 1) ** 2], axis=1)
    weights = stacking_weights(scores)
    densities = np.exp(scores)
    information = np.mean((np.diff(densities, axis=1)[:, 0] / (densities @ weights)) ** 2)
    assert weights[0] == pytest.approx(0.3, abs=3 / np.sqrt(count * information))
    assert weights.sum() == pytest.approx(1.0)


def test_a_chain_in_a_bad_mode_gets_no_weight_however_many_are_there():
    mean, covariance = gaussian_posterior(X.astype(float), Y.astype(float))
    good = np.random.default_rng(1).multivariate_normal(mean, covariance, (1, 400))
    stuck = np.random.default_rng(2).multivariate_normal(mean + 1.0, covariance, (3, 400))
    posterior = drawn(np.concatenate([stuck, good]))
    stacked = px.stack(posterior, (X, Y))
    assert stacked.weights["chain 3"] > 0.9
    test = np.random.default_rng(3).normal(size=(200, 3)).astype(np.float32)
    target = (test @ [1.0, -1.0, 0.5] + 0.5 * np.random.default_rng(4).normal(size=200)).astype(np.float32)
    table = px.compare({"all chains": posterior, "stacked": stacked}, (test, target))
    assert table["stacked"]["nll"] < table["all chains"]["nll"]
    assert "stacked" not in table.baselines


def test_a_mixture_has_the_density_of_its_parts():
    wide, narrow = (
        px.likelihoods.NormalPredictive(px.Normal(scale=s), np.full((5, 3, 1), m), {}) for s, m in ((2, 1), (0.5, -1))
    )
    mixture = mix([wide, narrow], [0.25, 0.75], draws=400)
    y = np.array([-1.0, 0.3, 2.0])
    expected = np.log(0.25 * np.exp(wide.log_prob(y)) + 0.75 * np.exp(narrow.log_prob(y)))
    np.testing.assert_allclose(mixture.log_prob(y), expected, rtol=1e-5)
    one, two = (px.likelihoods.ClassPredictive(px.Categorical(), np.array([[[0.0, logit]]])) for logit in (0.0, 3.0))
    probs = mix([one, two], [0.5, 0.5], draws=10).probs
    np.testing.assert_allclose(probs, (one.probs + two.probs) / 2, rtol=1e-6)


def test_baselines_are_stacked_by_rows_that_they_have_not_seen():
    even = px.evaluation.Baseline(lambda x: px.likelihoods.ClassPredictive(px.Categorical(), np.zeros((1, len(x), 2))))
    sure = px.evaluation.Baseline(
        lambda x: px.likelihoods.ClassPredictive(px.Categorical(), np.tile([0.0, 4.0], (1, len(x), 1)))
    )
    data = np.zeros((10, 1), np.float32), np.ones(10, int)
    stacked = px.stack({"even": even, "sure": sure}, data, held_out=True)
    assert stacked.weights == {"even": 0.0, "sure": 1.0}
    assert "sure      1.000" in str(stacked)
    with pytest.raises(TypeError, match="'even' has no draws to leave a row out by"):
        px.stack({"even": even}, data)
