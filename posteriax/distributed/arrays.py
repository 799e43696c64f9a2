"""Arrays across processes: each puts its own part on its own devices, and takes results back whole."""

from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from posteriax.distributed.starting import several


def place(tree: Any, mesh: Mesh, spec: PartitionSpec) -> Any:
    """Put arrays that every process has on the devices of the mesh; each process copies its own part only."""
    sharding = NamedSharding(mesh, spec)
    if not several():
        return jax.device_put(tree, sharding)

    def put(leaf: Any) -> jax.Array:
        if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return jax.random.wrap_key_data(put(jax.random.key_data(leaf)), impl=jax.random.key_impl(leaf))
        array = leaf if isinstance(leaf, np.ndarray) else np.asarray(leaf)
        kind = jax.dtypes.canonicalize_dtype(array.dtype)
        return jax.make_array_from_callback(array.shape, sharding, lambda index: np.asarray(array[index], kind))

    return jax.tree.map(put, tree)


def place_rows(tree: Any, first: int, total: int, mesh: Mesh, spec: PartitionSpec, axis: int) -> Any:
    """Like `place`, for arrays of which this process has only the rows from `first` on, of `total` along `axis`."""
    sharding = NamedSharding(mesh, spec)

    def put(leaf: np.ndarray) -> jax.Array:
        kind = jax.dtypes.canonicalize_dtype(leaf.dtype)
        shape = (*leaf.shape[:axis], total, *leaf.shape[axis + 1 :])

        def part(index: Any) -> np.ndarray:
            rows = range(*index[axis].indices(total))
            own = (*index[:axis], slice(rows.start - first, rows.stop - first), *index[axis + 1 :])
            return np.asarray(leaf[own], kind)

        return jax.make_array_from_callback(shape, sharding, part)

    return jax.tree.map(put, tree)


def gathered(tree: Any) -> Any:
    """The same arrays, of which every process can read the whole. With several processes, all must ask for it."""
    if not several():
        return tree
    apart = [leaf for leaf in jax.tree.leaves(tree) if isinstance(leaf, jax.Array) and not leaf.is_fully_replicated]
    if not apart:
        return tree
    return _gathering(NamedSharding(apart[0].sharding.mesh, PartitionSpec()))(tree)  # type: ignore[attr-defined]


def to_host(tree: Any) -> Any:
    """Whole arrays in host memory, in every process."""
    return jax.device_get(gathered(tree))


@lru_cache(maxsize=8)
def _gathering(everywhere: NamedSharding) -> Any:
    return jax.jit(lambda given: given, out_shardings=everywhere)
