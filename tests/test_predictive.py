import numpy as np
import pytest
import scipy.special
import scipy.stats

import posteriax as px

RNG = np.random.default_rng(0)
LOGITS = RNG.normal(size=(7, 20, 4)).astype(np.float32)
PROBS = scipy.special.softmax(LOGITS.astype(np.float64), axis=-1)
LABELS = RNG.integers(0, 4, 20)


def test_classes_by_the_definitions():
    predictive = px.ClassPredictive(px.Categorical(), LOGITS)
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
    assert px.ClassPredictive(px.Categorical(), logits).log_prob([1])[0] == pytest.approx(-300.0)


def test_bernoulli_has_two_classes():
    logits = RNG.normal(size=(5, 6, 1)).astype(np.float32)
    predictive = px.ClassPredictive(px.Bernoulli(), logits)
    yes = scipy.special.expit(logits[..., 0]).mean(axis=0)
    np.testing.assert_allclose(predictive.probs, np.stack([1 - yes, yes], axis=-1), rtol=1e-5)
    np.testing.assert_allclose(predictive.log_prob(np.ones(6, int)), np.log(yes), rtol=1e-5)


MEANS = RNG.normal(size=(9, 5, 1)).astype(np.float32)


@pytest.fixture(scope="module")
def mixture():
    return px.NormalPredictive(px.Normal(scale=0.5), MEANS, {})


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
