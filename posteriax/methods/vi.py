"""Variational inference: the member of a family that is closest to the posterior.

    minimise  E_q[-log_joint(w)] - H(q)  =  -E_q[log p(D | w)] / T + KL(q || p) / T + (1/T - 1) H(q)

At T = 1 this is the negative ELBO. The expectation over w is one draw (or one random array) per step. (METHODS 0, E.1)
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import optax
import quax

from posteriax.arrays import Plan, find_uses, plan_estimators
from posteriax.arrays.estimators import ESTIMATORS, Estimator
from posteriax.families.family import Family, Variational
from posteriax.families.normal import Normal
from posteriax.leaf_paths import choose_by_path, describe_leaves, leaf_paths
from posteriax.methods.method import Target
from posteriax.methods.optimizer import optimize, optimizer_for
from posteriax.posterior import Posterior, VariationalPosterior
from posteriax.priors import Leaf
from posteriax.problem import Batch, Problem, Unknowns
from posteriax.trace import Trace


@dataclass(frozen=True, eq=False)
class VI:
    """Variational inference with any family, or families by path.

    Args:
        family: one family for all leaves, or a dictionary by path pattern (see :func:`px.paths`).
        estimator: how noise enters the network: "auto", "weight", "flipout" or "local"
            (see :mod:`posteriax.arrays.estimators`).
        optimizer: an Optax transformation of gradients of the objective in nats, summed over the data; by default
            Adam whose step size falls from 3e-3 to 0 along a cosine.
        kl_schedule: the weight of the KL term at each step, as a function of the step; it must end at 1.

    >>> import equinox as eqx, jax, posteriax as px
    >>> from posteriax import families as q
    >>> (x, y), _ = px.data.two_moons()
    >>> problem = px.Problem(eqx.nn.MLP(2, 2, 8, 1, key=jax.random.key(0)), px.Categorical())
    >>> method = px.VI({"**": q.Normal(), "**/bias": q.Point()})
    >>> posterior = px.fit(problem, (x, y), method, steps=10, key=0)
    >>> sorted(posterior.trace)
    ['elbo', 'kl', 'nll_per_example']
    """

    family: Family | Mapping[str, Family] = Normal()
    estimator: Estimator = "auto"
    optimizer: optax.GradientTransformation | None = None
    kl_schedule: Callable[[Any], Any] | None = None
    full_batch: ClassVar[bool] = False
    samples: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.estimator not in ESTIMATORS:
            raise ValueError(f"estimator must be one of {', '.join(ESTIMATORS)}, got {self.estimator!r}")
        families = self.family.values() if isinstance(self.family, Mapping) else [self.family]
        for family in families:
            if not hasattr(family, "for_leaf"):
                raise TypeError(
                    f"family must be one of posteriax.families (such as q.Normal()) or a dictionary of them by path, "
                    f"got {family!r}"
                )

    def prepare(self, target: Target) -> tuple[str, ...]:
        """Settle families and estimators, and note where an estimator or a closed-form KL was not to be had."""
        leaves = leaves_of(self, target)
        if self.kl_schedule is not None:
            last = float(self.kl_schedule(target.steps))
            if abs(last - 1.0) > 1e-6:
                raise ValueError(f"kl_schedule must end at 1, but is {last:.4g} at the last step ({target.steps})")
        shared = [
            f"{leaf.name}: one shared draw per step, because {leaf.plan.note}" for leaf in leaves if leaf.plan.note
        ]
        estimated = [
            f"{leaf.name}: KL estimated with one draw per step (no closed form for {type(prior).__name__})"
            for leaf, prior in zip(leaves, target.problem.leaf_priors, strict=True)
            if not leaf.family.exact_kl(prior)
        ]
        return (*shared, *estimated)

    def init(self, target: Target, key: jax.Array, start: Unknowns, batch: Batch) -> "State":
        variational = {
            leaf.name: leaf.family.init(jax.random.fold_in(key, i), value, leaf.info)
            for i, (leaf, value) in enumerate(zip(leaves_of(self, target), jax.tree.leaves(start), strict=True))
        }
        optimizer = optimizer_for(self.optimizer, target.steps)
        return State(variational, optimizer.init(variational), jnp.zeros((), jnp.int32))

    def step(self, target: Target, key: jax.Array, state: "State", batch: Batch) -> tuple["State", "Info"]:
        problem, leaves = target.problem, leaves_of(self, target)
        kl_weight = 1.0 if self.kl_schedule is None else self.kl_schedule(state.step)
        key_outputs, key_kl = jax.random.split(key)

        def loss(variational: dict[str, Variational]) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
            unknowns, outputs = random_outputs(problem, leaves, variational, key_outputs, batch.x)
            log_likelihood = problem.log_likelihood_of_outputs(unknowns, outputs, batch)
            kl, complexity = _complexity(problem, leaves, variational, key_kl)
            return -log_likelihood / problem.temperature + kl_weight * complexity, (log_likelihood, kl)

        (_, (log_likelihood, kl)), gradient = jax.value_and_grad(loss, has_aux=True)(state.variational)
        optimizer = optimizer_for(self.optimizer, target.steps)
        variational, optimizer_state = optimize(optimizer, gradient, state.variational, state.optimizer)
        info = Info(log_likelihood - kl, -log_likelihood / target.num_examples, kl)
        return State(variational, optimizer_state, state.step + 1), info

    def finish(self, target: Target, states: "State", draws: Any, trace: Trace) -> Posterior:
        families = {leaf.name: leaf.family for leaf in leaves_of(self, target)}
        return VariationalPosterior(target.problem, trace, families, states.variational)


class State(NamedTuple):
    variational: dict[str, Variational]
    optimizer: Any
    step: jax.Array


class Info(NamedTuple):
    elbo: jax.Array  # its estimate at T = 1 and full KL weight, in nats, for the whole data set
    nll_per_example: jax.Array
    kl: jax.Array


class LeafInference(NamedTuple):
    """How one unknown is inferred."""

    name: str
    info: Leaf
    family: Family
    plan: Plan


@lru_cache(maxsize=16)
def leaves_of(method: VI, target: Target) -> tuple[LeafInference, ...]:
    """Family and estimator of every unknown: settled once, before anything is compiled."""
    problem = target.problem
    families = families_of(method.family, problem)
    if method.estimator == "weight":
        plans = [Plan()] * len(families)
    elif target.couples_examples:
        plans = [Plan(note="the network's outputs couple the examples of a batch")] * len(families)
    else:
        uses = find_uses(problem.network.apply, problem.network.params, target.example)
        plans = plan_estimators(method.estimator, uses)
    names, values = problem.leaf_names, jax.tree.leaves(problem.unknowns)
    infos = [Leaf(name, value.shape, problem.network.out_axis) for name, value in zip(names, values, strict=True)]
    plans += [Plan()] * (len(names) - len(plans))  # the likelihood's own unknowns never meet the network
    return tuple(
        LeafInference(info.path, info, family.for_leaf(info), plan)
        for info, family, plan in zip(infos, families, plans, strict=True)
    )


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


def random_outputs(
    problem: Problem, leaves: tuple[LeafInference, ...], variational: Any, key: jax.Array, x: Any
) -> tuple[Unknowns, Any]:
    """The network's outputs with every leaf drawn by its own estimator, and the leaves as they were drawn."""
    *keys, own_key = jax.random.split(key, len(leaves) + 1)
    arrays = [
        leaf.family.array(variational[leaf.name], leaf_key, leaf.plan)
        for leaf, leaf_key in zip(leaves, keys, strict=True)
    ]
    unknowns: Unknowns = jax.tree.unflatten(jax.tree.structure(problem.unknowns), arrays)
    apply = problem.network.apply
    if any(isinstance(array, quax.Value) for array in arrays):  # plain draws need no dispatch
        apply = quax.quaxify(apply)
    outputs = apply(unknowns.network, x, key=own_key)
    return unknowns, outputs


def _complexity(
    problem: Problem, leaves: tuple[LeafInference, ...], variational: Any, key: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """KL(q || p), and the objective's whole term in q and p: the same at T = 1."""
    priors = problem.leaf_priors
    keys = jax.random.split(key, len(leaves))
    kl = sum(
        leaf.family.kl(variational[leaf.name], prior, leaf_key)
        for leaf, prior, leaf_key in zip(leaves, priors, keys, strict=True)
    )
    t = problem.temperature
    if t == 1.0:
        return kl, kl  # type: ignore[return-value]
    entropy = sum(leaf.family.entropy(variational[leaf.name]) for leaf in leaves)
    return kl, kl / t + (1.0 / t - 1.0) * entropy  # type: ignore[return-value]
