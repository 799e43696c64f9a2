"""Simulation-based calibration of every sampler: 200 data sets from the prior, all of them sampled in one program."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import sbc

import posteriax as px
from posteriax.data import Batch
from posteriax.methods import Task
from posteriax.problem import Latents

REPLICATIONS, EXAMPLES, DRAWS = 200, 20, 63
X = np.random.default_rng(0).normal(size=(EXAMPLES, 2)).astype(np.float32)
PARAMS = {"w": np.zeros((2, 1), np.float32), "b": np.zeros(1, np.float32)}
PROBLEM = px.Problem((lambda params, x: x @ params["w"] + params["b"], PARAMS), px.Bernoulli())


def logits(latents: Latents) -> jax.Array:
    return PROBLEM.network.apply(latents.network, X)[:, 0]


@jax.jit
def simulate(key: jax.Array) -> tuple[Latents, jax.Array]:
    """True weights from the prior, and data that they explain, for every replication."""

    def one(key: jax.Array) -> tuple[Latents, jax.Array]:
        of_truth, of_data = jax.random.split(key)
        truth = PROBLEM.sample_prior(of_truth)
        return truth, jax.random.bernoulli(of_data, jax.nn.sigmoid(logits(truth))).astype(jnp.int32)

    return jax.vmap(one)(jax.random.split(key, REPLICATIONS))


def sample(method: Any, y: jax.Array) -> Latents:
    """(replications, DRAWS, ...): a chain on every data set, thinned."""
    warmup, thin = method.run_length(1)
    task = Task(
        problem=PROBLEM,
        example=jax.ShapeDtypeStruct((2,), jnp.float32),
        num_examples=EXAMPLES,
        steps=warmup + DRAWS * thin,
        warmup=warmup,
        thin=thin,
    )
    kernel = method.bind(task)

    def chain(key: jax.Array, y: jax.Array) -> Latents:
        batch = Batch(jnp.asarray(X), y, jnp.ones(EXAMPLES))
        of_start, of_warmup, of_draws = jax.random.split(key, 3)
        state = kernel.init(of_start, PROBLEM.latents, batch)
        state = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.result_type(leaf)), state)

        def advance(state: Any, key: jax.Array) -> tuple[Any, None]:
            return kernel.step(key, state, batch)[0], None

        def draw(state: Any, key: jax.Array) -> tuple[Any, Latents]:
            state = jax.lax.scan(advance, state, jax.random.split(key, thin))[0]
            return state, kernel.draw(state)

        state = jax.lax.scan(advance, state, jax.random.split(of_warmup, warmup))[0]
        return jax.lax.scan(draw, state, jax.random.split(of_draws, DRAWS))[1]

    return jax.jit(jax.vmap(chain))(jax.random.split(jax.random.key(1), len(y)), y)


SAMPLERS = {
    "HMC": px.HMC(thin=4),
    "HMC, masses of the priors": px.HMC(thin=4, masses="prior"),
    "HMC, a mass each": px.HMC(thin=4, masses="adapted"),
    "NUTS": px.NUTS(thin=4),
    "AdjustedMCLMC": px.AdjustedMCLMC(thin=4),
    "MCLMC": px.MCLMC(),
    "SGLD": px.SGLD(0.005, warmup_epochs=2000, epochs_per_draw=400),
    "SGHMC": px.SGHMC(0.002, warmup_epochs=1000, epochs_per_draw=200),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLERS)
def test_ranks_of_the_truth_are_uniform(name):
    """One exact sampler in a thousand would fail."""
    truth, y = simulate(jax.random.key(0))
    draws = sample(SAMPLERS[name], y)
    for true_leaf, drawn in zip(jax.tree.leaves(truth), jax.tree.leaves(draws), strict=True):
        found = sbc.ranks(np.asarray(true_leaf), np.asarray(drawn)).reshape(REPLICATIONS, -1)
        sbc.assert_uniform(found, DRAWS, level=1e-3 / 2)


@pytest.mark.slow
def test_draws_that_are_too_narrow_are_noticed():
    """The check can fail."""
    truth, y = simulate(jax.random.key(0))
    drawn = np.asarray(sample(px.HMC(thin=4), y).network["w"])
    narrow = drawn.mean(axis=1, keepdims=True) + 0.6 * (drawn - drawn.mean(axis=1, keepdims=True))
    found = sbc.ranks(np.asarray(truth.network["w"]), narrow).reshape(REPLICATIONS, -1)
    with pytest.raises(AssertionError, match="not uniform"):
        sbc.assert_uniform(found, DRAWS, level=1e-3)
