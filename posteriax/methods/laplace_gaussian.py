"""Laplace's Gaussian: which curvature is collected for which leaf, and what distribution it gives."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from posteriax.data import Batch
from posteriax.families import Family, FullCovariance, Normal, Point, RotatedNormal
from posteriax.families.arrays import Use
from posteriax.methods import gauss_newton
from posteriax.methods.method import Task
from posteriax.posterior import Trace, VariationalPosterior
from posteriax.problem import Latents, Problem

Structure = Literal["diagonal", "kronecker", "full"]
LARGEST_FULL = 10_000  # weights with one covariance
LARGEST_VECTOR = 1_000  # of a bias or another leaf without Kronecker factors, which then has a covariance of its own


class Collected(NamedTuple):
    """Sums over the examples seen so far.

    Args:
        log_likelihood: of the data.
        blocks: the curvature of each block of leaves, in the order of the plan.
    """

    log_likelihood: jax.Array
    blocks: tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class CurvaturePlan:
    """Which leaves have which curvature.

    Args:
        problem: what is inferred.
        full: groups of leaves, each with one covariance.
        diagonal: leaves with independent weights.
        layers: leaves with Kronecker factors, and how the network uses them.
        notes: what a user should know.
    """

    problem: Problem
    full: tuple[tuple[int, ...], ...]
    diagonal: tuple[int, ...]
    layers: dict[int, Use]
    notes: tuple[str, ...] = ()

    def nothing(self) -> Collected:
        """No examples yet."""
        leaves, infos = jax.tree.leaves(self.problem.latents), self.problem.leaf_infos
        sizes = [sum(leaves[i].size for i in group) for group in self.full]
        return Collected(
            jnp.zeros(()),
            (
                tuple(jnp.zeros((size, size)) for size in sizes),
                [jnp.zeros_like(leaves[i]) for i in self.diagonal],
                {i: gauss_newton.no_kronecker(infos[i], jnp.float32) for i in self.layers},
            ),
        )

    def add(self, so_far: Collected, latents: Latents, batch: Batch, log_likelihood: jax.Array) -> Collected:
        """The sums with the examples of a batch."""
        problem = self.problem
        new = (
            tuple(gauss_newton.full(problem, latents, batch, group) for group in self.full),
            gauss_newton.diagonal(problem, latents, batch, self.diagonal) if self.diagonal else [],
            gauss_newton.kronecker(problem, latents, batch, self.layers, problem.leaf_infos) if self.layers else {},
        )
        blocks = jax.tree.map(jnp.add, so_far.blocks, new)
        return Collected(so_far.log_likelihood + log_likelihood, blocks)


def structure_of(structure: Structure, task: Task, chosen: Sequence[int]) -> CurvaturePlan:
    """The plan for the chosen leaves."""
    problem, leaves = task.problem, jax.tree.leaves(task.problem.latents)
    sizes = {i: leaves[i].size for i in chosen}
    names, total = problem.leaf_names, sum(leaves[i].size for i in chosen)
    for i in chosen:
        if not _is_independent(problem.leaf_priors[i]):
            raise ValueError(f"Laplace needs priors that are independent across weights; that of {names[i]} is not")
    if structure == "full":
        if total > LARGEST_FULL:
            raise ValueError(
                f"a full covariance of {total:,} weights is too large (the limit is {LARGEST_FULL:,}): use "
                f'structure="kronecker", or fewer leaves by over='
            )
        return CurvaturePlan(problem, (tuple(chosen),), (), {})
    if structure == "diagonal":
        return CurvaturePlan(problem, (), tuple(chosen), {})
    layers = gauss_newton.layers_among(problem, task.example, chosen)
    rest = [i for i in chosen if i not in layers]
    small = tuple((i,) for i in rest if sizes[i] <= LARGEST_VECTOR)
    large = tuple(i for i in rest if sizes[i] > LARGEST_VECTOR)
    notes = tuple(
        f"{names[i]}: not the weight of one dense layer or convolution, so that it has no Kronecker factors; its "
        f"{sizes[i]:,} weights are independent"
        for i in large
    )
    return CurvaturePlan(problem, small, large, layers, notes)


def _is_independent(prior: dist.Distribution) -> bool:
    base = prior.base_dist if isinstance(prior, dist.ExpandedDistribution) else prior
    return not base.event_shape


def gaussian_of(
    plan: CurvaturePlan, problem: Problem, modes: Latents, collected: Collected, trace: Trace
) -> VariationalPosterior:
    """The posterior of all members, with the log evidence of each in the trace."""
    members = jax.tree.leaves(modes)[0].shape[0]
    each = [jax.tree.map(lambda a, m=m: np.asarray(a[m]), (modes, collected)) for m in range(members)]
    built = [_of_member(plan, problem, *one) for one in each]
    families = built[0][0]
    variational = jax.tree.map(lambda *own: np.stack(own), *[one[1] for one in built])
    evidence = np.array(
        [_log_evidence(problem, families, one[1], *both) for one, both in zip(built, each, strict=True)]
    )
    arrays = {**trace.arrays, "log_evidence": evidence if members > 1 else evidence[0]}
    return VariationalPosterior(problem, replace(trace, arrays=arrays), families, variational)


def _of_member(
    plan: CurvaturePlan, problem: Problem, mode: Latents, collected: Collected
) -> tuple[dict[str, Family], dict[str, Any]]:
    names, leaves = problem.leaf_names, jax.tree.leaves(mode)
    precisions = [_prior_precision(prior, leaf) for prior, leaf in zip(problem.leaf_priors, leaves, strict=True)]
    families: dict[str, Family] = {name: Point() for name in names}
    variational: dict[str, Any] = {name: {"value": leaf} for name, leaf in zip(names, leaves, strict=True)}
    full, diagonal, layers = collected.blocks
    temperature = problem.temperature
    for group, matrix in zip(plan.full, full, strict=True):
        over: Any = "network" if len(group) > 1 else "leaf"
        flat = np.concatenate([precisions[i].reshape(-1) for i in group])
        covariance = temperature * np.linalg.inv(np.asarray(matrix, np.float64) + np.diag(flat))
        mean = np.concatenate([leaves[i].reshape(-1) for i in group]) if over == "network" else leaves[group[0]]
        for i in group:
            families[names[i]] = FullCovariance(over)
            variational.pop(names[i])
        variational[names[group[0]]] = {"mean": mean, **_triangle(covariance)}
    for i, values in zip(plan.diagonal, diagonal, strict=True):
        variance = temperature / (np.asarray(values, np.float64) + precisions[i])
        families[names[i]] = Normal()
        variational[names[i]] = {"mean": leaves[i], "log_scale": (0.5 * np.log(variance)).astype(np.float32)}
    for i, sums in layers.items():
        families[names[i]] = RotatedNormal()
        precision = float(precisions[i].mean())
        variational[names[i]] = {"mean": leaves[i], **_rotated(sums, problem.leaf_infos[i], precision, temperature)}
    return families, variational


def _prior_precision(prior: dist.Distribution, leaf: np.ndarray) -> np.ndarray:
    """-d2 log p(w) / dw^2 for every weight; at least 0."""
    value = jnp.asarray(leaf)

    def slope(w: jax.Array) -> jax.Array:
        return jax.grad(lambda v: prior.log_prob(v).sum())(w)

    curvature = -jax.jvp(slope, (value,), (jnp.ones_like(value),))[1]
    return np.maximum(np.asarray(curvature, np.float64), 0.0)


def _triangle(covariance: np.ndarray) -> dict[str, np.ndarray]:
    """The parameters of q.FullCovariance."""
    factor = np.linalg.cholesky((covariance + covariance.T) / 2)
    diagonal = np.diag(factor)
    below = (factor / diagonal[:, None])[np.tril_indices(len(factor), -1)]
    return {"log_diagonal": np.log(diagonal).astype(np.float32), "lower": below.astype(np.float32)}


def _rotated(sums: gauss_newton.Kronecker, leaf: Any, precision: float, temperature: float) -> dict[str, np.ndarray]:
    """The parameters of q.RotatedNormal: A (x) B + precision, inverted in the basis of its eigenvectors."""
    inputs = np.asarray(sums.inputs, np.float64) / float(sums.positions)
    outputs = np.asarray(sums.outputs, np.float64)
    (a, by_inputs), (b, by_outputs) = (np.linalg.eigh(matrix) for matrix in (inputs, outputs))
    first, second = (b, a) if gauss_newton.outputs_first(leaf) else (a, b)
    left, right = (by_outputs, by_inputs) if gauss_newton.outputs_first(leaf) else (by_inputs, by_outputs)
    variance = temperature / (np.maximum(np.outer(first, second), 0.0) + precision)
    arrays = {"log_scale": 0.5 * np.log(variance), "left": left, "right": right}
    return {name: value.astype(np.float32) for name, value in arrays.items()}


def _log_evidence(
    problem: Problem, families: dict[str, Family], variational: dict[str, Any], mode: Latents, collected: Collected
) -> float:
    """log p(D, w*) + H(q) - d / 2, which is the formula above; NaN at a temperature other than 1."""
    if problem.temperature != 1.0:
        return float("nan")
    blocks = VariationalPosterior(problem, Trace({}), families, variational).blocks
    random = [block for block in blocks if block.family.random]
    entropy = sum(float(block.family.entropy(variational[block.name])) for block in random)
    size = sum(np.size(block.family.mean(variational[block.name])) for block in random)
    return float(collected.log_likelihood) + float(problem.log_prior(mode)) + entropy - size / 2
