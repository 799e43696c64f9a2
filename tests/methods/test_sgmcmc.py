"""The one update of SG-MCMC against the stationary variances it must have on a Gaussian."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import solve_discrete_lyapunov

import posteriax as px
from posteriax.methods.sgmcmc import update

VARIANCE = 0.25
CHAINS = 4000


def stationary_variance(step: float, momentum: float, mass: float) -> float:
    """Of the weight under the update as it stands, from the fixed point of its covariance."""
    root, precision = step**0.5, 1 / VARIANCE
    # (w, m) -> m' = b m - root w / variance + noise;  w' = w + root m' / M
    kick = np.array([[1.0, 0.0], [-root * precision, momentum]])
    drift = np.array([[1.0, root / mass], [0.0, 1.0]])
    noise = drift @ np.array([0.0, np.sqrt(2 * (1 - momentum) * mass)])
    return solve_discrete_lyapunov(drift @ kick, np.outer(noise, noise))[0, 0]


@pytest.mark.parametrize("momentum", [0.0, 0.9], ids=["SGLD", "SGHMC"])
@pytest.mark.parametrize("mass", [1.0, 3.0], ids=["plain", "preconditioned"])
def test_the_noise_is_exactly_what_the_step_size_implies(momentum, mass):
    step = 0.1 * VARIANCE * mass
    masses = None if mass == 1.0 else jnp.full((CHAINS,), mass)

    def one(state, key):
        w, m = state
        return update(key, w, m, -w / VARIANCE, masses, step, momentum), None

    start = jnp.zeros(CHAINS), jnp.zeros(CHAINS)
    (w, _), _ = jax.lax.scan(one, start, jax.random.split(jax.random.key(0), 400))
    exact = stationary_variance(step, momentum, mass)
    assert float(jnp.var(w)) == pytest.approx(exact, rel=4 * np.sqrt(2 / CHAINS))


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_the_target_is_reached_as_the_step_shrinks(momentum):
    errors = [abs(stationary_variance(s * VARIANCE, momentum, 2.0) / VARIANCE - 1) for s in (0.4, 0.1, 0.025)]
    assert errors[0] > 3 * errors[1] > 9 * errors[2]  # of first order
    assert errors[2] < 0.01


@pytest.fixture(scope="module")
def gaussian():
    """Weights with the posterior N(0, 0.25): the likelihood does not look at them."""
    net = (lambda params, x: 0.0 * x[:, :1], {"w": np.zeros((2000, 1), np.float32)})
    data = np.zeros((4, 1), np.float32), np.zeros(4, np.float32)
    return px.Problem(net, px.Normal(1.0), px.priors.Normal(VARIANCE**0.5)), data


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [1.0, 0.3])
def test_the_noise_is_exact_at_any_temperature(gaussian, temperature):
    problem = px.Problem(gaussian[0].network, px.Normal(1.0), px.priors.Normal(VARIANCE**0.5), temperature)
    method = px.SGHMC(0.02 * VARIANCE * temperature, warmup_epochs=300, epochs_per_draw=1)
    w = np.asarray(px.fit(problem, gaussian[1], method, draws=1, batch_size=4, key=0).draws.network["w"])
    exact = stationary_variance(0.02 * VARIANCE, 0.9, 1.0) * temperature
    assert np.var(w) == pytest.approx(exact, rel=4 * np.sqrt(2 / w.size))


def test_cycles_fall_to_nothing_and_draws_are_at_their_ends(gaussian):
    method = px.SGHMC(0.01, cyclical=True, warmup_epochs=5, epochs_per_draw=10)
    posterior = px.fit(*gaussian, method, draws=3, batch_size=2, key=0)
    steps = posterior.trace["step_size"]  # two steps an epoch
    assert posterior.trace.warmup == 10
    assert len(steps) == 10 + 3 * 20
    np.testing.assert_allclose(steps[:10], 0.01)
    expected = 0.005 * (1 + np.cos(np.pi * np.arange(20) / 20))
    np.testing.assert_allclose(steps[10:].reshape(3, 20), np.tile(expected, (3, 1)), rtol=1e-4)


def test_the_step_size_falls_over_the_warm_up(gaussian):
    method = px.SGLD(0.01, first_step_size=0.1, warmup_epochs=10, epochs_per_draw=1)
    steps = px.fit(*gaussian, method, draws=5, batch_size=4, key=0).trace["step_size"]
    assert steps[0] == pytest.approx(0.1, rel=1e-5)
    assert (np.diff(steps[:11]) < 0).all()
    np.testing.assert_allclose(steps[10:], 0.01, rtol=1e-5)


def test_the_preconditioner_is_the_gradients_root_mean_square_and_stays_fixed(gaussian):
    problem, data = gaussian
    method = px.SGHMC(0.02, 0.0, preconditioner="rmsprop", warmup_epochs=500, epochs_per_draw=200)
    w = np.asarray(px.fit(problem, data, method, draws=8, batch_size=4, key=0).draws.network["w"])[0, 4:]
    # M, the root mean square of w / 0.25, differs between weights, and with it the bias of a finite step: below
    # 0.02 / 2 / (0.25 M), or 3 % for M of at least 1.3
    assert np.var(w) == pytest.approx(VARIANCE, rel=0.03 + 4 * np.sqrt(2 / w.size))


def test_without_a_step_size_one_is_chosen_and_told(gaussian):
    method = px.SGLD(warmup_epochs=1, epochs_per_draw=1)
    posterior = px.fit(*gaussian, method, draws=1, batch_size=4, key=0)
    assert posterior.trace.notes == ("step_size was not given: 0.005 was used",)
