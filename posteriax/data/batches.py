"""Minibatches: every example once an epoch, in an order that only the key and the epoch decide."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


class Batch(NamedTuple):
    """Examples, and how many examples of the data set each stands for: 1 in the full set, N / B in a minibatch."""

    x: Any
    y: Any
    weight: Any


@dataclass(frozen=True)
class Minibatches:
    """K batches an epoch whose sizes differ by at most one, padded to one shape with examples of weight 0.

    An example in a batch has the weight K, so that the batches' estimates of a sum over the data average to the exact
    sum over an epoch, whether or not the batch size divides N. (K is N / B where it does.)

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

    def order(self, key: jax.Array, epoch: Any) -> jax.Array:
        """The examples of every batch of an epoch, (K, size)."""
        order = jax.random.permutation(jax.random.fold_in(key, epoch), self.num_examples)
        padded = jnp.resize(order, (self.per_epoch * self.size,)).astype(jnp.int32)
        return padded.reshape(self.size, self.per_epoch).T  # the padding falls on different batches

    def take(self, data: tuple[Any, Any], order: jax.Array, index: Any) -> Batch:
        """Batch number `index` of the epoch with this order."""
        rows = order[index]
        x, y = jax.tree.map(lambda a: a[rows], data)
        return Batch(x, y, jnp.asarray(self.weights())[index])

    def weights(self) -> np.ndarray:
        """How many examples each place of each batch stands for, (K, size): K, or 0 for padding."""
        real = np.arange(self.per_epoch * self.size) < self.num_examples
        return (self.per_epoch * real.astype(np.float32)).reshape(self.size, self.per_epoch).T


def full_batch(data: tuple[Any, Any], parts: int = 1) -> Batch:
    """All examples, each standing for itself; the last one repeated with weight 0 until `parts` divide their number."""
    n = len(data[1])
    weight = np.ones(n, np.float32)
    missing = -n % parts
    if not missing:
        return Batch(*data, weight)
    rows = np.minimum(np.arange(n + missing), n - 1)
    x, y = jax.tree.map(lambda a: a[rows], data)
    return Batch(x, y, np.append(weight, np.zeros(missing, np.float32)))
