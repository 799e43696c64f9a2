"""The curvature of the data in parts: which structure is collected for which leaf, as sums over examples."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from posteriax.data.batches import Batch
from posteriax.methods.curvature import gauss_newton
from posteriax.methods.curvature.sketch import Sketch, add_to_sketch, sketch_columns, start_sketch
from posteriax.methods.method import Task
from posteriax.networks.tracing.uses import Use
from posteriax.priors.prior import base_distribution
from posteriax.problem import Latents, Problem

Structure = Literal["diagonal", "kronecker", "full", "low-rank"]
LARGEST_FULL = 10_000  # weights with one covariance
LARGEST_VECTOR = 1_000  # weights of a bias or another leaf without Kronecker factors, which then has a full covariance


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
        sketch: of the leaves with a low-rank curvature, if any.
    """

    log_likelihood: jax.Array
    curvature: Curvature
    sketch: Sketch | None


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
            sketch = start_sketch(key, size, sketch_columns(self.rank, size))
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
            sketch = add_to_sketch(sketch, problem, latents, batch, self.low_rank, scales)
        pairs = zip(old.full, self.full, strict=True)
        curvature = Curvature(
            tuple(gauss_newton.add_full(matrix, problem, latents, batch, group) for matrix, group in pairs),
            jax.tree.map(jnp.add, old.diagonal, diagonal),
            jax.tree.map(jnp.add, old.layers, layers),
        )
        return Collected(so_far.log_likelihood + log_likelihood, curvature, sketch)


def plan_curvature(structure: Structure, task: Task, chosen: Sequence[int], rank: int = 0) -> CurvaturePlan:
    """The parts that a structure has for the chosen leaves."""
    problem, leaves = task.problem, jax.tree.leaves(task.problem.latents)
    sizes = {i: leaves[i].size for i in chosen}
    names, total = problem.leaf_names, sum(leaves[i].size for i in chosen)
    for i in chosen:
        if base_distribution(problem.leaf_priors[i]).event_shape:
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
            prior = base_distribution(problem.leaf_priors[i])
            if not isinstance(prior, dist.Normal):
                raise ValueError(
                    f"a low-rank curvature is in units of a Gaussian prior, but {names[i]} has {type(prior).__name__}: "
                    f'use p.Normal(), or structure="kronecker"'
                )
        return CurvaturePlan(problem, low_rank=tuple(chosen), rank=min(rank, total))
    layers = gauss_newton.layers_among(problem, task.example, chosen)
    rest = [i for i in chosen if i not in layers]
    small = tuple((i,) for i in rest if sizes[i] <= LARGEST_VECTOR)
    large = tuple(i for i in rest if sizes[i] > LARGEST_VECTOR)
    notes = tuple(
        f"{names[i]}: not the weight of one dense layer or convolution, so it has no Kronecker factors; its "
        f"{sizes[i]:,} weights are independent"
        for i in large
    )
    return CurvaturePlan(problem, full=small, diagonal=large, layers=layers, notes=notes)


def prior_curvature(prior: dist.Distribution, leaf: jax.Array) -> jax.Array:
    """-d2 log p(w) / dw^2 for every weight; at least 0."""

    def slope(w: jax.Array) -> jax.Array:
        return jax.grad(lambda v: prior.log_prob(v).sum())(w)

    return jnp.maximum(-jax.jvp(slope, (leaf,), (jnp.ones_like(leaf),))[1], 0.0)


def as_matrix(collected: jax.Array) -> np.ndarray:
    """A full curvature in double precision, from what was collected of it."""
    matrix = np.asarray(collected, np.float64)
    return matrix.T @ matrix if gauss_newton.is_root(len(matrix)) else matrix
