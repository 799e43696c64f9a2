"""VI's default optimiser and start on regressions in raw units, and the check that tells whether it had converged."""

from functools import cache
from typing import Any

import jax
import numpy as np
import numpyro.distributions as dist
import optax
import pytest
import regressions

import posteriax as px
from posteriax import families as q


def old_default(steps: int) -> optax.GradientTransformation:
    return optax.adam(optax.cosine_decay_schedule(3e-3, steps))


@cache
def fitted(name: str, old: bool = False, steps: int = 2000) -> px.posterior.Posterior:
    case = regressions.REGRESSIONS[name]()
    method = px.VI(q.FullCovariance(), optimizer=old_default(steps) if old else None)
    return px.fit(case.problem, case.data, method, steps=steps, batch_size=len(case.data[1]), key=0)


def moments(posterior: Any) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of every latent variable, from the variational parameters."""
    found = []
    for block in posterior.blocks:
        own = jax.tree.map(lambda a: a[0], posterior.variational[block.name])
        mean, variance = block.family.mean(own), block.family.variance(own)
        found.append(np.stack([np.ravel(mean), np.sqrt(np.ravel(variance))]))
    mean, sd = np.concatenate(found, axis=1)
    return mean, sd


def best_scale_of_log_sigma(y: np.ndarray, mean: float) -> float:
    """The standard deviation of the best Gaussian q(log sigma), independent of the weights, given its mean m.

    With A = E[residuals^2] E[sigma^-2] and the prior N(l, 3^2), the objective is N m + A / 2 + ((m - l)^2 + s^2) / 18 -
    log s. At its optimum its derivatives by m, N - A + (m - l) / 9, and by s^2, A + 1 / 18 - 1 / (2 s^2), are 0. The
    posterior's own is a little wider.
    """
    a = len(y) + (mean - np.log(y.std())) / 9
    return 1 / np.sqrt(2 * a + 1 / 9)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    # raw units, correlated columns and a learned noise in one
    [n if n == "kidscore interaction" else pytest.param(n, marks=pytest.mark.slow) for n in regressions.REGRESSIONS],
)
def test_full_covariance_finds_the_posterior_whatever_the_units(name):
    case, posterior = regressions.REGRESSIONS[name](), fitted(name)
    mean, sd = moments(posterior)
    assert np.all(np.abs(mean - case.mean) < 0.1 * case.sd)
    learned = "log_scale" in case.names
    np.testing.assert_allclose(sd[:-1] if learned else sd, case.sd[:-1] if learned else case.sd, rtol=0.05)
    if learned:
        np.testing.assert_allclose(sd[-1], best_scale_of_log_sigma(case.data[1], mean[-1]), rtol=0.05)
    assert "the start is the mode of the log joint" in posterior.trace.notes[-1]
    assert posterior.diagnose().verdict.startswith("converged")


@pytest.mark.slow
def test_a_falling_learning_rate_does_not_hide_that_it_had_not_converged():
    """Adam with 3e-3 falling to 0 ends with a flat ELBO, far from the posterior."""
    name = "uneven Gaussian"
    case, posterior = regressions.REGRESSIONS[name](), fitted(name, old=True)
    mean, sd = moments(posterior)
    assert np.any(np.abs(mean - case.mean) > case.sd) or np.any(np.abs(sd / case.sd - 1) > 0.5)
    assert posterior.diagnose().verdict.startswith("Training had not converged: train longer (try steps=8000)")


@pytest.mark.slow
def test_mean_field_finds_its_own_optimum_in_raw_units():
    """The precisions of the closest factorised Gaussian are the diagonal of the posterior's precision."""
    rng = np.random.default_rng(0)
    x = np.stack([np.ones(100), 100 + 15 * rng.normal(size=100), 1e-3 * rng.normal(size=100)], axis=1)
    y = x @ np.array([20.0, 0.6, 5000.0]) + 18 * rng.normal(size=100)
    problem = px.Problem(regressions.network(3), px.Normal(18.0), px.priors.Normal(1e4))
    x, y = x.astype(np.float32), y.astype(np.float32)
    posterior = px.fit(problem, (x, y), px.VI(q.Normal()), steps=4000, batch_size=100, key=0)
    precision = x.T.astype(np.float64) @ x / 18.0**2 + np.eye(3) / 1e8
    best = np.linalg.solve(precision, x.T.astype(np.float64) @ y / 18.0**2)
    mean, sd = moments(posterior)
    exact = np.sqrt(np.diag(np.linalg.inv(precision)))
    assert np.all(np.abs(mean - best) < 0.1 * exact)
    np.testing.assert_allclose(sd, 1 / np.sqrt(np.diag(precision)), rtol=0.06)


@pytest.mark.slow
def test_a_step_in_whitened_coordinates_does_not_depend_on_units():
    """The same posterior in other units: the parameters of q are the same ones in those units."""
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(40, 2)), rng.normal(size=40)
    units = np.array([[1e-3], [1e2]])
    found = []
    for unit in (np.ones((2, 1)), units):
        net = (lambda params, x: x @ params["w"], {"w": np.zeros((2, 1), np.float32)})
        problem = px.Problem(net, px.Normal(1.0), {"**": dist.Normal(0.0, 5 * unit)})
        data = (np.float32(x / unit[:, 0]), np.float32(y))
        posterior = px.fit(problem, data, px.VI(q.FullCovariance()), steps=300, batch_size=40, key=0)
        mean, sd = moments(posterior)
        found.append((mean / unit[:, 0], sd / unit[:, 0]))
    np.testing.assert_allclose(found[0], found[1], rtol=0.02, atol=0.01)


@pytest.mark.slow
def test_networks_start_at_their_own_weights_and_a_trained_one_is_called_converged(moons):
    import equinox as eqx

    problem = px.Problem(eqx.nn.MLP(2, 2, 8, 1, key=jax.random.key(0)), px.Categorical())
    posterior = px.fit(problem, moons[0], px.VI(q.Normal()), steps=6000, key=0)
    assert posterior.trace.notes == ()
    assert posterior.diagnose().verdict.startswith("converged")
    short = px.fit(problem, moons[0], px.VI(q.Normal()), steps=150, key=0)
    assert "had not converged" in short.diagnose().verdict


@pytest.mark.slow
def test_a_full_covariance_of_a_network_is_trained_further_than_by_the_old_default(moons):
    """122 weights: float32 would lose the noise of their whitened coordinates, and training would diverge."""
    import equinox as eqx

    problem = px.Problem(eqx.nn.MLP(2, 2, 24, 1, key=jax.random.key(0)), px.Categorical())
    new, old = (
        px.fit(problem, moons[0], px.VI(q.FullCovariance("network"), optimizer=optimizer), steps=600, key=0)
        for optimizer in (None, old_default(600))
    )
    assert new.trace["elbo"][-60:].mean() > old.trace["elbo"][-60:].mean() + 100
