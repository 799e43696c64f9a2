"""Large networks: parameters, gradients and the optimiser's state in parts, one on each device of the axis "data".

A kernel's state is a tree of arrays, and whatever belongs to a leaf of the network has the leaf's path in its own:
``variational/layers/0/weight/mean``, or Adam's moments of it. These arrays are declared as split, each along its
longest axis that divides evenly; the compiler collects a leaf where a step needs it whole, and adds up gradients in
parts.
"""

from collections.abc import Sequence
from typing import Any

import jax
from jax.sharding import PartitionSpec as P

from posteriax._internal.leaf_paths import leaf_paths, select_paths
from posteriax.distributed import DATA
from posteriax.problem import Problem


def chosen_leaves(shard: Any, problem: Problem) -> tuple[str, ...]:
    """The paths of the leaves that patterns choose; an error if one matches none."""
    patterns = (shard,) if isinstance(shard, str) else tuple(shard)
    if not all(isinstance(pattern, str) for pattern in patterns):
        raise TypeError(f'shard must be a pattern of paths such as "**/weight", or several, got {shard!r}')
    names = problem.leaf_names
    return tuple(dict.fromkeys(names[i] for pattern in patterns for i in select_paths(pattern, names, "shard")))


def split_state(state: Any, leaves: Sequence[str], parts: int) -> Any:
    """How the arrays of a state are split over so many devices: a tree of partition specs.

    >>> import numpy as np
    >>> specs = split_state({"mean": {"fc/weight": np.zeros((3, 8)), "fc/bias": np.zeros(8)}}, ["fc/weight"], parts=2)
    >>> tuple(specs["mean"]["fc/weight"]), tuple(specs["mean"]["fc/bias"])
    ((None, 'data'), ())
    """
    found, structure = jax.tree.flatten(state)
    names = [f"/{name}/" for name in leaves]
    specs = [
        _longest_axis(leaf.shape, parts) if any(name in f"/{path}/" for name in names) else P()
        for path, leaf in zip(leaf_paths(state), found, strict=True)
    ]
    return jax.tree.unflatten(structure, specs)


def _longest_axis(shape: tuple[int, ...], parts: int) -> P:
    even = [axis for axis, size in enumerate(shape) if size and size % parts == 0]
    if not even:
        return P()
    axis = max(even, key=lambda axis: shape[axis])
    return P(*[None] * axis, DATA)
