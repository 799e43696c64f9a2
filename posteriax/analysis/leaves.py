"""The leaves of a posterior that an analysis looks at: choosing them, their moments and draws, and changing them."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from posteriax._internal.leaf_paths import choose_by_path, describe_leaves
from posteriax._internal.memory import COVARIANCE_BYTES, fitting
from posteriax._internal.running_moments import mean_and_variance
from posteriax.families.family import DiagonalGaussian
from posteriax.families.normal import Normal
from posteriax.networks.leaf import Leaf
from posteriax.posterior.draws import DrawsPosterior, StoredDraws, blocks_of_draws
from posteriax.posterior.posterior import Posterior
from posteriax.posterior.trace import Trace
from posteriax.posterior.variational import VariationalPosterior
from posteriax.problem import Latents, Problem

DRAWS = 1000  # for moments without a closed form
DrawnLeaf = np.ndarray | StoredDraws  # (chains, draws, ...), in memory or on disk


class LeafMoments(NamedTuple):
    """Mean and standard deviation of every entry of a leaf, in its shape."""

    mean: np.ndarray
    scale: np.ndarray


def chosen_leaves(problem: Problem, leaves: str | Sequence[str]) -> list[Leaf]:
    """The leaves of a network that a pattern matches, or those listed, in that order.

    Leaves whose paths differ only in numbers are sorted by them: layer 10 comes after layer 9.
    """
    count = len(jax.tree.leaves(problem.network.params))
    infos = problem.leaf_infos[:count]
    if not isinstance(leaves, str):
        return [leaf for pattern in leaves for leaf in chosen_leaves(problem, pattern)]
    matches = choose_by_path(
        {"**": leaves == "**", leaves: True},
        [info.path for info in infos],
        "leaves",
        leaves=describe_leaves(problem.network.params),
    )
    chosen = [info for info, matched in zip(infos, matches, strict=True) if matched]
    if len({re.sub(r"\d+", "#", info.path) for info in chosen}) == 1:
        chosen.sort(key=lambda info: [int(n) for n in re.findall(r"\d+", info.path)])
    return chosen


def chosen_weights(problem: Problem, leaves: str | Sequence[str]) -> list[Leaf]:
    """The chosen leaves that are weights, not biases.

    Raises:
        ValueError: if there are none.
    """
    weights = [leaf for leaf in chosen_leaves(problem, leaves) if not leaf.is_bias]
    if not weights:
        raise ValueError(f"no leaf matching {leaves!r} is a weight: all are biases or normalisation scales")
    return weights


def leaf_moments(posterior: Posterior, leaves: Sequence[Leaf]) -> list[LeafMoments]:
    """Mean and standard deviation of every entry of these leaves; several members form a mixture.

    In closed form if the leaf's family has one, otherwise from draws: all stored draws, or a thousand new ones.
    """
    return [_closed_form(posterior, leaf.path) or _from_draws(posterior, leaf.path) for leaf in leaves]


def chunks_of_draws(posterior: Posterior, key: jax.Array, total: int) -> Iterator[Latents]:
    """`total` draws of all latent variables, a few at a time."""
    at_once = fitting(COVARIANCE_BYTES, 4 * posterior.problem.network.num_parameters)
    for first in range(0, total, at_once):
        yield posterior.draw(key, np.arange(first, min(first + at_once, total)), total)


def _from_draws(posterior: Posterior, name: str) -> LeafMoments:
    rows = (block.reshape(-1, *block.shape[2:]) for block in _blocks(posterior, name))
    mean, variance = mean_and_variance(rows)
    return LeafMoments(mean, np.sqrt(variance))


def _blocks(posterior: Posterior, name: str) -> Iterator[np.ndarray]:
    """Draws of a leaf with two leading axes, in blocks."""
    index = posterior.problem.leaf_names.index(name)
    if isinstance(posterior, DrawsPosterior):
        yield from blocks_of_draws(jax.tree.leaves(posterior.draws)[index])
    else:  # redrawn for each leaf, so that only a few are in memory
        for draws in chunks_of_draws(posterior, jax.random.key(0), min(DRAWS, posterior.support or DRAWS)):
            yield np.asarray(jax.tree.leaves(draws)[index])[None]


def _closed_form(posterior: Posterior, name: str) -> LeafMoments | None:
    if not isinstance(posterior, VariationalPosterior):
        return None
    family = posterior.families[name]
    if family.joint or family.components or name not in posterior.variational:
        return None
    params = posterior.variational[name]
    try:
        means, variances = (np.asarray(jax.vmap(f)(params), np.float64) for f in (family.mean, family.variance))
    except NotImplementedError:
        return None
    # law of total variance over members
    return LeafMoments(means.mean(axis=0), np.sqrt(variances.mean(axis=0) + means.var(axis=0)))


# new means and standard deviations, (members, ...), from those of one leaf
Change = Callable[[Leaf, jax.Array, jax.Array], tuple[jax.Array, jax.Array]]


def change_leaves(posterior: Posterior, leaves: str, change: Change) -> VariationalPosterior:
    """The posterior with new means and scales in the matching weights that have independent Gaussian entries.

    Changed leaves become mean-field; biases are left alone. A scale of 0 becomes the smallest positive float.

    Raises:
        TypeError: if the posterior is not variational, or no matching leaf is such a weight.
        ValueError: if the pattern matches no leaf.
    """
    posterior = require_variational(posterior)
    families, variational, changed = dict(posterior.families), dict(posterior.variational), 0
    for info in chosen_leaves(posterior.problem, leaves):
        name, family = info.path, families[info.path]
        if not info.is_bias and isinstance(family, DiagonalGaussian):
            mean, scale = change(info, *jax.vmap(family.moments)(variational[name]))
            log_scale = jnp.log(jnp.maximum(scale, jnp.finfo(scale.dtype).tiny))
            families[name], variational[name] = Normal(), {"mean": mean, "log_scale": log_scale}
            changed += 1
    if not changed:
        raise TypeError(f"no leaf matching {leaves!r} is a weight with independent Gaussian entries")
    return replace(posterior, families=families, variational=variational)


def require_variational(posterior: Posterior) -> VariationalPosterior:
    """Raise TypeError if the posterior is not from VI."""
    if not isinstance(posterior, VariationalPosterior):
        raise TypeError(f"this analysis needs a variational posterior (px.VI), got {type(posterior).__name__}")
    return posterior


def with_leaf(latents: Latents, index: int, value: jax.Array) -> Latents:
    """The latent variables with another value for one leaf, counted in flattening order."""
    leaves, treedef = jax.tree.flatten(latents)
    return jax.tree.unflatten(treedef, [*leaves[:index], value, *leaves[index + 1 :]])


def mean_latents(posterior: Posterior) -> Latents:
    """The posterior mean of all latent variables, including those of the likelihood."""
    return jax.tree.map(lambda leaf: jnp.asarray(leaf).mean((0, 1)), at_mean(posterior).draws)


def at_mean(posterior: Posterior) -> DrawsPosterior:
    """The network at its posterior mean weights, as a posterior with one draw per member.

    >>> import equinox as eqx, jax, posteriax as px
    >>> (x, y), _ = px.data.two_moons()
    >>> problem = px.Problem(eqx.nn.Linear(2, 2, key=jax.random.key(0)), px.Categorical())
    >>> posterior = px.fit(problem, (x, y), px.VI(), steps=10, key=0)
    >>> px.analysis.at_mean(posterior).predict(x).log_probs_per_draw.shape
    (1, 500, 2)
    """
    if isinstance(posterior, VariationalPosterior):
        means = [member_mean(posterior, member) for member in range(posterior.members)]
        draws = jax.tree.map(lambda *members: np.stack(members)[:, None], *means)
    elif isinstance(posterior, DrawsPosterior):
        draws = jax.tree.map(_member_means, posterior.draws)
    else:
        raise TypeError(f"{type(posterior).__name__} has no mean weights")
    return DrawsPosterior(posterior.problem, Trace({}), draws)


def _member_means(leaf: DrawnLeaf) -> np.ndarray:
    """The mean of each member's draws, in memory or on disk, as one draw."""
    members, draws = leaf.shape[:2]
    means = [np.asarray(leaf[i, np.arange(draws)], np.float64).mean(axis=0) for i in range(members)]
    return np.stack(means)[:, None].astype(leaf.dtype)


def member_mean(posterior: VariationalPosterior, member: int) -> Latents:
    """The mean of all latent variables of one member."""
    means: list[jax.Array | None] = [None] * len(posterior.families)
    for block in posterior.blocks:
        variational = jax.tree.map(lambda a: a[member], posterior.variational[block.name])
        for i, leaf in zip(block.indices, block.split(block.family.mean(variational)), strict=True):
            means[i] = leaf
    return jax.tree.unflatten(jax.tree.structure(posterior.problem.latents), means)
