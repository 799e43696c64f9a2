"""Means, variances and covariances of a posterior of any kind, from its draws."""

from typing import Any, NamedTuple

import jax
import numpy as np

from posteriax.posterior import DrawsPosterior, Posterior, VariationalPosterior
from posteriax.problem import Latents

MOST_DRAWS, MOST_NUMBERS = 1000, 20_000_000  # of the posterior that are used


class Moments(NamedTuple):
    """Moments of the latent variables under a posterior.

    Args:
        mean: None if the posterior may have several modes, so that its mean need not be near any of them.
        variance: None if the posterior is a point.
        covariance: of all latent variables as one vector, if there are few.
    """

    mean: Latents | None
    variance: Latents | None
    covariance: Any = None


def moments_of(posterior: Posterior) -> Moments:
    """Means and variances of a posterior; within its chains or members, if it has several."""
    if isinstance(posterior, DrawsPosterior):
        chains, each = jax.tree.leaves(posterior.draws)[0].shape[:2]
    else:
        chains = posterior.members * posterior.components if isinstance(posterior, VariationalPosterior) else 1
        each = MOST_DRAWS
    if each == 1:
        return Moments(None, None)
    size = sum(leaf.size for leaf in jax.tree.leaves(posterior.template))
    count = int(np.clip(MOST_NUMBERS // (size * chains), 20, min(each, MOST_DRAWS)))
    draws = _draws(posterior, chains, each, count)
    mean = jax.tree.map(lambda leaf: leaf.mean(axis=(0, 1)).astype(np.float32), draws) if chains == 1 else None
    variance = jax.tree.map(lambda leaf: leaf.var(axis=1, ddof=1).mean(axis=0).astype(np.float32), draws)
    covariance = None
    if count >= 4 * size:
        flat = np.concatenate([leaf.reshape(chains, count, -1) for leaf in jax.tree.leaves(draws)], axis=2)
        covariance = np.mean([np.atleast_2d(np.cov(chain.T)) for chain in flat], axis=0).astype(np.float32)
    return Moments(mean, variance, covariance)


def _draws(posterior: Posterior, chains: int, each: int, count: int) -> Latents:
    """(chains, count, ...) draws, in float64."""
    if isinstance(posterior, DrawsPosterior):
        chosen = np.arange(count) * each // count
        return jax.tree.map(lambda leaf: np.asarray(leaf[:, chosen], np.float64), posterior.draws)
    flat = posterior.draw(jax.random.key(0), np.arange(chains * count), chains * count)
    # draws cycle through the members and their components
    return jax.tree.map(
        lambda leaf: np.swapaxes(np.asarray(leaf, np.float64).reshape(count, chains, *leaf.shape[1:]), 0, 1), flat
    )
