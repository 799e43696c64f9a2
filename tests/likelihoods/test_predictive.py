import functools

import numpy as np
import pytest
import scipy.special
import scipy.stats

import posteriax as px
from posteriax.likelihoods.classes import ClassSums, ReducedClassPredictive
from posteriax.likelihoods.mixtures import normal_mixture_distance
from posteriax.likelihoods.number_predictive import NumberSums, ReducedNumberPredictive

RNG = np.random.default_rng(0)
LOGITS = RNG.normal(size=(7, 20, 4)).astype(np.float32)
PROBS = scipy.special.softmax(LOGITS.astype(np.float64), axis=-1)
LABELS = RNG.integers(0, 4, 20)


def test_classes_by_the_definitions():
    predictive = px.likelihoods.ClassPredictive(px.Categorical(), LOGITS)
    mean = PROBS.mean(axis=0)
    np.testing.assert_allclose(predictive.probs, mean, rtol=1e-5)
    np.testing.assert_allclose(predictive.mean, mean, rtol=1e-5)
    np.testing.assert_allclose(predictive.std, PROBS.std(axis=0), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(predictive.quantile([0.1, 0.9]), np.quantile(PROBS, [0.1, 0.9], axis=0), rtol=1e-4)
    entropy = scipy.stats.entropy(mean, axis=-1)
    np.testing.assert_allclose(predictive.entropy(), entropy, rtol=1e-5)
    information = entropy - scipy.stats.entropy(PROBS, axis=-1).mean(axis=0)
    np.testing.assert_allclose(predictive.mutual_information(), information, rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(predictive.log_prob(LABELS), np.log(mean[np.arange(20), LABELS]), rtol=1e-5)


def test_the_log_mixture_does_not_underflow():
    logits = np.zeros((2, 1, 2), np.float32)
    logits[..., 0] = 300.0  # p(class 1) = exp(-300) is 0 in float32
    assert px.likelihoods.ClassPredictive(px.Categorical(), logits).log_prob([1])[0] == pytest.approx(-300.0)


def test_bernoulli_has_two_classes():
    logits = RNG.normal(size=(5, 6, 1)).astype(np.float32)
    predictive = px.likelihoods.ClassPredictive(px.Bernoulli(), logits)
    yes = scipy.special.expit(logits[..., 0]).mean(axis=0)
    np.testing.assert_allclose(predictive.probs, np.stack([1 - yes, yes], axis=-1), rtol=1e-5)
    np.testing.assert_allclose(predictive.log_prob(np.ones(6, int)), np.log(yes), rtol=1e-5)


MEANS = RNG.normal(size=(9, 5, 1)).astype(np.float32)


@pytest.fixture(scope="module")
def mixture():
    return px.likelihoods.NormalPredictive(px.Normal(scale=0.5), MEANS, {})


def test_regression_moments_are_those_of_the_mixture(mixture):
    np.testing.assert_allclose(mixture.mean, MEANS.mean(axis=0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(mixture.std, np.sqrt(0.25 + MEANS.var(axis=0)), rtol=1e-5)
    y = RNG.normal(size=5)
    density = scipy.stats.norm.pdf(y, MEANS[:, :, 0], 0.5).mean(axis=0)
    np.testing.assert_allclose(mixture.log_prob(y), np.log(density), rtol=1e-4)


def test_regression_quantiles_invert_the_mixtures_cdf(mixture):
    levels = np.array([0.025, 0.5, 0.9])
    quantiles = mixture.quantile(levels)
    assert quantiles.shape == (3, 5, 1)
    below = scipy.stats.norm.cdf(quantiles[:, None], MEANS, 0.5).mean(axis=1)
    np.testing.assert_allclose(below, np.broadcast_to(levels[:, None, None], below.shape), atol=1e-5)
    np.testing.assert_allclose(mixture.quantile(0.5), quantiles[1])
    with pytest.raises(ValueError, match="strictly between 0 and 1"):
        mixture.quantile(1.0)


def test_regression_entropy_and_information_agree_with_quadrature(mixture):
    grid = np.linspace(-8, 8, 20_001)
    for i in range(5):
        density = scipy.stats.norm.pdf(grid[:, None], MEANS[:, i, 0], 0.5).mean(axis=1)
        entropy = -np.trapezoid(density * np.log(density), grid)
        assert mixture.entropy()[i, 0] == pytest.approx(entropy, abs=1e-3)
        own = scipy.stats.norm(scale=0.5).entropy()
        assert mixture.mutual_information()[i, 0] == pytest.approx(entropy - own, abs=1e-3)


def test_targets_of_another_length_are_refused(mixture):
    with pytest.raises(ValueError, match="predictions for 5 examples"):
        mixture.log_prob(np.zeros(4))


def test_reduced_std_keeps_a_small_spread_of_large_numbers():
    """y about 1e4 and draws 0.3 apart: a difference of float32 squares has errors of several units."""
    likelihood = px.Normal(0.1)
    outputs = (1e4 + 0.3 * np.random.default_rng(1).normal(size=(300, 4, 1))).astype(np.float32)
    sums = [likelihood.sums({}, draw) for draw in outputs]
    one_by_one = functools.reduce(NumberSums.join, sums)
    halves = functools.reduce(NumberSums.join, sums[:100]).join(functools.reduce(NumberSums.join, sums[100:]))
    truth = np.sqrt(0.1**2 + outputs.astype(np.float64).var(axis=0))
    for merged in (one_by_one, halves):
        reduced = ReducedNumberPredictive(likelihood, merged, (4, 1))
        np.testing.assert_allclose(reduced.std, truth, rtol=0.01)  # 1e4 in float32 comes in steps of 0.001
        np.testing.assert_allclose(reduced.mean, outputs.mean(axis=0, dtype=np.float64), atol=5e-3)
    whole = px.likelihoods.NormalPredictive(likelihood, outputs, {})
    np.testing.assert_allclose(whole.std, truth, rtol=1e-3)
    np.testing.assert_allclose(whole.mean, outputs.mean(axis=0, dtype=np.float64), atol=1e-3)


def test_reduced_std_of_probabilities_keeps_a_small_spread():
    logits = np.stack([np.full((200, 3), 2.0), np.zeros((200, 3))], axis=-1)
    logits[..., 0] += 1e-4 * np.random.default_rng(2).normal(size=(200, 3))
    logits = logits.astype(np.float32)
    truth = scipy.special.softmax(logits.astype(np.float64), axis=-1).std(axis=0)
    sums = functools.reduce(ClassSums.join, (px.Categorical().sums({}, draw) for draw in logits))
    reduced = ReducedClassPredictive(px.Categorical(), sums, (3, 2))
    np.testing.assert_allclose(reduced.std, truth, rtol=0.02)
    np.testing.assert_allclose(px.likelihoods.ClassPredictive(px.Categorical(), logits).std, truth, rtol=0.02)


def quadrature(mean, scale):
    """Entropy of a mixture by Gauss-Legendre quadrature in float64, between all components' own grid points."""
    places = np.unique(np.concatenate([mean + k * scale for k in np.arange(-9, 10, 1.0)]))
    nodes, weights = np.polynomial.legendre.leggauss(12)
    middle, half = (places[1:] + places[:-1]) / 2, np.diff(places) / 2
    y = middle[:, None] + half[:, None] * nodes
    log_p = scipy.special.logsumexp(scipy.stats.norm.logpdf(y[..., None], mean, scale), axis=-1) - np.log(len(mean))
    return float((-np.exp(log_p) * log_p * weights * half[:, None]).sum())


def test_entropy_and_information_use_all_draws():
    """Draws of N(0, 1) with noise of 1: the information of a thousand draws is near log(2) / 2, and exactly known."""
    rng = np.random.default_rng(3)
    means = rng.normal(size=(1000, 3, 1)).astype(np.float32)
    predictive = px.likelihoods.NormalPredictive(px.Normal(1.0), means, {})
    grid = np.linspace(-11, 11, 2001)  # of a smooth density: exact to 1e-12
    density = np.stack([scipy.stats.norm.pdf(grid[:, None], means[:, i, 0]).mean(axis=1) for i in range(3)])
    truth = np.trapezoid(-density * np.log(density), grid)[:, None]
    np.testing.assert_allclose(predictive.entropy(), truth, atol=1e-5)
    own = 0.5 * np.log(2 * np.pi * np.e)
    np.testing.assert_allclose(predictive.mutual_information(), truth - own, atol=1e-5)
    np.testing.assert_allclose(predictive.mutual_information(), np.log(2) / 2, atol=0.05)  # 1000 draws vary by 0.02


@pytest.mark.parametrize("spread", [0.3, 3.0], ids=["alike", "of very different widths"])
def test_entropy_of_predicted_noise_and_two_targets(spread):
    rng = np.random.default_rng(4)
    mean, raw = rng.normal(size=(40, 3, 2)), spread * rng.normal(size=(40, 3, 2))
    predictive = px.likelihoods.NormalPredictive(
        px.Normal("predicted"), np.concatenate([mean, raw], -1).astype(np.float32), {}
    )
    means, scales = (np.asarray(a, np.float64) for a in predictive.moments_per_draw)
    truth = np.array([[quadrature(means[:, i, d], scales[:, i, d]) for d in range(2)] for i in range(3)])
    np.testing.assert_allclose(predictive.entropy(), truth, atol=1e-4)
    own = (0.5 * np.log(2 * np.pi * np.e * scales**2)).mean(axis=0)
    np.testing.assert_allclose(predictive.mutual_information(), truth - own, atol=1e-4)


def test_information_of_draws_far_apart_is_their_logarithm():
    """Components too narrow for one even grid: each is told from all others."""
    outputs = np.linspace(-1, 1, 7, dtype=np.float32).reshape(7, 1, 1)
    predictive = px.likelihoods.NormalPredictive(px.Normal(1e-4), outputs, {})
    assert predictive.mutual_information().item() == pytest.approx(np.log(7), abs=1e-4)
    same = px.likelihoods.NormalPredictive(px.Normal(0.2), np.zeros((50, 1, 1), np.float32), {})
    assert same.mutual_information().item() == pytest.approx(0.0, abs=1e-6)


def test_distance_of_mixtures_is_the_area_between_their_distribution_functions():
    rng = np.random.default_rng(5)
    one, other = rng.normal(size=(6, 2, 1)), 1 + rng.normal(size=(9, 2, 1))
    ours, theirs = (
        px.likelihoods.NormalPredictive(px.Normal(s), np.float32(m), {}) for m, s in ((one, 0.4), (other, 0.7))
    )
    grid = np.linspace(-9, 10, 20_001)
    below = [scipy.stats.norm.cdf(grid, m[..., None], s).mean(axis=0) for m, s in ((one, 0.4), (other, 0.7))]
    truth = np.trapezoid(np.abs(below[0] - below[1]), grid)
    np.testing.assert_allclose(ours.distance(theirs), truth, rtol=1e-3)
    assert (ours.distance(ours) == 0).all()


def test_distance_of_mixtures_with_very_uneven_components_is_that_area_too():
    rng = np.random.default_rng(6)
    pairs = [(rng.normal(shift, 1.0, size=200), rng.lognormal(-3.0, 1.5, size=200)) for shift in (0.0, 0.3)]
    grid = np.linspace(-25, 25, 200_001)
    below = [
        sum(scipy.stats.norm.cdf(grid, *component) for component in zip(*pair, strict=True)) / 200 for pair in pairs
    ]
    truth = np.trapezoid(np.abs(below[0] - below[1]), grid)
    (one, wide), (other, narrow) = ((mean[:, None], scale[:, None]) for mean, scale in pairs)
    allowed = 0.01 * (np.quantile(wide, 0.04) + np.quantile(narrow, 0.04))  # of components that the grid cannot tell
    assert normal_mixture_distance(one, wide, other, narrow).item() == pytest.approx(truth, abs=allowed + 1e-5)


def test_a_prediction_is_at_no_distance_from_itself():
    mean = np.random.default_rng(0).normal(1e3, 1.0, size=(20, 5, 1)).astype(np.float32)
    predictive = px.likelihoods.NormalPredictive(px.Normal(scale=0.7), mean, {})
    np.testing.assert_array_equal(predictive.distance(predictive), 0.0)


def test_one_draw_says_nothing_about_the_weights():
    outputs = np.random.default_rng(0).normal(size=(1, 1000, 7)).astype(np.float32)
    predictive = px.likelihoods.ClassPredictive(px.Categorical(), outputs)
    assert (predictive.mutual_information() == 0).all()


@pytest.mark.parametrize("rates", [(0.05,), (0.3, 0.7), (12.0, 15.0, 30.0), (4e4, 4.1e4)], ids=str)
def test_a_central_interval_of_counts_holds_its_level_of_them(rates):
    """By the definition: the mean over the predicted counts themselves.

    An interval between whole counts holds 95 % of them at a rate of 0.05, and 98.6 % at 0.5, of 90 % promised. atol: a
    cdf of 1e-5 (docstring of likelihoods/poisson.py), at both ends.
    """
    lowest, largest = (scipy.stats.poisson.ppf(tail, rate) for tail, rate in ((1e-9, rates[0]), (1 - 1e-9, rates[-1])))
    counts = np.arange(int(lowest), int(largest) + 1)
    pmf = scipy.stats.poisson.pmf(counts, np.array(rates)[:, None]).mean(axis=0)
    outputs = np.log(np.array(rates, np.float32))[:, None, None] * np.ones((1, len(counts), 1), np.float32)
    predictive = px.Poisson().predictive(outputs, {})
    inside = predictive.share_inside(counts, [0.5, 0.9])[..., 0]
    np.testing.assert_allclose(inside @ pmf, [0.5, 0.9], atol=2e-5)
    low, high = predictive.interval(0.9)
    is_held = (low[:, 0] <= counts) & (counts <= high[:, 0])
    assert np.all(inside[1][~is_held] < 1e-4)
