"""Fixed leaves: only some leaves of a network are inferred; the others are constants, such as a pre-trained part.

The params of such a network are the full pytree with None in place of the fixed leaves: paths stay the same, and
computations with params cost only as much as the inferred leaves.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from numpy.typing import ArrayLike

from posteriax._internal.leaf_paths import choose_by_path, describe_leaves, leaf_paths
from posteriax.networks.adapters.adapter import Inputs, OptionalKey, Outputs
from posteriax.networks.tracing.fixed_part import Features

if TYPE_CHECKING:
    from posteriax.networks.network import Network, Params

ALL_BUT = "!"


@dataclass(frozen=True, eq=False)
class FixedLeaves:
    """Which leaves of a network are fixed.

    Args:
        patterns: as given by the user.
        full_network: the network with all of its leaves.
        is_fixed: for each of these leaves, in flattening order.
    """

    patterns: tuple[str, ...]
    full_network: "Network"
    is_fixed: tuple[bool, ...]

    @property
    def values(self) -> "Params":
        """The fixed leaves, by path."""
        params = self.full_network.params
        leaves = zip(leaf_paths(params), jax.tree.leaves(params), self.is_fixed, strict=True)
        return {path: leaf for path, leaf, fixed in leaves if fixed}

    def fill(self, params: "Params", leading: tuple[int, ...] = ()) -> "Params":
        """All leaves of the network, from those that are inferred; unchanged if `params` has all of them.

        Args:
            params: the leaves that are inferred.
            leading: axes that they have in front of their own, such as draws. Fixed leaves get them as well, as
                read-only views of one copy.
        """
        structure: Any = jax.tree.structure(self.full_network.params)
        if structure == jax.tree.structure(params):
            return params
        inferred = iter(jax.tree.leaves(params))
        leaves = zip(jax.tree.leaves(self.full_network.params), self.is_fixed, strict=True)
        filled = [_spread(leaf, leading) if fixed else next(inferred) for leaf, fixed in leaves]
        return jax.tree.unflatten(structure, filled)

    def restrict(self, params: "Params") -> "Params":
        """Only the leaves that are inferred, from all; unchanged if `params` has no others."""
        structure: Any = jax.tree.structure(self.full_network.params)
        if structure != jax.tree.structure(params):
            return params
        every = zip(jax.tree.leaves(params), self.is_fixed, strict=True)
        return jax.tree.unflatten(structure, [None if fixed else leaf for leaf, fixed in every])


def fix_leaves(net: "Network", patterns: str | Sequence[str]) -> "Network":
    """The network with the leaves that match the patterns as constants.

    Args:
        net: the network.
        patterns: one or several. The most specific one decides for each leaf; one that starts with "!" says what is not
            fixed. Given only such patterns, all other leaves are fixed.
    """
    chosen = as_patterns(patterns)
    if net.fixed is not None and (not chosen or net.fixed.patterns == chosen):
        return net
    net = net if net.fixed is None else net.fixed.full_network
    if not chosen:
        return net
    rules = {pattern.removeprefix(ALL_BUT): not pattern.startswith(ALL_BUT) for pattern in chosen}
    lines = describe_leaves(net.params)
    is_fixed = choose_by_path({"**": not any(rules.values())} | rules, leaf_paths(net.params), "fixed", leaves=lines)
    if all(is_fixed):
        raise ValueError(f"fixed={list(chosen)} matches every leaf, so there is nothing to infer: {', '.join(lines)}")
    fixed = FixedLeaves(chosen, net, tuple(is_fixed))

    def apply(params: "Params", x: Inputs, *, key: OptionalKey = None) -> Outputs:
        if isinstance(x, Features):
            return x.part.outputs(fixed.restrict(params), x, key)
        return net.apply(fixed.fill(params), x, key=key)

    known = net.batch_statistics
    statistics = known and known._replace(
        measure=lambda params, x: known.measure(fixed.fill(params), x),
        apply=lambda params, statistics, x: known.apply(fixed.fill(params), statistics, x),
    )
    axes = net.axes and tuple(leaf_axes for leaf_axes, fixed in zip(net.axes, is_fixed, strict=True) if not fixed)
    params = fixed.restrict(net.params)
    return replace(net, apply=apply, params=params, batch_statistics=statistics, axes=axes, fixed=fixed)


def as_patterns(patterns: Any) -> tuple[str, ...]:
    """The patterns as a tuple, checked."""
    given = tuple(patterns) if isinstance(patterns, list | tuple) else (patterns,)
    wrong = [pattern for pattern in given if not isinstance(pattern, str) or not pattern.removeprefix(ALL_BUT)]
    if wrong:
        raise TypeError(f'fixed must be a pattern of paths such as "encoder/**", or several, got {wrong[0]!r}')
    return given


def _spread(leaf: ArrayLike, leading: tuple[int, ...]) -> ArrayLike:
    return np.broadcast_to(np.asarray(leaf), (*leading, *np.shape(leaf))) if leading else leaf
