"""What is done for XLA's CPU compiler can be switched off, changes no result, and stays out of other programs."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posteriax._internal import cpu_tuning
from posteriax.families.arrays.noise import LARGE, standard_normal

SHAPE = (2 * LARGE,)


def noise(key):
    return standard_normal(key, SHAPE, jnp.float32, unless_nan=jnp.zeros(1))


def test_a_program_for_an_accelerator_has_none_of_it():
    with cpu_tuning.tracing_for("tpu"):
        elsewhere = str(jax.make_jaxpr(lambda key: noise(key))(jax.random.key(0)))  # JAX caches by function
        assert cpu_tuning.options_for_steps("tpu") is None and cpu_tuning.options_for_one_run("gpu") is None
    here = str(jax.make_jaxpr(lambda key: noise(key))(jax.random.key(0)))
    assert "cond" in here and "random_bits" not in here
    assert "cond" not in elsewhere and "random_bits" in elsewhere


@pytest.mark.parametrize("name", cpu_tuning.NAMES)
def test_switches_change_no_number(name, monkeypatch):
    tuned = noise(jax.random.key(3))
    monkeypatch.setenv(cpu_tuning.SWITCH, name)
    assert not cpu_tuning.in_use(name)
    np.testing.assert_array_equal(noise(jax.random.key(3)), tuned)


AS_SHIPPED = """
import numpy as np, jax, posteriax as px
from posteriax import families as q, priors as p
rng = np.random.default_rng(0)
x = rng.normal(size=(40, 3)).astype(np.float32)
y = (x @ [1.0, -2.0, 0.5] + 0.5 * rng.normal(size=40)).astype(np.float32)
problem = px.Problem((lambda w, x: x @ w, np.zeros((3, 1), np.float32)), px.Normal(scale=0.5), p.Normal(1.0))
precision = x.T @ x / 0.25 + np.eye(3)
mean = np.linalg.solve(precision, x.T @ y / 0.25)
exact = np.sqrt(np.diag(np.linalg.inv(precision)))
full = px.fit(problem, (x, y), px.VI(q.FullCovariance()), steps=1000, key=0)
hmc = px.fit(problem, (x, y), px.HMC(warmup=300), draws=1000, chains=2, key=0)
for posterior in (full, hmc):
    draws = np.asarray(posterior.sample(1, 2000))[:, :, 0]
    assert np.all(np.abs(draws.mean(0) - mean) < 0.15 * exact), (draws.mean(0), mean, exact)
    assert np.all(np.abs(draws.std(0) / exact - 1) < 0.1), (draws.std(0), exact)
"""


@pytest.mark.slow
def test_what_ships_is_compiled_and_run():
    """The other tests compile with less optimisation, to save time: this one as a user does."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("XLA_FLAGS", "JAX_"))}
    subprocess.run([sys.executable, "-c", AS_SHIPPED], env=own, check=True, timeout=300)
