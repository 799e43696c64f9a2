"""A posterior given by draws: in memory or, for large runs with a checkpoint, on disk and read on access."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import DTypeLike

from posteriax._internal.memory import BLOCK_BYTES, IN_MEMORY_BYTES, fitting
from posteriax._internal.tensor_file import FileArray
from posteriax.networks.network import Params
from posteriax.posterior.posterior import Posterior
from posteriax.problem import Latents


@dataclass(frozen=True, eq=False, repr=False)
class DrawsPosterior(Posterior):
    """A posterior given by draws: the states of chains, the members of an ensemble, or a single point.

    Args:
        draws: all latents with two leading axes, (chains or members, draws of each): arrays, or for large runs with a
            checkpoint :class:`StoredDraws`, which are read from its folder.
    """

    draws: Latents

    @property
    def chains(self) -> int:
        """How many chains there are, or members of an ensemble."""
        return jax.tree.leaves(self.draws)[0].shape[0]

    @property
    def draws_per_chain(self) -> int:
        """How many draws each chain has: 1 for a point."""
        return jax.tree.leaves(self.draws)[0].shape[1]

    @property
    def support(self) -> int:
        return self.chains * self.draws_per_chain

    @property
    def mean(self) -> Params:
        return self.problem.network.all_params(jax.tree.map(_mean_of_draws, self.draws.network))

    @property
    def num_parameters(self) -> int:
        return sum(leaf.size for leaf in jax.tree.leaves(self.draws))

    def draw(self, key: jax.Array, indices: np.ndarray, total: int) -> Latents:
        # evenly spaced over chains and along them; repeated evenly if more draws are requested than there are
        chosen = (np.asarray(indices) * self.support) // total if total < self.support else indices % self.support
        length = self.draws_per_chain
        return jax.tree.map(lambda leaf: jnp.asarray(leaf[chosen // length, chosen % length]), self.draws)


@dataclass(frozen=True, eq=False)
class StoredDraws:
    """The draws of one leaf, (chains, draws, ...), stored in parts of shape (draws, chains, ...).

    Index it by chain and draw (integers or integer arrays, as in NumPy), or read everything with ``np.asarray``.

    Args:
        parts: the files.
        skipped: how many of the first draws to leave out.
    """

    parts: tuple[FileArray, ...]
    skipped: int = 0

    @property
    def shape(self) -> tuple[int, ...]:
        _, chains, *rest = self.parts[0].shape
        return (chains, sum(part.shape[0] for part in self.parts) - self.skipped, *rest)

    @property
    def dtype(self) -> np.dtype:
        return self.parts[0].dtype

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def __len__(self) -> int:
        return self.shape[0]

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> np.ndarray:
        draws = np.empty(self.shape, self.dtype)
        done = 0
        for block in self.blocks():
            draws[:, done : done + block.shape[1]] = block
            done += block.shape[1]
        return draws if dtype is None else draws.astype(dtype)

    def __getitem__(self, index: tuple[Any, ...]) -> np.ndarray:
        if not isinstance(index, tuple) or len(index) < 2 or any(isinstance(part, slice) for part in index[:2]):
            raise TypeError("draws on disk are indexed by chain and draw, [chains, draws]; np.asarray(...) reads all")
        chains, draws = np.broadcast_arrays(np.asarray(index[0]), np.asarray(index[1]) % self.shape[1])
        taken = np.empty((*draws.shape, *self.shape[2:]), self.dtype)
        for draw in np.unique(draws):
            here = draws == draw
            taken[here] = self._row(int(draw))[chains[here]]
        return taken[(..., *index[2:])] if len(index) > 2 else taken

    def blocks(self) -> Iterator[np.ndarray]:
        """All draws in order, a bounded number of bytes at a time: arrays (chains, draws of the block, ...)."""
        step, skip = fitting(BLOCK_BYTES, self.nbytes // max(self.shape[1], 1)), self.skipped
        for part in self.parts:
            for first in range(min(skip, part.shape[0]), part.shape[0], step):
                yield np.swapaxes(part.read(first, min(first + step, part.shape[0])), 0, 1)
            skip = max(skip - part.shape[0], 0)

    def pieces(self) -> Iterator[np.ndarray]:
        """All draws of the first chain, then of the next: the order of an array's bytes."""
        for chain in range(self.shape[0]):
            for block in self.blocks():
                yield block[chain]

    def _row(self, draw: int) -> np.ndarray:
        draw += self.skipped
        for part in self.parts:
            if draw < part.shape[0]:
                return part.read(draw, draw + 1)[0]
            draw -= part.shape[0]
        raise IndexError(f"draw {draw} is beyond the last one")


LeafDraws = jax.Array | np.ndarray | StoredDraws  # (chains, draws, ...)
DrawsChunk = np.ndarray | FileArray  # (draws, chains, ...)


def blocks_of_draws(leaf: LeafDraws) -> Iterator[np.ndarray]:
    """The draws of a leaf, in memory or on disk, as arrays (chains, draws of the block, ...)."""
    if isinstance(leaf, StoredDraws):
        yield from leaf.blocks()
    else:
        yield np.asarray(leaf)


def join_draws(chunks: Sequence[DrawsChunk], skipped: int = 0) -> LeafDraws:
    """One leaf's draws, (chains, draws, ...), from chunks (draws, chains, ...) in memory or in files.

    The first `skipped` draws of each chain are left out.
    """
    size = sum(int(np.prod(chunk.shape, dtype=np.int64)) * chunk.dtype.itemsize for chunk in chunks)
    files = tuple(chunk for chunk in chunks if isinstance(chunk, FileArray))
    if size > IN_MEMORY_BYTES and len(files) == len(chunks):
        return StoredDraws(files, skipped)
    arrays = [chunk.read(0, chunk.shape[0]) if isinstance(chunk, FileArray) else chunk for chunk in chunks]
    return np.swapaxes(np.concatenate(arrays)[skipped:], 0, 1)


def take_draws(chunks: Sequence[DrawsChunk], indices: np.ndarray) -> np.ndarray:
    """One leaf's draws at `indices`, (chains, indices, ...), from chunks (draws, chains, ...) in memory or in files.

    Args:
        chunks: in order.
        indices: ascending; they count from the first draw of the first chunk.

    >>> take_draws([np.array([[0], [1]]), np.array([[2], [3], [4]])], np.array([1, 2, 4, 4]))
    array([[1, 2, 4, 4]])
    """
    taken, before = [], 0
    for chunk in chunks:
        here = indices[(indices >= before) & (indices < before + chunk.shape[0])] - before
        if here.size:
            rows = chunk.read(here[0], here[-1] + 1)[here - here[0]] if isinstance(chunk, FileArray) else chunk[here]
            taken.append(rows)
        before += chunk.shape[0]
    return np.swapaxes(np.concatenate(taken), 0, 1)


def _mean_of_draws(leaf: LeafDraws) -> jax.Array:
    total = sum(block.sum(axis=(0, 1), dtype=np.float64) for block in blocks_of_draws(leaf))
    return jnp.asarray(total / (leaf.shape[0] * leaf.shape[1]), leaf.dtype)
