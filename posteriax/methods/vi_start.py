"""Where variational inference starts: at the network's own weights, at the mode of a small model, or at a posterior.

A network whose outputs are linear in its weights has a log joint with one mode. Newton's steps find it whatever the
units of its inputs, and the curvature there gives the first scales. Other networks start at their own weights.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from posteriax._internal.leaf_paths import describe_leaves
from posteriax.data import Batch
from posteriax.families import Block, Variational
from posteriax.methods import mode
from posteriax.methods.method import Target
from posteriax.posterior import DrawsPosterior, Posterior, VariationalPosterior
from posteriax.priors import has_density
from posteriax.problem import Unknowns

MOST_DRAWS, MOST_NUMBERS = 1000, 20_000_000  # of a posterior that is a start


class Moments(NamedTuple):
    """What a start knows of every unknown.

    Args:
        mean: None if the posterior has several modes, so that its mean is none of them.
        variance: None if it is a point.
        covariance: of all unknowns as one vector, if they are few.
    """

    mean: Unknowns | None
    variance: Unknowns | None
    covariance: Any = None


def can_find_mode(target: Target) -> str:
    """Why the mode of a problem cannot be found by Newton's steps; empty if it can."""
    problem = target.problem
    size = sum(leaf.size for leaf in jax.tree.leaves(problem.unknowns))
    if size > mode.LARGEST or size * target.num_examples > mode.LARGEST_DATA:
        return f"it needs the Hessian of {size:,} unknowns and {target.num_examples:,} examples, which is too large"
    if not all(has_density(prior) for prior in problem.leaf_priors):
        return "a prior without a density has no mode"
    if target.couples_examples:
        return "the network's outputs couple the examples of a batch"
    return ""


def from_mode(target: Target, start: Unknowns, batch: Batch) -> tuple[Unknowns, jax.Array]:
    """The mode and the Hessian there, of the data in `batch`."""
    found = mode.find_mode(lambda unknowns: target.problem.log_joint(unknowns, batch), start)
    return ravel_pytree(start)[1](found.value), found.hessian


def spread_by_hessian(
    blocks: Sequence[Block], variational: dict[str, Variational], hessian: jax.Array
) -> dict[str, Variational]:
    """Scales from the curvature: for independent blocks, those that are best for a Gaussian posterior."""
    sizes = {i: int(np.prod(shape)) for block in blocks for i, shape in zip(block.indices, block.shapes, strict=True)}
    ends = np.cumsum([sizes[i] for i in range(len(sizes))])
    spread = {}
    for block in blocks:
        places = np.concatenate([np.arange(ends[i] - sizes[i], ends[i]) for i in block.indices])
        own = hessian[places][:, places]
        variance = (1 / jnp.maximum(jnp.abs(jnp.diag(own)), 1e-30)).reshape(block.info.shape)
        found = block.family.spread(variational[block.name], variance, mode.inverse(own))
        spread[block.name] = variational[block.name] if found is None else found
    return spread


def spread_by_moments(
    blocks: Sequence[Block], variational: dict[str, Variational], moments: Moments
) -> dict[str, Variational]:
    """Scales of a posterior, for the families that take them."""
    if moments.variance is None:
        return variational
    variances = jax.tree.leaves(moments.variance)
    ends = np.cumsum([leaf.size for leaf in variances])
    spread = {}
    for block in blocks:
        covariance = None
        if moments.covariance is not None:
            places = np.concatenate([np.arange(ends[i] - variances[i].size, ends[i]) for i in block.indices])
            covariance = jnp.asarray(moments.covariance[np.ix_(places, places)])
        variance = jnp.maximum(block.join([jnp.asarray(leaf) for leaf in variances]), 1e-30)
        found = block.family.spread(variational[block.name], variance, covariance)
        spread[block.name] = variational[block.name] if found is None else found
    return spread


def moments_of(posterior: Posterior, target: Target) -> Moments:
    """Means and variances of a posterior that is a start; within its chains or members, if it has several."""
    own, theirs = describe_leaves(target.problem.unknowns), describe_leaves(posterior.template)
    if own != theirs:
        raise ValueError(f"start is a posterior of another network: it has {theirs}, the problem has {own}")
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


def _draws(posterior: Posterior, chains: int, each: int, count: int) -> Unknowns:
    """(chains, count, ...) draws, in float64."""
    if isinstance(posterior, DrawsPosterior):
        chosen = np.arange(count) * each // count
        return jax.tree.map(lambda leaf: np.asarray(leaf[:, chosen], np.float64), posterior.draws)
    flat = posterior.draw(jax.random.key(0), np.arange(chains * count), chains * count)
    # draws go round the members and their components
    return jax.tree.map(
        lambda leaf: np.swapaxes(np.asarray(leaf, np.float64).reshape(count, chains, *leaf.shape[1:]), 0, 1), flat
    )
