"""Scales learned from draws and gradients, and the climb to the typical set, against closed forms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posteriax.methods.sampling.masses import learn, start_diagonal, stretch
from posteriax.methods.sampling.starts import find_typical_set, jitter_start

SCALES = np.array([1e-3, 1.0, 1e3], np.float32)


def learned(draws, gradients, first=1.0):
    diagonal = start_diagonal(jnp.full(draws.shape[1], first))
    add = lambda diagonal, pair: (learn(diagonal, *pair), None)  # noqa: E731
    return jax.jit(lambda d, g: jax.lax.scan(add, diagonal, (d, g))[0])(draws, gradients)


def test_independent_weights_have_exactly_their_variances():
    """The gradient of a Gaussian is -w / variance: draws and gradients then have the same sampling error."""
    draws = jax.random.normal(jax.random.key(0), (12, 3)) * SCALES + 5 * SCALES
    found = learned(draws, -(draws - 5 * SCALES) / SCALES**2)
    np.testing.assert_allclose(found.variances, SCALES**2, rtol=1e-3)  # after twelve draws, whatever they were
    assert 1.0 <= stretch(found) < 2.0


def test_correlated_weights_have_the_mean_of_marginal_and_conditional():
    correlation = 0.99
    covariance = np.array([[1.0, correlation], [correlation, 1.0]])
    draws = np.random.default_rng(0).multivariate_normal([0, 0], covariance, size=20_000).astype(np.float32)
    found = learned(draws, (-draws @ np.linalg.inv(covariance)).astype(np.float32))
    # the geometric mean of 1 and 1 - 0.99^2; the weights t^3 leave 4/9 of 20,000 draws
    conditional = 1 - correlation**2
    np.testing.assert_allclose(found.variances, np.sqrt(conditional), rtol=4 * np.sqrt(2 / 9000))
    np.testing.assert_allclose(stretch(found), conditional**-0.25, rtol=0.05)


def test_early_states_are_forgotten():
    """Twenty states far out, with a variance of 1e6 instead of 1: the weight t^3 leaves (20 / 20,020)^4 = 1e-12."""
    rng = np.random.default_rng(0)
    far, bulk = 1e3 * rng.normal(size=(20, 1)), rng.normal(size=(20_000, 1))
    draws, gradients = np.concatenate([far, bulk]), np.concatenate([3 * far, -bulk])
    found = learned(draws.astype(np.float32), gradients.astype(np.float32))
    # of 20,000 draws, the weights leave 4/9
    np.testing.assert_allclose(found.variances, 1.0, atol=1e-3)  # the same error in both variances
    np.testing.assert_allclose(found.variance, 1.0, atol=4 * np.sqrt(2 / 9000))


def test_a_weight_that_never_moves_keeps_its_scale():
    draws = np.zeros((50, 2), np.float32)
    draws[:, 0] = np.random.default_rng(0).normal(size=50)
    np.testing.assert_allclose(learned(draws, -draws, first=0.25).variances, [1.0, 0.25], rtol=1e-4)


@pytest.mark.parametrize("spread", [1.0, 1e-3])
def test_the_climb_finds_the_bulk_whatever_the_scales(spread):
    """Ten correlated weights, a thousand to a million widths away, in units in which the prior has scale 1."""
    rng = np.random.default_rng(0)
    scales = spread * 10.0 ** np.linspace(-3, 0, 10)
    root = rng.normal(size=(10, 10)) + 3 * np.eye(10)
    precision = root @ root.T / np.outer(scales, scales)
    covariance, center = np.linalg.inv(precision), scales * rng.normal(size=10)
    half = np.linalg.cholesky(precision).T.astype(np.float32)

    def log_density(w):
        return -0.5 * jnp.sum((half @ (w - center.astype(np.float32))) ** 2)

    found = jax.jit(lambda start: find_typical_set(log_density, start))(jnp.ones(10))
    distance = np.asarray(found.position, np.float64) - center
    assert distance @ precision @ distance < 10  # nearer to the mode than a typical draw
    ratio = np.asarray(found.variances) / np.diag(covariance)
    assert np.all((ratio > 1e-3) & (ratio < 10))


def test_a_climb_that_leads_nowhere_stays():
    found = find_typical_set(lambda w: jnp.where(jnp.abs(w).max() > 1e-3, -jnp.inf, 0.0), jnp.zeros(2))
    np.testing.assert_array_equal(found.position, 0.0)
    np.testing.assert_array_equal(found.variances, 1.0)


def test_chains_start_apart_but_no_further_than_their_priors():
    start = {"bias": jnp.zeros(1000), "weight": jax.random.normal(jax.random.key(0), (50, 20)) / 7}
    noisy = jitter_start(jax.random.key(1), start, [0.01, 1.0])
    moved = jax.tree.map(lambda new, old: float(np.std(new - old)), noisy, start)
    # standard deviations of 1,000 numbers are off by 2.2 %
    assert moved["bias"] == pytest.approx(0.01, rel=0.1)
    assert moved["weight"] == pytest.approx(0.3 / 7, rel=0.1)
