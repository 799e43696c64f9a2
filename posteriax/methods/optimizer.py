"""Optax optimisers as methods use them."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import optax

from posteriax._internal import cpu_tuning
from posteriax.families import Family

SMALL = 4096  # entries; smaller leaves are worth copying


class FamilyOptimizer(ABC):
    """An optimiser for :class:`px.VI` whose steps depend on the families of what it optimises."""

    @abstractmethod
    def for_families(self, families: Mapping[str, Family]) -> optax.GradientTransformation:
        """The optimiser of a dictionary of variational parameters by block, given the blocks' families."""

    @property
    def init(self) -> Any:
        raise TypeError(
            f"{type(self).__name__} needs the families: pass it directly as the optimizer of px.VI, not of another "
            f"method or within optax.chain"
        )


def falling_adam(steps: int) -> optax.GradientTransformation:
    """Adam with a learning rate that decays to 0, so that gradient noise averages out of the result."""
    return pack_small_leaves(optax.adam(optax.cosine_decay_schedule(3e-3, max(steps, 1))))


def optimize(optimizer: optax.GradientTransformation, gradient: Any, params: Any, state: Any) -> tuple[Any, Any]:
    """One step: new params and optimiser state."""
    updates, state = optimizer.update(gradient, state, params)
    return optax.apply_updates(params, updates), state


def pack_small_leaves(optimizer: optax.GradientTransformation) -> optax.GradientTransformation:
    """Wrap an elementwise optimiser so that it sees all small leaves of a dtype as one vector.

    Every leaf costs a few compiled kernels: packed, a small network compiles a second faster.
    """

    if cpu_tuning.is_switched_off(cpu_tuning.PACKED_LEAVES):
        return optimizer

    def init(params: Any) -> Any:
        return optimizer.init(_pack(params))

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        packed, state = optimizer.update(_pack(updates), state, None if params is None else _pack(params))
        return _unpack(packed, updates), state

    return optax.GradientTransformation(init, update)


def _pack(tree: Any) -> dict[str, Any]:
    leaves = jax.tree.leaves(tree)
    packed: dict[str, Any] = {str(i): leaf for i, leaf in enumerate(leaves) if leaf.size > SMALL}
    for dtype in {leaf.dtype: None for leaf in leaves if leaf.size <= SMALL}:
        small = [leaf.reshape(-1) for leaf in leaves if leaf.size <= SMALL and leaf.dtype == dtype]
        packed[f"small {dtype}"] = jnp.concatenate(small)
    return packed


def _unpack(packed: dict[str, Any], like: Any) -> Any:
    leaves, treedef = jax.tree.flatten(like)
    unpacked, taken = [], dict.fromkeys(packed, 0)
    for i, leaf in enumerate(leaves):
        if leaf.size > SMALL:
            unpacked.append(packed[str(i)])
            continue
        name = f"small {leaf.dtype}"
        first, taken[name] = taken[name], taken[name] + math.prod(leaf.shape)
        unpacked.append(packed[name][first : taken[name]].reshape(leaf.shape))
    return jax.tree.unflatten(treedef, unpacked)
