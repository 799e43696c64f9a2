"""Laplace's evidence for a Gaussian prior, and the search for the mode that it is measured at.

    log p(D) ~ log p(D | w*) + log p(w*) + (d / 2) log 2 pi - (1/2) log det(G + P)        P: the prior's precisions
    gamma_i = [ (G + P)^-1 G ]_ii                     near 1 for a weight that the data determine, near 0 for one that
                                                      keeps its prior

The curvature G of the data is held fixed, so that both are known for any prior. (MacKay 1992)

:class:`ModeSearch` follows the mode while the prior is tuned, for networks of any size: the prior's precisions are
arguments of programs that are compiled once. It climbs by Adam, 200 steps at a rate that falls to 0, and where the rows
of the curvature fit into memory by Gauss-Newton steps, with the step length halved until the log joint rises.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import PyTree
from scipy.linalg import cho_solve, cholesky, solve_triangular
from scipy.linalg.lapack import dtrtri

from posteriax.data.batches import Batch, Examples, full_batch
from posteriax.methods.curvature import gauss_newton
from posteriax.methods.curvature.gauss_newton import Kronecker
from posteriax.methods.curvature.structures import Curvature, CurvaturePlan, as_matrix
from posteriax.networks.network import Params
from posteriax.problem import Latents, Problem

ADAM_STEPS = 200  # in one climb
BATCH = 512  # examples per step
CHUNK = 1024  # examples whose curvature is computed at once
HALVINGS = 8  # of a Gauss-Newton step


class Precision(NamedTuple):
    """G + P.

    Args:
        log_det: its log determinant.
        effective: gamma, summed over the weights of each leaf, by the index of the leaf.
    """

    log_det: float
    effective: dict[int, float]


def precision_from_rows(
    rows: np.ndarray, precisions: Sequence[np.ndarray]
) -> tuple[Precision, Callable[[np.ndarray], np.ndarray]]:
    """G + P for G = R'R over all leaves, and a function that solves (G + P) x = b.

    Decomposes the smaller of R'R and RR', in units of the prior, where both are at least the identity.
    """
    sizes = [precision.size for precision in precisions]
    flat = np.concatenate([precision.reshape(-1) for precision in precisions])
    unit = 1 / np.sqrt(flat)
    scaled = np.asarray(rows, np.float64) * unit
    wide = scaled.shape[0] < scaled.shape[1]
    inner = scaled @ scaled.T if wide else scaled.T @ scaled
    inner[np.diag_indices_from(inner)] += 1
    factor = cholesky(inner, lower=True)
    if wide:
        effective = np.square(solve_triangular(factor, scaled, lower=True)).sum(axis=0)
    else:
        effective = 1 - np.square(dtrtri(factor, lower=1)[0]).sum(axis=0)

    def solve(b: np.ndarray) -> np.ndarray:
        in_units = unit * b
        if wide:
            return unit * (in_units - scaled.T @ cho_solve((factor, True), scaled @ in_units))
        return unit * cho_solve((factor, True), in_units)

    by_leaf = np.split(effective, np.cumsum(sizes)[:-1])
    log_det = float(np.log(flat).sum() + 2 * np.log(np.diag(factor)).sum())
    return Precision(log_det, {i: float(leaf.sum()) for i, leaf in enumerate(by_leaf)}), solve


def precision_by_plan(plan: CurvaturePlan, curvature: Curvature, precisions: Sequence[np.ndarray]) -> Precision:
    """G + P for the parts of a plan, which are independent of each other."""
    log_det, effective = 0.0, dict[int, float]()
    full, diagonal, layers = curvature
    for group, matrix in zip(plan.full, full, strict=True):
        # any square root of the curvature has its rows
        values, vectors = np.linalg.eigh(as_matrix(matrix))
        roots = (vectors * np.sqrt(np.maximum(values, 0.0))).T
        precision, _ = precision_from_rows(roots, [precisions[i] for i in group])
        log_det += precision.log_det
        effective |= {leaf: precision.effective[i] for i, leaf in enumerate(group)}
    for i, entries in zip(plan.diagonal, diagonal, strict=True):
        along = np.asarray(entries, np.float64)
        log_det += float(np.log(along + precisions[i]).sum())
        effective[i] = float((along / (along + precisions[i])).sum())
    for i, sums in layers.items():
        along, mean = kronecker_eigenvalues(sums), precisions[i].mean()
        log_det += float(np.log(along + mean).sum())
        effective[i] = float((along / (along + mean)).sum())
    return Precision(log_det, effective)


def kronecker_eigenvalues(sums: Kronecker) -> np.ndarray:
    """The eigenvalues of a layer's Kronecker-factored curvature."""
    inputs = np.linalg.eigvalsh(np.asarray(sums.inputs, np.float64) / float(sums.positions))
    outputs = np.linalg.eigvalsh(np.asarray(sums.outputs, np.float64))
    return np.maximum(np.outer(inputs, outputs), 0.0).reshape(-1)


class GaussianPriors(NamedTuple):
    """Independent Gaussians: a mean and a precision for each weight, leaf by leaf."""

    means: list[np.ndarray]
    precisions: list[np.ndarray]


class Measured(NamedTuple):
    """What one pass over the data measures at given weights.

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
