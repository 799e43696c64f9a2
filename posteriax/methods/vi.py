"""Variational inference: the member of a family that is closest to the posterior.

    minimise  E_q[-log_joint(w)] - H(q)  =  -E_q[log p(D | w)] / T + KL(q || p) / T + (1/T - 1) H(q)

At T = 1 this is the negative ELBO. The expectation over w is estimated from one draw (or one random array) per step, or
several.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from posteriax._internal.checks import check_count
from posteriax.data import Batch
from posteriax.families import Family, Normal, Variational
from posteriax.families.arrays import ESTIMATORS, Estimator
from posteriax.methods.kl_schedules import KLSchedule, check_last_weight, kl_weight
from posteriax.methods.method import Method, OptimizingKernel, Task
from posteriax.methods.optimizer import FamilyOptimizer, optimize
from posteriax.methods.starts import check_start
from posteriax.methods.stationarity import PARTS, no_gradients, track_stationarity
from posteriax.methods.vi_blocks import (
    Blocks,
    check_blocks,
    families_by_name,
    mixture_of,
    parameter_shapes,
    plan_blocks,
)
from posteriax.methods.vi_objective import block_keys, objective
from posteriax.methods.vi_start import StartPlan, plan_start, starting_parameters
from posteriax.methods.whitened import plain_notes, whitened_adam
from posteriax.posterior import Posterior, Trace, VariationalPosterior
from posteriax.problem import Latents


@dataclass(frozen=True, eq=False)
class VI(Method):
    """Variational inference with any family, or families by path.

    Args:
        family: one family for all leaves, or a dictionary by path pattern (see :func:`px.paths`).
        estimator: how noise enters the network: "auto", "weight", "factor", "flipout" or "local"
            (see :mod:`posteriax.families.arrays.estimators`).
        optimizer: an Optax transformation of gradients of the objective in nats, summed over the data; by default
            Adam in the posterior's own units, with rates that decay to 0 (see :mod:`posteriax.methods.whitened`).
        kl_schedule: the weight of the KL term: ``px.LinearKL(epochs=...)``, ``px.StaircaseKL(...)``, or a function of
            the step; it must end at 1, unless the schedule itself says otherwise.
        draws: how many draws of the weights each gradient is averaged over.
        start: "network" starts at the network's own weights; "mode" at the most probable weights, found by Newton
            steps, with scales from the curvature there (up to 300 latents); a posterior of any kind provides means and
            scales, or with several chains or members, a draw and the scales within them. "auto" is "mode" for networks
            that are linear in their weights, if no optimizer is given, and "network" otherwise.

    >>> import equinox as eqx, jax, posteriax as px
    >>> from posteriax import families as q
    >>> (x, y), _ = px.data.two_moons()
    >>> problem = px.Problem(eqx.nn.MLP(2, 2, 8, 1, key=jax.random.key(0)), px.Categorical())
    >>> method = px.VI({"**": q.Normal(), "**/bias": q.Point()})
    >>> posterior = px.fit(problem, (x, y), method, steps=10, key=0)
    >>> sorted(posterior.trace)
    ['elbo', 'kl', 'nll_per_example', 'stationarity']
    """

    family: Family | Mapping[str, Family] = Normal()
    estimator: Estimator = "auto"
    optimizer: optax.GradientTransformation | FamilyOptimizer | None = None
    kl_schedule: KLSchedule | Callable[[Any], Any] | None = None
    draws: int = 1
    start: Literal["auto", "network", "mode"] | Posterior = "auto"

    def __post_init__(self) -> None:
        if self.estimator not in ESTIMATORS:
            raise ValueError(f"estimator must be one of {', '.join(ESTIMATORS)}, got {self.estimator!r}")
        check_count("draws", self.draws)
        check_start(self.start, ("auto", "network", "mode"))
        for family in self.family.values() if isinstance(self.family, Mapping) else [self.family]:
            if not isinstance(family, Family):
                raise TypeError(
                    f"family must be one of posteriax.families (such as q.Normal()) or a dictionary of them by path, "
                    f"got {family!r}"
                )

    def bind(self, task: Task) -> "VIKernel":
        blocks = plan_blocks(self.family, self.estimator, task)
        mixture_of(blocks)  # raises if the families do not agree on one
        notes = check_blocks(blocks, self.family, task.problem)
        notes += check_last_weight(self.kl_schedule, task.steps, task.steps_per_epoch)
        # with their own optimiser, users expect the run to start at the network's weights
        start = plan_start(self.start, blocks, task, may_move=self.optimizer is None)
        families = {block.name: block.family for block in blocks}
        if self.optimizer is None:
            notes += plain_notes(families, parameter_shapes(blocks, task.problem))
        optimizer = self.optimizer or whitened_adam(families, task.steps)
        if isinstance(optimizer, FamilyOptimizer):
            optimizer = optimizer.for_families(families)
        return VIKernel(
            method=self,
            task=task,
            notes=notes + start.notes,
            optimizer=optimizer,
            blocks=blocks,
            start=start,
            families=families,
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class VIKernel(OptimizingKernel):
    method: VI
    blocks: Blocks
    start: StartPlan
    families: Mapping[str, Family]  # by block

    def init(self, key: jax.Array, start: Latents, batch: Batch) -> "State":
        variational = starting_parameters(self.start, self.blocks, self.problem, key, start, batch)
        none, zero = no_gradients(self.families, variational), jnp.zeros((), jnp.int32)
        return State(variational, self.optimizer.init(variational), zero, none)

    def step(self, key: jax.Array, state: "State", batch: Batch) -> tuple["State", "Info"]:
        blocks, draws, steps = self.blocks, self.method.draws, self.task.steps
        weight = kl_weight(self.method.kl_schedule, state.step, self.task.steps_per_epoch)

        def loss(learned: dict[str, Variational], key: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
            return objective(self.problem, blocks, weight, learned, block_keys(key, blocks), batch)

        def mean_loss(learned: dict[str, Variational]) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
            if draws == 1:
                return loss(learned, key)
            each = jax.vmap(loss, in_axes=(None, 0))(learned, jax.random.split(key, draws))
            return jax.tree.map(lambda values: values.mean(), each)

        (_, (log_likelihood, kl)), gradient = jax.value_and_grad(mean_loss, has_aux=True)(state.variational)
        total, stationarity = track_stationarity(
            self.families, state.step, steps, state.variational, gradient, state.total
        )
        variational, optimizer_state = optimize(self.optimizer, gradient, state.variational, state.optimizer)
        variational = {block.name: block.family.project(variational[block.name]) for block in blocks}
        info = Info(log_likelihood - kl, -log_likelihood / self.task.counted_examples, kl, stationarity)
        return State(variational, optimizer_state, state.step + 1, total), info

    def finish(self, states: "State", draws: Any, trace: Trace) -> Posterior:
        families = families_by_name(self.blocks, self.problem)
        trace = _with_known_stationarity(trace, states, self.task.steps)
        return VariationalPosterior(self.problem, trace, families, states.variational)


class State(NamedTuple):
    variational: dict[str, Variational]
    optimizer: Any
    step: jax.Array
    total: Any  # of whitened gradients (see stationarity.py)


class Info(NamedTuple):
    elbo: jax.Array  # its estimate at T = 1 and full KL weight, in nats, for the whole data set
    nll_per_example: jax.Array
    kl: jax.Array
    stationarity: jax.Array  # 0 before the last part of the run


def _with_known_stationarity(trace: Trace, states: State, steps: int) -> Trace:
    """The trace with stationarity only for the steps that have it: none if the run is short or was stopped."""
    if "stationarity" not in trace:
        return trace
    arrays = dict(trace.arrays)
    values, part = arrays.pop("stationarity"), steps // PARTS
    if part and jax.tree.leaves(states.total) and int(np.min(states.step)) == steps:
        arrays["stationarity"] = values[..., -part:]
    return replace(trace, arrays=arrays)
