"""The blocks of variational inference: which latent variables share one q, of which family, drawn by which estimator.

A block is usually a single leaf; a joint family spans several.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax

from posteriax._internal.leaf_paths import choose_by_path, describe_leaves, leaf_paths
from posteriax.families.arrays.estimators import Estimator, EstimatorPlan, plan_estimators
from posteriax.families.blocks import Block, blocks_of, misfit_notes
from posteriax.families.family import Family, Variational
from posteriax.families.normal import Normal
from posteriax.methods.method import Task
from posteriax.networks.leaf import Leaf
from posteriax.networks.tracing.uses import find_uses
from posteriax.problem import Latents, Problem


class BlockPlan(NamedTuple):
    """How one block of latent variables is inferred."""

    leaves: Block
    plan: EstimatorPlan

    @property
    def name(self) -> str:
        return self.leaves.name

    @property
    def info(self) -> Leaf:
        return self.leaves.info

    @property
    def family(self) -> Family:
        return self.leaves.family


Blocks = tuple[BlockPlan, ...]


class Mixture(NamedTuple):
    """What the families of a mixture agree on: how many components, and the likelihood they are trained with."""

    components: int
    likelihood: str


def plan_blocks(family: Family | Mapping[str, Family], estimator: Estimator, task: Task) -> Blocks:
    """Family and estimator of every latent variable."""
    problem = task.problem
    plans: list[EstimatorPlan] = []
    if estimator != "weight":
        uses = find_uses(problem.network.apply, problem.network.params, task.example)
        plans = plan_estimators("factor" if task.couples_examples else estimator, uses)
    if task.couples_examples:  # no per-example draws
        note = "the network's outputs couple the examples of a batch"
        plans = [plan._replace(note=note) for plan in plans]
    blocks = blocks_of(families_of(family, problem), problem.leaf_infos)
    plans += [EstimatorPlan()] * (
        len(problem.leaf_names) - len(plans)
    )  # the likelihood's latents never enter the network
    return tuple(
        BlockPlan(block, plans[block.indices[0]] if not block.family.joint else EstimatorPlan()) for block in blocks
    )


def check_blocks(blocks: Blocks, family: Family | Mapping[str, Family], problem: Problem) -> tuple[str, ...]:
    """Notes on families that do not fit a leaf, on estimators and on KLs; raises if a family cannot be used."""
    priors = problem.leaf_priors
    for block in blocks:
        for i in block.leaves.indices:
            block.family.check_prior(block.info, priors[i])
        block.family.check_plan(block.info, block.plan)
    # an init that fails should fail here, not inside a compiled program
    parameter_shapes(blocks, problem)
    named = family if isinstance(family, Mapping) else ()
    misfits = misfit_notes(families_of(family, problem), problem.leaf_infos, named)
    plan_notes = {block.name: block.family.plan_note(block.plan) for block in blocks}
    shared = (f"{name}: one shared draw per step, because {note}" for name, note in plan_notes.items() if note)
    kl_notes = {block.name: block.family.kl_note(block.leaves.prior(priors)) for block in blocks}
    return (*misfits, *shared, *(f"{name}: {note}" for name, note in kl_notes.items() if note))


def initial_parameters(blocks: Blocks, key: jax.Array, start: Latents) -> dict[str, Variational]:
    """The initial parameters of every block's family, around `start`."""
    values, keys = jax.tree.leaves(start), jax.random.split(key, len(blocks))
    return {
        block.name: block.family.init(block_key, block.leaves.join(values), block.info)
        for block, block_key in zip(blocks, keys, strict=True)
    }


def parameter_shapes(blocks: Blocks, problem: Problem) -> dict[str, Variational]:
    """The shapes of every block's parameters."""
    return jax.eval_shape(lambda: initial_parameters(blocks, jax.random.key(0), problem.latents))


def mixture_of(blocks: Sequence[BlockPlan]) -> Mixture | None:
    """The mixture that some of the families form; None if there is none."""
    mixtures = {
        block.name: Mixture(block.family.components, block.family.likelihood)
        for block in blocks
        if block.family.components is not None
    }
    if len(set(mixtures.values())) > 1:
        found = ", ".join(f"{name}: {m.components} ({m.likelihood})" for name, m in mixtures.items())
        raise ValueError(f"all mixture families of a network need the same components and likelihood, got {found}")
    return next(iter(mixtures.values()), None)


def families_by_name(blocks: Blocks, problem: Problem) -> dict[str, Family]:
    """The family of every leaf, by path, in the order of the latent variables."""
    chosen = {i: block.family for block in blocks for i in block.leaves.indices}
    return {name: chosen[i] for i, name in enumerate(problem.leaf_names)}


def families_of(family: Family | Mapping[str, Family], problem: Problem) -> list[Family]:
    """The family of every latent. A likelihood's own latents are mean-field unless a pattern names them."""
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
