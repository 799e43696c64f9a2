"""The warm-up of samplers with an accept step: a step size by dual averaging, and masses from draws and gradients.

When the masses are estimated anew, the step size belongs to the old ones, and its search begins again. Both stay as
they are once the warm-up is over. (Hoffman and Gelman 2014, section 3.2)
"""

from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from posteriax.methods.sampling.masses import Correlated, Diagonal, LearnedMasses

if TYPE_CHECKING:
    from blackjax.adaptation.step_size import DualAveragingAdaptationState
    from blackjax.base import AdaptationAlgorithm


class WarmUpState(NamedTuple):
    """What the warm-up has found so far."""

    step_size: "DualAveragingAdaptationState"
    masses: Diagonal | Correlated | None  # None if they come from the priors
    step: jax.Array


@dataclass(frozen=True, kw_only=True)
class WarmUp:
    """How step size and masses are found.

    Args:
        steps: how many transitions it takes.
        first: the step size to begin with.
        adapts_step_size: or whether `first` is used throughout.
        target_acceptance: the acceptance rate that the step size is adapted to.
        masses: how they are learned; None if they are not.
    """

    steps: int
    first: float
    adapts_step_size: bool
    target_acceptance: float
    masses: LearnedMasses | None

    @cached_property
    def _dual_averaging(self) -> "AdaptationAlgorithm":
        from blackjax.adaptation.step_size import dual_averaging_adaptation

        return dual_averaging_adaptation(self.target_acceptance)

    def _first_step_size(self) -> "DualAveragingAdaptationState":
        init, *_ = self._dual_averaging
        # float32 whatever the precision of the weights: a step size needs no more
        reals = lambda a: jnp.float32 if jnp.issubdtype(jnp.result_type(a), jnp.floating) else jnp.int32  # noqa: E731
        return jax.tree.map(lambda a: jnp.asarray(a, reals(a)), init(self.first))

    def start(self, variances: PyTree) -> WarmUpState:
        """Before the first transition; `variances` are a first guess at those of the weights."""
        masses = None if self.masses is None else self.masses.start(variances)
        return WarmUpState(self._first_step_size(), masses, jnp.zeros((), jnp.int32))

    def step_size(self, adapted: WarmUpState) -> jax.Array:
        """Of the next transition."""
        if not self.adapts_step_size:
            return jnp.asarray(self.first, jnp.float32)
        averaging = adapted.step_size
        return jnp.exp(jnp.where(adapted.step < self.steps, averaging.log_step_size, averaging.log_step_size_avg))

    def learn(self, adapted: WarmUpState, acceptance: jax.Array, position: PyTree, gradient: PyTree) -> WarmUpState:
        """After a transition that led to `position`, where the log joint has this gradient."""
        step_size, masses = adapted.step_size, adapted.masses
        if self.adapts_step_size:
            _, update, _ = self._dual_averaging
            step_size = update(step_size, acceptance)
        if self.masses is not None and masses is not None:
            masses = self.masses.learn(masses, adapted.step, position, gradient)
            if self.adapts_step_size:
                renewed = self.masses.renews(adapted.step)
                step_size = jax.tree.map(partial(jnp.where, renewed), self._first_step_size(), step_size)
        warming = adapted.step < self.steps
        step_size, masses = jax.tree.map(
            lambda new, old: jnp.where(warming, new, old).astype(old.dtype),
            (step_size, masses),
            (adapted.step_size, adapted.masses),
        )
        return WarmUpState(step_size, masses, adapted.step + 1)
