"""The ELBO is that of the objective the posterior was trained with."""

import jax
import numpy as np
import pytest
from scipy.special import logsumexp

import posteriax as px
from posteriax import families as q
from posteriax.analysis.elbo import kl


def fit(moons, **settings):
    keys = jax.random.split(jax.random.key(0))
    start = {"w": jax.random.normal(keys[0], (2, 8)), "v": jax.random.normal(keys[1], (8, 2))}
    problem = px.Problem((lambda params, x: jax.nn.tanh(x @ params["w"]) @ params["v"], start), px.Categorical())
    return px.fit(problem, moons[0], px.VI(q.Rank1(3, start="sign", **settings)), steps=40, key=0)


@pytest.mark.slow
def test_of_a_mixture_the_likelihood_is_the_mixtures(moons):
    """Without noise there are only the components, and their mean is what the posterior predicts."""
    posterior = fit(moons, noise="point", likelihood="mixture")
    x, y = moons[0]
    truth = posterior.predict(x).log_prob(y).sum() - kl(posterior)
    assert px.analysis.elbo(posterior, moons[0]) == pytest.approx(truth, rel=1e-5)


@pytest.mark.slow
def test_of_an_average_it_is_the_mean_of_the_components(moons):
    posterior = fit(moons, noise="point", likelihood="average")
    x, y = moons[0]
    each = np.asarray(posterior.predict(x).log_probs_per_draw)[:, np.arange(len(y)), y]
    assert px.analysis.elbo(posterior, moons[0]) == pytest.approx(each.sum(axis=1).mean() - kl(posterior), rel=1e-5)


@pytest.mark.slow
def test_with_noise_every_draw_is_one_of_each_component(moons):
    posterior = fit(moons, likelihood="mixture")
    x, y = moons[0]
    each = np.asarray(posterior.predict(x, draws=600, key=1).log_probs_per_draw)[:, np.arange(len(y)), y]
    rounds = (logsumexp(each.reshape(200, 3, -1), axis=1) - np.log(3)).sum(axis=1)  # draws go round the components
    found = px.analysis.elbo(posterior, moons[0], draws=600) + kl(posterior)
    assert found == pytest.approx(np.mean(rounds), abs=4 * np.sqrt(2) * np.std(rounds) / np.sqrt(200))
