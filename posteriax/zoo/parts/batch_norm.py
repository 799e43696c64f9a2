"""Batch normalisation, channels-last."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp


class BatchNorm(eqx.Module):
    """Equinox's batch normalisation for arrays with their channels last.

    It keeps running statistics in a state, so networks with it are pairs ``(network, state)``, as
    ``eqx.nn.make_with_state`` makes them.

    Args:
        momentum: the share of the old running statistics that one batch keeps.
        epsilon: added to the variance; PyTorch's default here, Keras's is 1e-3.
    """

    norm: eqx.nn.BatchNorm

    def __init__(self, channels: int, *, momentum: float = 0.9, epsilon: float = 1e-5):
        self.norm = eqx.nn.BatchNorm(channels, "batch", eps=epsilon, momentum=momentum, mode="batch")

    def __call__(self, x: jax.Array, state: Any) -> tuple[jax.Array, Any]:
        y, state = self.norm(jnp.moveaxis(x, -1, 0), state)
        return jnp.moveaxis(y, 0, -1), state
