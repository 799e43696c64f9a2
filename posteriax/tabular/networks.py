"""A network that suits the data: a multilayer perceptron for a table, a small convolutional network for images.

Both are smooth (tanh, SiLU), as gradient-based samplers need. Estimators use the zoo's perceptron, whose layers may
have any widths. The command line uses Equinox's, because the files of saved posteriors name its leaves.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp

from posteriax.zoo.mlp import MLP

MANY_ROWS = 2000  # from which a table's network has two hidden layers
WIDE = 128  # units of a single hidden layer: chains of fewer settle in different functions (docs/decisions, reference)
ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "tanh": jnp.tanh,
    "relu": jax.nn.relu,
    "silu": jax.nn.silu,
    "gelu": jax.nn.gelu,
    "identity": lambda x: x,
    "logistic": jax.nn.sigmoid,
}


@dataclass(frozen=True)
class Architecture:
    """A network by its sizes, as a file can store it.

    Args:
        kind: "table" or "images".
        shape: of one example: (columns,), (h, w) or (h, w, c).
        outputs: classes, or 1.
        width: of a hidden layer, or of the first convolution.
        depth: hidden layers, or convolutions; each of these halves an image.
        activation: of a table's network, by its name.
        mean, scale: of pixels, which the network standardises images with.

    >>> Architecture("table", (4,), 3, width=16, depth=1).build(0)(jnp.ones(4)).shape
    (3,)
    """

    kind: Literal["table", "images"]
    shape: tuple[int, ...]
    outputs: int
    width: int
    depth: int
    activation: str = "tanh"
    mean: float = 0.0
    scale: float = 1.0

    def build(self, seed: int) -> eqx.Module:
        """The network, with starting weights from the seed."""
        key = jax.random.key(seed)
        if self.kind == "images":
            return ImageNetwork(self, key)
        activation = ACTIVATIONS[self.activation]
        return eqx.nn.MLP(self.shape[0], self.outputs, self.width, self.depth, activation=activation, key=key)


class ImageNetwork(eqx.Module):
    """Convolutions that halve the image, then one linear layer. Takes (h, w) or (h, w, c).

    >>> net = ImageNetwork(Architecture("images", (28, 28), 10, width=8, depth=3), jax.random.key(0))
    >>> net(jnp.ones((28, 28))).shape
    (10,)
    """

    convolutions: list[eqx.nn.Conv2d]
    linear: eqx.nn.Linear
    mean: float = eqx.field(static=True)
    scale: float = eqx.field(static=True)

    def __init__(self, architecture: Architecture, key: jax.Array):
        height, width, *channels = architecture.shape
        keys = jax.random.split(key, architecture.depth + 1)
        counts = [*(channels or [1]), architecture.width] + [2 * architecture.width] * (architecture.depth - 1)
        self.convolutions = [
            eqx.nn.Conv2d(before, after, 3, stride=2, padding=1, key=k)
            for before, after, k in zip(counts, counts[1:], keys, strict=False)
        ]
        for _ in self.convolutions:
            height, width = -(-height // 2), -(-width // 2)
        self.linear = eqx.nn.Linear(height * width * counts[-1], architecture.outputs, key=keys[-1])
        self.mean, self.scale = architecture.mean, architecture.scale

    def __call__(self, x: jax.Array) -> jax.Array:
        x = (x - self.mean) / self.scale
        x = x[None] if x.ndim == 2 else jnp.moveaxis(x, -1, 0)
        for convolution in self.convolutions:
            x = jax.nn.silu(convolution(x))
        return self.linear(x.reshape(-1))


def hidden_sizes(rows: int) -> tuple[int, ...]:
    """Units of each hidden layer of a perceptron for a table: one wide layer, or two of 64 units for many rows.

    >>> hidden_sizes(455), hidden_sizes(5000)
    ((128,), (64, 64))
    """
    return (64, 64) if rows >= MANY_ROWS else (WIDE,)


def choose_network(
    shape: tuple[int, ...], outputs: int, rows: int, mean: float = 0.0, scale: float = 1.0
) -> Architecture:
    """A network for examples of this shape; larger if there are many.

    >>> choose_network((30,), 2, rows=455).width, choose_network((28, 28), 10, rows=3000).depth
    (128, 3)
    """
    if len(shape) == 1:
        sizes = hidden_sizes(rows)
        return Architecture("table", shape, outputs, width=sizes[0], depth=len(sizes))
    halvings = max(1, math.ceil(math.log2(max(shape[:2]) / 4)))  # down to about 4 x 4
    return Architecture(
        "images", shape, outputs, width=16 if rows >= MANY_ROWS else 8, depth=min(halvings, 5), mean=mean, scale=scale
    )


def make_mlp(
    inputs: int, outputs: int, hidden: int | Sequence[int] | None, activation: str, rows: int, seed: int
) -> MLP:
    """An MLP of any sizes; without `hidden`, those of :func:`hidden_sizes`.

    >>> [layer.weight.shape for layer in make_mlp(4, 3, (8,), "tanh", 100, 0).layers]
    [(4, 8), (8, 3)]
    """
    if activation not in ACTIVATIONS:
        raise ValueError(f"activation must be one of {', '.join(ACTIVATIONS)}, got {activation!r}")
    hidden = hidden_sizes(rows) if hidden is None else hidden
    sizes = (hidden,) if isinstance(hidden, int) else tuple(hidden)
    return MLP((inputs, *sizes, outputs), activation=ACTIVATIONS[activation], key=jax.random.key(seed))
