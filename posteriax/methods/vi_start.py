"""Where variational inference starts: at the network's own weights, at the mode of a small model, or at a posterior.

A network whose outputs are linear in its weights has a log joint with one mode. Newton steps find it whatever the
units of the inputs, and the curvature there gives the initial scales. Other networks start at their own weights. A
posterior of any kind gives its means and variances, estimated from its draws.
"""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from posteriax.data.batches import Batch
from posteriax.families.blocks import Blocks, initial_parameters, parameter_shapes
from posteriax.families.family import Gaussian, Variational
from posteriax.methods.curvature.mode import covariance_of, find_mode, why_no_mode
from posteriax.methods.method import Task, check_same_network
from posteriax.networks.tracing.linearity import is_linear
from posteriax.posterior.draws import DrawsPosterior
from posteriax.posterior.posterior import Posterior
from posteriax.posterior.variational import VariationalPosterior
from posteriax.problem import Latents, Problem

MOST_DRAWS, MOST_NUMBERS = 1000, 20_000_000  # of a posterior, to estimate its moments from
SMALLEST = 1e-30  # variance or curvature, so that its inverse and its logarithm are finite


class PosteriorMoments(NamedTuple):
    """Moments of the latent variables under a posterior.

    Args:
        mean: None if the posterior may have several modes, so that its mean need not be near any of them.
        variance: None if the posterior is a point.
        covariance: of all latent variables as one vector, if there are few.
    """

    mean: Latents | None
    variance: Latents | None
    covariance: np.ndarray | None = None


class StartPlan(NamedTuple):
    """Where a run starts: at the mode, at a posterior with these moments, or else at the network's own weights."""

    at_mode: bool = False
    moments: PosteriorMoments | None = None
    notes: tuple[str, ...] = ()


def plan_start(
    start: Literal["auto", "network", "mode"] | Posterior, blocks: Blocks, task: Task, *, may_move: bool
) -> StartPlan:
    """Decide where a run starts.

    Args:
        start: the setting of :class:`px.VI`.
        blocks: what is inferred.
        task: the run.
        may_move: whether "auto" may leave the network's own weights for the mode.
    """
    if isinstance(start, Posterior):
        check_same_network(start, task.problem)
        moments = moments_of(start)
        return StartPlan(moments=moments, notes=_moments_notes(moments, blocks, task.problem))
    if start == "mode" and (why := why_no_mode(task)):
        raise ValueError(f'start="mode" is not possible: {why}; use start="network", or a fitted px.MAP() as start')
    if start == "mode" or (start == "auto" and may_move and _is_small_linear_model(blocks, task)):
        return StartPlan(True, notes=("the start is the mode of the log joint, with scales from the curvature there",))
    return StartPlan()


def starting_parameters(
    plan: StartPlan, blocks: Blocks, problem: Problem, key: jax.Array, start: Latents, batch: Batch
) -> dict[str, Variational]:
    """The variational parameters that a run starts with, from the start of its member."""
    if plan.at_mode:
        mode = find_mode(lambda latents: problem.log_joint(latents, batch), start)
        start = ravel_pytree(start)[1](mode.value)
        return _spread_by_hessian(blocks, initial_parameters(blocks, key, start), mode.hessian)
    if plan.moments is None:
        return initial_parameters(blocks, key, start)
    start = start if plan.moments.mean is None else jax.tree.map(jnp.asarray, plan.moments.mean)
    return _spread_by_moments(blocks, initial_parameters(blocks, key, start), plan.moments)


def _is_small_linear_model(blocks: Blocks, task: Task) -> bool:
    if why_no_mode(task):
        return False
    if not all(isinstance(block.family, Gaussian) and block.family.has_mean for block in blocks):
        return False
    return is_linear(task.problem.network, task.example)


def _moments_notes(moments: PosteriorMoments, blocks: Blocks, problem: Problem) -> tuple[str, ...]:
    """The blocks that take only the means of the start; an error for those that have none."""
    for block in blocks:
        if not block.family.has_mean:
            raise ValueError(
                f"{type(block.family).__name__} for {block.name} has no means: it cannot start at a posterior"
            )
    if moments.variance is None:
        return ()
    parameters = parameter_shapes(blocks, problem)
    ones = jax.tree.leaves(jax.tree.map(jnp.ones_like, problem.latents))
    without_scales = [
        block.name
        for block in blocks
        if jax.eval_shape(lambda v, x, f=block.family: f.spread(v, x, None), parameters[block.name], block.join(ones))
        is None
    ]
    return tuple(f"{name}: only the means of the start are taken, not its scales" for name in without_scales)


def _spread_by_hessian(
    blocks: Blocks, variational: dict[str, Variational], hessian: jax.Array
) -> dict[str, Variational]:
    """Scales from the curvature: for independent blocks, the optimum if the posterior is Gaussian."""
    sizes = {i: int(np.prod(shape)) for block in blocks for i, shape in zip(block.indices, block.shapes, strict=True)}
    ends = np.cumsum([sizes[i] for i in range(len(sizes))])
    spread = {}
    for block in blocks:
        entries = np.concatenate([np.arange(ends[i] - sizes[i], ends[i]) for i in block.indices])
        block_hessian = hessian[entries][:, entries]
        diagonal = jnp.maximum(jnp.abs(jnp.diag(block_hessian)), SMALLEST)
        scaled = block.family.spread(
            variational[block.name], (1 / diagonal).reshape(block.info.shape), covariance_of(block_hessian)
        )
        spread[block.name] = variational[block.name] if scaled is None else scaled
    return spread


def _spread_by_moments(
    blocks: Blocks, variational: dict[str, Variational], moments: PosteriorMoments
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
            entries = np.concatenate([np.arange(ends[i] - variances[i].size, ends[i]) for i in block.indices])
            covariance = jnp.asarray(moments.covariance[np.ix_(entries, entries)])
        variance = jnp.maximum(block.join([jnp.asarray(leaf) for leaf in variances]), SMALLEST)
        scaled = block.family.spread(variational[block.name], variance, covariance)
        spread[block.name] = variational[block.name] if scaled is None else scaled
    return spread


def moments_of(posterior: Posterior) -> PosteriorMoments:
    """Means and variances of a posterior; within its chains or members, if it has several."""
    if isinstance(posterior, DrawsPosterior):
        chains, length = posterior.chains, posterior.draws_per_chain
    else:
        chains = posterior.members * posterior.components if isinstance(posterior, VariationalPosterior) else 1
        length = MOST_DRAWS
    if length == 1:
        return PosteriorMoments(None, None)
    size = sum(leaf.size for leaf in jax.tree.leaves(posterior.template))
    count = int(np.clip(MOST_NUMBERS // (size * chains), 20, min(length, MOST_DRAWS)))
    draws = _spread_draws(posterior, chains, length, count)
    mean = jax.tree.map(lambda leaf: leaf.mean(axis=(0, 1)).astype(np.float32), draws) if chains == 1 else None
    variance = jax.tree.map(lambda leaf: leaf.var(axis=1, ddof=1).mean(axis=0).astype(np.float32), draws)
    covariance = None
    if count >= 4 * size:
        flat = np.concatenate([leaf.reshape(chains, count, -1) for leaf in jax.tree.leaves(draws)], axis=2)
        covariance = np.mean([np.atleast_2d(np.cov(chain.T)) for chain in flat], axis=0).astype(np.float32)
    return PosteriorMoments(mean, variance, covariance)


def _spread_draws(posterior: Posterior, chains: int, length: int, count: int) -> Latents:
    """`count` evenly spaced draws of each chain, (chains, count, ...), in float64."""
    if isinstance(posterior, DrawsPosterior):
        chosen = np.arange(count) * length // count
        return jax.tree.map(lambda leaf: np.asarray(leaf[:, chosen], np.float64), posterior.draws)
    flat = posterior.draw(jax.random.key(0), np.arange(chains * count), chains * count)
    # draws cycle through the members and their components
    return jax.tree.map(
        lambda leaf: np.swapaxes(np.asarray(leaf, np.float64).reshape(count, chains, *leaf.shape[1:]), 0, 1), flat
    )
