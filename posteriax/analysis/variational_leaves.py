"""Which leaves of a variational posterior an analysis is for, and the posterior with some of them changed."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
from jax import vmap

from posteriax.families.family import DiagonalGaussian, Family, Variational
from posteriax.families.normal import Normal
from posteriax.leaf_paths import choose_by_path, describe_leaves
from posteriax.posterior import Posterior, VariationalPosterior
from posteriax.priors import Leaf

# the new family and parameters of one leaf, or None to leave it alone
Change = Callable[[Leaf, Family, Variational], tuple[Family, Variational] | None]


def diagonal_moments(family: DiagonalGaussian, variational: Variational) -> tuple[Any, Any]:
    """Means and standard deviations of a leaf, (members, ...)."""
    return vmap(family.moments)(variational)


def as_normal(mean: Any, scale: Any) -> tuple[Family, Variational]:
    """Mean-field with these moments; a scale of 0 becomes the smallest that has a logarithm."""
    return Normal(), {"mean": mean, "log_scale": jnp.log(jnp.maximum(scale, jnp.finfo(scale.dtype).tiny))}


def change_leaves(posterior: Posterior, leaves: str, change: Change) -> VariationalPosterior:
    """The posterior with the diagonal Gaussian leaves that a pattern matches changed.

    Raises:
        TypeError: if the posterior is not variational, or none of the leaves is a diagonal Gaussian.
        ValueError: if the pattern matches no leaf.
    """
    if not isinstance(posterior, VariationalPosterior):
        raise TypeError(f"this analysis needs a variational posterior (px.VI), got {type(posterior).__name__}")
    names = posterior.problem.leaf_names
    lines = describe_leaves(posterior.problem.network.params)
    chosen = choose_by_path({"**": leaves == "**", leaves: True}, names, "leaves", leaves=lines)
    families, variational, changed = dict(posterior.families), dict(posterior.variational), 0
    for name, info, wanted in zip(names, posterior.problem.leaf_infos, chosen, strict=True):
        if wanted and isinstance(families[name], DiagonalGaussian):
            new = change(info, families[name], variational[name])
            if new is not None:
                families[name], variational[name] = new
                changed += 1
    if not changed:
        raise TypeError(f"no leaf that matches {leaves!r} is a weight with independent Gaussian entries")
    return replace(posterior, families=families, variational=variational)
