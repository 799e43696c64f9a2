"""Lower triangular covariance factors, parameterised for learning.

    L = diag(exp(log_diagonal)) (I + S),   S strictly lower triangular

Each row is scaled by its diagonal entry, so one step size suits rows of any scale.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np


def start(size: int, scale: float, dtype: jnp.dtype) -> tuple[jax.Array, jax.Array]:
    """`log_diagonal` and the packed entries of S, for L = scale I."""
    return jnp.full(size, math.log(scale), dtype), jnp.zeros(size * (size - 1) // 2, dtype)


def rate(size: int) -> np.float32:
    """The rate of an entry of S: a row's entries together then move it no more than its diagonal entry does.

    >>> float(rate(4))
    0.5
    """
    return np.float32(1 / np.sqrt(max(size, 1)))


def factor(log_diagonal: jax.Array, lower: jax.Array) -> jax.Array:
    """L.

    >>> factor(jnp.zeros(2), jnp.array([3.0])).tolist()
    [[1.0, 0.0], [3.0, 1.0]]
    """
    size = log_diagonal.shape[0]
    rows, columns = np.tril_indices(size, -1)
    below = jnp.eye(size, dtype=lower.dtype).at[rows, columns]
    unit = below.set(lower, indices_are_sorted=True, unique_indices=True, mode="promise_in_bounds")
    return jnp.exp(log_diagonal)[:, None] * unit


def whitened_gradient(factor: jax.Array, by_log: jax.Array, by_lower: jax.Array) -> jax.Array:
    """L' dL from the gradients by log_diagonal and S, where L = diag(e^log_diagonal) (I + S)."""
    diagonal = jnp.diag(factor)
    below = np.tril_indices(len(factor), -1)
    by_factor = jnp.zeros_like(factor).at[below].set(by_lower) / diagonal[:, None]
    on_diagonal = (by_log - (by_factor * factor).sum(axis=1)) / diagonal
    return factor.T @ (by_factor + jnp.diag(on_diagonal))
