"""The mode of a small model's log joint and the curvature there, where variational inference of a linear model starts.

Damped Newton steps on f(w) = -log_joint(w), with the whole Hessian H:

    S = diag(H)^-1/2,   S H S = V diag(e) V',   w <- w - S V diag(1 / (|e| + damping)) V' S grad f

The scaling by S makes the steps invariant to the units of the weights, and so to those of the inputs.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree

from posteriax.problem import Latents, Network

LARGEST = 300  # latent variables: every step decomposes the Hessian
LARGEST_DATA = 30_000_000  # examples times latent variables: what a Hessian holds in memory at once
STEPS = 40
FLAT = 1e-6  # eigenvalues below this fraction of the largest are lost in float32


class Mode(NamedTuple):
    """The most probable latents, as one vector in the order of their leaves, and the Hessian of -log_joint there."""

    value: jax.Array
    hessian: jax.Array


def is_linear(network: Network, example: Any, tolerance: float = 1e-3) -> bool:
    """Whether a network's outputs are affine in its params, tried at random params and inputs.

    >>> import numpy as np, posteriax as px
    >>> net = px.network((lambda w, x: x @ w, np.zeros((3, 1))))
    >>> is_linear(net, jax.ShapeDtypeStruct((3,), jnp.float32))
    True
    """
    key_x, key_a, key_b = jax.random.split(jax.random.key(0), 3)
    x = jax.tree.map(lambda spec: _random_input(key_x, spec), example)
    a, b = (optax.tree_utils.tree_random_like(key, network.params) for key in (key_a, key_b))
    zero, both = jax.tree.map(jnp.zeros_like, a), jax.tree.map(jnp.add, a, b)
    at_zero, at_a, at_b, at_both = (network.apply(params, x).astype(jnp.float32) for params in (zero, a, b, both))
    size = jnp.abs(at_a).max() + jnp.abs(at_b).max() + jnp.abs(at_zero).max()
    return bool(jnp.abs(at_both - at_a - at_b + at_zero).max() <= tolerance * size)


def _random_input(key: jax.Array, spec: Any) -> jax.Array:
    shape = (4, *spec.shape)
    if jnp.issubdtype(spec.dtype, jnp.floating):
        return jax.random.normal(key, shape, spec.dtype)
    return jnp.zeros(shape, spec.dtype)  # a valid index of any embedding


def find_mode(log_joint: Callable[[Latents], jax.Array], start: Latents) -> Mode:
    """Newton steps from `start`, each taken only if it raises the log joint."""
    first, unravel = ravel_pytree(start)

    def f(vector: jax.Array) -> jax.Array:
        return -log_joint(unravel(vector))

    def body(_: Any, state: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array, jax.Array]:
        vector, value, damping = state
        gradient, (unit, curvature, vectors) = jax.grad(f)(vector), _decomposed(jax.hessian(f)(vector))
        new = vector - unit * (vectors @ ((vectors.T @ (unit * gradient)) / (curvature + damping)))
        new_value = f(new)
        better = new_value <= value + 1e-6 * jnp.abs(value)  # float32 sees no smaller difference
        damping = jnp.clip(damping * jnp.where(better, 0.1, 10.0), 1e-7, 1e7)
        return jnp.where(better, new, vector), jnp.where(better, new_value, value), damping

    vector, _, _ = jax.lax.fori_loop(0, STEPS, body, (first, f(first), jnp.asarray(1e-3, first.dtype)))
    return Mode(vector, jax.hessian(f)(vector))


def inverse(hessian: jax.Array) -> jax.Array:
    """A covariance: the inverse of the Hessian, with its eigenvalues replaced by their absolute values."""
    unit, curvature, vectors = _decomposed(hessian)
    return unit[:, None] * ((vectors / curvature) @ vectors.T) * unit


def _decomposed(hessian: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The weights' units S, and the absolute eigenvalues and the eigenvectors of S H S."""
    unit = jax.lax.rsqrt(jnp.maximum(jnp.abs(jnp.diag(hessian)), 1e-30))
    eigenvalues, vectors = jnp.linalg.eigh(unit[:, None] * hessian * unit)
    return unit, jnp.maximum(jnp.abs(eigenvalues), FLAT * jnp.abs(eigenvalues).max()), vectors
