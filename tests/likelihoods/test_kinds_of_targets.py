"""Ordinal, overdispersed, zero-inflated and fractional targets against SciPy, in float32."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.special import expit

import posteriax as px
from posteriax.likelihoods import Beta, NegativeBinomial, Ordinal, ZeroInflatedPoisson

pytestmark = pytest.mark.quick
Y = np.array([0, 1, 3, 10, 40])


@pytest.mark.parametrize("dispersion", [2.0, 0.3, 0.09, 1e-3, 1e-5])
@pytest.mark.parametrize("mean", [0.5, 8.0, 300.0])
def test_negative_binomial_probabilities_are_scipys(mean, dispersion):
    y = np.unique(np.concatenate([Y, np.round(mean * np.array([0.5, 0.9, 1.0, 1.2, 2.0]))]))
    outputs = np.full((len(y), 1), np.log(mean / 2), np.float32)
    distribution = NegativeBinomial(base_rate=2.0, dispersion=dispersion).distribution({}, jnp.asarray(outputs))
    exact = stats.nbinom(1 / dispersion, 1 / (1 + mean * dispersion))
    # rounding of terms of size y log y
    atol = 3e-6 * (1 + y.max() * max(np.log(y.max()), 1))
    np.testing.assert_allclose(distribution.log_prob(y[:, None])[:, 0], exact.logpmf(y), atol=atol)
    np.testing.assert_allclose(distribution.cdf(y[:, None])[:, 0], exact.cdf(y), atol=1.2e-3)  # as it says
    assert distribution.variance[0, 0] == pytest.approx(exact.var(), rel=1e-4)


def test_zero_inflated_counts_are_a_mixture():
    outputs = jnp.array([[np.log(3.0), 0.5]] * len(Y), jnp.float32)
    distribution = ZeroInflatedPoisson().distribution({}, outputs)
    gate, base = expit(0.5), stats.poisson(3.0)
    exact = gate * (Y == 0) + (1 - gate) * base.pmf(Y)
    np.testing.assert_allclose(np.exp(distribution.log_prob(Y[:, None]))[:, 0], exact, rtol=2e-4)
    np.testing.assert_allclose(distribution.cdf(Y[:, None])[:, 0], gate + (1 - gate) * base.cdf(Y), atol=1e-5)
    draws = np.asarray(distribution.sample(jax.random.key(0), (20_000,)))[:, 0, 0]
    mean, variance = float(distribution.mean[0, 0]), float(distribution.variance[0, 0])
    assert draws.mean() == pytest.approx(mean, abs=4 * np.sqrt(variance / 20_000))
    assert draws.var() == pytest.approx(variance, rel=4 * np.sqrt(3 / 20_000))


def test_grades_are_cut_from_a_logistic_variable():
    cuts, outputs = np.array([-1.0, 0.5, 0.6]), np.array([-3.0, 0.0, 0.55, 8.0])
    latents = {"first_cut": jnp.array(-1.0), "log_gaps": jnp.log(jnp.diff(jnp.asarray(cuts, jnp.float32)))}
    probs = np.exp(Ordinal(4).log_probs(latents, jnp.asarray(outputs, jnp.float32)[:, None]))
    ends = np.concatenate([[-np.inf], cuts, [np.inf]])
    np.testing.assert_allclose(probs, np.diff(expit(ends - outputs[:, None]), axis=1), rtol=1e-4)
    far = Ordinal(4).log_probs(latents, jnp.array([[1e4], [-1e4]]))
    slope = jax.grad(lambda f: Ordinal(4).log_probs(latents, f)[0, 0])(jnp.array([[5.0]]))
    assert np.isfinite(far).all() and float(slope[0, 0]) < -0.9


def test_fractions_have_the_moments_and_density_of_a_beta_distribution():
    y = np.array([0.01, 0.3, 0.8])[:, None]
    outputs = jnp.full((3, 1), 0.4)
    exact = stats.beta(20 * expit(0.4), 20 * (1 - expit(0.4)))
    distribution = Beta(precision=20.0).distribution({}, outputs)
    np.testing.assert_allclose(distribution.log_prob(y)[:, 0], exact.logpdf(y[:, 0]), rtol=1e-4)
    np.testing.assert_allclose(distribution.cdf(y)[:, 0], exact.cdf(y[:, 0]), atol=1e-5)


@pytest.mark.parametrize(
    ("likelihood", "outputs", "y", "message"),
    [
        (Beta(), 1, [0.5, 1.0], "y has the value 1, but fractions lie between 0 and 1: move it inside"),
        (Beta(), 1, [0.5, 37.0], "fractions lie between 0 and 1: divide by the largest"),
        (NegativeBinomial(), 1, [1.0, 0.5], r"counts \(whole numbers\) for px.likelihoods.NegativeBinomial"),
        (ZeroInflatedPoisson(), 1, [1, 0], "needs two outputs per target"),
        (ZeroInflatedPoisson(), 2, [1, -1], "counts start at 0"),
        (Ordinal(3), 3, [0, 1], "Ordinal needs one output per example"),
        (Ordinal(3), 1, [0, 3], r"labels up to 3, but Ordinal has 3 grades \(labels 0 to 2\)"),
    ],
)
def test_targets_that_do_not_fit_are_refused_in_a_line(likelihood, outputs, y, message):
    with pytest.raises((ValueError, TypeError), match=message):
        likelihood.check(jax.ShapeDtypeStruct((2, outputs), np.float32), np.asarray(y))


@pytest.mark.parametrize("likelihood", [Beta(), NegativeBinomial(), ZeroInflatedPoisson(), Ordinal(4)], ids=repr)
def test_each_is_fitted_scored_saved_and_loaded(likelihood, tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 1)).astype(np.float32)
    y = {Beta: rng.beta(2, 3, 60), Ordinal: rng.integers(0, 4, 60)}.get(type(likelihood), rng.poisson(2.0, 60))
    outputs = likelihood.outputs_per_target
    net = px.zoo.MLP((1, 4, outputs), key=jax.random.key(0))
    posterior = px.fit(px.Problem(net, likelihood), (x, y), px.MAP(), steps=30, key=0)
    posterior.save(tmp_path / "a.posterior")
    again = px.load(tmp_path / "a.posterior", net)
    scores = px.evaluate(again.predict(x), y)
    assert scores == px.evaluate(posterior.predict(x), y)
    assert all(np.isfinite(value) for value in scores.values())
