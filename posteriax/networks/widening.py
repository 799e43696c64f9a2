"""A network with more outputs: copies of its last layer on the same features, which are computed once.

outputs = [f(x; features, head_1), ..., f(x; features, head_K)], the first `outputs` of them
"""

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp

from posteriax._internal.leaf_paths import leaf_paths
from posteriax.networks.adapters.adapter import Inputs, OptionalKey, Outputs, Params
from posteriax.networks.network import Network
from posteriax.networks.tracing.program import spec_of_example


@dataclass(frozen=True)
class Widening:
    """What to copy.

    Args:
        head: the paths of the leaves of the last layer.
        copies: how many there are of each.
        outputs: how many outputs per example are kept.
    """

    head: tuple[str, ...]
    copies: int
    outputs: int

    def apply_to(self, net: Network) -> Network:
        """The wider network: leaves of the head have a leading axis of copies, with the same values in all.

        >>> weights = {"a": jnp.ones((3, 4)), "b": jnp.ones((4, 1))}
        >>> net = Network(lambda w, x, *, key=None: jnp.tanh(x @ w["a"]) @ w["b"], weights)
        >>> wide = widening_for(net, jnp.ones((2, 3)), 3).apply_to(net)
        >>> wide.apply(wide.params, jnp.ones((5, 3))).shape, wide.params["a"].shape, wide.params["b"].shape
        ((5, 3), (3, 4), (3, 4, 1))
        """
        structure = jax.tree.structure(net.params)
        in_head = [path in self.head for path in leaf_paths(net.params)]
        axes = jax.tree.unflatten(structure, [0 if copied else None for copied in in_head])
        leaves = [
            jnp.broadcast_to(leaf, (self.copies, *leaf.shape)) if copied else leaf
            for leaf, copied in zip(jax.tree.leaves(net.params), in_head, strict=True)
        ]

        def apply(params: Params, x: Inputs, *, key: OptionalKey = None) -> Outputs:
            copies = jax.vmap(lambda w: net.apply(w, x, key=key), in_axes=(axes,))(params)
            copies = copies.reshape(*copies.shape[:2], -1)
            return jnp.concatenate(list(copies), axis=-1)[:, : self.outputs]

        return replace(net, apply=apply, params=jax.tree.unflatten(structure, leaves), axes=None, source=None)


def widening_for(net: Network, x: Inputs, outputs: int) -> Widening | None:
    """How to give a network so many outputs per example; None if it has as many.

    The last layer is the last matrix that is combined with data, and all leaves that come after it.
    """
    spec = jax.eval_shape(net.apply, net.params, jax.tree.map(lambda a: jnp.asarray(a[:2]), x))
    given = max(spec.size // spec.shape[0], 1)
    if given == outputs and len(spec.shape) == 2:
        return None
    paths, leaves = leaf_paths(net.params), jax.tree.leaves(net.params)
    last_use = _last_uses(net, x)
    matrices = [i for i, leaf in enumerate(leaves) if leaf.ndim >= 2 and i in last_use]
    if not matrices:
        raise ValueError("the network has no last layer to copy: give a network with the outputs that are needed, net=")
    begin = max(last_use[i] for i in matrices)
    head = tuple(path for i, path in enumerate(paths) if last_use.get(i, -1) >= begin)
    return Widening(head, -(-outputs // given), outputs)


def _last_uses(net: Network, x: Inputs) -> dict[int, int]:
    """By the number of each leaf, the last step of the program that combines it with data."""
    program = net.programs.for_any_size(spec_of_example(x))
    leaves = {slot: frozenset([i]) for i, slot in enumerate(program.inputs[: len(jax.tree.leaves(net.params))])}
    from_data: set[Any] = set(program.inputs[len(leaves) : -1])
    uses: dict[int, int] = {}
    for number, step in enumerate(program.steps):
        used: frozenset[int] = frozenset().union(*(leaves.get(slot, frozenset()) for slot in step.inputs))
        if from_data.isdisjoint(step.inputs):
            leaves.update(dict.fromkeys(step.outputs, used))
        else:
            from_data.update(step.outputs)
            uses |= dict.fromkeys(used, number)
    return uses
