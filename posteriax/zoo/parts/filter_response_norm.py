"""Filter response normalisation: each channel of each example by itself, so that examples stay independent."""

import equinox as eqx
import jax
import jax.numpy as jnp

EPSILON = 1e-6


class FilterResponseNorm(eqx.Module):
    """max(gamma x / sqrt(mean over positions of x^2 + eps) + beta, tau) (Singh and Krishnan 2020).

    Unlike batch normalisation it does not couple the examples of a batch, so the likelihood stays a product over
    examples, as samplers of the posterior need.

    >>> norm = FilterResponseNorm(2)
    >>> norm(jnp.array([[[3.0, -1.0]], [[3.0, -1.0]]])).round(3).tolist()
    [[[1.0, 0.0]], [[1.0, 0.0]]]
    """

    gamma: jax.Array
    beta: jax.Array
    tau: jax.Array

    def __init__(self, channels: int):
        self.gamma, self.beta, self.tau = jnp.ones(channels), jnp.zeros(channels), jnp.zeros(channels)

    def __call__(self, x: jax.Array) -> jax.Array:
        scale = jax.lax.rsqrt(jnp.square(x).mean(axis=(0, 1), keepdims=True) + EPSILON)
        return jnp.maximum(x * scale * self.gamma + self.beta, self.tau)
