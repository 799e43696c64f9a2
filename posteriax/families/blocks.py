"""Blocks: which latent variables share one q, of which family, and by which estimator they are drawn.

A block is usually a single leaf; a joint family covers all its leaves as one vector.
"""

import math
from collections.abc import Container, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from posteriax._internal.leaf_paths import choose_by_path, describe_leaves, leaf_paths
from posteriax.families.arrays.estimators import Estimator, EstimatorPlan, plan_estimators
from posteriax.families.family import Family, Variational
from posteriax.families.normal import Normal
from posteriax.networks.leaf import Leaf
from posteriax.networks.tracing.uses import Use
from posteriax.priors.prior import base_distribution
from posteriax.problem import Latents, Problem


class Block(NamedTuple):
    """The latent variables that share one q.

    Args:
        name: the path of its leaf, or of its first leaf.
        info: the leaf as the family sees it; for a joint family, a vector of all weights.
        family: the family.
        indices: which of the latent variables it covers.
        shapes: their shapes.
        plan: how it is drawn in training.
    """

    name: str
    info: Leaf
    family: Family
    indices: tuple[int, ...]
    shapes: tuple[tuple[int, ...], ...]
    plan: EstimatorPlan = EstimatorPlan()

    def join(self, leaves: Sequence[jax.Array]) -> jax.Array:
        """This block's leaves, picked from all latent variables, as the family sees them."""
        covered = [leaves[i] for i in self.indices]
        return jnp.concatenate([leaf.reshape(-1) for leaf in covered]) if self.family.joint else covered[0]

    def split(self, value: Any) -> list[Any]:
        """The inverse of `join`: the block's leaves."""
        if not self.family.joint:
            return [value]
        ends = np.cumsum([math.prod(shape) for shape in self.shapes])[:-1]
        return [flat.reshape(shape) for flat, shape in zip(jnp.split(value, ends), self.shapes, strict=True)]

    def prior(self, priors: Sequence[dist.Distribution]) -> dist.Distribution:
        """This block's prior, from the priors of all latent variables, as the family sees it."""
        covered = [priors[i] for i in self.indices]
        if not self.family.joint:
            return covered[0]
        bases = [base_distribution(prior) for prior in covered]
        if all(isinstance(base, dist.Normal) for base in bases):
            return dist.Normal(*(self._ravel([getattr(base, name) for base in bases]) for name in ("loc", "scale")))
        return _JoinedPriors(self, covered)

    def _ravel(self, values: list[Any]) -> jax.Array:
        pairs = zip(values, self.shapes, strict=True)
        return jnp.concatenate([jnp.broadcast_to(value, shape).reshape(-1) for value, shape in pairs])


Blocks = tuple[Block, ...]


class _JoinedPriors(dist.Distribution):
    """The priors of several leaves as one distribution over their concatenation."""

    def __init__(self, block: Block, priors: list[dist.Distribution]):
        self.block, self.priors = block, priors
        super().__init__(event_shape=block.info.shape)

    def log_prob(self, value: jax.Array) -> jax.Array:
        leaves = self.block.split(value)
        return sum((prior.log_prob(leaf).sum() for prior, leaf in zip(self.priors, leaves, strict=True)), jnp.zeros(()))


def blocks_of(families: Sequence[Family], leaves: Sequence[Leaf]) -> Blocks:
    """The blocks of all leaves, given the family of each. Leaves with equal joint families share a block."""
    groups: dict[Family | str, list[int]] = {}
    for i, (family, leaf) in enumerate(zip(families, leaves, strict=True)):
        groups.setdefault(family if family.joint else leaf.path, []).append(i)
    blocks = []
    for indices in groups.values():
        covered = [leaves[i] for i in indices]
        family, info = families[indices[0]], covered[0]
        if family.joint:
            info = Leaf(info.path, (sum(math.prod(leaf.shape) for leaf in covered),), info.out_axis)
        else:
            family = family.for_leaf(info)
        blocks.append(Block(info.path, info, family, tuple(indices), tuple(leaf.shape for leaf in covered)))
    return tuple(blocks)


def plan_blocks(
    family: Family | Mapping[str, Family],
    estimator: Estimator,
    problem: Problem,
    uses: Sequence[Use],
    *,
    couples_examples: bool,
) -> Blocks:
    """The blocks of a problem, each with its estimator.

    Args:
        family: one for all leaves, or by path pattern.
        estimator: the requested one.
        problem: what is inferred.
        uses: how the network uses each of its leaves; empty for the estimator "weight", which does not ask.
        couples_examples: whether outputs depend on the other examples of a batch, which rules out draws per example.
    """
    families = choose_families(family, problem)
    has_mean = [chosen.has_mean for chosen in families[: len(uses)]]
    plans = plan_estimators("factor" if couples_examples else estimator, uses, has_mean)
    if couples_examples:
        note = "the network's outputs couple the examples of a batch"
        plans = [plan._replace(note=note) for plan in plans]
    plans += [EstimatorPlan()] * (len(problem.leaf_names) - len(plans))  # a likelihood's latents: not in the network
    blocks = blocks_of(families, problem.leaf_infos)
    return tuple(block if block.family.joint else block._replace(plan=plans[block.indices[0]]) for block in blocks)


def choose_families(family: Family | Mapping[str, Family], problem: Problem) -> list[Family]:
    """The family of every latent variable. Those of the likelihood are mean-field unless a pattern names them."""
    params, names = problem.network.params, problem.leaf_names
    count = len(leaf_paths(params))
    if not isinstance(family, Mapping):
        return [family] * count + [Normal()] * (len(names) - count)
    likelihood_names = names[count:]
    leaves = [*describe_leaves(params), *likelihood_names]
    defaults: dict[str, Family] = {"likelihood/**": Normal()} if likelihood_names else {}
    for_likelihood = {pattern: value for pattern, value in family.items() if pattern.startswith("likelihood/")}
    for_network = {pattern: value for pattern, value in family.items() if pattern not in for_likelihood}
    chosen = choose_by_path(for_network, names[:count], "family", leaves=leaves)
    return chosen + choose_by_path({**defaults, **for_likelihood}, likelihood_names, "family", leaves=leaves)


def check_blocks(blocks: Blocks, family: Family | Mapping[str, Family], problem: Problem) -> tuple[str, ...]:
    """Notes on families that do not fit a leaf, on estimators and on KLs; raises if a family cannot be used."""
    priors = problem.leaf_priors
    for block in blocks:
        for i in block.indices:
            block.family.check_prior(block.info, priors[i])
        block.family.check_plan(block.info, block.plan)
    # an init that fails should fail here, not inside a compiled program
    parameter_shapes(blocks, problem)
    mixture_of(blocks)  # raises if the families do not agree on one
    by_name = family if isinstance(family, Mapping) else ()
    misfits = misfit_notes(choose_families(family, problem), problem.leaf_infos, by_name)
    plan_notes = {block.name: block.family.plan_note(block.plan) for block in blocks}
    shared = (f"{name}: one shared draw per step, because {note}" for name, note in plan_notes.items() if note)
    kl_notes = {block.name: block.family.kl_note(block.prior(priors)) for block in blocks}
    return (*misfits, *shared, *(f"{name}: {note}" for name, note in kl_notes.items() if note))


def misfit_notes(families: Sequence[Family], leaves: Sequence[Leaf], named: Container[str] = ()) -> list[str]:
    """A note for each leaf that does not suit its family.

    Args:
        families: the family requested for each leaf.
        leaves: the leaves.
        named: the paths and patterns that families were given by; for a leaf given by its full path, a misfit is an
            error.

    >>> from posteriax import families as q
    >>> misfit_notes([q.KTied(2)], [Leaf("head", (16, 1))])
    ['head: the scales of a (16, 1) matrix have rank 1 at most, so it gets q.KTied(k=1) instead of q.KTied(k=2)']
    """
    notes = []
    for family, leaf in zip(families, leaves, strict=True):
        why = family.misfit(leaf)
        if why and leaf.path in named:
            kind = type(family).__name__
            raise ValueError(f"{kind} for {leaf.path} {leaf.shape}: {why}; give this leaf another family")
        if why:
            notes.append(f"{leaf.path}: {why}")
    return notes


class Mixture(NamedTuple):
    """What the families of a mixture agree on: how many components, and the likelihood they are trained with."""

    components: int
    likelihood: str


def mixture_of(blocks: Blocks) -> Mixture | None:
    """The mixture that some of the families form; None if there is none."""
    mixtures = {
        block.name: Mixture(block.family.components, block.family.likelihood)
        for block in blocks
        if block.family.components is not None
    }
    if len(set(mixtures.values())) > 1:
        given = ", ".join(f"{name}: {m.components} ({m.likelihood})" for name, m in mixtures.items())
        raise ValueError(f"all mixture families of a network need the same components and likelihood, got {given}")
    return next(iter(mixtures.values()), None)


def families_by_name(blocks: Blocks, problem: Problem) -> dict[str, Family]:
    """The family of every leaf, by path, in the order of the latent variables."""
    chosen = {i: block.family for block in blocks for i in block.indices}
    return {name: chosen[i] for i, name in enumerate(problem.leaf_names)}


def initial_parameters(blocks: Blocks, key: jax.Array, start: Latents) -> dict[str, Variational]:
    """The initial parameters of every block's family, around `start`."""
    values, keys = jax.tree.leaves(start), jax.random.split(key, len(blocks))
    return {
        block.name: block.family.init(block_key, block.join(values), block.info)
        for block, block_key in zip(blocks, keys, strict=True)
    }


def parameter_shapes(blocks: Blocks, problem: Problem) -> dict[str, Variational]:
    """The shapes of every block's parameters."""
    return jax.eval_shape(lambda: initial_parameters(blocks, jax.random.key(0), problem.latents))
