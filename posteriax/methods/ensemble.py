"""Ensemble: any method, replicated.

    p(y | x) = 1/M sum_m p_m(y | x)

Members differ in their start, their data order and their noise. ``Ensemble(MAP(), 5)`` is a deep ensemble,
``Ensemble(HMC(), 4)`` are four chains, ``Ensemble(VI(...), 3)`` is a mixture of Gaussians. The driver places members
on devices first and vmaps those that share one.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from posteriax._internal.checks import check_count
from posteriax._internal.leaf_paths import describe_leaves
from posteriax.methods.method import Method
from posteriax.posterior import Posterior
from posteriax.problem import Problem, Unknowns


@dataclass(frozen=True, eq=False)
class Ensemble:
    """Several independent runs of one method, behind one posterior.

    Args:
        method: what each member runs.
        members: how many.
        starts: where members begin. ``"shuffle"`` gives each one the network's own initial weights with the entries
            of every matrix permuted, which for entries drawn independently is a fresh initialisation (the first
            member keeps the network as it is); ``"prior"`` draws from the prior; ``"network"`` starts all at the
            network's own weights; a function of a key returns params. Samplers with a start of their own use that.

    >>> import equinox as eqx, jax, posteriax as px
    >>> (x, y), _ = px.data.two_moons()
    >>> problem = px.Problem(eqx.nn.MLP(2, 2, 8, 1, key=jax.random.key(0)), px.Categorical())
    >>> posterior = px.fit(problem, (x, y), px.Ensemble(px.MAP(), members=3), steps=10, key=0)
    >>> posterior.trace["log_joint"].shape
    (3, 10)
    """

    method: Method
    members: int
    starts: Literal["shuffle", "prior", "network"] | Callable[[jax.Array], Any] = "shuffle"

    def __post_init__(self) -> None:
        check_count("members", self.members)
        if isinstance(self.method, Ensemble):
            raise TypeError("an Ensemble of an Ensemble is one Ensemble with more members")
        if not hasattr(self.method, "step"):
            raise TypeError(f"method must be an inference method such as px.MAP(), got {self.method!r}")
        if not callable(self.starts) and self.starts not in ("shuffle", "prior", "network"):
            raise ValueError(f'starts must be "shuffle", "prior", "network" or a function, got {self.starts!r}')

    def given_starts(self, problem: Problem) -> Unknowns | None:
        """Where members begin, along a leading axis, if the method starts from draws of another posterior."""
        given = getattr(self.method, "start", None)
        if not isinstance(given, Posterior):
            return None
        own, theirs = describe_leaves(problem.unknowns), describe_leaves(given.template)
        if own != theirs:
            raise ValueError(f"start is a posterior of another network: it has {theirs}, the problem has {own}")
        return given.draw(jax.random.key(0), np.arange(self.members), self.members)

    def start(self, problem: Problem, key: jax.Array, member: jax.Array) -> Unknowns:
        """Where a member begins."""
        given = self.given_starts(problem)
        if given is not None:
            return jax.tree.map(lambda leaf: leaf[member], given)
        if callable(self.starts):
            return problem.unknowns._replace(network=self.starts(key))
        if self.starts == "prior":
            return problem.sample_prior(key)
        if self.starts == "network" or self.members == 1:
            return problem.unknowns
        shuffled = shuffle_weights(key, problem.unknowns)
        return jax.tree.map(lambda own, new: jnp.where(member == 0, own, new), problem.unknowns, shuffled)


def shuffle_weights(key: jax.Array, unknowns: Unknowns) -> Unknowns:
    """Permute the entries of every leaf with two or more axes; vectors (biases, norms) often have a structure: keep."""
    leaves, treedef = jax.tree.flatten(unknowns)
    keys = jax.random.split(key, len(leaves))
    shuffled = [
        jax.random.permutation(k, leaf.reshape(-1)).reshape(leaf.shape) if leaf.ndim > 1 else leaf
        for k, leaf in zip(keys, leaves, strict=True)
    ]
    return jax.tree.unflatten(treedef, shuffled)


@jax.custom_batching.custom_vmap
def same_for_all_members(value: jax.Array) -> jax.Array:
    """A value that all members have in common, as one for all of them.

    Members that share a device are vmapped; a condition of their own each would become a select at every step.
    """
    return value


@same_for_all_members.def_vmap
def _of_the_first(axis_size: int, in_batched: list[bool], value: jax.Array) -> tuple[jax.Array, bool]:
    return (value[0] if in_batched[0] else value), False
