"""The reference samples the first layer along the principal directions of the inputs: the same posterior, easier."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import posteriax as px
from posteriax import priors as p
from posteriax.posterior import DrawsPosterior, Trace
from posteriax.tabular import sample_reference
from posteriax.tabular.principal_inputs import along_principal_inputs


def correlated(rows=60, columns=3):
    rng = np.random.default_rng(0)
    common = rng.normal(size=(rows, 1))
    return (common + 0.05 * rng.normal(size=(rows, columns))).astype(np.float32)


X = correlated()
Y = (X.sum(axis=1, keepdims=True) + np.random.default_rng(1).normal(size=(len(X), 1))).astype(np.float32)


def equinox_mlp(prior=p.HeNormal()):
    return px.Problem(eqx.nn.MLP(3, 1, 4, 1, activation=jnp.tanh, key=jax.random.key(0)), px.Normal(), prior=prior)


def zoo_mlp(prior=p.HeNormal()):
    return px.Problem(px.zoo.MLP((3, 4, 1), activation=jnp.tanh, key=jax.random.key(0)), px.Normal(), prior=prior)


@pytest.mark.slow
@pytest.mark.parametrize("make", [equinox_mlp, zoo_mlp])
def test_the_log_joint_is_the_same_for_the_same_network(make):
    turned = along_principal_inputs(make(), X)
    some = turned.problem.sample_prior(jax.random.key(1))
    stacked = jax.tree.map(lambda leaf: np.asarray(leaf)[None, None], some)
    own = turned.in_original_weights(DrawsPosterior(turned.problem, Trace({}), stacked))
    back = jax.tree.map(lambda leaf: leaf[0, 0], own.draws)
    assert turned.problem.log_joint(some, (X, Y)) == pytest.approx(float(own.problem.log_joint(back, (X, Y))), rel=1e-5)
    np.testing.assert_allclose(turned.problem.outputs(some.network, X), own.problem.outputs(back.network, X), atol=1e-5)


@pytest.mark.parametrize("make", [equinox_mlp, zoo_mlp])
def test_the_starting_weights_are_the_same_network(make):
    turned = along_principal_inputs(make(), X)
    own, theirs = (one.outputs(one.latents.network, X) for one in (turned.original, turned.problem))
    np.testing.assert_allclose(own, theirs, atol=1e-5)


@pytest.mark.slow
def test_the_weights_along_principal_directions_are_independent_given_the_data():
    problem = px.Problem((lambda w, x: x @ w, np.zeros((3, 1), np.float32)), px.Normal(scale=1.0))
    turned = along_principal_inputs(problem, X)

    def correlations(problem):
        hessian = -jax.hessian(lambda w: problem.log_joint(w, (X, Y)))(problem.latents.network).reshape(3, 3)
        scales = np.sqrt(np.diag(hessian))
        return np.abs(hessian / np.outer(scales, scales) - np.eye(3)).max()

    assert correlations(problem) > 0.9
    assert correlations(turned.problem) < 1e-4


@pytest.mark.slow
def test_a_reference_of_correlated_inputs_is_the_exact_posterior():
    problem = px.Problem((lambda w, x: x @ w, np.zeros((3, 1), np.float32)), px.Normal(scale=1.0))
    outcome = sample_reference(problem, (X, Y), X, seconds=600, key=0, method=px.HMC(warmup=100))
    precision = X.T.astype(float) @ X + np.eye(3)
    mean = np.linalg.solve(precision, X.T.astype(float) @ Y)[:, 0]
    covariance = np.linalg.inv(precision)
    draws = np.asarray(outcome.posterior.draws.network).reshape(-1, 3)
    effective = outcome.posterior.trace["checked_effective_draws"][-1]
    errors = (draws.mean(axis=0) - mean) / np.sqrt(np.diag(covariance) / effective)
    assert np.abs(errors).max() < 5
    spread = np.linalg.eigvals(np.linalg.solve(covariance, np.cov(draws.T))).real
    np.testing.assert_allclose(spread, 1.0, atol=5 * np.sqrt(2 / effective) + 0.1)


@pytest.mark.parametrize(
    "prior",
    [
        p.Laplace(0.5),
        p.Normal(0.5, 0.1),
        {"layers/0/weight": p.Given(dist.Normal(0.0, jnp.array([[1.0, 2.0, 3.0]]))), "**": p.Normal(1.0)},
    ],
    ids=["not Gaussian", "not centred", "scales by column"],
)
def test_priors_that_a_rotation_would_change_are_left_alone(prior):
    assert along_principal_inputs(equinox_mlp(prior), X) is None


def test_images_and_single_columns_are_left_alone():
    assert along_principal_inputs(equinox_mlp(), X[:, :1]) is None
    assert along_principal_inputs(equinox_mlp(), np.zeros((5, 4, 4), np.float32)) is None
