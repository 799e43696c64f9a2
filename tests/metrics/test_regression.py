"""Scores of predicted distributions of real numbers, against SciPy, quadrature and brute force."""

import jax
import numpy as np
import pytest
import scipy.integrate
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

import posteriax as px
from posteriax import metrics
from posteriax.likelihoods import InUnits

RNG = np.random.default_rng(0)
MEAN, SCALE = RNG.normal(size=(7, 5)), RNG.uniform(0.3, 2.0, size=(7, 5))
Y = RNG.normal(size=5) * 2


@pytest.mark.parametrize("count", [1, 2, 3, 50])
def test_crps_of_draws_by_its_two_expectations(count):
    draws = RNG.normal(1000.0, 1.0, size=(count, 6)).astype(np.float32)  # far from 0: nothing may cancel
    y = RNG.normal(1000.0, 1.0, size=6).astype(np.float32)
    wide = draws.astype(np.float64)
    pairs = np.abs(wide[:, None] - wide[None]).mean(axis=(0, 1))
    truth = (np.abs(wide - y).mean(axis=0) - pairs / 2).mean()
    assert float(metrics.crps(draws, y)) == pytest.approx(truth, rel=1e-6)


def test_crps_of_draws_is_half_scipys_squared_energy_distance():
    """SciPy's distance is the root of 2 int (F - G)^2, and G the step at y."""
    draws = RNG.normal(size=(20, 4)).astype(np.float32)
    truth = np.mean([scipy.stats.energy_distance(draws[:, i], [Y[i]]) ** 2 / 2 for i in range(4)])
    assert float(metrics.crps(draws, Y[:4])) == pytest.approx(truth, rel=1e-6)


@settings(max_examples=30, deadline=None)
@given(st.floats(-5, 5, width=32), st.floats(-5, 5, width=32), st.integers(1, 5))
def test_crps_of_a_point_is_the_absolute_error(x, y, copies):
    assert float(metrics.crps(np.full((copies, 1), x), [y])) == pytest.approx(abs(x - y), rel=1e-5, abs=1e-6)
    assert float(metrics.crps_normal([x], 1e-6, [y])) == pytest.approx(abs(x - y), rel=1e-5, abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 2, 4, 7])  # even and odd: the pairs are counted by shifts
def test_crps_of_mixtures_by_quadrature(count):
    grid = np.linspace(-25, 25, 200_001)
    truth = []
    for i in range(5):
        cdf = scipy.stats.norm.cdf(grid[:, None], MEAN[:count, i], SCALE[:count, i]).mean(axis=1)
        # cut at y, where the integrand jumps
        below, above = np.minimum(grid, Y[i]), np.maximum(grid, Y[i])
        truth.append(np.trapezoid(cdf**2, below) + np.trapezoid((1 - cdf) ** 2, above))
    # steps of 2.5e-4, at one of which the trapezoid rule meets the jump
    assert float(metrics.crps_normal(MEAN[:count], SCALE[:count], Y)) == pytest.approx(np.mean(truth), abs=5e-5)


def test_crps_of_one_gaussian_is_the_textbook_formula():
    z = (Y - MEAN[0]) / SCALE[0]
    truth = SCALE[0] * (z * (2 * scipy.stats.norm.cdf(z) - 1) + 2 * scipy.stats.norm.pdf(z) - 1 / np.sqrt(np.pi))
    assert float(metrics.crps_normal(MEAN[0], SCALE[0], Y)) == pytest.approx(truth.mean(), rel=2e-6)


def test_scores_take_a_predictives_moments():
    predictive = px.likelihoods.NormalPredictive(px.Normal(scale=0.7), MEAN[..., None].astype(np.float32), {})
    y = Y[:, None]
    moments = predictive.moments_per_draw
    assert float(metrics.normal_nll(*moments, y)) == pytest.approx(px.evaluate(predictive, y)["nll"], rel=1e-6)
    parts = metrics.variance_parts(*moments)
    np.testing.assert_allclose(parts.noise + parts.weights, np.square(predictive.std), rtol=1e-5)
    # draws of the mixture, 7 x 500 of a spread of about 1: four standard errors of the mean over 5 targets
    draws = RNG.normal(np.repeat(MEAN, 500, axis=0), 0.7)
    assert float(metrics.crps_normal(*moments, y)) == pytest.approx(float(metrics.crps(draws, Y)), abs=0.03)


def test_nll_of_mixtures_and_of_several_targets():
    density = scipy.stats.norm.pdf(Y, MEAN, SCALE).mean(axis=0)
    assert float(metrics.normal_nll(MEAN, SCALE, Y)) == pytest.approx(-np.log(density).mean(), rel=1e-6)
    # one example with five targets: independent given the draw, not in the mixture
    joint = scipy.stats.norm.pdf(Y, MEAN, SCALE).prod(axis=1).mean()
    assert float(metrics.normal_nll(MEAN[:, None], SCALE[:, None], Y[None])) == pytest.approx(-np.log(joint), rel=1e-5)


def test_variance_of_a_label_is_p_times_1_minus_p():
    probs = RNG.dirichlet(np.ones(3), (6, 4))
    parts = metrics.variance_parts(probs, np.sqrt(probs * (1 - probs)))
    mean = probs.mean(axis=0)
    np.testing.assert_allclose(parts.noise + parts.weights, mean * (1 - mean), rtol=1e-5)


@pytest.mark.parametrize("level", [0.5, 0.9])
def test_intervals_of_the_right_distribution_cover_as_often_as_they_say(level):
    draws, y = RNG.normal(size=(4000, 1)), RNG.normal(size=2000)
    lower, upper = metrics.interval(draws, level)
    lower, upper = np.broadcast_to(lower, 2000), np.broadcast_to(upper, 2000)
    # four standard errors of a share over 2,000 targets; that of the ends, over 4,000 draws, is smaller
    error = 4 * np.sqrt(level * (1 - level) / 2000 + level * (1 - level) / 4000)
    assert float(metrics.interval_coverage(lower, upper, y)) == pytest.approx(level, abs=error)
    assert float(metrics.interval_width(lower, upper)) == pytest.approx(
        2 * scipy.stats.norm.ppf((1 + level) / 2), rel=0.1
    )


def test_the_ends_belong_to_an_interval():
    assert float(metrics.interval_coverage([0.0, 0.0, 0.0], [1.0, 1.0, 1.0], [0.0, 1.0, 1.5])) == pytest.approx(2 / 3)
    assert float(metrics.interval_coverage([-np.inf], [np.inf], [1e30])) == 1.0


def test_rmse_of_many_keeps_its_digits():
    mean, y = RNG.normal(size=(2, 300_000)).astype(np.float32)
    truth = np.sqrt(np.square(mean.astype(np.float64) - y).mean())
    assert float(metrics.rmse(mean, y)) == pytest.approx(truth, rel=1e-6)
    draws = RNG.normal(size=(3, 300_000)).astype(np.float32)
    wide = draws.astype(np.float64)
    truth = (np.abs(wide - y).mean(axis=0) - np.abs(wide[:, None] - wide[None]).mean(axis=(0, 1)) / 2).mean()
    assert float(metrics.crps(draws, y)) == pytest.approx(truth, rel=1e-6)


# at Unix times float32 knows numbers to 128, float64 to 2.4e-7: what is computed from differences moves by so little
LATE = 1.7e9
MOVED = {
    "rmse": lambda by: metrics.rmse(MEAN + by, MEAN[::-1] + by),
    "nll": lambda by: metrics.normal_nll(MEAN + by, SCALE, Y + by),
    "crps": lambda by: metrics.crps(MEAN + by, Y + by),
    "crps of mixtures": lambda by: metrics.crps_normal(MEAN + by, SCALE.astype(np.float32), Y + by),
    "coverage": lambda by: metrics.interval_coverage(Y - 1 + by, Y + 1 + by, MEAN[0] + by),
    "width": lambda by: metrics.interval_width(Y - 1 + by, Y + 0.3 + by),
    "wasserstein": lambda by: metrics.wasserstein(MEAN + by, SCALE[:4] + by),
    "lower end": lambda by: metrics.interval(MEAN + by)[0] - by,
    "variance of the means": lambda by: metrics.variance_parts(MEAN + by, SCALE).weights,
    "auroc": lambda by: metrics.auroc(MEAN[0] + by, [0, 1, 1, 0, 1]),
    "average precision": lambda by: metrics.average_precision(MEAN[0] + by, [0, 1, 1, 0, 1]),
    "fpr": lambda by: metrics.fpr_at_tpr(MEAN[0] + by, [0, 1, 1, 0, 1]),
    "aurc": lambda by: metrics.aurc(MEAN[0] + by, SCALE[0]),
    "risks": lambda by: metrics.risk_coverage(MEAN[0] + by, SCALE[0]).risk,
}


@pytest.mark.parametrize("name", MOVED)
def test_targets_far_from_zero_are_scored_in_their_own_precision(name):
    moved, here = MOVED[name](LATE), MOVED[name](0.0)
    np.testing.assert_allclose(moved, here, atol=1e-5)  # errors of 2.4e-7 in numbers, times slopes of up to 10


def test_scores_of_unix_times_by_hand():
    y = LATE + RNG.normal(size=1000)
    assert metrics.rmse(y + 3, y) == pytest.approx(3, abs=1e-6)
    assert metrics.interval_coverage(y - 0.5, y - 0.1, y) == 0.0
    assert metrics.interval_width(y - 0.5, y - 0.1) == pytest.approx(0.4, abs=1e-6)
    assert metrics.normal_nll(y + 3, 1.0, y) == pytest.approx(-scipy.stats.norm.logpdf(3), abs=1e-5)


def test_evaluate_scores_unix_times_if_the_predictive_restores_their_units():
    likelihood = InUnits(px.Normal(1.0), offset=LATE, scale=2.0)
    predictive = likelihood.predictive(np.zeros((1, 1000, 1), np.float32), {})
    found = px.evaluate(predictive, np.full(1000, LATE + 3.0))
    assert found["rmse"] == pytest.approx(3.0, abs=1e-6) and found["coverage_90"] == 1.0
    # float32 on standardised numbers of about 1
    assert found["nll"] == pytest.approx(-scipy.stats.norm.logpdf(3.0, scale=2.0), abs=1e-6)


def test_probabilities_below_float32_are_not_zero():
    assert metrics.nll([[1e-60, 1.0]], [0]) == pytest.approx(-np.log(1e-60), rel=1e-12)


def test_metrics_have_gradients():
    """Of the rmse of errors e: e / (n rmse)."""
    errors = MEAN[0] - Y
    gradient = jax.grad(lambda mean: metrics.rmse(mean, Y))(MEAN[0].astype(np.float32))
    np.testing.assert_allclose(gradient, errors / (5 * np.sqrt(np.mean(errors**2))), rtol=1e-5)


JITTED = {
    "rmse": (metrics.rmse, (MEAN[0], Y)),
    "nll": (metrics.normal_nll, (MEAN, SCALE, Y)),
    "crps": (metrics.crps, (MEAN, Y)),
    "crps of mixtures": (metrics.crps_normal, (MEAN, SCALE, Y)),
    "coverage": (metrics.interval_coverage, (Y - 1, Y + 1, MEAN[0])),
    "width": (metrics.interval_width, (Y - 1, Y + 1)),
    "wasserstein": (metrics.wasserstein, (MEAN, SCALE[:4])),
    "corruption": (metrics.mean_corruption_error, (SCALE, SCALE[::-1])),
}


@pytest.mark.parametrize("name", JITTED)
def test_jit_gives_the_same(name):
    metric, given = JITTED[name]
    expected = pytest.approx(float(metric(*given)), rel=1e-5)
    assert float(jax.jit(metric)(*given)) == expected
    assert float(jax.jit(lambda: metric(*given))()) == expected  # values at hand inside a jitted function


BAD = {
    "rmse": (metrics.rmse, (Y, Y[:, None]), r"mean and y must have the same shape, got \(5,\) and \(5, 1\)"),
    "crps": (metrics.crps, (MEAN, Y[:, None]), "an axis of draws and then the shape of y"),
    "scale": (metrics.crps_normal, (MEAN, 0.0, Y), "scale must be positive"),
    "scales": (metrics.normal_nll, (MEAN, SCALE[:3], Y), "scale must broadcast"),
    "nan": (metrics.crps, (MEAN, [*Y[:4], np.nan]), r"y has 1 non-finite values, the first at index \(4,\)"),
    "empty": (metrics.crps, (MEAN[:0], Y), "draws is empty"),
    "exchanged": (metrics.interval_width, (Y + 1, Y), "lower must not be above upper"),
    "level": (metrics.interval, (MEAN, 90), "level must lie strictly between 0 and 1"),
    "baseline": (metrics.mean_corruption_error, (SCALE, SCALE * 0), "baseline must have errors"),
    "kinds": (metrics.mean_corruption_error, (SCALE, SCALE[:2]), r"got \(7, 5\) and \(2, 5\)"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input(name):
    metric, given, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        metric(*given)


def test_mean_corruption_error():
    errors, baseline = SCALE / 4, SCALE[::-1] / 4
    truth = np.mean([errors[k].sum() / baseline[k].sum() for k in range(7)])
    assert float(metrics.mean_corruption_error(errors, baseline)) == pytest.approx(truth, rel=1e-6)
    assert float(metrics.mean_corruption_error(errors, baseline.mean(axis=1))) == pytest.approx(truth, rel=1e-6)
    assert float(metrics.mean_corruption_error(baseline, baseline)) == 1.0
    assert len(metrics.ALEXNET_IMAGENET_C) == 15
