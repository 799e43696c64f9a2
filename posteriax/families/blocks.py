"""Blocks: the leaves that one q covers. Usually a single leaf; a joint family covers all its leaves as one vector.

Leaves that do not suit the family requested for them.
"""

import math
from collections.abc import Container, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from posteriax.families.family import Family
from posteriax.networks.leaf import Leaf


class Block(NamedTuple):
    """One q.

    Args:
        name: the path of its leaf, or of its first leaf.
        info: the leaf as the family sees it; for a joint family, a vector of all weights.
        family: the family.
        indices: which of the latent variables it covers.
        shapes: their shapes.
    """

    name: str
    info: Leaf
    family: Family
    indices: tuple[int, ...]
    shapes: tuple[tuple[int, ...], ...]

    def join(self, leaves: Sequence[Any]) -> Any:
        """The leaves of this block, out of all latent variables, as the family sees them."""
        own = [leaves[i] for i in self.indices]
        return jnp.concatenate([leaf.reshape(-1) for leaf in own]) if self.family.joint else own[0]

    def split(self, value: Any) -> list[Any]:
        """The inverse of `join`: the block's leaves."""
        if not self.family.joint:
            return [value]
        ends = np.cumsum([math.prod(shape) for shape in self.shapes])[:-1]
        return [flat.reshape(shape) for flat, shape in zip(jnp.split(value, ends), self.shapes, strict=True)]

    def prior(self, priors: Sequence[dist.Distribution]) -> dist.Distribution:
        """The prior of the block, as the family sees it."""
        own = [priors[i] for i in self.indices]
        if not self.family.joint:
            return own[0]
        bases = [prior.base_dist if isinstance(prior, dist.ExpandedDistribution) else prior for prior in own]
        if all(isinstance(base, dist.Normal) for base in bases):
            return dist.Normal(*(self._spread([getattr(base, name) for base in bases]) for name in ("loc", "scale")))
        return _Joined(self, own)

    def _spread(self, values: list[Any]) -> jax.Array:
        pairs = zip(values, self.shapes, strict=True)
        return jnp.concatenate([jnp.broadcast_to(value, shape).reshape(-1) for value, shape in pairs])


class _Joined(dist.Distribution):
    """The priors of several leaves as one distribution over their concatenation."""

    def __init__(self, block: Block, priors: list[dist.Distribution]):
        self.block, self.priors = block, priors
        super().__init__(event_shape=block.info.shape)

    def log_prob(self, value: jax.Array) -> jax.Array:
        leaves = self.block.split(value)
        return sum((prior.log_prob(leaf).sum() for prior, leaf in zip(self.priors, leaves, strict=True)), jnp.zeros(()))


def blocks_of(families: Sequence[Family], leaves: Sequence[Leaf]) -> tuple[Block, ...]:
    """The blocks of all leaves, given the family of each. Leaves with equal joint families share a block."""
    groups: dict[Any, list[int]] = {}
    for i, (family, leaf) in enumerate(zip(families, leaves, strict=True)):
        groups.setdefault(family if family.joint else leaf.path, []).append(i)
    blocks = []
    for indices in groups.values():
        own = [leaves[i] for i in indices]
        family, info = families[indices[0]], own[0]
        if family.joint:
            info = Leaf(info.path, (sum(math.prod(leaf.shape) for leaf in own),), info.out_axis)
        else:
            family = family.for_leaf(info)
        blocks.append(Block(info.path, info, family, tuple(indices), tuple(leaf.shape for leaf in own)))
    return tuple(blocks)


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
