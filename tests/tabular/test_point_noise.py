"""The noise of methods that keep one set of weights: that of the data, where the most probable one is too small."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import scipy.stats

import posteriax as px
from posteriax import families as q
from posteriax import priors as p
from posteriax.tabular import fit_until_converged
from posteriax.tabular.point_noise import underestimates_noise, with_inferred_noise, with_settled_noise

NOISE = 0.3
RNG = np.random.default_rng(0)
X = RNG.normal(size=(480, 8)).astype(np.float32)
Y = (np.sin(X[:, 0]) + 0.5 * X[:, 1] + NOISE * RNG.normal(size=480)).astype(np.float32)
TRAIN, TEST = (X[:80], Y[:80]), (X[80:], Y[80:])
NET = eqx.nn.MLP(8, 1, 64, 1, activation=jnp.tanh, key=jax.random.key(0))
PROBLEM = px.Problem(NET, px.Normal(scale="learned"), prior=p.Normal(scale=0.5))


@pytest.fixture(scope="module")
def mode():
    return fit_until_converged(PROBLEM, TRAIN, "map", key=0)


@pytest.mark.slow
def test_a_network_with_more_weights_than_rows_predicts_new_rows_with_their_noise(mode):
    predictive = mode.posterior.predict(TEST[0])
    # 80 rows determine a noise within 8 % at best, here with some 50 degrees of freedom spent; at the mode it is 0.006
    assert NOISE / 1.5 < predictive.std.mean() < NOISE * 1.5
    assert px.evaluate(predictive, TEST[1])["nll"] < 2.0  # 4,400 at the mode
    assert mode.status == "converged" and mode.details[0].startswith("noise 0.")


def test_a_length_of_ones_own_leaves_the_noise_to_be_learned():
    outcome = fit_until_converged(PROBLEM, TRAIN, "map", key=0, length={"steps": 100})
    assert outcome.posterior.problem.likelihood.scale == "learned"


@pytest.mark.slow
def test_a_mode_under_a_given_noise_starts_inference_of_the_noise(mode):
    at_mode = with_inferred_noise(mode.posterior, PROBLEM)
    np.testing.assert_allclose(at_mode.predict(TEST[0]).mean, mode.posterior.predict(TEST[0]).mean)
    np.testing.assert_allclose(at_mode.predict(TEST[0]).std, mode.posterior.predict(TEST[0]).std, rtol=1e-6)
    px.fit(PROBLEM, TRAIN, px.VI(q.Normal(), start=at_mode), steps=2, key=0)
    # a method that keeps single sets of weights takes the noise of the mode that it is given
    assert with_settled_noise(PROBLEM, TRAIN, 0, mode.posterior)[0].likelihood == mode.posterior.problem.likelihood
    assert with_settled_noise(PROBLEM, TRAIN, 0, at_mode) == (PROBLEM, ())


def test_a_linear_model_gets_the_noise_of_the_evidence():
    """150 rows, 40 weights: at the mode it is sqrt(1 - 40 / 150) = 0.86 of that."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(150, 40)).astype(np.float32)
    y = (x @ rng.normal(size=40) + NOISE * rng.normal(size=150)).astype(np.float32)
    problem = px.Problem((lambda w, x: x @ w, np.zeros((40, 1), np.float32)), px.Normal("learned"), p.Normal(1.0))
    settled, notes = with_settled_noise(problem, (x, y), 0)
    gram = x.astype(np.float64) @ x.astype(np.float64).T
    evidence = lambda log_noise: scipy.stats.multivariate_normal.logpdf(  # noqa: E731
        y, cov=gram + np.exp(2 * log_noise) * np.eye(150)
    )
    best = scipy.optimize.minimize_scalar(lambda log_noise: -evidence(log_noise), bounds=(-3, 1), method="bounded")
    # tuning ends when the evidence rises by less than 0.15 nats in a round; its curvature in log sigma is about
    # 2 (150 - 40), so the noise is within sqrt(2 x 0.15 / 220) of the best
    assert settled.likelihood.scale == pytest.approx(np.exp(best.x), rel=0.04)
    assert notes[0].startswith("noise 0.")


def test_noise_of_many_rows_or_that_is_given_is_left_alone():
    assert underestimates_noise(PROBLEM, rows=1000)
    assert not underestimates_noise(PROBLEM, rows=6500)  # ten for each of 641 weights
    large = eqx.nn.MLP(8, 1, 64, 2, key=jax.random.key(0))  # 4,801 weights
    assert underestimates_noise(px.Problem(large, px.Normal("learned")), rows=4800)
    assert not underestimates_noise(px.Problem(large, px.Normal("learned")), rows=7000)
    for likelihood in (px.Normal(scale=0.1), px.StudentT()):
        problem = px.Problem(NET, likelihood)
        assert with_settled_noise(problem, TRAIN, 0) == (problem, ())


def test_a_tuned_problem_has_its_noise_chosen():
    tuned = p.tune(PROBLEM, TRAIN, noise="learned", rounds=3)
    settled, notes = with_settled_noise(tuned, TRAIN, 0)
    assert settled.likelihood == px.Normal(tuned.tuning.noise) and len(notes) == 1
