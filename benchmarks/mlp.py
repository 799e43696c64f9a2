"""The benchmarks' network, a plain function: both sides of a ratio run the same one."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np

Weights = list[tuple[jax.Array, jax.Array]]


def mlp(weights: Weights, x: jax.Array) -> jax.Array:
    """A multilayer perceptron with ReLU between its layers."""
    for kernel, bias in weights[:-1]:
        x = jax.nn.relu(x @ kernel + bias)
    kernel, bias = weights[-1]
    return x @ kernel + bias


def mlp_weights(sizes: tuple[int, ...]) -> Weights:
    """He-initialised weights of layers of these sizes."""
    keys = jax.random.split(jax.random.key(0), len(sizes) - 1)
    return [
        (jax.random.normal(key, (inputs, outputs)) * np.sqrt(2 / inputs), jnp.zeros(outputs))
        for key, (inputs, outputs) in zip(keys, pairwise(sizes), strict=True)
    ]
