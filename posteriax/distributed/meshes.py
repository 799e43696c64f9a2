"""The devices of a run or a prediction: members, chains or draws along one axis, examples along the other.

Arrays on a mesh may span processes: each process puts its part on its own devices, and can gather complete results.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jax.typing import ArrayLike
from jaxtyping import PyTree

from posteriax._internal.checks import check_count
from posteriax.distributed.processes import several

MEMBERS, DATA = "members", "data"
_current: ContextVar[Mesh | None] = ContextVar("mesh", default=None)


def mesh(*, members: int = 1, data: int = 1, devices: Sequence[jax.Device] | None = None) -> Mesh:
    """A mesh of ``members * data`` devices for ``px.fit(..., mesh=...)``.

    The members of an ensemble, or a sampler's chains, are spread over `members` groups of `data` devices each; the
    devices of a group share the examples of every step. Neighbouring devices, which usually have the fastest
    connection, are in the same group.

    Args:
        members: how many groups; must divide the number of members or chains.
        data: devices in a group; must divide the examples of a batch. (A full batch is padded with examples of weight
            0.)
        devices: which devices; by default the first ones of ``jax.devices()``, of all processes.

    >>> import posteriax as px
    >>> dict(px.distributed.mesh(members=1, data=1).shape)
    {'members': 1, 'data': 1}
    """
    members, data = check_count("members", members), check_count("data", data)
    available = list(jax.devices() if devices is None else devices)
    if len(available) < members * data:
        where = f"there are {len(available)}" if devices is None else f"devices= has {len(available)}"
        raise ValueError(
            f"px.distributed.mesh(members={members}, data={data}) needs {members * data} devices, but {where}. "
            f'On a CPU, jax.config.update("jax_num_cpu_devices", {members * data}) before JAX starts makes as many.'
        )
    return Mesh(np.array(available[: members * data]).reshape(members, data), (MEMBERS, DATA))


@contextlib.contextmanager
def use_mesh(mesh: Mesh) -> Iterator[None]:
    """A context in which fits and predictions, and with them evaluations and diagnoses, use this mesh.

    Predictions split their draws over the axis "members", and their examples over the axis "data".

    >>> import numpy as np, posteriax as px
    >>> problem = px.Problem((lambda w, x: x @ w, np.zeros((2, 2), np.float32)), px.Categorical())
    >>> (x, y), (x_test, y_test) = px.data.two_moons()
    >>> with px.distributed.use_mesh(px.distributed.mesh(data=1)):
    ...     predictive = px.fit(problem, (x, y), px.MAP(), steps=5, key=0).predict(x_test)
    """
    if not isinstance(mesh, Mesh) or not {MEMBERS, DATA} >= set(mesh.axis_names):
        raise TypeError(f"mesh must be px.distributed.mesh(members=..., data=...), got {mesh!r}")
    token = _current.set(mesh)
    try:
        yield
    finally:
        _current.reset(token)


def current_mesh() -> Mesh | None:
    """The mesh of the innermost :func:`use_mesh`, or None."""
    return _current.get()


def place(tree: PyTree, mesh: Mesh, spec: PartitionSpec) -> PyTree:
    """Put arrays that every process holds on the devices of the mesh; each process copies only its own part."""
    sharding = NamedSharding(mesh, spec)
    if not several():
        return jax.device_put(tree, sharding)

    def put(leaf: ArrayLike) -> jax.Array:
        if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return jax.random.wrap_key_data(put(jax.random.key_data(leaf)), impl=jax.random.key_impl(leaf))
        array = leaf if isinstance(leaf, np.ndarray) else np.asarray(leaf)
        kind = jax.dtypes.canonicalize_dtype(array.dtype)
        return jax.make_array_from_callback(array.shape, sharding, lambda index: np.asarray(array[index], kind))

    return jax.tree.map(put, tree)


def place_rows(tree: PyTree, first: int, total: int, mesh: Mesh, spec: PartitionSpec, axis: int) -> PyTree:
    """Like `place`, for arrays of `total` rows along `axis` of which this process holds only those from `first` on."""
    sharding = NamedSharding(mesh, spec)

    def put(leaf: np.ndarray) -> jax.Array:
        kind = jax.dtypes.canonicalize_dtype(leaf.dtype)
        shape = (*leaf.shape[:axis], total, *leaf.shape[axis + 1 :])

        def part(index: Any) -> np.ndarray:  # a tuple of slices
            rows = range(*index[axis].indices(total))
            local_index = (*index[:axis], slice(rows.start - first, rows.stop - first), *index[axis + 1 :])
            return np.asarray(leaf[local_index], kind)

        return jax.make_array_from_callback(shape, sharding, part)

    return jax.tree.map(put, tree)


def gathered(tree: PyTree) -> PyTree:
    """All-gather the arrays of a tree. A collective: every process must call it."""
    if not several():
        return tree
    split = [leaf for leaf in jax.tree.leaves(tree) if isinstance(leaf, jax.Array) and not leaf.is_fully_replicated]
    if not split:
        return tree
    return _gathering(NamedSharding(split[0].sharding.mesh, PartitionSpec()))(tree)  # type: ignore[attr-defined]


def to_host(tree: PyTree) -> PyTree:
    """All-gather the arrays of a tree into the host memory of every process. A collective."""
    return jax.device_get(gathered(tree))


@lru_cache(maxsize=8)
def _gathering(everywhere: NamedSharding) -> Callable[[PyTree], PyTree]:
    return jax.jit(lambda given: given, out_shardings=everywhere)


def is_divided() -> bool:
    """Whether what is being traced will be divided by the compiler.

    >>> is_divided()
    False
    """
    return jax.sharding.AxisType.Auto in jax.sharding.get_abstract_mesh().axis_types


def replicated(array: jax.Array) -> jax.Array:
    """The same array; in a program that the compiler divides, computed in full on every device."""
    return jax.lax.with_sharding_constraint(array, PartitionSpec()) if is_divided() else array
