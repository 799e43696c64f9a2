"""Where the members of an ensemble, or the chains of a sampler, start.

A method's `start` decides if it is "prior" or a posterior, otherwise the ensemble's `starts` does. What a method does
from there ("map" climbs, "mode" takes Newton steps) is up to the method.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import optax

from posteriax._internal.leaf_paths import describe_leaves
from posteriax.posterior import Posterior
from posteriax.problem import Latents, Problem

Start = Literal["shuffle", "network", "prior"] | Callable[[jax.Array], Any] | Posterior


def check_start(start: Any, allowed: tuple[str, ...]) -> None:
    """Raise if a method's start is neither one of the allowed words nor a posterior."""
    if not isinstance(start, Posterior) and start not in allowed:
        raise ValueError(f"start must be one of {', '.join(allowed)}, or a posterior, got {start!r}")


def check_same_network(posterior: Posterior, problem: Problem) -> None:
    """Raise if a posterior used as a start belongs to a different network."""
    own, theirs = describe_leaves(problem.latents), describe_leaves(posterior.template)
    if own != theirs:
        raise ValueError(f"start is a posterior of another network: it has {theirs}, the problem has {own}")


@dataclass(frozen=True, eq=False)
class MemberStarts:
    """Where each member starts. Built by :func:`member_starts`.

    Args:
        start: how members start.
        problem: what they infer.
        members: how many there are.
        draws: one draw for each, in a leading axis, if they start at a posterior.
    """

    start: Start
    problem: Problem
    members: int
    draws: Latents | None

    def of(self, key: jax.Array, member: jax.Array) -> Latents:
        """The start of one member; pure and jittable."""
        own = self.problem.latents
        if self.draws is not None:
            return jax.tree.map(lambda leaf: leaf[member], self.draws)
        if callable(self.start):
            return own._replace(network=self.problem.network.inferred(self.start(key)))
        if self.start == "prior":
            return self.problem.sample_prior(key)
        if self.start == "network" or self.members == 1:
            return own
        shuffled = shuffle_weights(key, own)
        return jax.tree.map(lambda kept, new: jnp.where(member == 0, kept, new), own, shuffled)


def member_starts(of_method: Any, of_ensemble: Start, problem: Problem, members: int) -> MemberStarts:
    """Where members start, by the method's `start`, or else by the ensemble's `starts`."""
    start: Start = of_method if isinstance(of_method, Posterior) or of_method == "prior" else of_ensemble
    draws = None
    if isinstance(start, Posterior):
        check_same_network(start, problem)
        draws = start.draw(jax.random.key(0), np.arange(members), members)
    return MemberStarts(start, problem, members, draws)


def shuffle_weights(key: jax.Array, latents: Latents) -> Latents:
    """Permute the entries of every leaf with two or more axes.

    Vectors (biases, norms) are kept: their initial values often have a structure.
    """

    def shuffled(key: jax.Array, leaf: jax.Array) -> jax.Array:
        return jax.random.permutation(key, leaf.reshape(-1)).reshape(leaf.shape) if leaf.ndim > 1 else leaf

    return jax.tree.map(shuffled, optax.tree_utils.tree_split_key_like(key, latents), latents)
