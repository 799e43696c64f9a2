"""Dense layers, embeddings, and the initialisations of the libraries that papers used."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp

Initializer = Callable[..., jax.Array]
he_normal = jax.nn.initializers.he_normal()  # variance 2 / fan_in
glorot_uniform = jax.nn.initializers.glorot_uniform()  # variance 2 / (fan_in + fan_out)
torch_uniform = jax.nn.initializers.variance_scaling(1 / 3, "fan_in", "uniform")  # PyTorch's: U(+-1 / sqrt(fan_in))
# Haiku's: N(0, 1 / fan_in) cut off at two standard deviations, which leaves 0.774 of the variance
haiku_normal = jax.nn.initializers.variance_scaling(0.77374, "fan_in", "truncated_normal")


def keras_uniform(key: jax.Array, shape: tuple[int, ...], dtype: jnp.dtype) -> jax.Array:
    """Keras's initialisation of embeddings: U(-0.05, 0.05)."""
    return jax.random.uniform(key, shape, dtype, -0.05, 0.05)


class Dense(eqx.Module):
    """x W + b, with W of shape (inputs, outputs).

    >>> Dense(3, 2, key=jax.random.key(0))(jnp.ones(3)).shape
    (2,)
    """

    weight: jax.Array
    bias: jax.Array | None

    def __init__(self, inputs: int, outputs: int, *, key: jax.Array, init: Initializer = he_normal, bias: bool = True):
        self.weight = init(key, (inputs, outputs), jnp.float32)
        self.bias = jnp.zeros(outputs) if bias else None

    def __call__(self, x: jax.Array) -> jax.Array:
        if x.shape[-1] != self.weight.shape[0]:
            raise ValueError(f"a dense layer takes {self.weight.shape[0]} inputs, but got {x.shape[-1]}")
        y = x @ self.weight
        return y if self.bias is None else y + self.bias


class Embedding(eqx.Module):
    """One row of the weights for each token.

    >>> Embedding(10, 4, key=jax.random.key(0))(jnp.array([3, 1])).shape
    (2, 4)
    """

    weight: jax.Array

    def __init__(self, words: int, features: int, *, key: jax.Array, init: Initializer = keras_uniform):
        self.weight = init(key, (words, features), jnp.float32)

    def __call__(self, tokens: jax.Array) -> jax.Array:
        if not jnp.issubdtype(tokens.dtype, jnp.integer):
            raise ValueError(f"an embedding takes whole numbers, the indices of words, but got {tokens.dtype}")
        return self.weight[tokens]
