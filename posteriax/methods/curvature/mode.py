"""The mode of the log joint of a small model, and the curvature there: a centre for a Gaussian, or a start.

Damped Newton steps on f(w) = -log_joint(w), with the Hessian H, for up to 300 latents:

    S = diag(H)^-1/2,   S H S = V diag(e) V',   w <- w - S V diag(1 / (|e| + damping)) V' S grad f

The scaling by S makes the steps invariant to the units of the weights, and so to those of the inputs.

(``px.MAP`` finds a mode by minibatches; while a prior is tuned, ``evidence.ModeSearch`` follows it; samplers start in
the typical set: :mod:`posteriax.methods.sampling.starts`.)
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from posteriax.methods.method import Task
from posteriax.priors.prior import has_density
from posteriax.problem import Latents

LARGEST = 300  # latent variables: every step decomposes the Hessian
LARGEST_DATA = 30_000_000  # examples times latent variables: what a Hessian holds in memory at once
NEWTON_STEPS = 40
FLAT = 1e-6  # eigenvalues below this fraction of the largest are lost in float32


class Mode(NamedTuple):
    """The most probable latents, as one vector in the order of their leaves, and the Hessian of -log_joint there."""

    value: jax.Array
    hessian: jax.Array


def why_no_mode(task: Task) -> str:
    """Why Newton steps cannot find the mode of a problem; empty if they can."""
    problem = task.problem
    size = sum(leaf.size for leaf in jax.tree.leaves(problem.latents))
    if size > LARGEST or size * task.num_examples > LARGEST_DATA:
        return (
            f"it needs the Hessian of {size:,} latent variables and {task.num_examples:,} examples, which is too large"
        )
    if not all(has_density(prior) for prior in problem.leaf_priors):
        return "a prior without a density has no mode"
    if task.couples_examples:
        return "the network's outputs couple the examples of a batch"
    return ""


def find_mode(log_joint: Callable[[Latents], jax.Array], start: Latents) -> Mode:
    """Newton steps from `start`, each taken only if it raises the log joint."""
    first, unravel = ravel_pytree(start)

    def f(vector: jax.Array) -> jax.Array:
        return -log_joint(unravel(vector))

    def body(_: int, state: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array, jax.Array]:
        vector, value, damping = state
        gradient, (unit, curvature, vectors) = jax.grad(f)(vector), _decomposed(jax.hessian(f)(vector))
        new = vector - unit * (vectors @ ((vectors.T @ (unit * gradient)) / (curvature + damping)))
        new_value = f(new)
        better = new_value <= value + 1e-6 * jnp.abs(value)  # float32 sees no smaller difference
        damping = jnp.clip(damping * jnp.where(better, 0.1, 10.0), 1e-7, 1e7)
        return jnp.where(better, new, vector), jnp.where(better, new_value, value), damping

    vector, _, _ = jax.lax.fori_loop(0, NEWTON_STEPS, body, (first, f(first), jnp.asarray(1e-3, first.dtype)))
    return Mode(vector, jax.hessian(f)(vector))


def covariance_of(hessian: jax.Array) -> jax.Array:
    """A covariance: the inverse of the Hessian, with its eigenvalues replaced by their absolute values."""
    unit, curvature, vectors = _decomposed(hessian)
    return unit[:, None] * ((vectors / curvature) @ vectors.T) * unit


def _decomposed(hessian: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The weights' units S, and the absolute eigenvalues and the eigenvectors of S H S."""
    unit = jax.lax.rsqrt(jnp.maximum(jnp.abs(jnp.diag(hessian)), 1e-30))
    eigenvalues, vectors = jnp.linalg.eigh(unit[:, None] * hessian * unit)
    return unit, jnp.maximum(jnp.abs(eigenvalues), FLAT * jnp.abs(eigenvalues).max()), vectors
