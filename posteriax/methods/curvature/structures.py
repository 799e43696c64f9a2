"""Laplace's Gaussian: which curvature is collected for which leaf, and what distribution it gives."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from scipy.linalg import cho_solve, cholesky

from posteriax.data.batches import Batch
from posteriax.families.family import Family
from posteriax.families.full_covariance import FullCovariance
from posteriax.families.low_rank import LowRankPrecision
from posteriax.families.normal import Normal
from posteriax.families.point import Point
from posteriax.families.rotated_normal import RotatedNormal
from posteriax.methods.curvature import gauss_newton
from posteriax.methods.curvature import sketch as low_rank_sketch
from posteriax.methods.method import Task
from posteriax.networks.tracing.uses import Use
from posteriax.posterior.trace import Trace
from posteriax.posterior.variational import VariationalPosterior
from posteriax.problem import Latents, Problem

Structure = Literal["diagonal", "kronecker", "full", "low-rank"]
LOST = 1e-12  # of the largest eigenvalue: what is left of a 0 by rounding
LARGEST_FULL = 10_000  # weights with one covariance
LARGEST_VECTOR = 1_000  # of a bias or another leaf without Kronecker factors, which then has a covariance of its own


class Curvature(NamedTuple):
    """Of the examples seen so far, for each part of a plan: sums, or the triangular roots of small full matrices."""

    full: tuple[jax.Array, ...]
    diagonal: list[jax.Array]
    layers: dict[int, gauss_newton.Kronecker]


class Collected(NamedTuple):
    """Sums over the examples seen so far.

    Args:
        log_likelihood: of the data.
        curvature: of the parts of the plan that are plain sums.
        sketch: of the leaves with a low-rank curvature, if there are such.
    """

    log_likelihood: jax.Array
    curvature: Curvature
    sketch: low_rank_sketch.Sketch | None


@dataclass(frozen=True, eq=False)
class CurvaturePlan:
    """Which leaves have which curvature.

    Args:
        problem: what is inferred.
        full: groups of leaves, each with one covariance.
        diagonal: leaves with independent weights.
        layers: leaves with Kronecker factors, and how the network uses them.
        low_rank: leaves with a low-rank curvature, across all of them.
        rank: of that curvature.
        notes: what a user should know.
    """

    problem: Problem
    full: tuple[tuple[int, ...], ...] = ()
    diagonal: tuple[int, ...] = ()
    layers: dict[int, Use] = field(default_factory=dict)
    low_rank: tuple[int, ...] = ()
    rank: int = 0
    notes: tuple[str, ...] = ()

    def nothing(self, key: jax.Array) -> Collected:
        """No examples yet. The key is for the directions that a low-rank curvature is found from."""
        leaves, infos = jax.tree.leaves(self.problem.latents), self.problem.leaf_infos
        curvature = Curvature(
            tuple(jnp.zeros((self._size(group),) * 2) for group in self.full),
            [jnp.zeros_like(leaves[i]) for i in self.diagonal],
            {i: gauss_newton.no_kronecker(infos[i], jnp.float32) for i in self.layers},
        )
        sketch = None
        if self.low_rank:
            size = self._size(self.low_rank)
            sketch = low_rank_sketch.start(key, size, low_rank_sketch.columns_for(self.rank, size))
        return Collected(jnp.zeros(()), curvature, sketch)

    def _size(self, group: Sequence[int]) -> int:
        leaves = jax.tree.leaves(self.problem.latents)
        return sum(leaves[i].size for i in group)

    def add(self, so_far: Collected, latents: Latents, batch: Batch, log_likelihood: jax.Array) -> Collected:
        """The sums with the examples of a batch."""
        problem, sketch = self.problem, so_far.sketch
        old = so_far.curvature
        diagonal = gauss_newton.diagonal(problem, latents, batch, self.diagonal) if self.diagonal else []
        layers = gauss_newton.kronecker(problem, latents, batch, self.layers, problem.leaf_infos) if self.layers else {}
        if sketch is not None:
            leaves, priors = jax.tree.leaves(latents), problem.leaf_priors
            scales = [jax.lax.rsqrt(prior_curvature(priors[i], leaves[i])) for i in self.low_rank]
            sketch = low_rank_sketch.add(sketch, problem, latents, batch, self.low_rank, scales)
        pairs = zip(old.full, self.full, strict=True)
        curvature = Curvature(
            tuple(gauss_newton.add_full(own, problem, latents, batch, group) for own, group in pairs),
            jax.tree.map(jnp.add, old.diagonal, diagonal),
            jax.tree.map(jnp.add, old.layers, layers),
        )
        return Collected(so_far.log_likelihood + log_likelihood, curvature, sketch)


def structure_of(structure: Structure, task: Task, chosen: Sequence[int], rank: int = 0) -> CurvaturePlan:
    """The plan for the chosen leaves."""
    problem, leaves = task.problem, jax.tree.leaves(task.problem.latents)
    sizes = {i: leaves[i].size for i in chosen}
    names, total = problem.leaf_names, sum(leaves[i].size for i in chosen)
    for i in chosen:
        if _base(problem.leaf_priors[i]).event_shape:
            raise ValueError(f"Laplace needs priors that are independent across weights; that of {names[i]} is not")
    if structure == "full":
        if total > LARGEST_FULL:
            raise ValueError(
                f"a full covariance of {total:,} weights is too large (the limit is {LARGEST_FULL:,}): use "
                f'structure="kronecker", or fewer leaves by over='
            )
        return CurvaturePlan(problem, full=(tuple(chosen),))
    if structure == "diagonal":
        return CurvaturePlan(problem, diagonal=tuple(chosen))
    if structure == "low-rank":
        for i in chosen:
            if not isinstance(_base(problem.leaf_priors[i]), dist.Normal):
                raise ValueError(
                    f"a low-rank curvature is one in units of a Gaussian prior, but {names[i]} has "
                    f'{type(_base(problem.leaf_priors[i])).__name__}: use p.Normal(), or structure="kronecker"'
                )
        return CurvaturePlan(problem, low_rank=tuple(chosen), rank=min(rank, total))
    layers = gauss_newton.layers_among(problem, task.example, chosen)
    rest = [i for i in chosen if i not in layers]
    small = tuple((i,) for i in rest if sizes[i] <= LARGEST_VECTOR)
    large = tuple(i for i in rest if sizes[i] > LARGEST_VECTOR)
    notes = tuple(
        f"{names[i]}: not the weight of one dense layer or convolution, so that it has no Kronecker factors; its "
        f"{sizes[i]:,} weights are independent"
        for i in large
    )
    return CurvaturePlan(problem, full=small, diagonal=large, layers=layers, notes=notes)


def _base(prior: dist.Distribution) -> dist.Distribution:
    return prior.base_dist if isinstance(prior, dist.ExpandedDistribution) else prior


def gaussian_of(
    plan: CurvaturePlan, problem: Problem, modes: Latents, collected: Collected, trace: Trace
) -> VariationalPosterior:
    """The posterior of all members, with the log evidence of each in the trace."""
    members = jax.tree.leaves(modes)[0].shape[0]
    each = [jax.tree.map(lambda a, m=m: np.asarray(a[m]), (modes, collected)) for m in range(members)]
    built = [_member_gaussian(plan, problem, *one) for one in each]
    families = built[0][0]
    variational = jax.tree.map(lambda *own: np.stack(own), *[one[1] for one in built])
    evidence = np.array(
        [_log_evidence(problem, families, one[1], *both) for one, both in zip(built, each, strict=True)]
    )
    arrays = {**trace.arrays, "log_evidence": evidence if members > 1 else evidence[0]}
    return VariationalPosterior(problem, replace(trace, arrays=arrays), families, variational)


def _member_gaussian(
    plan: CurvaturePlan, problem: Problem, mode: Latents, collected: Collected
) -> tuple[dict[str, Family], dict[str, Any]]:
    names, leaves = problem.leaf_names, jax.tree.leaves(mode)
    precisions = [
        np.asarray(prior_curvature(prior, jnp.asarray(leaf)), np.float64)
        for prior, leaf in zip(problem.leaf_priors, leaves, strict=True)
    ]
    families: dict[str, Family] = {name: Point() for name in names}
    variational: dict[str, Any] = {name: {"value": leaf} for name, leaf in zip(names, leaves, strict=True)}
    full, diagonal, layers = collected.curvature
    temperature = problem.temperature
    for group, matrix in zip(plan.full, full, strict=True):
        over: Any = "network" if len(group) > 1 else "leaf"
        flat = np.concatenate([precisions[i].reshape(-1) for i in group])
        covariance = temperature * _inverse(as_matrix(matrix), flat, names[group[0]])
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
    if collected.sketch is not None:
        along, vectors = low_rank_sketch.leading(collected.sketch, plan.rank)
        family = LowRankPrecision(plan.rank, "network")
        for i in plan.low_rank:
            families[names[i]] = family
            variational.pop(names[i])
        prior = np.concatenate([precisions[i].reshape(-1) for i in plan.low_rank])
        variational[names[plan.low_rank[0]]] = {
            "mean": np.concatenate([leaves[i].reshape(-1) for i in plan.low_rank]),
            "log_scale": (0.5 * np.log(temperature / prior)).astype(np.float32),
            "directions": (vectors * np.sqrt(along)).astype(np.float32),
        }
    return families, variational


def prior_curvature(prior: dist.Distribution, leaf: jax.Array) -> jax.Array:
    """-d2 log p(w) / dw^2 for every weight; at least 0."""

    def slope(w: jax.Array) -> jax.Array:
        return jax.grad(lambda v: prior.log_prob(v).sum())(w)

    return jnp.maximum(-jax.jvp(slope, (leaf,), (jnp.ones_like(leaf),))[1], 0.0)


def as_matrix(collected: Any) -> np.ndarray:
    """A full curvature in double precision, from what was collected of it."""
    own = np.asarray(collected, np.float64)
    return own.T @ own if gauss_newton.is_root(len(own)) else own


def _inverse(matrix: np.ndarray, precision: np.ndarray, name: str) -> np.ndarray:
    """(G + P)^-1. Eigenvalues of G that are lost in float32 count as 0 if it would not be positive otherwise."""
    with_prior = matrix + np.diag(precision)
    if precision.min() == 0:
        values = np.linalg.eigvalsh(with_prior)
        if values[0] < LOST * values[-1]:
            raise ValueError(
                f"the curvature of {name} is singular: the data do not determine all weights, and the prior has no "
                f"curvature at the mode. Use a prior that has, such as p.Normal()"
            )
    try:
        factor = cholesky(with_prior, lower=True)
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(matrix)
        known = np.where(values > np.finfo(np.float32).eps * values[-1], values, 0.0)
        factor = cholesky((vectors * known) @ vectors.T + np.diag(precision), lower=True)
    return cho_solve((factor, True), np.eye(len(matrix)))


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
