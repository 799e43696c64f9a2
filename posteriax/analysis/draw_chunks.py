"""Draws of a posterior, a few at a time, so that memory does not grow with their number."""

from collections.abc import Iterator

import jax
import numpy as np

from posteriax.posterior import Posterior
from posteriax.problem import Unknowns

CHUNK_BYTES = 64 * 2**20  # of draws at a time


def chunks_of_draws(posterior: Posterior, key: jax.Array, total: int) -> Iterator[Unknowns]:
    """`total` draws of all unknowns, a few at a time."""
    at_once = max(1, CHUNK_BYTES // max(4 * posterior.problem.network.num_parameters, 1))
    for first in range(0, total, at_once):
        yield posterior.draw(key, np.arange(first, min(first + at_once, total)), total)
