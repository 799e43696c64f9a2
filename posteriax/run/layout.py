"""How a run is laid out over devices: members or chains along one axis, the examples of each step along the other.

Large networks can be split as well: parameters, gradients and the optimiser's state in parts, one on each device of the
axis "data". A kernel's state is a tree of arrays, and whatever belongs to a leaf of the network has the leaf's path in
its own: ``variational/layers/0/weight/mean``, or Adam's moments of it. These arrays are declared as split, each along
its longest axis that divides evenly; the compiler collects a leaf where a step needs all of it, and adds up gradients
in parts.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P
from jaxtyping import PyTree

from posteriax import distributed
from posteriax._internal.leaf_paths import leaf_paths, select_paths
from posteriax.distributed.meshes import DATA, MEMBERS
from posteriax.methods.method import Method, State
from posteriax.problem import Problem


class Part(NamedTuple):
    """Which part of every batch a process feeds to its devices: `number` of `total` equal ones."""

    number: int = 0
    total: int = 1

    def rows(self, size: int) -> slice:
        """The rows of this part in a batch of that size."""
        return slice(size * self.number // self.total, size * (self.number + 1) // self.total)


def members_mesh(members: int, mesh: Mesh | None) -> Mesh:
    """The mesh of a run with that many members, with the axes "members" and "data".

    A given mesh keeps its axis "data"; its other axes together hold the members. Without one, members are spread over
    as many devices as divide them evenly. With several processes, all of whose devices must take part, the remaining
    factor splits the data.
    """
    mesh = distributed.current_mesh() if mesh is None else mesh
    if mesh is None:
        devices = np.array(jax.devices())
        if distributed.several():
            return Mesh(devices.reshape(math.gcd(members, len(devices)), -1), (MEMBERS, DATA))
        count = max(n for n in range(1, min(members, len(devices)) + 1) if members % n == 0)
        return Mesh(devices[:count, None], (MEMBERS, DATA))
    if not isinstance(mesh, Mesh):
        raise TypeError(f"mesh must be px.distributed.mesh(members=..., data=...) or a jax.sharding.Mesh, got {mesh!r}")
    devices, data_size = mesh.devices, 1
    if DATA in mesh.axis_names:
        axis = mesh.axis_names.index(DATA)
        data_size, devices = devices.shape[axis], np.moveaxis(devices, axis, -1)
    devices = devices.reshape(-1, data_size)
    if members % len(devices):
        raise ValueError(
            f"the mesh spreads members over {len(devices)} devices, which does not divide the {members} "
            f"member{'s' * (members > 1)} (chains are members): use px.distributed.mesh(members=...) with a divisor of "
            f"{members}, or another number of members"
        )
    taking_part = {device.process_index for device in devices.flat}
    if idle := sorted(set(range(jax.process_count())) - taking_part):
        raise ValueError(
            f"the mesh has no device of process {idle[0]}, but needs some of all {jax.process_count()} processes: use "
            f"px.distributed.mesh(members=..., data=...) with members * data = {len(jax.devices())}, "
            "the number of all devices"
        )
    return Mesh(devices, (MEMBERS, DATA))


def local_part(mesh: Mesh) -> Part:
    """The part of every batch that this process feeds to its own devices."""
    here = jax.process_index()
    columns = [i for i, column in enumerate(mesh.devices.T) if any(d.process_index == here for d in column)]
    first, size = columns[0], len(columns)
    count, rest = divmod(mesh.shape[DATA], size)
    even = not rest and columns == list(range(first, first + size)) and first % size == 0
    return Part(first // size, count) if even else Part()


def check_data_axis(mesh: Mesh, batch_size: int, num_examples: int, method: Method) -> None:
    """Raise if the examples of a step cannot be split evenly over the axis "data"."""
    parts = mesh.shape[DATA]
    if method.full_batch:
        if parts > 1 and not method.sums_over_devices:
            raise ValueError(
                f"the mesh splits the data over {parts} devices, but {method.name} does not sum its log joint over "
                f"devices: use a mesh with data=1, or derive the method from FullBatchSampler (CONTRIBUTING.md)"
            )
        if parts > num_examples:
            raise ValueError(f"the mesh splits the data over {parts} devices, but there are {num_examples} examples")
        return
    if parts > batch_size:
        raise ValueError(
            f"the mesh splits each batch over {parts} devices, but a batch has {batch_size} examples: use a larger "
            f"batch_size or a smaller data axis"
        )
    if batch_size % parts:
        evenly = " (batches are made equal in size)" if batch_size < num_examples else ""
        raise ValueError(
            f"the mesh splits each batch over {parts} devices, which does not divide its {batch_size} "
            f"examples{evenly}: use another batch_size or data axis"
        )


def chosen_leaves(shard: str | Sequence[str], problem: Problem) -> tuple[str, ...]:
    """The paths of the leaves that patterns choose; raises if a pattern matches none."""
    patterns = (shard,) if isinstance(shard, str) else tuple(shard)
    if not all(isinstance(pattern, str) for pattern in patterns):
        raise TypeError(f'shard must be a pattern of paths such as "**/weight", or several, got {shard!r}')
    names = problem.leaf_names
    return tuple(dict.fromkeys(names[i] for pattern in patterns for i in select_paths(pattern, names, "shard")))


def split_state(state: State, leaves: Sequence[str], parts: int) -> PyTree:
    """How the arrays of a state are split over `parts` devices: a tree of partition specs.

    >>> import numpy as np
    >>> specs = split_state({"mean": {"fc/weight": np.zeros((3, 8)), "fc/bias": np.zeros(8)}}, ["fc/weight"], parts=2)
    >>> tuple(specs["mean"]["fc/weight"]), tuple(specs["mean"]["fc/bias"])
    ((None, 'data'), ())
    """
    arrays, structure = jax.tree.flatten(state)
    names = [f"/{name}/" for name in leaves]
    specs = [
        _longest_axis(leaf.shape, parts) if any(name in f"/{path}/" for name in names) else P()
        for path, leaf in zip(leaf_paths(state), arrays, strict=True)
    ]
    return jax.tree.unflatten(structure, specs)


def _longest_axis(shape: tuple[int, ...], parts: int) -> P:
    even = [axis for axis, size in enumerate(shape) if size and size % parts == 0]
    if not even:
        return P()
    axis = max(even, key=lambda axis: shape[axis])
    return P(*[None] * axis, DATA)
