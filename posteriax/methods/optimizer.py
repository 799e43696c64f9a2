"""Optax optimisers as methods use them."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import optax

from posteriax.families import Family


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
    return optax.adam(optax.cosine_decay_schedule(3e-3, max(steps, 1)))


def optimize(optimizer: optax.GradientTransformation, gradient: Any, params: Any, state: Any) -> tuple[Any, Any]:
    """One step: new params and optimiser state."""
    updates, state = optimizer.update(gradient, state, params)
    return optax.apply_updates(params, updates), state
