"""Ensemble: any method, replicated.

    p(y | x) = 1/M sum_m p_m(y | x)

Members differ in their start, their data order and their noise. ``Ensemble(MAP(), 5)`` is a deep ensemble
(Lakshminarayanan et al. 2017), ``Ensemble(HMC(), 4)`` are four chains, ``Ensemble(VI(...), 3)`` is a mixture of
Gaussians. The driver spreads members over devices first; those that share one take turns on a CPU, and are vmapped on
a GPU or TPU.

If the method's `start` is "prior" or a posterior, members start there; otherwise the ensemble's `starts` decides. What
a method does from there ("map" climbs, "mode" takes Newton steps) is up to the method.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
import optax

from posteriax._internal.checks import check_count
from posteriax.methods.method import Kernel, Method, Task, check_same_network
from posteriax.networks.network import Params
from posteriax.posterior.posterior import Posterior
from posteriax.problem import Latents, Problem

Start = Literal["shuffle", "network", "prior"] | Callable[[jax.Array], Params] | Posterior


@dataclass(frozen=True, eq=False)
class Ensemble:
    """Several independent runs of one method, behind one posterior.

    Args:
        method: what each member runs.
        members: how many.
        starts: where members start, unless the method itself starts at the prior or at a posterior. ``"shuffle"``
            permutes the entries of every matrix of the network's initial weights, which for entries drawn independently
            amounts to a fresh initialisation (the first member keeps the network unchanged); ``"prior"`` draws from
            the prior; ``"network"`` starts all at the network's own weights; a posterior gives each member one of its
            draws; a function takes a key and returns params.
        together: whether members that share a device take each step together, by `jax.vmap`; by default on GPUs and
            TPUs, but not on CPUs. There, taking turns keeps every member's numbers the same bits on any number of
            devices, and is as fast for networks; together, many chains of a small problem can be faster.

    >>> import equinox as eqx, jax, posteriax as px
    >>> (x, y), _ = px.data.two_moons()
    >>> problem = px.Problem(eqx.nn.MLP(2, 2, 8, 1, key=jax.random.key(0)), px.Categorical())
    >>> posterior = px.fit(problem, (x, y), px.Ensemble(px.MAP(), members=3), steps=10, key=0)
    >>> posterior.trace["log_joint"].shape
    (3, 10)
    """

    method: Method
    members: int
    starts: Start = "shuffle"
    together: bool | None = None

    def __post_init__(self) -> None:
        check_count("members", self.members)
        if isinstance(self.method, Ensemble):
            raise TypeError("an Ensemble cannot contain an Ensemble: use one Ensemble with more members")
        if not isinstance(self.method, Method):
            raise TypeError(f"method must be an inference method such as px.MAP(), got {self.method!r}")
        known = callable(self.starts) or isinstance(self.starts, Posterior)
        if not known and self.starts not in ("shuffle", "prior", "network"):
            raise ValueError(
                f'starts must be "shuffle", "prior", "network", a posterior or a function, got {self.starts!r}'
            )

    def bind(self, task: Task) -> "Members":
        starts = member_starts(self.method.start, self.starts, task.problem, self.members)
        return Members(self.method.bind(task), self.members, starts, self.together)


@dataclass(frozen=True, eq=False)
class Members:
    """An ensemble bound to a task: the kernel that all members run, how many there are, and where they start."""

    kernel: Kernel
    count: int
    starts: "MemberStarts"
    together: bool | None = None

    def take_turns(self, platform: str) -> bool:
        """Whether members that share a device of this platform step one after another."""
        return platform == "cpu" if self.together is None else not self.together


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

    def start_of(self, key: jax.Array, member: jax.Array) -> Latents:
        """The start of one member; pure and jittable."""
        initial = self.problem.latents
        if self.draws is not None:
            return jax.tree.map(lambda leaf: leaf[member], self.draws)
        if callable(self.start):
            return initial._replace(network=self.problem.network.inferred(self.start(key)))
        if self.start == "prior":
            return self.problem.sample_prior(key)
        if self.start == "network" or self.members == 1:
            return initial
        shuffled = shuffle_weights(key, initial)
        return jax.tree.map(lambda kept, new: jnp.where(member == 0, kept, new), initial, shuffled)


def member_starts(
    method_start: str | Posterior, ensemble_starts: Start, problem: Problem, members: int
) -> MemberStarts:
    """Where members start, by the method's `start`, or else by the ensemble's `starts`."""
    start = ensemble_starts
    if isinstance(method_start, Posterior):
        start = method_start
    elif method_start == "prior":
        start = "prior"
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


@jax.custom_batching.custom_vmap
def same_for_all_members(value: jax.Array) -> jax.Array:
    """A value that is the same for all members, kept unbatched under vmap.

    Members that share a device are vmapped; a condition on a batched value would become a select at every step.
    """
    return value


@same_for_all_members.def_vmap
def _value_of_first_member(axis_size: int, in_batched: list[bool], value: jax.Array) -> tuple[jax.Array, bool]:
    return (value[0] if in_batched[0] else value), False
