"""The generalised Gauss-Newton matrix of the negative log-likelihood, a sum over examples, in three structures.

    G = sum_n J_n' H_n J_n              J_n: outputs of example n by the weights, H_n = -d2 log p(y_n | f_n) / df^2
    H_n = sum_c l_nc l_nc'              negative curvature, which only some likelihoods have, counts as 0

    diagonal     sum_nc (J_n' l_nc)^2
    full         sum_nc (J_n' l_nc) (J_n' l_nc)'
    kronecker    of a layer b = W' a:  [sum_np a_np a_np' / NP] (x) [sum_ncp g_ncp g_ncp'],   g_nc = (df_n / db_n)' l_nc

with P positions (of a convolution, or tokens) per example. The Kronecker factors are those of K-FAC, with weight
sharing treated as in Eschenhagen et al. 2023 ("expand"). (Schraudolph 2002, Martens and Grosse 2015)
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import PyTree

from posteriax.data.batches import Batch
from posteriax.families.arrays.layer_product import apply_with_perturbations
from posteriax.networks.leaf import Leaf
from posteriax.networks.tracing.uses import Use, find_uses
from posteriax.problem import Latents, Problem

SMALLEST_PIVOT = 5e-7  # relative to the largest entry: below it is rounding
LARGEST_ROOT = 512  # weights whose curvature is collected as a triangular root
GROUP_BYTES = 64_000_000  # of per-example gradients at once


class Kronecker(NamedTuple):
    """Sums that give the two factors of a leaf, in the order of its rows and columns (`Leaf.matrix_shape`).

    Args:
        inputs: weight_n sum_p a_np a_np', to be divided by the number of examples and positions.
        outputs: sum_ncp g_ncp g_ncp'.
        positions: the number of examples and positions so far.
    """

    inputs: jax.Array
    outputs: jax.Array
    positions: jax.Array


def output_factors(problem: Problem, latents: Latents, outputs: jax.Array, batch: Batch) -> jax.Array:
    """l_nc times the square root of the example's weight, (examples, outputs, c)."""
    likelihood, likelihood_latents = problem.likelihood, latents.likelihood

    def nll(flat: jax.Array, y: jax.Array) -> jax.Array:
        return -likelihood.log_prob(likelihood_latents, flat.reshape(1, *outputs.shape[1:]), y[None])[0]

    flat = outputs.reshape(outputs.shape[0], -1).astype(jnp.promote_types(outputs.dtype, jnp.float32))
    return roots(jax.vmap(jax.hessian(nll))(flat, batch.y)) * jnp.sqrt(batch.weight)[:, None, None]


def roots(matrices: jax.Array) -> jax.Array:
    """Columns l_c with sum_c l_c l_c' = H for each of the matrices (n, d, d): a Cholesky decomposition with pivots.

    Directions of no or negative curvature are left out. It takes no call of LAPACK: with jaxlib 0.10 on CPUs, two calls
    for many matrices each, running at the same time, can wait for each other's threads for ever.

    >>> roots(jnp.array([[[4.0, 2.0], [2.0, 1.0]], [[-1.0, 0.0], [0.0, 9.0]]])).tolist()
    [[[2.0, 0.0], [1.0, 0.0]], [[0.0, 0.0], [3.0, 0.0]]]
    """
    size, smallest = matrices.shape[-1], SMALLEST_PIVOT * jnp.abs(matrices).max(axis=(1, 2))

    def take(number: jax.Array, state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        left, columns = state
        diagonal = jnp.diagonal(left, axis1=1, axis2=2)
        chosen = jax.nn.one_hot(diagonal.argmax(axis=1), size, dtype=left.dtype)
        pivot = diagonal.max(axis=1)
        scale = jnp.where(pivot > smallest, jax.lax.rsqrt(jnp.where(pivot > smallest, pivot, 1.0)), 0.0)
        column = jnp.einsum("nij,nj->ni", left, chosen) * scale[:, None]
        return left - column[:, :, None] * column[:, None, :], columns.at[:, :, number].set(column)

    return jax.lax.fori_loop(0, size, take, (matrices, jnp.zeros_like(matrices)))[1]


def _outputs_by_leaves(
    problem: Problem, latents: Latents, chosen: Sequence[int]
) -> tuple[list[jax.Array], Callable[[list[jax.Array], PyTree], jax.Array]]:
    """The chosen leaves, and the outputs for one example as a function of them."""
    leaves, treedef = jax.tree.flatten(latents)

    def outputs(weights: list[jax.Array], x: PyTree) -> jax.Array:
        filled = list(leaves)
        for index, leaf in zip(chosen, weights, strict=True):
            filled[index] = leaf
        params = jax.tree.unflatten(treedef, filled).network
        return problem.outputs(params, jax.tree.map(lambda a: a[None], x))[0].reshape(-1)

    return [leaves[index] for index in chosen], outputs


def diagonal(problem: Problem, latents: Latents, batch: Batch, chosen: Sequence[int]) -> list[jax.Array]:
    """The diagonal of G for each chosen leaf, in its shape."""
    factors = output_factors(problem, latents, problem.outputs(latents.network, batch.x), batch)
    weights, outputs = _outputs_by_leaves(problem, latents, chosen)

    def example_diagonal(x: PyTree, columns: jax.Array) -> list[jax.Array]:
        _, pull = jax.vjp(lambda weights: outputs(weights, x), weights)

        def add(total: list[jax.Array], column: jax.Array) -> tuple[list[jax.Array], None]:
            return jax.tree.map(lambda t, g: t + jnp.square(g), total, pull(column)[0]), None

        return jax.lax.scan(add, jax.tree.map(jnp.zeros_like, weights), columns.T.astype(weights[0].dtype))[0]

    size, examples = sum(leaf.size * leaf.dtype.itemsize for leaf in weights), factors.shape[0]
    group = max(n for n in range(1, examples + 1) if examples % n == 0 and (n == 1 or n * size <= GROUP_BYTES))
    parts = jax.tree.map(lambda a: a.reshape(examples // group, group, *a.shape[1:]), (batch.x, factors))

    def add_group(total: list[jax.Array], part: tuple[PyTree, jax.Array]) -> tuple[list[jax.Array], None]:
        by_example = jax.vmap(example_diagonal)(*part)
        return jax.tree.map(lambda t, e: t + e.sum(axis=0), total, by_example), None

    return jax.lax.scan(add_group, jax.tree.map(jnp.zeros_like, weights), parts)[0]


def is_root(size: int) -> bool:
    """Whether to accumulate a triangular root (a Cholesky factor) instead of the full matrix over `size` weights."""
    return size <= LARGEST_ROOT


def add_full(so_far: jax.Array, problem: Problem, latents: Latents, batch: Batch, chosen: Sequence[int]) -> jax.Array:
    """G over all chosen leaves, raveled one after the other, with the examples of a batch; or R, G = R'R.

    Rounding of G in float32 hides what is smaller than 1e-7 of its largest eigenvalue, which with many examples or
    little noise is more than the prior; that of R, the square of it. R is updated by a QR decomposition, which takes
    too long for many weights.
    """
    batch_rows = rows(problem, latents, batch, chosen)
    if is_root(so_far.shape[0]):
        return jnp.linalg.qr(jnp.concatenate([so_far, batch_rows]), mode="r")
    return so_far + batch_rows.T @ batch_rows


def rows(problem: Problem, latents: Latents, batch: Batch, chosen: Sequence[int]) -> jax.Array:
    """R with G = R'R: a row (J_n' l_nc)' for every example and output, over all chosen leaves, raveled."""
    factors = output_factors(problem, latents, problem.outputs(latents.network, batch.x), batch)
    weights, outputs = _outputs_by_leaves(problem, latents, chosen)

    def example_rows(x: PyTree, columns: jax.Array) -> jax.Array:
        _, pull = jax.vjp(lambda weights: outputs(weights, x), weights)
        by_leaf = jax.vmap(lambda column: pull(column)[0])(columns.T.astype(weights[0].dtype))
        return jnp.concatenate([leaf.reshape(leaf.shape[0], -1) for leaf in by_leaf], axis=1)

    by_example = jax.vmap(example_rows)(batch.x, factors)
    return by_example.reshape(-1, by_example.shape[-1])


def layers_among(problem: Problem, example: PyTree, chosen: Sequence[int]) -> dict[int, Use]:
    """Those of the chosen leaves that are weights of a dense layer or a convolution, used once, and how."""
    uses = find_uses(problem.network.programs, example)
    candidates = {
        index: uses[index]
        for index in chosen
        if index < len(uses)
        and uses[index].primitive in ("dot_general", "conv_general_dilated")
        and uses[index].example_axis is not None
    }
    x = jax.tree.map(lambda a: jax.ShapeDtypeStruct((2, *a.shape), a.dtype), example)
    is_layer: dict[int, bool] = {}

    def look(x: PyTree) -> PyTree:
        outputs, products = apply_with_perturbations(problem.network.apply, problem.network.params, x, candidates, {})
        is_layer.update({index: product.is_layer for index, product in products.items()})
        return outputs

    try:
        jax.eval_shape(look, x)
    except (ValueError, TypeError, jax.errors.UnexpectedTracerError):  # the program does not accept a probe
        return {}
    return {index: use for index, use in candidates.items() if is_layer.get(index)}


def no_kronecker(leaf: Leaf, dtype: DTypeLike) -> Kronecker:
    """Sums over no examples."""
    rows, columns = leaf.matrix_shape
    by_inputs = columns if outputs_first(leaf) else rows
    by_outputs = rows if outputs_first(leaf) else columns
    return Kronecker(jnp.zeros((by_inputs,) * 2, dtype), jnp.zeros((by_outputs,) * 2, dtype), jnp.zeros((), dtype))


def outputs_first(leaf: Leaf) -> bool:
    """Whether the rows of the leaf, as a matrix, are its outputs."""
    return leaf.matrix_shape[0] == leaf.shape[leaf.outputs_axis] and leaf.outputs_axis == 0


def kronecker(
    problem: Problem, latents: Latents, batch: Batch, uses: Mapping[int, Use], leaves: Sequence[Leaf]
) -> dict[int, Kronecker]:
    """The sums of the batch for each layer, by the index of its leaf."""
    apply, params = problem.network.apply, latents.network
    outputs, products = apply_with_perturbations(apply, params, batch.x, uses, {})
    factors = output_factors(problem, latents, outputs, batch)
    zero = {index: jnp.zeros(product.shape, product.array.value.dtype) for index, product in products.items()}
    _, pull = jax.vjp(lambda added: apply_with_perturbations(apply, params, batch.x, uses, added)[0], zero)

    def add(total: dict[int, jax.Array], column: jax.Array) -> tuple[dict[int, jax.Array], None]:
        (gradients,) = pull(column.reshape(outputs.shape).astype(outputs.dtype))
        for index, product in products.items():
            g = product.by_position(gradients[index])
            total = total | {index: total[index] + jnp.einsum("npc,npd->cd", g, g)}
        return total, None

    start = {index: jnp.zeros((product.channels,) * 2, zero[index].dtype) for index, product in products.items()}
    by_outputs, _ = jax.lax.scan(add, start, jnp.moveaxis(factors, -1, 0))
    sums = {}
    for index, product in products.items():
        patches = product.patches()
        by_inputs = jnp.einsum("n,npk,npl->kl", batch.weight, patches, patches)
        inputs, channels = _orders(product.entries(), leaves[index])
        count = batch.weight.sum() * patches.shape[1]
        sums[index] = Kronecker(_reordered(by_inputs, inputs), _reordered(by_outputs[index], channels), count)
    return sums


def _orders(entries: jax.Array, leaf: Leaf) -> tuple[jax.Array, jax.Array]:
    """For each input and each channel of the layer, its row or column in the leaf as a matrix."""
    columns = leaf.matrix_shape[1]
    if outputs_first(leaf):
        return entries[:, 0] % columns, entries[0] // columns
    return entries[:, 0] // columns, entries[0] % columns


def _reordered(matrix: jax.Array, order: jax.Array) -> jax.Array:
    return jnp.zeros_like(matrix).at[order[:, None], order[None]].set(matrix)
