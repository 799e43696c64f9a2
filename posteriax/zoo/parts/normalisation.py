"""Normalisation: of a batch, of each channel by its filter response, of each position; channels-last."""

import equinox as eqx
import jax
import jax.numpy as jnp

EPSILON = 1e-6  # of FilterResponseNorm and LayerNorm


class BatchNorm(eqx.Module):
    """Equinox's batch normalisation for arrays with their channels last.

    It keeps running statistics in a state, so networks with it are pairs ``(network, state)``, as
    ``eqx.nn.make_with_state`` makes them.

    Args:
        momentum: the share of the old running statistics that one batch keeps.
        epsilon: added to the variance; PyTorch's default here, Keras's is 1e-3.
    """

    norm: eqx.nn.BatchNorm

    def __init__(self, channels: int, *, momentum: float = 0.9, epsilon: float = 1e-5):
        self.norm = eqx.nn.BatchNorm(channels, "batch", eps=epsilon, momentum=momentum, mode="batch")

    def __call__(self, x: jax.Array, state: eqx.nn.State) -> tuple[jax.Array, eqx.nn.State]:
        y, state = self.norm(jnp.moveaxis(x, -1, 0), state)
        return jnp.moveaxis(y, 0, -1), state


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


class LayerNorm(eqx.Module):
    """gamma (x - mean) / sqrt(variance + eps) + beta, with mean and variance over the features of each position (Ba et
    al. 2016).

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
