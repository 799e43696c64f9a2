"""Variational posteriors with some leaves changed, and their mean weights."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from posteriax.analysis.chosen_leaves import chosen_leaves
from posteriax.families import DiagonalGaussian, Normal
from posteriax.posterior import DrawsPosterior, Posterior, Trace, VariationalPosterior
from posteriax.priors import Leaf
from posteriax.problem import Latents

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


def with_leaf(latents: Latents, index: int, value: Any) -> Latents:
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
        means = [mean_of(posterior, member) for member in range(posterior.members)]
        draws = jax.tree.map(lambda *own: np.stack(own)[:, None], *means)
    elif isinstance(posterior, DrawsPosterior):
        draws = jax.tree.map(_mean_of_each, posterior.draws)
    else:
        raise TypeError(f"{type(posterior).__name__} has no mean weights")
    return DrawsPosterior(posterior.problem, Trace({}), draws)


def _mean_of_each(leaf: Any) -> np.ndarray:
    """The mean of each member's draws, in memory or on disk, as one draw."""
    members, each = leaf.shape[:2]
    means = [np.asarray(leaf[i, np.arange(each)], np.float64).mean(axis=0) for i in range(members)]
    return np.stack(means)[:, None].astype(leaf.dtype)


def mean_of(posterior: VariationalPosterior, member: int) -> Latents:
    """The mean of all latent variables of one member."""
    means: list[Any] = [None] * len(posterior.families)
    for block in posterior.blocks:
        variational = jax.tree.map(lambda a: a[member], posterior.variational[block.name])
        for i, leaf in zip(block.indices, block.split(block.family.mean(variational)), strict=True):
            means[i] = leaf
    return jax.tree.unflatten(jax.tree.structure(posterior.problem.latents), means)
