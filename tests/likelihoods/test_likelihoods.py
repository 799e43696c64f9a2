"""Poisson, StudentT and the building blocks behind them, against SciPy."""

import re
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.stats

import posteriax as px
from posteriax._internal.settings import from_plain, to_plain
from posteriax.likelihoods import InUnits
from posteriax.likelihoods.number_predictive import NumberSums

RNG = np.random.default_rng(0)
LOG_RATES = RNG.normal(1.0, 0.7, size=(7, 5, 1)).astype(np.float32)
RATES = np.exp(LOG_RATES.astype(np.float64))
LOCATIONS = RNG.normal(size=(6, 4, 2)).astype(np.float32)


@pytest.fixture(scope="module")
def counts():
    return px.Poisson().predictive(LOG_RATES, {})


def test_counts_are_a_mixture_of_poissons(counts):
    y = RNG.poisson(3.0, size=5)
    pmf = scipy.stats.poisson.pmf(y[:, None], RATES).mean(axis=0)[:, 0]
    np.testing.assert_allclose(counts.log_prob(y), np.log(pmf), rtol=1e-4)
    np.testing.assert_allclose(counts.mean, RATES.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(counts.std, np.sqrt(RATES.mean(axis=0) + RATES.var(axis=0)), rtol=1e-5)
    k = np.arange(21)
    table = scipy.stats.poisson.pmf(k, RATES[..., None]).mean(axis=0)
    np.testing.assert_allclose(counts.pmf(20), table, rtol=1e-4, atol=1e-7)
    levels = np.array([0.05, 0.5, 0.95])
    below = scipy.stats.poisson.cdf(np.arange(60), RATES[..., None]).mean(axis=0)
    expected = (below[None] < levels[:, None, None, None]).sum(axis=-1)
    np.testing.assert_array_equal(counts.quantile(levels), expected)
    low, high = counts.interval(0.9)
    np.testing.assert_array_equal([low, high], expected[[0, 2]])


def test_a_base_rate_is_the_rate_of_a_network_that_outputs_0(counts):
    likelihood = px.Poisson(base_rate=5.0)
    predictive = likelihood.predictive(LOG_RATES, {})
    np.testing.assert_allclose(predictive.mean, 5 * counts.mean, rtol=1e-5)
    y = RNG.poisson(12.0, size=5)
    pmf = scipy.stats.poisson.pmf(y[:, None], 5 * RATES).mean(axis=0)[:, 0]
    np.testing.assert_allclose(predictive.log_prob(y), np.log(pmf), rtol=1e-4)
    assert from_plain(to_plain(likelihood)) == likelihood
    with pytest.raises(ValueError, match="base_rate must be a positive number"):
        px.Poisson(base_rate=0.0)


def test_entropy_and_information_of_counts(counts):
    k = np.arange(80)
    each = scipy.stats.poisson.pmf(k, RATES[..., None])
    entropy = scipy.stats.entropy(each.mean(axis=0), axis=-1)
    np.testing.assert_allclose(counts.entropy(), entropy, rtol=1e-4)
    own = scipy.stats.entropy(each, axis=-1).mean(axis=0)
    np.testing.assert_allclose(counts.mutual_information(), entropy - own, atol=1e-4)


# a column for every rate, so that all of them are one program; rates a little apart stand for draws
MEAN_RATES = np.array([1.0, 30.0, 1e3, 3e4, 1e6])
NEAR = np.log(MEAN_RATES * np.array([0.98, 1.0, 1.01])[:, None]).astype(np.float32)[..., None]  # (draws, rates, 1)
# exp rounds the rate r by 1e-7 (1 + log r), so log p by |y - r| / r times that, at most 10 sqrt(r) with y within
# 5 sqrt(r); and the cdf changes by at most 0.4 / sqrt(r) per unit of r
ROUNDING = 1e-7 * (1 + np.log(MEAN_RATES)) * np.sqrt(MEAN_RATES)


def test_poissons_of_any_rate_match_scipy():
    deviations = np.sqrt(MEAN_RATES) * np.linspace(-4, 5, 19)[:, None]
    y = np.maximum(np.round(MEAN_RATES + deviations), 0).astype(np.float32)[:, None, :, None]  # (ys, 1, rates, 1)
    rates = np.exp(NEAR.astype(np.float64))  # of the rounded log rates: their rounding is not at issue

    @jax.jit
    def program(outputs, y):
        each = px.Poisson().distribution({}, jnp.broadcast_to(outputs, np.broadcast_shapes(outputs.shape, y.shape)))
        return each.log_prob(y), each.cdf(y)

    log_prob, cdf = program(NEAR, y)
    allowed = (ROUNDING + 1e-6)[:, None]
    # the terms of size r that cancel for y above 1.2 r (r = 30 and less) add 3e-7 r
    assert (np.abs(log_prob - scipy.stats.poisson.logpmf(y, rates)) < 10 * allowed).all()
    assert (np.abs(cdf - scipy.stats.poisson.cdf(y, rates)) < allowed + 9e-6).all()  # gammaincc is good to 1e-5


def test_quantiles_of_counts_are_the_smallest_that_reach_the_level():
    levels = np.array([0.01, 0.5, 0.95])[:, None]
    quantiles = px.Poisson().predictive(NEAR, {}).quantile(levels[:, 0])[..., 0]  # (levels, rates)
    reached, below = (
        scipy.stats.poisson.cdf(quantiles - one, np.exp(NEAR[:, None, :, 0].astype(np.float64))).mean(axis=0)
        for one in (0, 1)
    )
    tolerance = ROUNDING + 1e-5  # of the cdf, above
    assert (reached >= levels - tolerance).all()
    assert (below < levels + tolerance).all()


def test_a_poisson_keeps_its_gradient_where_the_rate_underflows():
    gradient = jax.grad(lambda f: px.Poisson().log_prob({}, f, jnp.array([[3.0]])).sum())(jnp.array([[-200.0]]))
    assert gradient.item() == pytest.approx(3.0)


def test_counts_are_checked():
    spec = jax.ShapeDtypeStruct((3, 1), jnp.float32)
    assert px.Poisson().check(spec, np.array([0.0, 2.0, 5.0])).shape == (3, 1)
    with pytest.raises(ValueError, match="y has the value -1, but counts start at 0"):
        px.Poisson().check(spec, np.array([0, -1, 5]))
    with pytest.raises(ValueError, match="with fractions"):
        px.Poisson().check(spec, np.array([0.5, 1.0, 2.0]))
    with pytest.raises(ValueError, match="per example"):
        px.Poisson().check(spec, np.zeros((3, 2), int))


@pytest.fixture(scope="module", params=[3.0, "learned"], ids=["fixed", "learned"])
def heavy(request):
    """A predictive of Student's t, and its degrees of freedom and scale for every draw, (S, 1, 1)."""
    likelihood = px.StudentT(df=request.param, scale="learned")
    latents = {"log_scale": RNG.normal(0, 0.3, 6).astype(np.float32)}
    df = np.full(6, 3.0)
    if request.param == "learned":
        latents["log_df"] = RNG.normal(1, 0.5, 6).astype(np.float32)
        df = 2 + np.exp(latents["log_df"].astype(np.float64))
    scale = np.exp(latents["log_scale"].astype(np.float64))
    return likelihood.predictive(LOCATIONS, latents), df[:, None, None], scale[:, None, None]


@pytest.mark.slow
def test_robust_regression_is_a_mixture_of_students(heavy):
    predictive, df, scale = heavy
    y = 3 * RNG.normal(size=(4, 2))
    density = scipy.stats.t.pdf(y, df, LOCATIONS, scale)
    np.testing.assert_allclose(predictive.log_prob(y), np.log(density.prod(axis=2).mean(axis=0)), rtol=1e-4)
    np.testing.assert_allclose(predictive.mean, LOCATIONS.mean(axis=0), rtol=1e-4, atol=1e-6)
    variance = (scale**2 * df / (df - 2)).mean(axis=0) + LOCATIONS.var(axis=0)
    np.testing.assert_allclose(predictive.std, np.sqrt(variance), rtol=1e-4)
    np.testing.assert_allclose(predictive.cdf(y), scipy.stats.t.cdf(y, df, LOCATIONS, scale).mean(axis=0), atol=1e-5)
    levels = np.array([0.001, 0.05, 0.5, 0.999])
    below = scipy.stats.t.cdf(predictive.quantile(levels)[:, None], df, LOCATIONS, scale).mean(axis=1)
    np.testing.assert_allclose(below, np.broadcast_to(levels[:, None, None], below.shape), atol=1e-5)


@pytest.mark.slow
def test_entropy_and_information_of_students_agree_with_quadrature(heavy):
    predictive, df, scale = heavy
    grid = np.sinh(np.linspace(-12, 12, 20_001))[:, None, None, None]  # reaches 8e4 scales
    log_each = scipy.stats.t.logpdf(grid, df, LOCATIONS, scale)
    each = np.exp(log_each)
    mixture = each.mean(axis=1)
    entropy = np.trapezoid(-mixture * np.log(mixture), grid[:, 0], axis=0)
    np.testing.assert_allclose(predictive.entropy(), entropy, atol=2e-3)
    own = np.trapezoid(-each * log_each, grid, axis=0).mean(axis=0)
    np.testing.assert_allclose(predictive.mutual_information(), entropy - own, atol=4e-3)


def test_distance_of_any_two_predictives_is_the_area_between_their_distribution_functions():
    one, other = px.StudentT(3.0, 1.0).predictive(LOCATIONS, {}), px.Normal(0.5).predictive(LOCATIONS + 1, {})
    grid = np.sinh(np.linspace(-10, 10, 40_001))
    ours = scipy.stats.t.cdf(grid, 3.0, LOCATIONS[..., None]).mean(axis=0)
    theirs = scipy.stats.norm.cdf(grid, LOCATIONS[..., None] + 1, 0.5).mean(axis=0)
    truth = np.trapezoid(np.abs(ours - theirs), grid)
    np.testing.assert_allclose(one.distance(other), truth, rtol=0.01)
    np.testing.assert_allclose(other.distance(one), truth, rtol=0.01)
    counts = [px.Poisson().predictive(np.log(np.full((1, 1, 1), rate, np.float32)), {}) for rate in (2.0, 3.5)]
    assert counts[0].distance(counts[1]).item() == pytest.approx(1.5, abs=1e-4)  # ordered: the means' difference


@pytest.mark.parametrize("df", [1.5, 4.0, 9.99, 10.01, 30.0, 1e3, 1e5, 1e7])
def test_students_of_any_degrees_of_freedom_match_scipy(df):
    y = np.array([0.0, 0.5, 2.0, 6.0, 50.0], np.float32)[:, None]
    outputs = jnp.zeros((5, 1))
    truth = scipy.stats.t.logpdf(y, df)
    # float32 rounds terms of at most 1,250 (y^2 / 2 at y = 50) by 2e-7 of their size
    tolerance = {"atol": 1e-6, "rtol": 5e-7}
    fixed = px.StudentT(df, 1.0)
    np.testing.assert_allclose(fixed.log_prob({}, outputs, y), truth[:, 0], **tolerance)
    entropy = fixed.predictive(np.zeros((1, 1, 1), np.float32), {}).entropy().item()
    assert entropy == pytest.approx(scipy.stats.t.entropy(df), abs=1e-4)  # of the quadrature over quantiles
    if df > 2:
        latents = {"log_df": jnp.float32(np.log(df - 2))}
        learned = px.StudentT("learned", 1.0).log_prob(latents, outputs, y)
        np.testing.assert_allclose(learned, truth[:, 0], atol=1e-6, rtol=2e-6)  # the rounded log df moves df by 1e-6


def test_many_degrees_of_freedom_are_gaussian_and_few_have_no_variance():
    normal, student = px.Normal(0.7).predictive(LOCATIONS, {}), px.StudentT(1e6, 0.7).predictive(LOCATIONS, {})
    np.testing.assert_allclose(student.quantile([0.05, 0.9]), normal.quantile([0.05, 0.9]), atol=1e-4)
    few = px.StudentT(1.5, 1.0).predictive(np.zeros((1, 1, 1), np.float32), {})
    assert np.isinf(few.std).all()
    assert few.quantile(0.99).item() == pytest.approx(scipy.stats.t.ppf(0.99, 1.5), rel=1e-3)


def test_reduced_draws_keep_mean_and_std(heavy):
    predictive, _, _ = heavy
    sums: NumberSums | None = None
    for draw in range(6):
        own = predictive.likelihood.sums({k: v[draw] for k, v in predictive.latents.items()}, LOCATIONS[draw])
        sums = own if sums is None else sums.join(own)
    reduced = predictive.likelihood.reduced_predictive(sums, (4, 2))
    np.testing.assert_allclose(reduced.mean, predictive.mean, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(reduced.std, predictive.std, rtol=1e-4)
    with pytest.raises(ValueError, match="predict with reduce=False"):
        reduced.quantile(0.5)


@pytest.mark.slow
def test_units_are_restored_for_any_likelihood_of_real_numbers():
    standard = px.StudentT(4.0, 0.5)
    likelihood = InUnits(standard, offset=1e6, scale=20.0)
    plain, scaled = standard.predictive(LOCATIONS, {}), likelihood.predictive(LOCATIONS, {})
    y = RNG.normal(size=(4, 2))
    np.testing.assert_allclose(scaled.mean, 1e6 + 20 * plain.mean.astype(np.float64))
    np.testing.assert_allclose(scaled.quantile(0.9), 1e6 + 20 * plain.quantile(0.9).astype(np.float64))
    np.testing.assert_allclose(scaled.log_prob(1e6 + 20 * y), plain.log_prob(y) - 2 * np.log(20), rtol=1e-5)
    np.testing.assert_allclose(scaled.entropy(), plain.entropy() + np.log(20), rtol=1e-5)
    assert from_plain(to_plain(likelihood)) == likelihood


@pytest.mark.parametrize("df", [1.0, -3, "many", np.inf])
def test_bad_degrees_of_freedom_are_named(df):
    with pytest.raises(ValueError, match='df must be a number above 1 or "learned"'):
        px.StudentT(df=df)


@pytest.mark.slow
def test_the_examples_of_the_documentation_run():
    text = (Path(__file__).parents[2] / "docs" / "likelihoods.md").read_text()
    names = {"__name__": "likelihoods_of_the_docs"}
    exec("\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL)), names)
    assert names["posterior"].predict(names["x"]).probs.shape == (60, 4)
    assert np.mean((names["low"] < names["y"]) & (names["y"] < names["high"])) > 0.7


@dataclass(frozen=True)
class Gamma(px.likelihoods.NumberLikelihood):
    """Positive numbers of fixed shape, written by a stranger; the network gives the log of the mean."""

    shape: float = 2.5

    def distribution(self, latents, outputs):
        return dist.Gamma(self.shape, self.shape / jnp.exp(outputs))


@pytest.mark.slow
def test_any_numpyro_distribution_brings_its_predictive():
    predictive = Gamma().predictive(LOCATIONS, {})
    own = scipy.stats.gamma(2.5, scale=np.exp(LOCATIONS.astype(np.float64)) / 2.5)
    np.testing.assert_allclose(predictive.mean, own.mean().mean(axis=0), rtol=1e-5)
    levels = np.array([0.1, 0.9])
    np.testing.assert_allclose(
        [own.cdf(q).mean(axis=0) for q in predictive.quantile(levels)],
        np.full((2, 4, 2), levels[:, None, None]),
        atol=1e-4,
    )
    one = Gamma().predictive(LOCATIONS[:1], {})
    np.testing.assert_allclose(one.entropy(), scipy.stats.gamma(2.5, scale=own.kwds["scale"][0]).entropy(), atol=2e-3)
    np.testing.assert_allclose(one.mutual_information(), 0.0, atol=1e-4)
