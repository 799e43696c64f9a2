"""A rank-1 perturbation and the full-rank one it stands for give the score the same variance."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import posteriax as px

NET = eqx.nn.MLP(2, 2, 6, 2, jax.nn.softplus, key=jax.random.key(0))
LEAF = "layers/1/weight"


@pytest.fixture(scope="module")
def posterior(moons):
    return px.fit(px.Problem(NET, px.Categorical()), moons[0], px.MAP(), steps=300, key=0)


def scores_of(posterior, matrix, data):
    params = eqx.tree_at(lambda n: n.layers[1].weight, posterior.mean, matrix)
    outputs = posterior.problem.outputs(params, data[0])
    return posterior.problem.likelihood.log_prob({}, outputs, jnp.asarray(data[1]))


def random_covariance(scale):
    root = np.random.default_rng(0).normal(size=(6, 6))
    return scale * root @ root.T / 6


@pytest.mark.slow
def test_first_order_is_the_sum_over_all_pairs_of_weights(posterior, moons):
    data = tuple(a[:7] for a in moons[1])
    sigma = random_covariance(1e-4)
    found = px.analysis.score_variance(posterior, data, LEAF, sigma, draws=100)
    matrix = np.asarray(posterior.mean.layers[1].weight, np.float64)
    gradients = np.asarray(jax.jacrev(lambda m: scores_of(posterior, m, data))(jnp.asarray(matrix, jnp.float32)))
    whole = np.einsum("ij,jl,kl->ijkl", matrix, sigma, matrix)  # the covariance of the perturbed matrix
    full = np.einsum("nij,ijkl,nkl->n", gradients, whole, gradients)
    np.testing.assert_allclose(found.full_rank, full, rtol=1e-4)
    alone = np.einsum("nij,ij->n", np.square(gradients), np.einsum("ijij->ij", whole))
    np.testing.assert_allclose(found.independent, alone, rtol=1e-4)


def test_draws_of_either_perturbation_have_that_variance(posterior, moons):
    data, draws = tuple(a[:7] for a in moons[1]), 4000
    sigma = random_covariance(1e-5)
    found = px.analysis.score_variance(posterior, data, LEAF, sigma, draws=draws)
    assert (np.abs(found.rank1 - found.full_rank) < 5 * found.rank1_error + 0.01 * found.full_rank).all()
    # and a Gaussian matrix drawn from the covariance of all pairs, rather than from factors
    matrix = np.asarray(posterior.mean.layers[1].weight, np.float64)
    whole = np.einsum("ij,jl,kl->ijkl", matrix, sigma, matrix).reshape(36, 36)
    changes = np.random.default_rng(1).multivariate_normal(np.zeros(36), whole, size=draws, method="svd")
    matrices = jnp.asarray(matrix + changes.reshape(draws, 6, 6), jnp.float32)
    variance = np.asarray(jax.vmap(lambda m: scores_of(posterior, m, data))(matrices), np.float64).var(axis=0)
    error = np.sqrt(2 / draws) * variance
    assert (np.abs(variance - found.rank1) < 5 * np.hypot(error, found.rank1_error)).all()


def test_flax_leaves_have_their_inputs_elsewhere(moons):
    rng = np.random.default_rng(0)
    params = {"a": rng.normal(size=(2, 5)), "b": rng.normal(size=(5, 2))}
    problem = px.Problem((lambda w, x: jnp.tanh(x @ w["a"]) @ w["b"], params), px.Categorical())
    posterior = px.fit(problem, moons[0], px.MAP(), steps=50, key=0)
    found = px.analysis.score_variance(posterior, tuple(a[:5] for a in moons[1]), "b", 1e-5, draws=2000)
    assert (np.abs(found.rank1 - found.full_rank) < 5 * found.rank1_error + 0.01 * found.full_rank).all()


@pytest.mark.slow
def test_the_noise_that_was_learned_counts():
    x = np.linspace(-1, 1, 50, dtype=np.float32)[:, None]
    y = (2 * x + 0.1 * np.random.default_rng(0).normal(size=x.shape)).astype(np.float32)
    net = eqx.nn.MLP(1, 1, 6, 1, jax.nn.softplus, key=jax.random.key(0))
    posterior = px.fit(px.Problem(net, px.Normal("learned")), (x, y), px.MAP(), steps=300, key=0)
    found = px.analysis.score_variance(posterior, (x[:5], y[:5]), "layers/1/weight", 1e-6, draws=100)
    scale = float(np.exp(posterior.draws.likelihood["log_scale"][0, 0]))
    matrix = posterior.mean.layers[1].weight

    def scores(own):
        outputs = posterior.problem.outputs(eqx.tree_at(lambda n: n.layers[1].weight, posterior.mean, own), x[:5])
        return (-0.5 * jnp.square((y[:5] - outputs) / scale)).sum(axis=1)

    by_input = np.asarray(jax.jacrev(scores)(matrix) * matrix).sum(axis=1)
    np.testing.assert_allclose(found.full_rank, 1e-6 * np.square(by_input).sum(axis=1), rtol=1e-3)


@pytest.mark.slow
def test_a_million_weights_form_no_covariance_of_them():
    params = {"w": np.random.default_rng(0).normal(size=(1000, 1000)) / 30}
    problem = px.Problem((lambda w, x: x @ w["w"], params), px.Categorical())
    x = np.ones((2, 1000), np.float32)
    posterior = px.fit(problem, (x, np.array([0, 1])), px.MAP(), steps=1, key=0)
    found = px.analysis.score_variance(posterior, (x, np.array([0, 1])), "w", 1e-6, draws=20)
    assert np.isfinite(found.full_rank).all()


def test_bad_covariances_are_said(posterior, moons):
    with pytest.raises(ValueError, match=r"a number or \(6, 6\)"):
        px.analysis.score_variance(posterior, moons[1], LEAF, np.eye(3))
    with pytest.raises(ValueError, match="positive semi-definite"):
        px.analysis.score_variance(posterior, moons[1], LEAF, -1.0)
