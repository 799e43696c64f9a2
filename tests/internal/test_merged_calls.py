"""Equal calls that are made as one give the same numbers, whatever depends on them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posteriax._internal.cpu_operations import rewritten
from posteriax._internal.merged_calls import PREFIX, merge_equal_calls, mergeable

pytestmark = pytest.mark.quick


@mergeable("shape")
def noise(key, runs, *, shape):
    return jax.lax.cond(runs, lambda: jax.random.normal(key, shape), lambda: jnp.zeros(shape))


def loss(means, key):
    keys = jax.random.split(key, len(means))
    drawn = [m + noise(k, jnp.isfinite(m).all(), shape=m.shape) for m, k in zip(means, keys, strict=True)]
    return sum(jnp.square(w).sum() for w in drawn)


def calls(function, *args):
    """The operands of the marked calls in a program, call by call."""
    eqns = merge_equal_calls(jax.make_jaxpr(function)(*args).jaxpr.eqns)
    marked = (PREFIX + "noise", "all_calls")
    return [len(eqn.invars) for eqn in eqns if eqn.params.get("name") in marked]


def test_equal_draws_become_one_with_the_same_gradients():
    means = [jnp.ones(3), jnp.arange(4.0), jnp.zeros(3), jnp.full(3, -1.0)]
    gradient = jax.value_and_grad(loss)
    assert calls(gradient, means, jax.random.key(0)) == [6, 2]  # three of length 3, and the one of length 4
    plain = gradient(means, jax.random.key(0))
    merged = jax.jit(rewritten(gradient, {}, merge=True))(means, jax.random.key(0))
    # the same draws, bit for bit, so only the order of sums of at most 13 squares can differ
    np.testing.assert_allclose(merged[0], plain[0], rtol=1e-6)
    for left, right in zip(merged[1], plain[1], strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-6)
    keys = jax.random.split(jax.random.key(1), 5)
    by_key = jax.vmap(lambda key: loss(means, key))
    np.testing.assert_allclose(jax.jit(rewritten(by_key, {}, merge=True))(keys), by_key(keys), rtol=1e-6)


def test_merged_draws_share_their_condition():
    means = [jnp.ones(3), jnp.full(3, jnp.nan)]

    def draw(means):
        return [noise(jax.random.key(i), jnp.isfinite(m).all(), shape=(3,)) for i, m in enumerate(means)]

    np.testing.assert_array_equal(jax.jit(rewritten(draw, {}, merge=True))(means), np.zeros((2, 3)))


def test_draws_that_depend_on_one_another_stay_apart():
    def chain(key):
        first = noise(key, True, shape=(3,))
        return first, noise(jax.random.fold_in(key, jnp.sum(first > 0)), True, shape=(3,))

    key = jax.random.key(2)
    assert calls(chain, key) == [2, 2]
    np.testing.assert_array_equal(jax.jit(rewritten(chain, {}, merge=True))(key), jax.jit(chain)(key))
