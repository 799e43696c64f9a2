"""Selecting leaves for an analysis, and the moments of their posterior."""

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

DRAWS = 1000  # for moments without a closed form


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
        ValueError: if there are none.
    """
    found = [leaf for leaf in chosen_leaves(problem, leaves) if not leaf.is_bias]
    if not found:
        raise ValueError(f"no leaf matching {leaves!r} is a weight: all are biases or normalisation scales")
    return found


def leaf_moments(posterior: Posterior, leaves: Sequence[Leaf]) -> list[LeafMoments]:
    """Mean and standard deviation of every entry of these leaves; several members form a mixture.

    In closed form if the leaf's family has one, otherwise from draws: all stored draws, or a thousand new ones.
    """
    return [_closed_form(posterior, leaf.path) or _from_draws(posterior, leaf.path) for leaf in leaves]


def _from_draws(posterior: Posterior, name: str) -> LeafMoments:
    rows = (block.reshape(-1, *block.shape[2:]) for block in _blocks(posterior, name))
    mean, variance = mean_and_variance(rows)
    return LeafMoments(mean, np.sqrt(variance))


def _blocks(posterior: Posterior, name: str) -> Iterator[np.ndarray]:
    """Draws of a leaf with two leading axes, in blocks."""
    place = posterior.problem.leaf_names.index(name)
    if isinstance(posterior, DrawsPosterior):
        yield from blocks_of_draws(jax.tree.leaves(posterior.draws)[place])
    else:  # redrawn for each leaf, so that only a few are in memory
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
    # law of total variance over members
    return LeafMoments(means.mean(axis=0), np.sqrt(variances.mean(axis=0) + means.var(axis=0)))


def as_bytes(count: float) -> str:
    """A size in bytes, for people.

    >>> as_bytes(8 * 313_600**2)
    '787 GB'
    """
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.0f} TB"


def check_size(what: str, entries: Any, instead: str, *, limit: int = 2**31) -> None:
    """Refuse to form an entries x entries matrix that is too large.

    Raises:
        ValueError: stating the size it would need.
    """
    needed = 8 * int(entries) ** 2
    if needed > limit:
        raise ValueError(
            f"{what} would be a {int(entries):,} x {int(entries):,} matrix of {as_bytes(needed)} (limit "
            f"{as_bytes(limit)}): {instead}"
        )
