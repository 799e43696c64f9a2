"""Variational inference: the member of a family that is closest to the posterior.

    minimise  E_q[-log_joint(w)] - H(q)  =  -E_q[log p(D | w)] / T + KL(q || p) / T + (1/T - 1) H(q)

At T = 1 this is the negative ELBO. The expectation over w is estimated from one draw per step, or several. A draw
enters the network leaf by leaf, as a plain array or as a random array that the network's own operations dispatch on
(:mod:`posteriax.families.arrays`).

Top to bottom: the method and its kernel, the objective, schedules for the weight of the KL, the check of convergence.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import quax
from jaxtyping import PyTree

from posteriax._internal.checks import check_count, check_positive
from posteriax.data.batches import Batch
from posteriax.families.arrays.estimators import ESTIMATORS, Estimator
from posteriax.families.arrays.random_array import KEYS_PER_LEAF
from posteriax.families.blocks import (
    Block,
    Blocks,
    Mixture,
    check_blocks,
    families_by_name,
    mixture_of,
    parameter_shapes,
    plan_blocks,
)
from posteriax.families.family import Family, Variational
from posteriax.families.normal import Normal
from posteriax.methods.ensemble import same_for_all_members
from posteriax.methods.method import Draws, Method, OptimizingKernel, Task, check_start
from posteriax.methods.optimizers import (
    FamilyOptimizer,
    optimize,
    plain_rate_notes,
    whiten,
    whitened_adam,
    whitened_size,
)
from posteriax.methods.vi_start import StartPlan, plan_start, starting_parameters
from posteriax.networks.tracing.uses import find_uses
from posteriax.posterior.posterior import Posterior
from posteriax.posterior.trace import Trace
from posteriax.posterior.variational import VariationalPosterior
from posteriax.priors.prior import has_density
from posteriax.problem import Latents, Problem

PARTS = 10  # of a run, for the check of convergence: the second to last sums gradients, the last compares with them

Step = jax.Array | int
Weight = jax.Array | float  # of the KL term
Parameters = dict[str, Variational]  # the variational parameters of every block, by its name


@dataclass(frozen=True, eq=False)
class VI(Method):
    """Variational inference with any family, or families by path.

    Args:
        family: one family for all leaves, or a dictionary by path pattern (see :func:`px.paths`).
        estimator: how noise enters the network: "auto", "weight", "factor", "flipout" or "local"
            (see :mod:`posteriax.families.arrays.estimators`).
        optimizer: an Optax transformation of gradients of the objective in nats, summed over the data; by default
            Adam in the posterior's own units, with rates that decay to 0 (see :mod:`posteriax.methods.optimizers`).
        kl_schedule: the weight of the KL term: ``px.methods.LinearKL(epochs=...)``, ``px.methods.StaircaseKL(...)``,
            or a function of the step; it must end at 1, unless the schedule itself says otherwise.
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
    kl_schedule: "KLSchedule | Callable[[Step], Weight] | None" = None
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
        problem, network = task.problem, task.problem.network
        uses = [] if self.estimator == "weight" else find_uses(network.programs, task.example)
        blocks = plan_blocks(self.family, self.estimator, problem, uses, couples_examples=task.couples_examples)
        notes = check_blocks(blocks, self.family, problem)
        notes += check_last_weight(self.kl_schedule, task.steps, task.steps_per_epoch)
        # with their own optimiser, users expect the run to start at the network's weights
        start = plan_start(self.start, blocks, task, may_move=self.optimizer is None)
        families = {block.name: block.family for block in blocks}
        if self.optimizer is None:
            notes += plain_rate_notes(families, parameter_shapes(blocks, problem))
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
        no_gradients, zero = no_whitened_gradients(self.families, variational), jnp.zeros((), jnp.int32)
        return State(variational, self.optimizer.init(variational), zero, no_gradients)

    def step(self, key: jax.Array, state: "State", batch: Batch) -> tuple["State", "Info"]:
        blocks, draws, steps = self.blocks, self.method.draws, self.task.steps
        kl_weight = kl_weight_at(self.method.kl_schedule, state.step, self.task.steps_per_epoch)

        def loss(learned: Parameters, key: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
            return objective(self.problem, blocks, kl_weight, learned, block_keys(key, blocks), batch)

        def mean_loss(learned: Parameters) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
            if draws == 1:
                return loss(learned, key)
            per_draw = jax.vmap(loss, in_axes=(None, 0))(learned, jax.random.split(key, draws))
            return jax.tree.map(lambda values: values.mean(), per_draw)

        (_, (log_likelihood, kl)), gradient = jax.value_and_grad(mean_loss, has_aux=True)(state.variational)
        total, stationarity = track_stationarity(
            self.families, state.step, steps, state.variational, gradient, state.total
        )
        variational, optimizer_state = optimize(self.optimizer, gradient, state.variational, state.optimizer)
        variational = {block.name: block.family.project(variational[block.name]) for block in blocks}
        info = Info(log_likelihood - kl, -log_likelihood / self.task.counted_examples, kl, stationarity)
        return State(variational, optimizer_state, state.step + 1, total), info

    def finish(self, states: "State", draws: Draws, trace: Trace) -> Posterior:
        families = families_by_name(self.blocks, self.problem)
        trace = _with_known_stationarity(trace, states, self.task.steps)
        return VariationalPosterior(self.problem, trace, families, states.variational)


class State(NamedTuple):
    variational: Parameters
    optimizer: optax.OptState
    step: jax.Array
    total: Parameters  # of whitened gradients, for the check of convergence


class Info(NamedTuple):
    elbo: jax.Array  # its estimate at T = 1 and full KL weight, in nats, for all examples
    nll_per_example: jax.Array
    kl: jax.Array
    stationarity: jax.Array  # 0 before the last part of the run


# The objective, for one draw of the weights.


def block_keys(key: jax.Array, blocks: Blocks) -> jax.Array:
    """A row of keys for every block of leaves, and one for all other randomness, from a single split."""
    return jax.random.split(key, (len(blocks) + 1, KEYS_PER_LEAF))


def objective(
    problem: Problem, blocks: Blocks, kl_weight: Weight, learned: Parameters, keys: jax.Array, batch: Batch
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    """The objective to minimise, for one draw; and its log-likelihood and KL."""
    variational = {block.name: block.family.precompute(learned[block.name]) for block in blocks}
    latents, outputs = random_outputs(problem, blocks, variational, keys, batch.x)
    log_likelihood = _log_likelihood(problem, mixture_of(blocks), latents, outputs, batch)
    kl, complexity = complexity_of(problem, blocks, variational, keys[-1, 1])
    if mixture_of(blocks) is None:
        complexity += _path_correction(problem, blocks, variational, latents)
    return -log_likelihood / problem.temperature + kl_weight * complexity, (log_likelihood, kl)


def random_outputs(
    problem: Problem, blocks: Blocks, variational: Parameters, keys: jax.Array, x: PyTree
) -> tuple[Latents, PyTree]:
    """The network's outputs with every leaf drawn by its own estimator, and the leaves as they were drawn.

    With families of a mixture, the outputs of all components in a leading axis; other leaves are the same in all.
    `keys` has a row for every block of leaves, and one for the network's own randomness.
    """
    examples = jax.tree.leaves(x)[0].shape[0]
    mixture = mixture_of(blocks)

    def drawn(block: Block, keys: jax.Array, component: jax.Array | None = None) -> list[jax.Array | quax.Value]:
        parameters = variational[block.name]
        if component is not None:
            parameters = block.family.component(parameters, component)
            keys = jax.vmap(jax.random.fold_in, (0, None))(keys, component)
        return block.split(block.family.array(parameters, keys, block.plan, examples))

    shared = {block.name: drawn(block, keys[i]) for i, block in enumerate(blocks) if not block.family.components}

    def outputs(component: jax.Array | None = None) -> tuple[Latents, PyTree]:
        arrays: list[jax.Array | quax.Value | None] = [None] * len(problem.leaf_names)
        for i, block in enumerate(blocks):
            parts = shared[block.name] if block.name in shared else drawn(block, keys[i], component)
            for index, array in zip(block.indices, parts, strict=True):
                arrays[index] = array
        latents: Latents = jax.tree.unflatten(jax.tree.structure(problem.latents), arrays)
        apply = problem.network.apply
        if any(isinstance(array, quax.Value) for array in arrays):  # plain draws need no dispatch
            apply = quax.quaxify(apply)
        return latents, apply(latents.network, x, key=keys[-1, 0])

    if mixture is None:
        return outputs()
    indices = jax.tree.unflatten(jax.tree.structure(problem.latents), range(len(problem.leaf_names))).likelihood
    likelihood = jax.tree.map(lambda i: shared[problem.leaf_names[i]][0], indices)
    return Latents(None, likelihood), jax.vmap(lambda k: outputs(k)[1])(jnp.arange(mixture.components))


def _log_likelihood(
    problem: Problem, mixture: Mixture | None, latents: Latents, outputs: PyTree, batch: Batch
) -> jax.Array:
    if mixture is None:
        return problem.log_likelihood_of_outputs(latents, outputs, batch)
    by_component = jax.vmap(lambda o: problem.likelihood.log_prob(latents.likelihood, o, batch.y))(outputs)
    if mixture.likelihood == "average":
        return jnp.vdot(batch.weight, by_component.mean(axis=0))
    return jnp.vdot(batch.weight, jax.nn.logsumexp(by_component, axis=0) - jnp.log(mixture.components))


def complexity_of(
    problem: Problem, blocks: Blocks, variational: Parameters, key: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """KL(q || p), and the full term of the objective in q and p: the same at T = 1."""
    priors = problem.leaf_priors
    keys = jax.random.split(key, len(blocks))
    kl = sum(
        block.family.kl(variational[block.name], block.prior(priors), block_key)
        for block, block_key in zip(blocks, keys, strict=True)
    )
    t = problem.temperature
    if t == 1.0:
        return kl, kl  # type: ignore[return-value]
    entropy = sum(block.family.entropy(variational[block.name]) for block in blocks)
    return kl, kl / t + (1.0 / t - 1.0) * entropy  # type: ignore[return-value]


def _path_correction(problem: Problem, blocks: Blocks, variational: Parameters, latents: Latents) -> jax.Array:
    """A term whose value is 0 and whose gradient has mean 0 and cancels the noise of the draw if q is the posterior.

    It turns the gradient of -H(q) - E_q[log p(w)] / T into that of log q(w) - log p(w) / T at the draw w, with the
    parameters of q in log q held fixed. Together with the likelihood's gradient this is 0 for every w if q is the
    posterior. (Roeder et al. 2017)
    """
    priors, drawn, t = problem.leaf_priors, jax.tree.leaves(latents), problem.temperature
    correction = jnp.zeros(())
    for block in blocks:
        parameters, prior = variational[block.name], block.prior(priors)
        if not has_density(prior) or block.family.kl_note(prior):
            continue
        w = block.join(drawn) if block.family.joint else drawn[block.indices[0]]
        at_draw = block.family.log_density(jax.lax.stop_gradient(parameters), w) if isinstance(w, jax.Array) else None
        if at_draw is None:
            continue
        at_draw -= prior.log_prob(w).sum() / t
        entropy = block.family.entropy(parameters)
        exact = (block.family.kl(parameters, prior, jax.random.key(0)) + entropy) / t - entropy
        correction += (at_draw - exact) - jax.lax.stop_gradient(at_draw - exact)
    return correction


# The weight of the KL term: small at first, so that the means fit before the scales; 1 at the end. A weight below 1 at
# the end has a different optimum from the ELBO: px.VI refuses it unless the schedule allows it.


class KLSchedule(ABC):
    """A schedule that knows how long an epoch of the run is."""

    end_below_one: bool = False  # whether a run may end before the weight is 1

    @abstractmethod
    def weight(self, step: Step, steps_per_epoch: int) -> Weight:
        """The KL's weight at a step."""


@dataclass(frozen=True)
class LinearKL(KLSchedule):
    """The KL's weight grows linearly to 1 over `epochs` epochs, and stays there.

        min(1, (step + 1) / steps)

    >>> import posteriax as px
    >>> schedule = px.methods.LinearKL(epochs=10)
    >>> float(schedule.weight(step=499, steps_per_epoch=100))
    0.5
    """

    epochs: float

    def __post_init__(self) -> None:
        check_positive("epochs", self.epochs)

    def weight(self, step: Step, steps_per_epoch: int) -> Weight:
        return jnp.minimum(1.0, (step + 1) / (self.epochs * steps_per_epoch))


@dataclass(frozen=True)
class StaircaseKL(KLSchedule):
    """The KL's weight grows by `slope` per step on average, in jumps every `every` steps, up to 1.

        min(1, slope * every * floor(step / every))

    The k-tied paper (Swiatkowski et al. 2020) uses slopes of 5e-5 and 5e-6, which reach 1 after 20,000 and 200,000
    steps; its runs on MNIST, 300 epochs of 49 steps, end at 0.73 and 0.07:
    ``px.methods.StaircaseKL(5e-5, end_below_one=True)``.

    Args:
        slope: the average increase of the weight per step.
        every: steps between two jumps.
        end_below_one: allow runs that end before the weight reaches 1. The posterior's trace notes it.

    >>> import posteriax as px
    >>> schedule = px.methods.StaircaseKL(slope=5e-5, every=100)
    >>> round(float(schedule.weight(step=10_050, steps_per_epoch=49)), 6)
    0.5
    """

    slope: float = 5e-5
    every: int = 100
    end_below_one: bool = False

    def __post_init__(self) -> None:
        check_positive("slope", self.slope)
        check_count("every", self.every)

    def weight(self, step: Step, steps_per_epoch: int) -> Weight:
        return jnp.minimum(1.0, self.slope * self.every * (step // self.every))


def kl_weight_at(schedule: KLSchedule | Callable[[Step], Weight] | None, step: Step, steps_per_epoch: int) -> Weight:
    """The KL's weight at a step; always 1 without a schedule."""
    if schedule is None:
        return 1.0
    return schedule(step) if callable(schedule) else schedule.weight(step, steps_per_epoch)


def check_last_weight(
    schedule: KLSchedule | Callable[[Step], Weight] | None, steps: int, steps_per_epoch: int
) -> tuple[str, ...]:
    """A note if the weight ends below 1, for schedules that allow it; an error for all others."""
    last = float(kl_weight_at(schedule, steps, steps_per_epoch))
    if abs(last - 1.0) <= 1e-6:
        return ()
    if not (isinstance(schedule, KLSchedule) and schedule.end_below_one):
        raise ValueError(f"kl_schedule must end at 1, but is {last:.4g} at the last step ({steps})")
    return (f"the KL's weight was only {last:.4g} at the end: this is not the optimum of the ELBO",)


# Has it converged? Gradients of the last steps, in the posterior's own units (see optimizers.py). Of the last fifth of
# the steps, the first half sums whitened gradients g, and each step of the second half is compared with their mean:
#
#     stationarity_t = g_t . mean(g before) / size,   on average |E g|^2 / size: squared distance to the optimum, in sd
#
# The noise of g_t is independent of that of the mean, so the product averages to 0 at the optimum. A learning rate that
# has decayed to 0 stops the parameters but not their gradients, so it cannot hide that they are off.


def no_whitened_gradients(families: Mapping[str, Family], variational: Parameters) -> Parameters:
    """A sum of no gradients."""

    def like_gradients(variational: Parameters) -> Parameters:
        return {name: whiten(families[name], parameters, parameters) for name, parameters in variational.items()}

    shapes = jax.eval_shape(like_gradients, variational)
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)


def track_stationarity(
    families: Mapping[str, Family],
    step: jax.Array,
    steps: int,
    variational: Parameters,
    gradient: Parameters,
    total: Parameters,
) -> tuple[Parameters, jax.Array]:
    """The new sum, and the step's stationarity: 0 before the last part of the run."""
    part = steps // PARTS
    size = sum(whitened_size(families[name], parameters) for name, parameters in variational.items())
    if part == 0 or size == 0:
        return total, jnp.zeros(())

    def whitened() -> Parameters:
        return {name: whiten(families[name], variational[name], gradient[name]) for name in variational}

    position = same_for_all_members(step - (steps - 2 * part))
    adds = position < part

    def track() -> tuple[Parameters, jax.Array]:
        # one branch for both halves: with many leaves, most of the time to compile a step is theirs
        now = whitened()
        summed = jax.tree.map(lambda a, b: jnp.where(adds, a + b, a), total, now)
        products = jax.tree.map(lambda a, b: (a * b).sum(dtype=jnp.float32), total, now)
        product = jnp.stack(jax.tree.leaves(products)).sum()
        return summed, jnp.where(adds, 0.0, product / (float(part) * size))

    return jax.lax.cond(position >= 0, track, lambda: (total, jnp.zeros(())))


def _with_known_stationarity(trace: Trace, states: State, steps: int) -> Trace:
    """The trace with stationarity only for the steps that have it: none if the run is short or was stopped."""
    if "stationarity" not in trace:
        return trace
    arrays = dict(trace.arrays)
    values, part = arrays.pop("stationarity"), steps // PARTS
    if part and jax.tree.leaves(states.total) and int(np.min(states.step)) == steps:
        arrays["stationarity"] = values[..., -part:]
    return replace(trace, arrays=arrays)
