"""Moments of draws that come a few at a time."""

from collections.abc import Iterator

import jax
import numpy as np

from posteriax.posterior import Posterior
from posteriax.problem import Unknowns

CHUNK_BYTES = 64 * 2**20  # of draws at a time


class RunningCovariance:
    """Mean and covariance of draws that come in parts; only one matrix of entries x entries is held."""

    def __init__(self, entries: int):
        self.count, self.shift = 0, None  # type: int, np.ndarray | None
        self.sums, self.products = np.zeros(entries), np.zeros((entries, entries))

    def add(self, draws: np.ndarray) -> None:
        """Draws with a leading axis."""
        flat = draws.reshape(len(draws), -1).astype(np.float64)
        if self.shift is None:  # close to the mean, so that squares do not cancel
            self.shift = flat.mean(axis=0)
        flat = flat - self.shift
        self.count += len(flat)
        self.sums += flat.sum(axis=0)
        self.products += flat.T @ flat

    @property
    def mean(self) -> np.ndarray:
        return self.shift + self.sums / self.count  # type: ignore[operator]

    @property
    def covariance(self) -> np.ndarray:
        if self.count < 2:
            raise ValueError("a covariance needs at least two draws")
        return (self.products - np.outer(self.sums, self.sums) / self.count) / (self.count - 1)


def chunks_of_draws(posterior: Posterior, key: jax.Array, total: int) -> Iterator[Unknowns]:
    """`total` draws of all unknowns, a few at a time."""
    at_once = max(1, CHUNK_BYTES // max(4 * posterior.problem.network.num_parameters, 1))
    for first in range(0, total, at_once):
        yield posterior.draw(key, np.arange(first, min(first + at_once, total)), total)
