"""Variational inference: the member of a family that is closest to the posterior.

    minimise  E_q[-log_joint(w)] - H(q)  =  -E_q[log p(D | w)] / T + KL(q || p) / T + (1/T - 1) H(q)

At T = 1 this is the negative ELBO. The expectation over w is one draw (or one random array) a step, or several.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import quax

from posteriax._internal.checks import check_count
from posteriax._internal.leaf_paths import choose_by_path, describe_leaves, leaf_paths
from posteriax.data import Batch
from posteriax.families import Block, Family, Gaussian, Normal, Variational, blocks_of, misfit_notes
from posteriax.families.arrays import ESTIMATORS, KEYS_PER_LEAF, Estimator, Plan, find_uses, plan_estimators
from posteriax.methods.kl_schedules import KLSchedule
from posteriax.methods.method import Target
from posteriax.methods.mode import is_linear
from posteriax.methods.optimizer import optimize
from posteriax.methods.stationarity import PART, look, nothing_yet
from posteriax.methods.vi_start import (
    Moments,
    can_find_mode,
    from_mode,
    moments_of,
    spread_by_hessian,
    spread_by_moments,
)
from posteriax.methods.whitened import whitened_adam
from posteriax.posterior import Posterior, Trace, VariationalPosterior
from posteriax.priors import Leaf, has_density
from posteriax.problem import Problem, Unknowns


@dataclass(frozen=True, eq=False)
class VI:
    """Variational inference with any family, or families by path.

    Args:
        family: one family for all leaves, or a dictionary by path pattern (see :func:`px.paths`).
        estimator: how noise enters the network: "auto", "weight", "factor", "flipout" or "local"
            (see :mod:`posteriax.families.arrays.estimators`).
        optimizer: an Optax transformation of gradients of the objective in nats, summed over the data; by default
            Adam in the posterior's own units, with rates that fall to 0 (see :mod:`posteriax.methods.whitened`).
        kl_schedule: the weight of the KL term: ``px.LinearKL(epochs=...)``, ``px.StaircaseKL(...)``, or a function of
            the step; it must end at 1, unless the schedule itself says otherwise.
        draws: how many draws of the weights a step's gradient is averaged over.
        start: "network", at the network's own weights; "mode", at the most probable weights, found by Newton's steps,
            with scales from the curvature there (for up to 300 unknowns); or a posterior of any kind, whose means and
            scales are taken: of one with several chains or members, a draw and the scales within them. "auto" takes
            the mode of networks that are linear in their weights, if no optimizer is given, and the network's own
            weights otherwise.

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
    optimizer: optax.GradientTransformation | None = None
    kl_schedule: KLSchedule | Callable[[Any], Any] | None = None
    draws: int = 1
    start: Literal["auto", "network", "mode"] | Posterior = "auto"
    full_batch: ClassVar[bool] = False
    samples: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.estimator not in ESTIMATORS:
            raise ValueError(f"estimator must be one of {', '.join(ESTIMATORS)}, got {self.estimator!r}")
        check_count("draws", self.draws)
        if not isinstance(self.start, Posterior) and self.start not in ("auto", "network", "mode"):
            raise ValueError(f'start must be "auto", "network", "mode" or a posterior, got {self.start!r}')
        families = self.family.values() if isinstance(self.family, Mapping) else [self.family]
        for family in families:
            if not hasattr(family, "kl_note"):
                raise TypeError(
                    f"family must be one of posteriax.families (such as q.Normal()) or a dictionary of them by path, "
                    f"got {family!r}"
                )

    def prepare(self, target: Target) -> tuple[str, ...]:
        """Settle families and estimators, and note where an estimator or a closed-form KL was not to be had."""
        leaves, priors = leaves_of(self, target), target.problem.leaf_priors
        mixture_of(leaves)
        for leaf in leaves:
            for i in leaf.block.indices:
                leaf.family.check_prior(leaf.info, priors[i])
            leaf.family.check_plan(leaf.info, leaf.plan)
        # an init that cannot be made says so here, not within a compiled program
        jax.eval_shape(partial(self._variational, target), jax.random.key(0), target.problem.unknowns)
        notes = {leaf.name: leaf.family.plan_note(leaf.plan) for leaf in leaves}
        shared = [f"{name}: one shared draw per step, because {note}" for name, note in notes.items() if note]
        kl_notes = {leaf.name: leaf.family.kl_note(leaf.block.prior(priors)) for leaf in leaves}
        notes_of_kl = (f"{name}: {note}" for name, note in kl_notes.items() if note)
        named = self.family if isinstance(self.family, Mapping) else ()
        misfits = misfit_notes(families_of(self.family, target.problem), target.problem.leaf_infos, named)
        return (*misfits, *shared, *notes_of_kl, *self._kl_schedule_notes(target), *_start_notes(self, target))

    def _kl_schedule_notes(self, target: Target) -> tuple[str, ...]:
        last = float(self._kl_weight(target, target.steps))
        if abs(last - 1.0) <= 1e-6:
            return ()
        if not getattr(self.kl_schedule, "end_below_one", False):
            raise ValueError(f"kl_schedule must end at 1, but is {last:.4g} at the last step ({target.steps})")
        return (f"the KL's weight was only {last:.4g} at the end: this is not the optimum of the ELBO",)

    def optimizer_for(self, steps: int) -> optax.GradientTransformation:
        """The optimiser of a run of so many steps."""
        return self.optimizer or whitened_adam(steps)

    def _kl_weight(self, target: Target, step: Any) -> Any:
        schedule = self.kl_schedule
        if schedule is None:
            return 1.0
        return schedule(step) if callable(schedule) else schedule.weight(step, target.steps_per_epoch)

    def _variational(self, target: Target, key: jax.Array, start: Unknowns) -> dict[str, Variational]:
        leaves, values = leaves_of(self, target), jax.tree.leaves(start)
        keys = jax.random.split(key, len(leaves))
        return {
            leaf.name: leaf.family.init(leaf_key, leaf.block.join(values), leaf.info)
            for leaf, leaf_key in zip(leaves, keys, strict=True)
        }

    def init(self, target: Target, key: jax.Array, start: Unknowns, batch: Batch) -> "State":
        blocks = [leaf.block for leaf in leaves_of(self, target)]
        moments = _moments(self, target)
        if starts_at_mode(self, target):
            start, hessian = from_mode(target, start, batch)
            variational = spread_by_hessian(blocks, self._variational(target, key, start), hessian)
        elif moments is not None:
            start = start if moments.mean is None else jax.tree.map(jnp.asarray, moments.mean)
            variational = spread_by_moments(blocks, self._variational(target, key, start), moments)
        else:
            variational = self._variational(target, key, start)
        optimizer = self.optimizer_for(target.steps)
        return State(variational, optimizer.init(variational), jnp.zeros((), jnp.int32), nothing_yet(variational))

    def step(self, target: Target, key: jax.Array, state: "State", batch: Batch) -> tuple["State", "Info"]:
        leaves = leaves_of(self, target)
        kl_weight = self._kl_weight(target, state.step)

        def loss(learned: dict[str, Variational], key: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
            return _objective(target.problem, leaves, kl_weight, learned, leaf_keys(key, leaves), batch)

        def mean_loss(learned: dict[str, Variational]) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
            if self.draws == 1:
                return loss(learned, key)
            each = jax.vmap(loss, in_axes=(None, 0))(learned, jax.random.split(key, self.draws))
            return jax.tree.map(lambda values: values.mean(), each)

        (_, (log_likelihood, kl)), gradient = jax.value_and_grad(mean_loss, has_aux=True)(state.variational)
        total, stationarity = look(state.step, target.steps, state.variational, gradient, state.total)
        optimizer = self.optimizer_for(target.steps)
        variational, optimizer_state = optimize(optimizer, gradient, state.variational, state.optimizer)
        variational = {leaf.name: leaf.family.project(variational[leaf.name]) for leaf in leaves}
        info = Info(log_likelihood - kl, -log_likelihood / target.num_examples, kl, stationarity)
        return State(variational, optimizer_state, state.step + 1, total), info

    def finish(self, target: Target, states: "State", draws: Any, trace: Trace) -> Posterior:
        families = families_by_name(leaves_of(self, target), target.problem)
        return VariationalPosterior(target.problem, _of_whole_runs(target, states, trace), families, states.variational)


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


def starts_at_mode(method: VI, target: Target) -> bool:
    """Whether a run starts at the mode."""
    if method.start == "mode":
        return True
    # a user's optimiser is often one that must leave the start as it is
    return method.start == "auto" and method.optimizer is None and _is_small_linear_model(method, target)


@lru_cache(maxsize=16)
def _is_small_linear_model(method: VI, target: Target) -> bool:
    if can_find_mode(target):
        return False
    spread = jax.eval_shape(partial(method._variational, target), jax.random.key(0), target.problem.unknowns)
    if not all(isinstance(leaf.family, Gaussian) and "mean" in spread[leaf.name] for leaf in leaves_of(method, target)):
        return False
    with jax.ensure_compile_time_eval():  # a checkpoint asks while it traces the start
        return is_linear(target.problem.network, target.example)


@lru_cache(maxsize=16)
def _moments(method: VI, target: Target) -> Moments | None:
    with jax.ensure_compile_time_eval():
        return moments_of(method.start, target) if isinstance(method.start, Posterior) else None


def _start_notes(method: VI, target: Target) -> tuple[str, ...]:
    """Where the run starts, if not at the network's own weights; an error where it cannot."""
    leaves = leaves_of(method, target)
    if method.start == "mode" and (why := can_find_mode(target)):
        raise ValueError(f'start="mode" cannot be had: {why}; take start="network", or a fitted px.MAP() as the start')
    if starts_at_mode(method, target):
        return ("the start is the mode of the log joint, with scales from the curvature there",)
    moments = _moments(method, target)
    if moments is None:
        return ()
    variational = jax.eval_shape(partial(method._variational, target), jax.random.key(0), target.problem.unknowns)
    for leaf in leaves:
        if set(variational[leaf.name]) <= {"log_scale", "log_size"}:
            raise ValueError(
                f"{type(leaf.family).__name__} for {leaf.name} has no means: it cannot start at a posterior"
            )
    if moments.variance is None:
        return ()
    one = jax.tree.map(jnp.ones_like, target.problem.unknowns)
    deaf = [
        leaf.name
        for leaf in leaves
        if jax.eval_shape(
            lambda v, x, f=leaf.family: f.spread(v, x, None),
            variational[leaf.name],
            leaf.block.join(jax.tree.leaves(one)),
        )
        is None
    ]
    return tuple(f"{name}: only the means of the start are taken, not its scales" for name in deaf)


def _of_whole_runs(target: Target, states: State, trace: Trace) -> Trace:
    """The trace with stationarity for the steps that have it: none if the run is short, or was stopped."""
    if "stationarity" not in trace:
        return trace
    arrays = dict(trace.arrays)
    values, part = arrays.pop("stationarity"), target.steps // PART
    if part and jax.tree.leaves(states.total) and int(np.min(states.step)) == target.steps:
        arrays["stationarity"] = values[..., -part:]
    return replace(trace, arrays=arrays)


class LeafInference(NamedTuple):
    """How one block of unknowns, mostly a single leaf, is inferred."""

    block: Block
    plan: Plan

    @property
    def name(self) -> str:
        return self.block.name

    @property
    def info(self) -> Leaf:
        return self.block.info

    @property
    def family(self) -> Family:
        return self.block.family


class Mixture(NamedTuple):
    """What the families of a mixture agree on: how many components, and the likelihood they are trained with."""

    components: int
    likelihood: str


@lru_cache(maxsize=16)
def leaves_of(method: VI, target: Target) -> tuple[LeafInference, ...]:
    """Family and estimator of every unknown: settled once, before anything is compiled."""
    problem = target.problem
    plans: list[Plan] = []
    if method.estimator != "weight":
        uses = find_uses(problem.network.apply, problem.network.params, target.example)
        plans = plan_estimators("factor" if target.couples_examples else method.estimator, uses)
    if target.couples_examples:  # no draw of one example alone
        note = "the network's outputs couple the examples of a batch"
        plans = [plan._replace(note=note) for plan in plans]
    blocks = blocks_of(families_of(method.family, problem), problem.leaf_infos)
    plans += [Plan()] * (len(problem.leaf_names) - len(plans))  # the likelihood's unknowns never meet the network
    return tuple(
        LeafInference(block, plans[block.indices[0]] if not block.family.joint else Plan()) for block in blocks
    )


def mixture_of(leaves: tuple[LeafInference, ...]) -> Mixture | None:
    """The mixture that some of the families are of; None if none is."""
    mixtures = {
        leaf.name: Mixture(leaf.family.components, getattr(leaf.family, "likelihood", "average"))
        for leaf in leaves
        if leaf.family.components is not None
    }
    if len(set(mixtures.values())) > 1:
        found = ", ".join(f"{name}: {m.components} ({m.likelihood})" for name, m in mixtures.items())
        raise ValueError(f"all mixture families of a network need the same components and likelihood, got {found}")
    return next(iter(mixtures.values()), None)


def families_by_name(leaves: tuple[LeafInference, ...], problem: Problem) -> dict[str, Family]:
    """The family of every leaf, by path, in the order of the unknowns."""
    chosen = {i: leaf.family for leaf in leaves for i in leaf.block.indices}
    return {name: chosen[i] for i, name in enumerate(problem.leaf_names)}


def families_of(family: Family | Mapping[str, Family], problem: Problem) -> list[Family]:
    """The family of every unknown. A likelihood's own unknowns are mean-field unless a pattern names them."""
    params, names = problem.network.params, problem.leaf_names
    count = len(leaf_paths(params))
    if not isinstance(family, Mapping):
        return [family] * count + [Normal()] * (len(names) - count)
    own = names[count:]
    leaves = [*describe_leaves(params), *own]
    defaults: dict[str, Family] = {"likelihood/**": Normal()} if own else {}
    named = {pattern: value for pattern, value in family.items() if pattern.startswith("likelihood/")}
    of_network = {pattern: value for pattern, value in family.items() if pattern not in named}
    chosen = choose_by_path(of_network, names[:count], "family", leaves=leaves)
    return chosen + choose_by_path({**defaults, **named}, own, "family", leaves=leaves)


def leaf_keys(key: jax.Array, leaves: tuple[LeafInference, ...]) -> jax.Array:
    """A row of keys for every block of leaves, and one for what else is random. One hash for all of them."""
    return jax.random.split(key, (len(leaves) + 1, KEYS_PER_LEAF))


def random_outputs(
    problem: Problem, leaves: tuple[LeafInference, ...], variational: Any, keys: jax.Array, x: Any
) -> tuple[Unknowns, Any]:
    """The network's outputs with every leaf drawn by its own estimator, and the leaves as they were drawn.

    With families of a mixture, the outputs of all components in a leading axis; other leaves are the same in all.
    `keys` has a row for every block of leaves, and one for the network's own randomness.
    """
    examples = jax.tree.leaves(x)[0].shape[0]
    mixture = mixture_of(leaves)

    def drawn(leaf: LeafInference, keys: jax.Array, component: Any = None) -> list[Any]:
        own = variational[leaf.name]
        if component is not None:
            own, keys = leaf.family.component(own, component), jax.vmap(jax.random.fold_in, (0, None))(keys, component)
        return leaf.block.part(leaf.family.array(own, keys, leaf.plan, examples))

    shared = {leaf.name: drawn(leaf, keys[i]) for i, leaf in enumerate(leaves) if not leaf.family.components}

    def outputs(component: Any = None) -> tuple[Any, Any]:
        arrays: list[Any] = [None] * len(problem.leaf_names)
        for i, leaf in enumerate(leaves):
            parts = shared[leaf.name] if leaf.name in shared else drawn(leaf, keys[i], component)
            for index, array in zip(leaf.block.indices, parts, strict=True):
                arrays[index] = array
        unknowns: Unknowns = jax.tree.unflatten(jax.tree.structure(problem.unknowns), arrays)
        apply = problem.network.apply
        if any(isinstance(array, quax.Value) for array in arrays):  # plain draws need no dispatch
            apply = quax.quaxify(apply)
        return unknowns, apply(unknowns.network, x, key=keys[-1, 0])

    if mixture is None:
        return outputs()
    own = jax.tree.unflatten(jax.tree.structure(problem.unknowns), range(len(problem.leaf_names))).likelihood
    likelihood = jax.tree.map(lambda i: shared[problem.leaf_names[i]][0], own)
    return Unknowns(None, likelihood), jax.vmap(lambda k: outputs(k)[1])(jnp.arange(mixture.components))


def _objective(
    problem: Problem, leaves: tuple[LeafInference, ...], kl_weight: Any, learned: Any, keys: jax.Array, batch: Batch
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    """What is minimised, for one draw; and its log-likelihood and KL."""
    variational = {leaf.name: leaf.family.precompute(learned[leaf.name]) for leaf in leaves}
    unknowns, outputs = random_outputs(problem, leaves, variational, keys, batch.x)
    log_likelihood = _log_likelihood(problem, mixture_of(leaves), unknowns, outputs, batch)
    kl, complexity = _complexity(problem, leaves, variational, keys[-1, 1])
    if mixture_of(leaves) is None:
        complexity += _path_correction(problem, leaves, variational, unknowns)
    return -log_likelihood / problem.temperature + kl_weight * complexity, (log_likelihood, kl)


def _log_likelihood(
    problem: Problem, mixture: Mixture | None, unknowns: Unknowns, outputs: Any, batch: Batch
) -> jax.Array:
    if mixture is None:
        return problem.log_likelihood_of_outputs(unknowns, outputs, batch)
    each = jax.vmap(lambda o: problem.likelihood.log_prob(unknowns.likelihood, o, batch.y))(outputs)
    if mixture.likelihood == "average":
        return jnp.vdot(batch.weight, each.mean(axis=0))
    return jnp.vdot(batch.weight, jax.nn.logsumexp(each, axis=0) - jnp.log(mixture.components))


def _complexity(
    problem: Problem, leaves: tuple[LeafInference, ...], variational: Any, key: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """KL(q || p), and the objective's whole term in q and p: the same at T = 1."""
    priors = problem.leaf_priors
    keys = jax.random.split(key, len(leaves))
    kl = sum(
        leaf.family.kl(variational[leaf.name], leaf.block.prior(priors), leaf_key)
        for leaf, leaf_key in zip(leaves, keys, strict=True)
    )
    t = problem.temperature
    if t == 1.0:
        return kl, kl  # type: ignore[return-value]
    entropy = sum(leaf.family.entropy(variational[leaf.name]) for leaf in leaves)
    return kl, kl / t + (1.0 / t - 1.0) * entropy  # type: ignore[return-value]


def _path_correction(
    problem: Problem, leaves: tuple[LeafInference, ...], variational: Any, unknowns: Unknowns
) -> jax.Array:
    """Of value 0, with a gradient of mean 0 that cancels the noise of the draw where q is the posterior.

    It turns the gradient of -H(q) - E_q[log p(w)] / T into that of log q(w) - log p(w) / T at the draw w, with the
    parameters of q in log q held fixed. With the likelihood's, it is 0 for every w if q is the posterior.
    (Roeder et al. 2017)
    """
    priors, drawn, t = problem.leaf_priors, jax.tree.leaves(unknowns), problem.temperature
    correction = jnp.zeros(())
    for leaf in leaves:
        own, prior = variational[leaf.name], leaf.block.prior(priors)
        if not has_density(prior) or leaf.family.kl_note(prior):
            continue
        w = leaf.block.join(drawn) if leaf.family.joint else drawn[leaf.block.indices[0]]
        at_draw = leaf.family.log_density(jax.lax.stop_gradient(own), w) if isinstance(w, jax.Array) else None
        if at_draw is None:
            continue
        at_draw -= prior.log_prob(w).sum() / t
        entropy = leaf.family.entropy(own)
        exact = (leaf.family.kl(own, prior, jax.random.key(0)) + entropy) / t - entropy
        correction += (at_draw - exact) - jax.lax.stop_gradient(at_draw - exact)
    return correction
