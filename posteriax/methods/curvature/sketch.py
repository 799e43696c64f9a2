"""The leading eigenpairs of the curvature in units of the prior, from one pass over the data.

    C = S G S,   S = P^-1/2                     how much more the data say about a direction than the prior does
    Y = sum over batches of C_batch Omega       Omega (D x m): random, orthonormal columns; m = 2 rank + 10
    C ~ Y (Omega' Y)^-1 Y'                      (Nystrom), exact if C has no more than m directions

Cut after `rank` eigenvalues this is the low-rank covariance closest to P^-1 - (G + P)^-1 for any rank (Spantini et al.
2015). Y is a sum over examples, so that batches in any order, resumed runs and ensembles need nothing special; it costs
m products with G per batch, by one Jacobian-vector and one vector-Jacobian product each. (Tropp et al. 2017)
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.linalg import cholesky, solve_triangular

from posteriax.data.batches import Batch
from posteriax.methods.curvature.gauss_newton import output_factors
from posteriax.problem import Latents, Problem

AT_ONCE = 8  # products computed together


class Sketch(NamedTuple):
    """Random directions in the columns of Omega, and their products with the curvature so far."""

    omega: jax.Array
    products: jax.Array


def sketch_columns(rank: int, size: int) -> int:
    """m: the number of random directions from which `rank` eigenpairs of a matrix of this size are found."""
    return min(2 * rank + 10, size)


def start_sketch(key: jax.Array, size: int, columns: int) -> Sketch:
    """No examples yet."""
    omega, _ = jnp.linalg.qr(jax.random.normal(key, (size, columns)))
    return Sketch(omega, jnp.zeros((size, columns)))


def add_to_sketch(
    sketch: Sketch, problem: Problem, latents: Latents, batch: Batch, chosen: Sequence[int], scales: Sequence[jax.Array]
) -> Sketch:
    """The sketch with the examples of a batch.

    Args:
        sketch: so far.
        problem, latents: where the curvature is.
        batch: the examples.
        chosen: the leaves that it is over, raveled one after the other.
        scales: S, for each of them.
    """
    leaves, structure = jax.tree.flatten(latents)
    weights = [leaves[i] for i in chosen]
    ends = np.cumsum([leaf.size for leaf in weights])[:-1]

    def outputs(weights: list[jax.Array]) -> jax.Array:
        filled = list(leaves)
        for i, leaf in zip(chosen, weights, strict=True):
            filled[i] = leaf
        by_example = problem.outputs(jax.tree.unflatten(structure, filled).network, batch.x)
        return by_example.reshape(by_example.shape[0], -1)

    value, push = jax.linearize(outputs, weights)
    pull = jax.linear_transpose(push, weights)
    factors = output_factors(problem, latents, problem.outputs(latents.network, batch.x), batch)

    def product(column: jax.Array) -> jax.Array:
        parts = jnp.split(column, ends)
        step = [(s * part.reshape(w.shape)).astype(w.dtype) for s, part, w in zip(scales, parts, weights, strict=True)]
        along = jnp.einsum("noc,no->nc", factors, push(step).astype(factors.dtype))
        (back,) = pull(jnp.einsum("noc,nc->no", factors, along).astype(value.dtype))
        return jnp.concatenate([(s * g).reshape(-1) for s, g in zip(scales, back, strict=True)])

    products = jax.lax.map(product, sketch.omega.T, batch_size=AT_ONCE).T
    return Sketch(sketch.omega, sketch.products + products.astype(sketch.products.dtype))


def leading_eigenpairs(sketch: Sketch, rank: int) -> tuple[np.ndarray, np.ndarray]:
    """The largest eigenvalues of C, at least 0, and their eigenvectors in columns."""
    omega, products = (np.asarray(a, np.float64) for a in sketch)
    size = np.linalg.norm(products, 2)
    if size == 0:
        return np.zeros(rank), omega[:, :rank]
    # a multiple of the identity above the rounding of float32 keeps the square root real; it is taken off again
    shift = np.sqrt(len(omega)) * np.finfo(np.float32).eps * size
    shifted = products + shift * omega
    inner = omega.T @ shifted
    factor = cholesky((inner + inner.T) / 2, lower=True)
    roots = solve_triangular(factor, shifted.T, lower=True)
    vectors, values, _ = np.linalg.svd(roots.T, full_matrices=False)
    return np.maximum(np.square(values[:rank]) - shift, 0.0), vectors[:, :rank]
