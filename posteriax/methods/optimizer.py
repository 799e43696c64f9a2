"""One step of an Optax optimiser, for all methods that optimise."""

from typing import Any

import optax


def optimizer_for(optimizer: optax.GradientTransformation | None, steps: int) -> optax.GradientTransformation:
    """The user's optimiser, or Adam with a step size that falls to 0: noise then leaves no trace in the result."""
    return optimizer or optax.adam(optax.cosine_decay_schedule(3e-3, max(steps, 1)))


def optimize(optimizer: optax.GradientTransformation, gradient: Any, params: Any, state: Any) -> tuple[Any, Any]:
    """New params and optimiser state."""
    updates, state = optimizer.update(gradient, state, params)
    return optax.apply_updates(params, updates), state
