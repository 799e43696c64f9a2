"""Which leaves of a posterior an analysis is for, and what is known of their distribution."""

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from posteriax._internal.leaf_paths import choose_by_path, describe_leaves
from posteriax._internal.running_moments import mean_and_variance
from posteriax.analysis.draw_chunks import chunks_of_draws
from posteriax.posterior import DrawsPosterior, Posterior, VariationalPosterior, blocks_of_draws
from posteriax.priors import Leaf
from posteriax.problem import Problem

DRAWS = 1000  # where moments have no closed form


class LeafMoments(NamedTuple):
    """Mean and standard deviation of every entry of a leaf, in its shape."""

    mean: np.ndarray
    scale: np.ndarray


def chosen_leaves(problem: Problem, leaves: str | Sequence[str]) -> list[Leaf]:
    """The leaves of a network that a pattern matches, or those named one by one, in the order given.

    Leaves that differ only in their numbers come in the order of those: layer 10 after layer 9.
    """
    count = len(jax.tree.leaves(problem.network.params))
    infos = problem.leaf_infos[:count]
    if not isinstance(leaves, str):
        return [one for pattern in leaves for one in chosen_leaves(problem, pattern)]
    wanted = choose_by_path(
        {"**": leaves == "**", leaves: True},
        [info.path for info in infos],
        "leaves",
        leaves=describe_leaves(problem.network.params),
    )
    found = [info for info, chosen in zip(infos, wanted, strict=True) if chosen]
    if len({re.sub(r"\d+", "#", info.path) for info in found}) == 1:
        found.sort(key=lambda info: [int(n) for n in re.findall(r"\d+", info.path)])
    return found


def chosen_weights(problem: Problem, leaves: str | Sequence[str]) -> list[Leaf]:
    """The chosen leaves that are weights, not biases.

    Raises:
        ValueError: if there is none.
    """
    found = [leaf for leaf in chosen_leaves(problem, leaves) if not leaf.is_bias]
    if not found:
        raise ValueError(f"no leaf that matches {leaves!r} is a weight: all are biases or normalisation scales")
    return found


def leaf_moments(posterior: Posterior, leaves: Sequence[Leaf]) -> list[LeafMoments]:
    """Mean and standard deviation of every entry of these leaves; several members are a mixture.

    In closed form where the leaf's family knows them; otherwise from draws: all there are, or a thousand.
    """
    return [_closed_form(posterior, leaf.path) or _from_draws(posterior, leaf.path) for leaf in leaves]


def _from_draws(posterior: Posterior, name: str) -> LeafMoments:
    rows = (block.reshape(-1, *block.shape[2:]) for block in _blocks(posterior, name))
    mean, variance = mean_and_variance(rows)
    return LeafMoments(mean, np.sqrt(variance))


def _blocks(posterior: Posterior, name: str) -> Iterator[np.ndarray]:
    """Draws of a leaf with two leading axes, a few at a time."""
    place = posterior.problem.leaf_names.index(name)
    if isinstance(posterior, DrawsPosterior):
        yield from blocks_of_draws(jax.tree.leaves(posterior.draws)[place])
    else:  # drawn anew for every leaf, so that never more than a few are held
        for some in chunks_of_draws(posterior, jax.random.key(0), min(DRAWS, posterior.support or DRAWS)):
            yield np.asarray(jax.tree.leaves(some)[place])[None]


def _closed_form(posterior: Posterior, name: str) -> LeafMoments | None:
    if not isinstance(posterior, VariationalPosterior):
        return None
    family = posterior.families[name]
    if family.joint or family.components or name not in posterior.variational:
        return None
    own = posterior.variational[name]
    try:
        means, variances = (np.asarray(jax.vmap(f)(own), np.float64) for f in (family.mean, family.variance))
    except NotImplementedError:
        return None
    # a mixture of members: the mean of their variances, and the variance of their means
    return LeafMoments(means.mean(axis=0), np.sqrt(variances.mean(axis=0) + means.var(axis=0)))


def as_bytes(count: float) -> str:
    """A size in words.

    >>> as_bytes(8 * 313_600**2)
    '787 GB'
    """
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.0f} TB"


def check_size(what: str, entries: Any, instead: str, *, limit: int = 2**31) -> None:
    """Refuse to form a matrix of entries x entries that would not fit.

    Raises:
        ValueError: with the size it would need.
    """
    needed = 8 * int(entries) ** 2
    if needed > limit:
        raise ValueError(
            f"{what} would be a matrix of {int(entries):,} x {int(entries):,}, {as_bytes(needed)} (at most "
            f"{as_bytes(limit)}): {instead}"
        )
