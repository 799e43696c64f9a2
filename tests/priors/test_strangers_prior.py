"""Priors of a stranger, in this file alone.

Laplace, with its cross-entropy with a Gaussian in closed form, and equally correlated weights, which samplers whiten.
"""

import math
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import posteriax as px
from posteriax import families as q
from posteriax import priors as p
from posteriax.methods.sampling.masses import prior_metric, reference_scale
from posteriax.methods.sampling.units import Standardised


class LaplaceInClosedForm(dist.Laplace):
    cross_entropy_note = ""

    def gaussian_cross_entropy(self, mean, variance):
        """log(2 s) + E|w| / s, with E|w| that of a folded normal."""
        z = mean / jnp.sqrt(2 * variance)
        absolute = jnp.sqrt(2 * variance / math.pi) * jnp.exp(-jnp.square(z)) + mean * jax.scipy.special.erf(z)
        return (jnp.log(2 * self.scale) + absolute / self.scale).sum()


@dataclass(frozen=True)
class FoldedLaplace(p.Prior):
    scale: float = 0.5

    def distribution(self, leaf):
        return LaplaceInClosedForm(0.0, self.scale)


def test_its_closed_form_replaces_the_draw():
    leaf = p.Leaf("w", (3, 4))
    prior = FoldedLaplace(0.5).distribution(leaf)
    family = q.Normal(0.3)
    variational = family.init(jax.random.key(0), jax.random.normal(jax.random.key(1), leaf.shape), leaf)
    keys = jax.random.split(jax.random.key(2), 20_000)
    plain = np.asarray(jax.vmap(lambda key: family.kl(variational, dist.Laplace(0.0, 0.5), key))(keys))
    exact = [float(family.kl(variational, prior, key)) for key in keys[:2]]
    assert exact[0] == exact[1]
    assert abs(exact[0] - plain.mean()) < 5 * plain.std() / math.sqrt(len(plain))
    assert family.kl_note(prior) == family.kl_note(prior.expand(leaf.shape)) == ""
    assert "one draw" in family.kl_note(dist.Laplace(0.0, 0.5))


@pytest.mark.slow
@pytest.mark.parametrize("method", [px.VI(q.Normal()), px.MAP()], ids=["VI", "MAP"])
def test_it_trains_and_is_saved(method, tmp_path):
    train, (x, _) = px.data.two_moons(train=40, test=20)
    net = eqx.nn.Linear(2, 2, key=jax.random.key(0))
    problem = px.Problem(net, px.Categorical(), {"weight": FoldedLaplace(0.3), "bias": p.Normal()})
    posterior = px.fit(problem, train, method, steps=20, key=0)
    assert not any("one draw" in note for note in posterior.trace.notes)
    posterior.save(tmp_path / "a.posterior")
    again = px.load(tmp_path / "a.posterior", net)
    assert again.problem.prior == problem.prior
    np.testing.assert_array_equal(again.predict(x, draws=3).probs, posterior.predict(x, draws=3).probs)


class EquallyCorrelated(dist.MultivariateNormal):
    """C = (1 - rho) I + rho 1 1', whose roots have the same form."""

    def whiten(self, w):
        return self._power(w, -0.5)

    def unwhiten(self, z):
        return self._power(z, 0.5)

    def _power(self, value, power):
        size, rho = self.event_shape[0], self.covariance_matrix[0, 1]
        apart, together = (1 - rho) ** power, (1 - rho + size * rho) ** power
        mean = value.mean(axis=-1, keepdims=True)
        return apart * (value - mean) + together * mean


def correlated_problem():
    covariance = jnp.full((3, 3), 0.9) + 0.1 * jnp.eye(3)
    return px.Problem((lambda w, x: x @ w, jnp.zeros(3)), px.Normal(scale=1.0), EquallyCorrelated(0.0, covariance))


@pytest.mark.slow
def test_samplers_whiten_its_correlated_weights():
    """Positions have unit covariance, and momenta the covariance s^2 C^-1; of 40,000 draws, within 5 errors."""
    problem = correlated_problem()
    (prior,) = problem.leaf_priors
    draws = prior.sample(jax.random.key(0), (40_000,))
    standardised = Standardised(problem)
    vectors = jax.vmap(lambda w: standardised.vector(problem.latents._replace(network=w)))(draws)
    error = 5 * math.sqrt(2 / len(draws))
    np.testing.assert_allclose(np.cov(vectors.T), np.eye(3), atol=error)
    back = standardised.latents(vectors[0]).network
    np.testing.assert_allclose(back, draws[0], rtol=1e-4, atol=1e-5)
    metric = prior_metric(problem)
    sample = jax.vmap(lambda key: metric.sample_momentum(key, problem.latents).network)
    momenta = sample(jax.random.split(jax.random.key(1), 40_000))
    factor = np.linalg.cholesky(prior.covariance_matrix)  # makes momenta with the covariance s^2 C^-1 independent
    np.testing.assert_allclose(np.cov(factor.T @ momenta.T) / reference_scale(problem) ** 2, np.eye(3), atol=error)


@pytest.mark.slow
def test_a_mass_per_weight_is_refused_for_its_correlated_weights():
    data = (np.eye(3, dtype=np.float32), np.zeros(3, np.float32))
    with pytest.raises(ValueError, match="has correlated weights"):
        px.fit(correlated_problem(), data, px.HMC(masses="adapted"), draws=2, key=0)
