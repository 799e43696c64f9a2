"""Batches of examples with their weights: minibatches, the full batch, and weights of examples from their classes.

In minibatches each example comes once per epoch, in an order that depends on the key and the epoch only.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from posteriax._internal.checks import check_targets
from posteriax._internal.memory import Inputs as Inputs

Array = Any  # of NumPy on the host, of JAX in a compiled program
Data = tuple[Inputs, ArrayLike]  # (x, y) as users give it


class Examples(NamedTuple):
    """A data set: inputs, targets, and how many examples each counts as; without weights, one each."""

    x: Inputs
    y: Array
    weight: Array | None = None


class Batch(NamedTuple):
    """Examples, and how many examples of the data set each stands for: 1 in the full set, N / B in a minibatch, times
    the example's own weight if it has one."""

    x: Inputs
    y: Array
    weight: Array


@dataclass(frozen=True)
class Minibatches:
    """K batches per epoch whose sizes differ by at most one, padded to the same shape with examples of weight 0.

    Each example has weight K, so the estimates of a sum over the data average to the exact sum over an epoch, whether
    or not the batch size divides N. (K is N / B if it does.)

    >>> Minibatches.of(10, 4)
    Minibatches(num_examples=10, per_epoch=3, size=4)
    """

    num_examples: int
    per_epoch: int
    size: int

    @classmethod
    def of(cls, num_examples: int, batch_size: int) -> "Minibatches":
        per_epoch = -(-num_examples // batch_size)
        return cls(num_examples, per_epoch, -(-num_examples // per_epoch))

    def order(self, key: jax.Array, epoch: int | jax.Array) -> jax.Array:
        """The indices of the examples in each batch of an epoch, (K, size)."""
        order = jax.random.permutation(jax.random.fold_in(key, epoch), self.num_examples)
        padded = jnp.resize(order, (self.per_epoch * self.size,)).astype(jnp.int32)
        return padded.reshape(self.size, self.per_epoch).T  # spreads the padding over batches

    def take(self, data: Examples | tuple[Inputs, Array], order: jax.Array, index: int | jax.Array) -> Batch:
        """Batch number `index` of the epoch with this order."""
        rows = order[index]
        x, y, example_weight = jax.tree.map(lambda a: a[rows], Examples(*data))
        weight = jnp.asarray(self.weights())[index]
        return Batch(x, y, weight if example_weight is None else weight * example_weight)

    def weights(self) -> np.ndarray:
        """The weight of each row of each batch, (K, size): K, or 0 for padding."""
        real = np.arange(self.per_epoch * self.size) < self.num_examples
        return (self.per_epoch * real.astype(np.float32)).reshape(self.size, self.per_epoch).T


def full_batch(data: Examples | tuple[Inputs, Array], parts: int = 1) -> Batch:
    """All examples with their own weight, 1 if they have none; the last one is repeated with weight 0 until `parts`
    divides their number."""
    x, y, example_weight = Examples(*data)
    n = len(y)
    weight = np.ones(n, np.float32) if example_weight is None else example_weight
    missing = -n % parts
    if not missing:
        return Batch(x, y, weight)
    rows = np.minimum(np.arange(n + missing), n - 1)
    x, y = jax.tree.map(lambda a: a[rows], (x, y))
    return Batch(x, y, np.append(weight, np.zeros(missing, np.float32)))


def class_weights(y: ArrayLike, weights: Mapping[int, float] | str = "balanced") -> np.ndarray:
    """The weight of every example, from its class, for ``px.fit(problem, (x, y, weight), ...)``.

    Args:
        y: labels, (N,).
        weights: a weight for each class; or "balanced", ``N / (K n_c)`` for the n_c examples of each of K classes: all
            classes then count the same, and the weights sum to N.

    >>> class_weights([0, 0, 0, 1])
    array([0.6666667, 0.6666667, 0.6666667, 2.       ], dtype=float32)
    >>> class_weights([0, 0, 0, 1], {0: 1, 1: 5})
    array([1., 1., 1., 5.], dtype=float32)
    """
    labels = check_targets(y)
    if labels.ndim != 1 or not len(labels) or labels.dtype.kind not in "biu":
        raise ValueError(f"y must be whole-number labels of shape (N,), got {labels.dtype} of shape {labels.shape}")
    classes, class_of_example, counts = np.unique(labels, return_inverse=True, return_counts=True)
    if isinstance(weights, Mapping):
        missing = [int(label) for label in classes if label not in weights]
        if missing:
            raise ValueError(f"weights has no weight for the class {missing[0]}; y has {len(classes)} classes")
        per_class = np.array([weights[int(label)] for label in classes], np.float64)
    elif weights == "balanced":
        per_class = len(labels) / (len(classes) * counts)
    else:
        raise ValueError(f'weights must be "balanced" or a dictionary by class, got {weights!r}')
    return per_class[class_of_example].astype(np.float32)
