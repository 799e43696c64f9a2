"""What chains are compared by: weights, leaf by leaf, and predictions; a bounded part at a time."""

from collections.abc import Iterator
from functools import partial, reduce
from typing import Any

import jax
import numpy as np

from posteriax._internal.memory import BLOCK_BYTES, PREDICTION_BYTES, fitting
from posteriax.diagnostics.agreement import Columns, Compared, agreement, compare_chains
from posteriax.diagnostics.convergence import rhat
from posteriax.posterior import DrawsPosterior, Posterior

LOOKED_AT = 2000  # weights of a leaf, or test points; of more, a seeded sample


def compare_chains_of_weights(posterior: DrawsPosterior, draws: int) -> Compared:
    """Every leaf in so many evenly spread draws of each chain: its summary, and all leaves' columns together."""
    leaves, parts = [], []
    for name, leaf in zip(posterior.problem.leaf_names, jax.tree.leaves(posterior.draws), strict=True):
        size = int(np.prod(leaf.shape[2:], dtype=np.int64))
        if size:
            entries = sample_of(size)
            parts.append(compare_chains(_columns_of(leaf, entries, draws)))
            leaves.append(agreement(name, size, parts[-1], 1, partial(_weight_name, name, leaf.shape[2:], entries)))
    return Compared(leaves, reduce(Columns.join, parts))


def compare_chains_of_predictions(posterior: Posterior, x: Any, chains: int, draws: int) -> Compared:
    """The predictions of so many evenly spread draws of each chain: their summary and their columns."""
    count = jax.tree.leaves(x)[0].shape[0]
    points = sample_of(count)
    # a posterior gives all draws of a chain before those of the next
    blocks = (values.reshape(chains, draws, -1) for values in _predictions(posterior, x, points, chains * draws))
    columns = reduce(Columns.join, map(compare_chains, blocks))
    per_point = columns.rhat.size // len(points)
    summary = agreement("predictions", count, columns, per_point, lambda i: f"test point {points[i]}")
    return Compared([summary], columns)


def _weight_name(leaf: str, shape: tuple[int, ...], entries: np.ndarray, entry: int) -> str:
    """``layers/0/weight[3, 1]``; a leaf of one weight is named by its path alone."""
    index = np.unravel_index(entries[entry], shape)
    return f"{leaf}[{', '.join(map(str, index))}]" if shape else leaf


def worst_rhat_of_predictions(posterior: Posterior, x: Any, chains: int, draws: int) -> float:
    """The largest R-hat of what so many evenly spread draws of each chain predict; NaN if that never changes."""
    points = sample_of(jax.tree.leaves(x)[0].shape[0])
    parts = [rhat(values.reshape(chains, draws, -1)) for values in _predictions(posterior, x, points, chains * draws)]
    return float(np.fmax.reduce(np.concatenate(parts)))


def _columns_of(leaf: Any, entries: np.ndarray, draws: int) -> np.ndarray:
    """Some entries of a leaf in evenly spread draws, (chains, draws, entries)."""
    leaf = np.asarray(leaf) if isinstance(leaf, jax.Array) else leaf
    chains, each = leaf.shape[:2]
    chosen = np.arange(draws) * each // draws
    columns = np.empty((chains, draws, len(entries)))
    bytes_per_draw = chains * int(np.prod(leaf.shape[2:], dtype=np.int64)) * leaf.dtype.itemsize
    step = fitting(BLOCK_BYTES, bytes_per_draw)
    for first in range(0, draws, step):
        some = chosen[first : first + step]
        read = np.asarray(leaf[np.arange(chains)[:, None], some[None]])
        columns[:, first : first + step] = read.reshape(chains, len(some), -1)[:, :, entries]
    return columns


def _predictions(posterior: Posterior, x: Any, points: np.ndarray, total: int) -> Iterator[np.ndarray]:
    """What `total` draws predict at some test points, (total, some points, numbers of each)."""
    if posterior.problem.couples_examples(x):
        yield posterior.predict(x, total).per_draw()[:, points]  # such a network must see its examples together
        return
    shape = posterior.problem.output_spec(x).shape[1:]
    size = fitting(PREDICTION_BYTES, 4 * total * int(np.prod(shape, dtype=np.int64)))
    for first in range(0, len(points), size):
        some = points[first : first + size]
        yield posterior.predict(jax.tree.map(lambda a, some=some: a[some], x), total).per_draw()


def sample_of(count: int, most: int | None = None) -> np.ndarray:
    """The indices to examine: all, or a seeded sample of `most`."""
    most = LOOKED_AT if most is None else most
    if count <= most:
        return np.arange(count)
    return np.sort(np.random.default_rng(0).choice(count, most, replace=False))
