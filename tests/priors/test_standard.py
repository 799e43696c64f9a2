"""Priors have the densities that their names promise, and add up over leaves."""

import equinox as eqx
import jax
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.stats

import posteriax as px
from posteriax import priors as p
from posteriax.priors import Leaf

W = np.linspace(-2.0, 2.0, 7).astype(np.float32)
SCIPY = {
    "normal": (p.Normal(scale=0.3), scipy.stats.norm(scale=0.3)),
    "laplace": (p.Laplace(scale=0.5), scipy.stats.laplace(scale=0.5)),
    "logistic": (p.Logistic(scale=0.5), scipy.stats.logistic(scale=0.5)),
    "student-t": (p.StudentT(df=3.0, scale=0.5), scipy.stats.t(3.0, scale=0.5)),
    "he": (p.HeNormal(), scipy.stats.norm(scale=np.sqrt(2 / 7))),
}


@pytest.mark.parametrize("name", SCIPY)
def test_priors_have_scipys_densities(name):
    prior, truth = SCIPY[name]
    distribution = prior.distribution(Leaf("w", (7, 1)))
    np.testing.assert_allclose(distribution.log_prob(W), truth.logpdf(W), rtol=1e-5)


def test_the_mixture_prior_is_the_weighted_sum():
    distribution = p.NormalMixture(1.0, 0.1, weight=0.3).distribution(Leaf("w", (7,)))
    truth = 0.3 * scipy.stats.norm.pdf(W) + 0.7 * scipy.stats.norm.pdf(W, scale=0.1)
    np.testing.assert_allclose(np.exp(distribution.log_prob(W)), truth, rtol=1e-5)


def test_he_scales_by_the_axis_that_the_framework_counts_inputs_in():
    from flax import linen as nn

    equinox = px.Problem(eqx.nn.Linear(8, 3, key=jax.random.key(0)), px.Categorical(), p.HeNormal())
    module = nn.Dense(3)
    linen = px.Problem((module, module.init(jax.random.key(0), np.ones((1, 8)))), px.Categorical(), p.HeNormal())
    assert equinox.leaf_scales == pytest.approx([0.5, 1.0])  # weight, bias
    assert linen.leaf_scales == pytest.approx([1.0, 0.5])  # bias, kernel


def test_priors_by_path_and_numpyro_distributions_add_up():
    net = eqx.nn.Linear(3, 2, key=jax.random.key(0))
    problem = px.Problem(net, px.Categorical(), {"**": p.Normal(0.5), "bias": dist.Laplace(0.0, 2.0)})
    truth = scipy.stats.norm.logpdf(net.weight, scale=0.5).sum() + scipy.stats.laplace.logpdf(net.bias, scale=2.0).sum()
    assert float(problem.log_prior(problem.network.params)) == pytest.approx(truth, rel=1e-5)
