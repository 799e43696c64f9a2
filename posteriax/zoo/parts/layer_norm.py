"""Layer normalisation (Ba et al. 2016)."""

import equinox as eqx
import jax
import jax.numpy as jnp

EPSILON = 1e-6


class LayerNorm(eqx.Module):
    """gamma (x - mean) / sqrt(variance + eps) + beta, with mean and variance over the features of each position.

    >>> LayerNorm(2)(jnp.array([[1.0, 3.0]])).round(3).tolist()
    [[-1.0, 1.0]]
    """

    gamma: jax.Array
    beta: jax.Array

    def __init__(self, features: int):
        self.gamma, self.beta = jnp.ones(features), jnp.zeros(features)

    def __call__(self, x: jax.Array) -> jax.Array:
        centred = x - x.mean(axis=-1, keepdims=True)
        scale = jax.lax.rsqrt(jnp.square(centred).mean(axis=-1, keepdims=True) + EPSILON)
        return centred * scale * self.gamma + self.beta
