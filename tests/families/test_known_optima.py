"""Every family on linear regression, where its best member is known. One network holds one regression per family."""

from functools import cache

import jax
import jax.numpy as jnp
import known
import numpy as np
import numpyro.distributions as dist
import optax
import pytest

import posteriax as px
from posteriax import families as q
from posteriax import priors as p

EXACT = known.linear_regression()
X, Y = EXACT.data
NOISE, COMPONENTS, RATE = 0.5, 2, 0.2
FACTOR_PRIOR = {"prior_mean": 0.5, "prior_scale": 0.7}

FAMILIES = {
    "normal": q.Normal(),
    "tied": q.KTied(2),
    "matrix": q.MatrixNormal(),
    "full": q.FullCovariance(),
    "low_rank": q.LowRank(4),
    "first_two": q.FullCovariance("network"),
    "last_two": q.FullCovariance("network"),
    "multiplicative": q.MultiplicativeNormal("weight"),
    "zero": q.ZeroMeanNormal(),
    "dropout": q.Dropout(RATE),
    "factors": q.Rank1(COMPONENTS, place="input", start="normal", start_value=0.0, **FACTOR_PRIOR),
}
OUTPUTS = {"tied": 3, "matrix": 3}  # one otherwise


def network(params, x):
    joint = x[:, :2] @ params["first_two"] + x[:, 2:] @ params["last_two"]
    others = [x @ params[name] for name in FAMILIES if not name.endswith("_two")]
    return jnp.concatenate([joint, *others], axis=1)


def start(name):
    rows = 2 if name.endswith("_two") else 4
    # dropout and multiplicative noise vanish at weights of 0, and fixed factors need a kernel of 1
    value = 1.0 if name == "factors" else 0.1
    return np.full((rows, OUTPUTS.get(name, 1)), value, np.float32)


@cache
def fitted() -> px.Posterior:
    params = {name: start(name) for name in FAMILIES}
    fixed = p.Given(dist.Normal(1.0, 1e-4))
    problem = px.Problem((network, params), px.Normal(scale=NOISE), {"**": p.Normal(1.0), "factors": fixed})
    columns = 1 + sum(OUTPUTS.get(name, 1) for name in FAMILIES if not name.endswith("_two"))
    optimizer = optax.adam(optax.cosine_decay_schedule(2e-2, 120_000))
    method = px.VI(FAMILIES, optimizer=optimizer)
    return px.fit(problem, (X, np.repeat(Y[:, None], columns, axis=1)), method, steps=120_000, key=0)


def moments(name):
    """Mean and variance of every entry, from the variational parameters."""
    posterior = fitted()
    family, own = posterior.families[name], jax.tree.map(lambda a: a[0], posterior.variational[name])
    return np.asarray(family.mean(own)), np.asarray(family.variance(own))


def covariance_by_draws(*names, n=40_000):
    draws = fitted().sample(3, n)
    flat = np.concatenate([np.asarray(draws[name]).reshape(n, -1) for name in names], axis=1)
    return flat.mean(axis=0), np.cov(flat.T)


SCALE = np.sqrt(np.diag(EXACT.covariance))


@pytest.mark.parametrize("name", ["normal", "tied", "multiplicative"])
def test_diagonal_families_find_the_mean_field_optimum(name):
    mean, variance = moments(name)
    np.testing.assert_allclose(mean, np.repeat(EXACT.mean[:, None], mean.shape[1], 1), atol=0.05 * SCALE.min())
    best = np.repeat(EXACT.mean_field_variance[:, None], mean.shape[1], 1)
    np.testing.assert_allclose(variance, best, rtol=0.03)


def test_zero_mean_scales_have_the_mean_field_optimum_too():
    # E |y - X w|^2 is the same function of the variances whatever the means
    np.testing.assert_allclose(moments("zero")[1][:, 0], EXACT.mean_field_variance, rtol=0.03)


@pytest.mark.parametrize("names", [("full",), ("low_rank",), ("first_two", "last_two")])
def test_full_covariances_find_the_exact_posterior(names):
    block = names[0]
    posterior = fitted()
    own = jax.tree.map(lambda a: a[0], posterior.variational[block])
    family = posterior.families[block]
    mean, variance = np.asarray(family.mean(own)).ravel(), np.asarray(family.variance(own)).ravel()
    np.testing.assert_allclose(mean, EXACT.mean, atol=0.02 * np.abs(EXACT.mean).max())
    np.testing.assert_allclose(variance, np.diag(EXACT.covariance), rtol=0.03)
    if block != "low_rank":
        unit = np.eye(4)
        unit[np.tril_indices(4, -1)] = own["lower"]
        factor = np.exp(own["log_diagonal"])[:, None] * unit
    else:
        factor = np.exp(own["log_scale"]) * np.concatenate([np.eye(4), own["directions"][:, 0]], axis=1)
    error = np.linalg.norm(factor @ factor.T - EXACT.covariance) / np.linalg.norm(EXACT.covariance)
    assert error < 0.02
    drawn_mean, drawn = covariance_by_draws(*names)
    np.testing.assert_allclose(drawn_mean, mean, atol=5 * SCALE.max() / 200)
    # the relative error of n draws' covariance is about sqrt(2 D / n) = 0.014
    assert np.linalg.norm(drawn - factor @ factor.T) < 0.05 * np.linalg.norm(EXACT.covariance)


def test_the_matrix_normal_finds_a_kronecker_posterior():
    """Three outputs with the same inputs: the covariance is that of one, times the identity of the outputs."""
    mean, _ = moments("matrix")
    np.testing.assert_allclose(mean, np.repeat(EXACT.mean[:, None], 3, 1), atol=0.02 * np.abs(EXACT.mean).max())
    own = jax.tree.map(lambda a: a[0], fitted().variational["matrix"])
    left, right = (np.asarray(f) for f in q.matrix_normal.factors(own))
    found = np.kron(left @ left.T, right @ right.T)
    truth = np.kron(EXACT.covariance, np.eye(3))
    assert np.linalg.norm(found - truth) < 0.02 * np.linalg.norm(truth)
    _, drawn = covariance_by_draws("matrix")
    assert np.linalg.norm(drawn - truth) < 0.05 * np.linalg.norm(truth)


def test_dropout_finds_its_ridge_estimate():
    """E over masks adds rate / (1 - rate) x_i^2 w_i^2 to the loss: a ridge in the inputs' own scale."""
    gram = X.T @ X / NOISE**2
    ridge = gram + RATE / (1 - RATE) * np.diag(np.diag(gram)) + np.eye(4)
    best = np.linalg.solve(ridge, X.T @ Y / NOISE**2)
    np.testing.assert_allclose(np.asarray(fitted().variational["dropout"]["value"])[0, :, 0], best, atol=0.02)


def test_each_component_of_rank_1_is_held_to_the_whole_prior():
    """With a kernel of 1: each component minimises E[-log p] / K + KL, since its KLs are summed and not averaged."""
    scale, mean = FACTOR_PRIOR["prior_scale"], FACTOR_PRIOR["prior_mean"]
    precision = X.T @ X / (COMPONENTS * NOISE**2) + np.eye(4) / scale**2
    best = np.linalg.solve(precision, X.T @ Y / (COMPONENTS * NOISE**2) + mean / scale**2)
    own = fitted().variational["factors"]
    for k in range(COMPONENTS):
        np.testing.assert_allclose(own["in"][0, k], best, atol=0.02)
        np.testing.assert_allclose(np.exp(2 * own["log_scale_in"][0, k]), 1 / np.diag(precision), rtol=0.03)
