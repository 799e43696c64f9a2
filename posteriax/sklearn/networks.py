"""The network of an estimator: a multilayer perceptron by its sizes, or one that the user brings."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from posteriax.zoo import MLP

MANY_ROWS = 2000  # from which there are two hidden layers, of 64 units each
WIDE = 128  # units of a single hidden layer: chains of fewer settle in different functions (docs/decisions, reference)
ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "tanh": jnp.tanh,
    "relu": jax.nn.relu,
    "silu": jax.nn.silu,
    "gelu": jax.nn.gelu,
    "identity": lambda x: x,
    "logistic": jax.nn.sigmoid,
}


def make_mlp(inputs: int, outputs: int, hidden: Any, activation: str, rows: int, seed: int) -> MLP:
    """An MLP; without `hidden`, one layer of 128 units, or two of 64 for many rows.

    >>> [layer.weight.shape for layer in make_mlp(4, 3, (8,), "tanh", 100, 0).layers]
    [(4, 8), (8, 3)]
    """
    if activation not in ACTIVATIONS:
        raise ValueError(f"activation must be one of {', '.join(ACTIVATIONS)}, got {activation!r}")
    if hidden is None:
        hidden = (64, 64) if rows >= MANY_ROWS else (WIDE,)
    sizes = (hidden,) if isinstance(hidden, int) else tuple(hidden)
    return MLP((inputs, *sizes, outputs), activation=ACTIVATIONS[activation], key=jax.random.key(seed))
