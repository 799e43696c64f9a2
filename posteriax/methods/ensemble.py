"""Ensemble: any method, replicated.

    p(y | x) = 1/M sum_m p_m(y | x)

Members differ in their start, their data order and their noise. ``Ensemble(MAP(), 5)`` is a deep ensemble
(Lakshminarayanan et al. 2017), ``Ensemble(HMC(), 4)`` are four chains, ``Ensemble(VI(...), 3)`` is a mixture of
Gaussians. The driver places members on devices first and vmaps those that share one.
"""

from dataclasses import dataclass

import jax

from posteriax._internal.checks import check_count
from posteriax.methods.method import Kernel, Method, Task
from posteriax.methods.starts import MemberStarts, Start, member_starts
from posteriax.posterior import Posterior


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
        return Members(self.method.bind(task), self.members, starts)


@dataclass(frozen=True, eq=False)
class Members:
    """An ensemble bound to a task: the kernel that all members run, how many there are, and where they start."""

    kernel: Kernel
    count: int
    starts: MemberStarts


@jax.custom_batching.custom_vmap
def same_for_all_members(value: jax.Array) -> jax.Array:
    """A value that is the same for all members, kept unbatched under vmap.

    Members that share a device are vmapped; a condition on a batched value would become a select at every step.
    """
    return value


@same_for_all_members.def_vmap
def _of_the_first(axis_size: int, in_batched: list[bool], value: jax.Array) -> tuple[jax.Array, bool]:
    return (value[0] if in_batched[0] else value), False
