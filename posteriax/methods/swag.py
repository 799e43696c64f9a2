"""SWAG: a Gaussian fitted to the iterates of stochastic gradient descent.

    w_1 ... w_n: weights after every epoch of SGD with a constant step        mu, v: their mean and variances
    d_i = w_i - (mean of w_1 ... w_i), the last K kept as columns of D
    q(w) = N(mu, diag(v) / 2 + D D' / (2 (K - 1)))       rank = 0, SWAG-Diag:  N(mu, diag(v))

It does not target the posterior: only its centre comes from the log joint; its spread is set by step and batch size.
One noise vector multiplies D for the whole network, so that layers covary. (Maddox et al. 2019)
"""

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree

from posteriax._internal.checks import check_positive
from posteriax._internal.running_moments import add_value
from posteriax.data.batches import Batch
from posteriax.families.family import Family
from posteriax.families.low_rank import LowRank
from posteriax.families.normal import Normal
from posteriax.methods.ensemble import same_for_all_members
from posteriax.methods.method import Draws, Kernel, Method, Task
from posteriax.methods.optimizers import optimize
from posteriax.posterior.draws import DrawsPosterior
from posteriax.posterior.posterior import Posterior
from posteriax.posterior.trace import Trace
from posteriax.posterior.variational import VariationalPosterior
from posteriax.problem import Latents, Problem

SMALLEST_VARIANCE = 1e-30  # of a weight that never moved: its logarithm must stay finite


@dataclass(frozen=True, kw_only=True, eq=False)
class SWAG(Method):
    """Stochastic weight averaging, Gaussian. ``Ensemble(SWAG(), members)`` is multi-SWAG.

    Args:
        learning_rate: the constant rate while snapshots are taken. Both rates apply to the *per-example* gradient of
            the log joint, as in ordinary training, and rates that work there can be used unchanged.
        start_learning_rate: the rate before that: constant for half of the time, then decaying linearly.
        momentum: of SGD.
        rank: how many of the last snapshots span the low-rank part; 0 leaves it out (SWAG-Diag).
        collect: the last fraction of the run, in which snapshots are taken.
        snapshot_every: epochs between snapshots.

    >>> import equinox as eqx, jax, posteriax as px
    >>> (x, y), _ = px.data.two_moons()
    >>> problem = px.Problem(eqx.nn.MLP(2, 2, 8, 1, key=jax.random.key(0)), px.Categorical())
    >>> posterior = px.fit(problem, (x, y), px.SWAG(), epochs=6, key=0)
    >>> int(posterior.trace["snapshots"][-1])
    3
    >>> posterior.trace.notes
    ('3 snapshots: the low-rank part has 3 directions, not 20; 40 epochs would fill it',)
    """

    learning_rate: float = 0.02
    start_learning_rate: float = 0.1
    momentum: float = 0.9
    rank: int = 20
    collect: float = 0.5
    snapshot_every: float = 1
    fixed_length: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for name in ("learning_rate", "start_learning_rate", "snapshot_every"):
            check_positive(name, getattr(self, name))
        if not 0.0 <= self.momentum < 1.0:
            raise ValueError(f"momentum must be at least 0 and less than 1, got {self.momentum!r}")
        if not 0.0 < self.collect <= 1.0:
            raise ValueError(f"collect must be a fraction of the run, above 0 and at most 1, got {self.collect!r}")
        if isinstance(self.rank, bool) or not isinstance(self.rank, (int, np.integer)) or self.rank < 0:
            raise ValueError(f"rank must be a whole number, 0 for SWAG-Diag, got {self.rank!r}")
        if self.rank == 1:
            raise ValueError("rank must be 0 (SWAG-Diag) or at least 2: one deviation has no covariance")

    def bind(self, task: Task) -> "SWAGKernel":
        task.problem.require_density("SWAG")
        snapshots = plan_snapshots(self, task)
        count = snapshots.number
        if count < 2:
            raise ValueError(
                f"SWAG needs at least 2 snapshots, but {_length(task)} have {count} in their last {self.collect:g}, "
                f"with one every {self.snapshot_every:g} epochs: use epochs={_epochs_for(self, task, 2)} or more, a "
                f"larger collect or a smaller snapshot_every"
            )
        notes = []
        if count < self.rank:
            notes.append(
                f"{count} snapshots: the low-rank part has {count} directions, not {self.rank}; "
                f"{_epochs_for(self, task, self.rank)} epochs would fill it"
            )
        if task.problem.temperature != 1.0:
            notes.append("SWAG's spread comes from its learning rate: the temperature does not change it")
        optimizer = make_optimizer(self, snapshots.begin)
        return SWAGKernel(method=self, task=task, notes=tuple(notes), optimizer=optimizer, snapshots=snapshots)


@dataclass(frozen=True, kw_only=True, eq=False)
class SWAGKernel(Kernel):
    method: SWAG
    optimizer: optax.GradientTransformation
    snapshots: "Snapshots"

    def init(self, key: jax.Array, start: Latents, batch: Batch) -> "State":
        return State(start, self.optimizer.init(start), jnp.zeros((), jnp.int32), no_moments(start, self.method.rank))

    def step(self, key: jax.Array, state: "State", batch: Batch) -> tuple["State", "Info"]:
        problem, num_examples = self.problem, self.task.counted_examples

        def loss(latents: Latents) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
            log_likelihood = problem.log_likelihood(latents, batch, key=key)
            log_joint = log_likelihood + problem.log_prior(latents)
            # not over T: gradients times 1/T would spread a colder posterior wider
            return -log_joint / num_examples, (log_joint / problem.temperature, log_likelihood)

        gradient, (log_joint, log_likelihood) = jax.grad(loss, has_aux=True)(state.latents)
        latents, optimizer = optimize(self.optimizer, gradient, state.latents, state.optimizer)
        step = state.step + 1
        moments = jax.lax.cond(
            same_for_all_members(self.snapshots.due(step)),
            lambda: add_snapshot(state.moments, latents),
            lambda: state.moments,
        )
        info = Info(log_joint, -log_likelihood / num_examples, moments.taken)
        return State(latents, optimizer, step, moments), info

    def finish(self, states: "State", draws: Draws, trace: Trace) -> Posterior:
        count = int(states.moments.taken[0])
        if count < 2:  # only a run that was stopped
            note = f"stopped after {count} snapshots: a point at the last weights, not SWAG's Gaussian"
            points = jax.tree.map(lambda leaf: leaf[:, None], states.latents)
            return DrawsPosterior(self.problem, replace(trace, notes=(*trace.notes, note)), points)
        families, variational = _gaussian(self.problem, states.moments, self.method.rank)
        return VariationalPosterior(self.problem, trace, families, variational)


class State(NamedTuple):
    latents: Latents
    optimizer: optax.OptState
    step: jax.Array
    moments: "SnapshotMoments"


class Info(NamedTuple):
    log_joint: jax.Array  # its estimate from the step's batch
    nll_per_example: jax.Array
    snapshots: jax.Array  # taken so far


class SnapshotMoments(NamedTuple):
    """Moments of the snapshots so far; a snapshot is all latent variables as one vector of D numbers."""

    taken: jax.Array  # how many
    mean: jax.Array  # (D,)
    variance: jax.Array  # (D,)
    deviations: jax.Array  # (rank, D), a ring: snapshot i is in row i modulo rank


def no_moments(latents: Latents, rank: int) -> SnapshotMoments:
    flat = ravel_pytree(latents)[0]
    zeros = jnp.zeros_like(flat, jnp.promote_types(flat.dtype, jnp.float32))  # half precision cannot count to 300
    return SnapshotMoments(jnp.zeros((), jnp.int32), zeros, zeros, jnp.zeros((rank, flat.size), zeros.dtype))


def add_snapshot(moments: SnapshotMoments, latents: Latents) -> SnapshotMoments:
    """The papers' E[w^2] - E[w]^2 would cancel where the spread is small relative to the weight."""
    w = ravel_pytree(latents)[0].astype(moments.mean.dtype)
    count = moments.taken + 1
    mean, variance = add_value(moments.mean, moments.variance, w, 1 / count.astype(w.dtype))
    deviations, rank = moments.deviations, moments.deviations.shape[0]
    if rank:
        deviations = deviations.at[moments.taken % rank].set(w - mean)
    return SnapshotMoments(count, mean, variance, deviations)


class Snapshots(NamedTuple):
    """Which steps end with a snapshot: every `every`-th, counted back from the last one."""

    last: int
    every: int
    number: int

    @property
    def begin(self) -> int:
        """The steps before collection."""
        return self.last - self.number * self.every

    def due(self, step: jax.Array) -> jax.Array:
        """Whether a snapshot is taken after this step."""
        return (step > self.begin) & ((self.last - step) % self.every == 0)


def plan_snapshots(method: SWAG, task: Task) -> Snapshots:
    every = max(1, round(method.snapshot_every * task.steps_per_epoch))
    return Snapshots(task.steps, every, math.floor(method.collect * task.steps / every + 1e-9))


def make_optimizer(method: SWAG, begin: int) -> optax.GradientTransformation:
    """SGD whose learning rate has decayed to the constant one after `begin` steps."""
    rate = optax.linear_schedule(
        method.start_learning_rate, method.learning_rate, max(begin - begin // 2, 1), begin // 2
    )
    if begin == 0:
        rate = optax.constant_schedule(method.learning_rate)
    return optax.sgd(rate, momentum=method.momentum)


def _gaussian(problem: Problem, moments: SnapshotMoments, rank: int) -> tuple[dict[str, Family], dict[str, Any]]:
    """The Gaussian of the snapshots, as families by leaf and their parameters, for all members."""
    flat, unravel = ravel_pytree(problem.latents)
    count, names = int(moments.taken[0]), problem.leaf_names
    mean = moments.mean.astype(flat.dtype)
    variance = jnp.maximum(moments.variance, SMALLEST_VARIANCE)
    if rank == 0:
        parameters = {"mean": mean, "log_scale": (0.5 * jnp.log(variance)).astype(flat.dtype)}
        leaves = {name: jax.tree.leaves(jax.vmap(unravel)(value)) for name, value in parameters.items()}
        diagonal = {path: {name: leaves[name][i] for name in parameters} for i, path in enumerate(names)}
        return dict.fromkeys(names, Normal()), diagonal
    columns = min(count, rank)
    deviations = jnp.moveaxis(moments.deviations[:, :columns], 1, 2)  # (members, D, K)
    # q.LowRank's covariance is S (I + F F') S with S^2 = v / 2; F is at most sqrt(n / (K - 1)) per entry
    directions = deviations / jnp.sqrt(variance * (columns - 1))[..., None]
    joint = {
        "mean": mean,
        "log_scale": (0.5 * jnp.log(variance / 2)).astype(flat.dtype),
        "directions": directions.astype(flat.dtype),
    }
    return dict.fromkeys(names, LowRank(columns, over="network")), {names[0]: joint}


def _epochs_for(method: SWAG, task: Task, count: int) -> int:
    every = plan_snapshots(method, task).every
    return math.ceil(math.ceil(count * every / method.collect - 1e-9) / task.steps_per_epoch)


def _length(task: Task) -> str:
    epochs, rest = divmod(task.steps, task.steps_per_epoch)
    return f"{task.steps} steps" if rest else f"{epochs} epochs"
