"""Draws of a posterior, a few at a time, so that memory does not grow with their number."""

from collections.abc import Iterator

import jax
import numpy as np

from posteriax._internal.memory import COVARIANCE_BYTES, fitting
from posteriax.posterior import Posterior
from posteriax.problem import Latents


def chunks_of_draws(posterior: Posterior, key: jax.Array, total: int) -> Iterator[Latents]:
    """`total` draws of all latent variables, a few at a time."""
    at_once = fitting(COVARIANCE_BYTES, 4 * posterior.problem.network.num_parameters)
    for first in range(0, total, at_once):
        yield posterior.draw(key, np.arange(first, min(first + at_once, total)), total)
