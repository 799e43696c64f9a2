"""A posterior given by variational parameters."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from posteriax._internal import cpu_tuning
from posteriax.families.blocks import Block, blocks_of
from posteriax.families.family import Family, Variational
from posteriax.networks.network import Params
from posteriax.posterior.posterior import Posterior
from posteriax.problem import Latents


@dataclass(frozen=True, eq=False, repr=False)
class VariationalPosterior(Posterior):
    """A posterior given by variational parameters; an even mixture if there are several members.

    Args:
        families: the family of every leaf, by path.
        variational: the parameters of every block of leaves, by the path of its first leaf, with a leading axis of
            members.
    """

    families: dict[str, Family]
    variational: dict[str, Variational]

    @property
    def members(self) -> int:
        return jax.tree.leaves(self.variational)[0].shape[0]

    @property
    def components(self) -> int:
        """How many components each member has: 1 unless its families form a mixture."""
        return max(family.components or 1 for family in self.families.values())

    @property
    def blocks(self) -> tuple[Block, ...]:
        return blocks_of(tuple(self.families.values()), self.problem.leaf_infos)

    @property
    def support(self) -> int | None:
        has_no_limit = any(family.random for family in self.families.values())
        return None if has_no_limit else self.members * self.components

    @property
    def template(self) -> Latents:
        draws = jax.eval_shape(lambda: self.draw(jax.random.key(0), np.arange(1), 1))
        return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), draws)

    @property
    def mean(self) -> Params:
        means = jax.tree.map(lambda leaf: leaf.mean(axis=0), self.member_means())
        return self.problem.network.all_params(means.network)

    def member_means(self) -> Latents:
        """The mean of every member, in a leading axis."""
        means: list[Any] = [None] * len(self.families)
        for block in self.blocks:
            joined = jax.vmap(block.family.mean)(self.variational[block.name])
            for i, leaf in zip(block.indices, jax.vmap(block.split)(joined), strict=True):
                means[i] = leaf
        return jax.tree.unflatten(jax.tree.structure(self.problem.latents), means)

    @property
    def num_parameters(self) -> int:
        return sum(leaf.size for leaf in jax.tree.leaves(self.variational))

    def draw(self, key: jax.Array, indices: np.ndarray, total: int) -> Latents:
        # draws cycle through the members, then through the components of each
        members, components = indices % self.members, indices // self.members % self.components
        choices = (jnp.asarray(choice) for choice in (indices, members, components))
        variational = {block.name: self.variational[block.name] for block in self.blocks}
        # inside a program of the user's, compiler options are that program's
        inside = isinstance(jnp.zeros(()), jax.core.Tracer)
        leaves = _jitted_draw(None if inside else cpu_tuning.default_platform())(
            self.blocks, variational, key, *choices
        )
        return jax.tree.unflatten(jax.tree.structure(self.problem.latents), leaves)


@cache
def _jitted_draw(platform: str | None) -> Callable[..., list[Any]]:
    """`_draw_leaves`, with compiler options for a platform if it is a program of its own."""
    options = None if platform is None else cpu_tuning.options_for_steps(platform)
    return jax.jit(_draw_leaves, static_argnums=0, compiler_options=options)


def _draw_leaves(
    blocks: tuple[Block, ...],
    variational: dict[str, Variational],
    key: jax.Array,
    indices: jax.Array,
    members: jax.Array,
    components: jax.Array,
) -> list[Any]:
    """For every index, that draw of every leaf, from its member and component."""

    def draw(index: jax.Array, member: jax.Array, component: jax.Array) -> list[Any]:
        keys = jax.random.split(jax.random.fold_in(key, index), len(blocks))
        drawn: dict[int, Any] = {}
        for block, block_key in zip(blocks, keys, strict=True):
            member_parameters = jax.tree.map(lambda leaf: leaf[member], variational[block.name])
            value = block.family.sample(block.family.component(member_parameters, component), block_key)
            drawn |= dict(zip(block.indices, block.split(value), strict=True))
        return [drawn[i] for i in range(len(drawn))]

    return cpu_tuning.with_fast_operations(jax.vmap(draw))(indices, members, components)
