"""Times until an event, censored or not, against SciPy and against pairs counted one by one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import posteriax as px
from posteriax.likelihoods import SurvivalTime, signed_times
from posteriax.metrics.concordance import CONCORDANCE, ShareOfPairs, concordance, pairs_by_example

pytestmark = pytest.mark.quick


def test_seen_times_have_a_density_and_censored_ones_a_tail():
    times = np.array([0.3, 4.0, 70.0, 2000.0])
    outputs = jnp.full((8, 1), 0.7)
    y = np.concatenate([times, -times])[:, None].astype(np.float32)
    exact = stats.lognorm(0.8, scale=20 * np.exp(0.7))
    found = SurvivalTime(base_time=20.0, scale=0.8).log_prob({}, outputs, jnp.asarray(y))
    np.testing.assert_allclose(found, np.concatenate([exact.logpdf(times), exact.logsf(times)]), rtol=2e-5, atol=1e-6)


def test_predictions_of_the_truth_are_calibrated_whatever_is_censored():
    rng = np.random.default_rng(0)
    n, f = 4000, rng.normal(size=(4000, 1)).astype(np.float32)
    times, ends = np.exp(f[:, 0] + 0.5 * rng.normal(size=n)), rng.exponential(2.0, size=n)
    y = signed_times(np.minimum(times, ends), times <= ends)
    assert 0.3 < (y < 0).mean() < 0.6
    predictive = SurvivalTime(base_time=1.0, scale=0.5).predictive(f[None], {})
    for level in (0.5, 0.9):  # within three standard errors of a share of 4,000
        assert predictive.share_inside(y, level).mean() == pytest.approx(level, abs=3 * np.sqrt(0.25 / n))
    np.testing.assert_allclose(predictive.point()[:, 0], np.exp(f[:, 0]), rtol=1e-4)
    assert predictive.survival(np.exp(f[:, 0])) == pytest.approx(0.5, abs=1e-5)


def test_concordance_counts_the_pairs_whose_order_is_known(monkeypatch):
    rng = np.random.default_rng(1)
    times, predicted = rng.integers(1, 12, 40).astype(float), rng.integers(0, 6, 40).astype(float)
    observed = rng.random(40) < 0.6
    right = known = 0.0
    for i in range(40):
        for j in range(40):
            if observed[i] and (times[i] < times[j] or (times[i] == times[j] and not observed[j] and i != j)):
                known += 1
                right += 0.5 * (1 + np.sign(predicted[j] - predicted[i]))
    assert concordance(predicted, times, observed) == pytest.approx(right / known)
    values = pairs_by_example(predicted, times, observed)
    assert values[:, 1].sum() == 2 * known
    # the standard error by the delta method against that of a jackknife; they agree to terms of 1 / N
    left_out = [concordance(*(np.delete(a, i) for a in (predicted, times, observed))) for i in range(40)]
    jackknife = np.sqrt(39 / 40 * np.square(left_out - np.mean(left_out)).sum())
    assert ShareOfPairs().standard_error(values) == pytest.approx(jackknife, rel=0.15)


def test_censored_times_are_fitted_compared_saved_and_loaded(tmp_path):
    rng = np.random.default_rng(2)
    x = rng.normal(size=(300, 1)).astype(np.float32)
    times, ends = 30 * np.exp(x[:, 0] + 0.3 * rng.normal(size=300)), rng.exponential(60.0, size=300)
    y = signed_times(np.minimum(times, ends), times <= ends)
    net = (lambda w, x: x @ w["w"] + w["b"]), {"w": np.zeros((1, 1), np.float32), "b": np.zeros(1, np.float32)}
    posterior = px.fit(px.Problem(net, SurvivalTime()), (x, y), px.MAP(), steps=1500, key=0)
    posterior.save(tmp_path / "a.posterior")
    again = px.load(tmp_path / "a.posterior", net)
    scores = px.evaluate(again.predict(x), y)
    assert scores == px.evaluate(posterior.predict(x), y)
    truth = SurvivalTime(base_time=30.0, scale=0.3).predictive(x[None], {})
    # the mode of three numbers is better on its own 300 rows by about 3/2 nats in all, and its prior costs some
    assert scores["nll"] == pytest.approx(px.evaluate(truth, y)["nll"], abs=0.03)
    assert scores["concordance"] > 0.85
    comparison = px.compare({"map": posterior, "again": again}, (x, y))
    assert comparison["map"]["nll"] == pytest.approx(scores["nll"], abs=1e-6)
    assert CONCORDANCE.heading in str(comparison)


def test_a_time_of_zero_is_refused_in_a_line():
    with pytest.raises(ValueError, match="y has the value 0, but times are positive, and negative where they are cens"):
        SurvivalTime().check(jax.ShapeDtypeStruct((2, 1), np.float32), np.array([1.0, 0.0]))
