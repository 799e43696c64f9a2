"""Simulation-based calibration of full-covariance VI where it is exact: linear regression, known noise, raw units."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import sbc

import posteriax as px
from posteriax import families as q
from posteriax import priors as p
from posteriax.data import Batch
from posteriax.methods import Task

REPLICATIONS, DRAWS, STEPS = 200, 99, 1000
UNITS = np.array([[10.0], [0.1], [1e3]], np.float32)  # of the weights
NOISE = 3.0


@pytest.mark.slow
def test_full_covariance_is_calibrated_with_the_default_optimiser():
    rng = np.random.default_rng(0)
    x = jnp.asarray(np.stack([np.ones(25), 100 + 15 * rng.normal(size=25), 1e-2 * rng.normal(size=25)], 1), jnp.float32)
    net = (lambda params, x: x @ params["w"], {"w": np.zeros((3, 1), np.float32)})
    problem = px.Problem(net, px.Normal(NOISE), p.Given(dist.Normal(0.0, UNITS)))
    task = Task(problem=problem, example=jax.ShapeDtypeStruct((3,), jnp.float32), num_examples=len(x), steps=STEPS)
    method = px.VI(q.FullCovariance())
    kernel = method.bind(task)

    def replicate(key: jax.Array) -> tuple[jax.Array, jax.Array]:
        of_truth, of_noise, of_run, of_draws = jax.random.split(key, 4)
        truth = UNITS * jax.random.normal(of_truth, (3, 1))
        batch = Batch(x, x @ truth + NOISE * jax.random.normal(of_noise, (len(x), 1)), jnp.ones(len(x)))
        state = kernel.init(of_run, problem.latents, batch)
        step = lambda i, s: kernel.step(jax.random.fold_in(of_run, i), s, batch)[0]  # noqa: E731
        own = jax.lax.fori_loop(0, STEPS, step, state).variational["w"]
        draws = jax.vmap(lambda key: method.family.sample(own, key))(jax.random.split(of_draws, DRAWS))
        return truth, draws

    truth, draws = jax.jit(jax.vmap(replicate))(jax.random.split(jax.random.key(0), REPLICATIONS))
    sbc.assert_uniform(sbc.ranks(truth, draws), DRAWS, level=0.01)
