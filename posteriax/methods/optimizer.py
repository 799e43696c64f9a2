"""One step of an Optax optimiser, for all methods that optimise."""

from typing import Any

import jax
import optax


def optimizer_for(optimizer: optax.GradientTransformation | None, steps: int) -> optax.GradientTransformation:
    """The user's optimiser, or Adam with a step size that falls to 0: noise then leaves no trace in the result."""
    return optimizer or optax.adam(optax.cosine_decay_schedule(3e-3, max(steps, 1)))


def optimize(optimizer: optax.GradientTransformation, gradient: Any, params: Any, state: Any) -> tuple[Any, Any]:
    """New params and optimiser state.

    The barriers change no value. Without them XLA computes the gradient (and the noise in it) again for each of the
    arrays that the optimiser updates, and copies the whole state because those updates read each other's old values.
    """
    gradient = jax.lax.optimization_barrier(gradient)
    updates, state = jax.lax.optimization_barrier(optimizer.update(gradient, state, params))
    return optax.apply_updates(params, updates), state
