"""Noise that is computed once is the noise that was asked for."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from posteriax.families.arrays.noise import LARGE, normal_and_signs, signs, standard_normal, unrolled_bits


def test_it_is_jax_noise_unless_the_result_is_lost_anyway():
    key = jax.random.key(0)
    noise = jax.jit(lambda base: standard_normal(key, (3, 4), jnp.float32, unless_nan=base))
    np.testing.assert_array_equal(noise(jnp.zeros(2)), jax.random.normal(key, (3, 4)))
    np.testing.assert_array_equal(noise(jnp.full(2, jnp.nan)), np.zeros((3, 4)))


def test_under_vmap_every_key_has_its_own():
    keys = jax.random.split(jax.random.key(0), 3)
    noise = jax.vmap(lambda key: standard_normal(key, (5,), jnp.float32, unless_nan=jnp.zeros(1)))(keys)
    np.testing.assert_allclose(noise, np.stack([jax.random.normal(key, (5,)) for key in keys]), rtol=1e-6)


def test_signs_are_even_and_independent():
    values = np.asarray(signs(jax.random.key(1), (400, 50), jnp.float32))
    assert set(np.unique(values)) == {-1.0, 1.0}
    assert abs(values.mean()) < 5 / np.sqrt(values.size)
    assert np.abs(np.corrcoef(values.T) - np.eye(50)).max() < 6 / np.sqrt(400)


def test_normal_and_signs_are_those_and_independent():
    n = 200_000
    draw = jax.jit(lambda base: normal_and_signs(jax.random.key(2), (n,), (n,), jnp.float32, unless_nan=base))
    noise, flips = (np.asarray(a) for a in draw(jnp.zeros(1)))
    assert stats.kstest(noise, "norm").pvalue > 1e-3
    assert set(np.unique(flips)) == {-1.0, 1.0}
    assert abs(flips.mean()) < 4 / np.sqrt(n)
    assert abs((noise * flips).mean()) < 4 / np.sqrt(n)
    np.testing.assert_array_equal(draw(jnp.full(1, jnp.nan))[0], np.zeros(n))


@pytest.mark.parametrize("shape", [(1,), (3, 5), (300, 70)])
def test_unrolled_bits_are_jax_bits(shape):
    keys = jax.random.split(jax.random.key(4), 3)
    found = jax.jit(jax.vmap(lambda key: unrolled_bits(key, shape)))(keys)
    np.testing.assert_array_equal(found, np.stack([jax.random.bits(key, shape) for key in keys]))


def test_large_noise_is_normal_and_follows_jax_noise():
    shape, key = (2 * LARGE,), jax.random.key(5)
    noise = np.asarray(standard_normal(key, shape, jnp.float32, unless_nan=jnp.zeros(1)))
    assert stats.kstest(noise, "norm").pvalue > 1e-3
    middle = np.abs(noise) < 3  # the two round differently to the 2^23 values that there are, which tails can tell
    np.testing.assert_allclose(noise[middle], jax.random.normal(key, shape)[middle], atol=1e-4)
    other = jax.random.key(5, impl="rbg")
    np.testing.assert_array_equal(
        standard_normal(other, shape, jnp.float32, unless_nan=jnp.zeros(1)), jax.random.normal(other, shape)
    )
