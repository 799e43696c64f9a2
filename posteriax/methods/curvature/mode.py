"""The mode of a log joint and the curvature there: the centre of a Gaussian approximation, or a start.

:func:`find_mode`, for models of up to 300 latents: damped Newton steps on f(w) = -log_joint(w), with the Hessian H,

    S = diag(H)^-1/2,   S H S = V diag(e) V',   w <- w - S V diag(1 / (|e| + damping)) V' S grad f

The scaling by S makes the steps invariant to the units of the weights, and so to those of the inputs.

:class:`ModeSearch`, for networks of any size while their prior is tuned: the prior's precisions are arguments of
programs that are compiled once. It climbs by Adam, 200 steps at a rate that falls to 0, and where the rows of the
curvature fit into memory by Gauss-Newton steps, with the step length halved until the log joint rises.

(``px.MAP`` finds a mode by minibatches; samplers start in the typical set: :mod:`posteriax.methods.sampling.starts`.)
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import PyTree

from posteriax.data.batches import Batch, Examples, full_batch
from posteriax.methods.curvature import gauss_newton
from posteriax.methods.curvature.evidence import precision_by_plan, precision_from_rows
from posteriax.methods.curvature.structures import CurvaturePlan
from posteriax.methods.method import Task
from posteriax.networks.network import Params
from posteriax.priors.improper import has_density
from posteriax.problem import Latents, Problem

LARGEST = 300  # latent variables: every step decomposes the Hessian
LARGEST_DATA = 30_000_000  # examples times latent variables: what a Hessian holds in memory at once
NEWTON_STEPS = 40
ADAM_STEPS = 200  # in one climb of a ModeSearch
BATCH = 512  # examples per step
CHUNK = 1024  # examples whose curvature is computed at once
HALVINGS = 8  # of a Gauss-Newton step
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


class GaussianPriors(NamedTuple):
    """Independent Gaussians: a mean and a precision for each weight, leaf by leaf."""

    means: list[np.ndarray]
    precisions: list[np.ndarray]


class Measured(NamedTuple):
    """What one pass over the data finds at some weights.

    Args:
        log_likelihood: of the data.
        noise_slope: its derivative by the logarithm of the noise, if that is tuned.
        log_evidence: Laplace's.
        effective: how many weights of each leaf the data determine.
        step: a Gauss-Newton step from these weights under another prior, with the curvature of this one, so that it is
            decomposed once; None if only Adam climbs.
    """

    log_likelihood: float
    noise_slope: float
    log_evidence: float
    effective: dict[int, float]
    step: Callable[[GaussianPriors], np.ndarray] | None


@dataclass(frozen=True, eq=False)
class ModeSearch:
    """Programs for one problem and its data.

    Args:
        problem: whose own priors of the network's weights are not used.
        data: all of it, on the host.
        structure: of the curvature, by its name.
        plan: what is collected for it; None for the curvature of all weights, which is decomposed from its rows.
        noise: the likelihood's latent that is not trained, because it is tuned.
    """

    problem: Problem
    data: Examples
    structure: str
    plan: CurvaturePlan | None
    noise: str | None

    @property
    def size(self) -> int:
        """The number of the network's leaves; those of the likelihood come after them."""
        return len(jax.tree.leaves(self.problem.network.params))

    @cached_property
    def examples(self) -> Batch:
        return jax.tree.map(jnp.asarray, full_batch(self.data))

    @cached_property
    def chunks(self) -> Batch:
        """The data in parts of equal size, in a leading axis."""
        parts = -(-len(self.data.y) // CHUNK)
        examples = full_batch(self.data, parts)
        return jax.tree.map(lambda a: jnp.asarray(a).reshape(parts, -1, *a.shape[1:]), examples)

    def log_prior(self, latents: Latents, prior: GaussianPriors) -> jax.Array:
        """The log prior of the network's weights, without constants, and of the latents that the likelihood learns."""
        weights = jax.tree.leaves(latents.network)
        total = -0.5 * sum(
            (precision * jnp.square(leaf - mean)).sum() for leaf, mean, precision in zip(weights, *prior, strict=True)
        )
        priors = self.problem.priors.likelihood
        return total + sum(
            priors[name].log_prob(latents.likelihood[name]).sum() for name in priors if name != self.noise
        )

    def climb(self, latents: Latents, prior: GaussianPriors, key: jax.Array, rate: float) -> Latents:
        """The latents after `ADAM_STEPS` steps of Adam."""
        return self._climb(self.examples, latents, prior, key, rate)

    @cached_property
    def _climb(self) -> Callable[..., Latents]:
        return jax.jit(self._climbed)

    def _climbed(
        self, data: Batch, latents: Latents, prior: GaussianPriors, key: jax.Array, rate: jax.Array
    ) -> Latents:
        optimizer = optax.scale_by_adam()

        def loss(latents: Latents, batch: Batch) -> jax.Array:
            return -self.problem.log_likelihood(latents, batch) - self.log_prior(latents, prior)

        def step(
            state: tuple[Latents, optax.OptState], now: tuple[jax.Array, jax.Array]
        ) -> tuple[tuple[Latents, optax.OptState], None]:
            latents, moments = state
            number, step_key = now
            gradient = self._frozen(jax.grad(loss)(latents, _sample(data, step_key)))
            updates, moments = optimizer.update(gradient, moments)
            falling = -0.5 * rate * (1 + jnp.cos(jnp.pi * number / ADAM_STEPS))
            return (optax.apply_updates(latents, jax.tree.map(lambda u: falling * u, updates)), moments), None

        steps = jnp.arange(ADAM_STEPS), jax.random.split(key, ADAM_STEPS)
        return jax.lax.scan(step, (latents, optimizer.init(latents)), steps)[0][0]

    def _frozen(self, gradient: Latents) -> Latents:
        """The gradient without that of the noise."""
        slopes = {name: jnp.zeros_like(g) if name == self.noise else g for name, g in gradient.likelihood.items()}
        return gradient._replace(likelihood=slopes)

    def measure(self, latents: Latents, prior: GaussianPriors) -> Measured:
        """The evidence under a prior, with the curvature at these weights."""
        likelihood, slopes, curvature = jax.device_get(self._pass(self.chunks, latents))
        weights = [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(latents.network)]
        take = None
        if self.plan is None:
            rows = np.asarray(curvature, np.float64).reshape(-1, curvature.shape[-1])
            precision, solve = precision_from_rows(rows, prior.precisions)
            take = _gauss_newton(solve, jax.tree.leaves(slopes.network), weights)
        else:
            precision = precision_by_plan(self.plan, curvature, prior.precisions)
        log_evidence = float(likelihood) + float(self.log_prior(latents, prior)) - 0.5 * precision.log_det
        log_evidence += 0.5 * sum(float(np.log(leaf).sum()) for leaf in prior.precisions)
        slope = float(slopes.likelihood[self.noise]) if self.noise else 0.0
        return Measured(float(likelihood), slope, log_evidence, precision.effective, take)

    @cached_property
    def _pass(self) -> Callable[..., tuple[jax.Array, Latents, PyTree]]:
        return jax.jit(self._passed)

    def _passed(self, chunks: Batch, latents: Latents) -> tuple[jax.Array, Latents, PyTree]:
        """Log-likelihood, its gradient, and the curvature: rows with an axis of chunks, or the sums of the plan."""
        value_and_slope = jax.value_and_grad(self.problem.log_likelihood)

        def add(total: PyTree, batch: Batch) -> tuple[PyTree, jax.Array | None]:
            likelihood, slope, sums = total
            batch_likelihood, batch_slope = value_and_slope(latents, batch)
            if self.plan is None:
                new = gauss_newton.rows(self.problem, latents, batch, range(self.size))
            else:
                sums, new = self.plan.add(sums, latents, batch, batch_likelihood), None
            return (likelihood + batch_likelihood, jax.tree.map(jnp.add, slope, batch_slope), sums), new

        nothing = None if self.plan is None else self.plan.nothing(jax.random.key(0))
        start = jnp.zeros(()), jax.tree.map(jnp.zeros_like, latents), nothing
        (likelihood, slope, sums), rows = jax.lax.scan(add, start, chunks)
        return likelihood, slope, rows if sums is None else sums.curvature

    def move(self, latents: Latents, prior: GaussianPriors, step: np.ndarray) -> tuple[Latents, float]:
        """The latents after a step, shortened until the log joint rises, and by how much it does."""
        leaves, structure = jax.tree.flatten(latents.network)
        parts = np.split(step.astype(np.float32), np.cumsum([leaf.size for leaf in leaves])[:-1])
        direction = jax.tree.unflatten(structure, [p.reshape(w.shape) for p, w in zip(parts, leaves, strict=True)])
        length, rise = self._search(self.chunks, latents, prior, direction)
        moved = jax.tree.map(lambda w, d: w + length * d, latents.network, direction)
        return latents._replace(network=moved), float(rise)

    @cached_property
    def _search(self) -> Callable[..., tuple[jax.Array, jax.Array]]:
        return jax.jit(self._searched)

    def _searched(
        self, chunks: Batch, latents: Latents, prior: GaussianPriors, direction: Params
    ) -> tuple[jax.Array, jax.Array]:
        """The step length at which the log joint rises most, and by how much."""

        def joint(length: jax.Array) -> jax.Array:
            moved = latents._replace(network=jax.tree.map(lambda w, d: w + length * d, latents.network, direction))
            by_chunk = jax.lax.map(lambda batch: self.problem.log_likelihood(moved, batch), chunks)
            return by_chunk.sum() + self.log_prior(moved, prior)

        lengths = jnp.append(0.5 ** jnp.arange(HALVINGS), 0.0)
        values = jax.lax.map(joint, lengths)
        best = jnp.argmax(jnp.where(jnp.isfinite(values), values, -jnp.inf))
        return lengths[best], values[best] - values[-1]


def _sample(data: Batch, key: jax.Array) -> Batch:
    """Examples drawn at random, which stand for all; all of them if there are few."""
    n = data.weight.shape[0]
    if n <= BATCH:
        return data
    rows = jax.random.randint(key, (BATCH,), 0, n)
    batch = jax.tree.map(lambda a: a[rows], data)
    return batch._replace(weight=batch.weight * (n / BATCH))


def _gauss_newton(
    solve: Callable[[np.ndarray], np.ndarray], slopes: Sequence[np.ndarray], weights: Sequence[np.ndarray]
) -> Callable[[GaussianPriors], np.ndarray]:
    """(G + P)^-1 d/dw [log-likelihood + log-prior]."""

    def step(prior: GaussianPriors) -> np.ndarray:
        pull = [
            np.asarray(slope, np.float64) - precision * (weight - mean)
            for slope, weight, mean, precision in zip(slopes, weights, *prior, strict=True)
        ]
        return solve(np.concatenate([leaf.reshape(-1) for leaf in pull]))

    return step
