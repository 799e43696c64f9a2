"""Sources of a run's data: arrays on the device, arrays in host memory or on disk, or a user's loader.

Small data live on the device, where each step takes its batch. Data larger than `RESIDENT_BYTES`, and memory maps, stay
where they are: the batches for a chunk of steps are gathered on the host and transferred together. A loader (anything
with a length that can be iterated once per epoch) provides its own batches.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import jax
import numpy as np

from posteriax._internal.memory import RESIDENT_BYTES
from posteriax.data.batches import Array, Batch, Examples, Inputs, Minibatches
from posteriax.data.target_scale import TargetMoments


def is_large(x: Inputs) -> bool:
    """Whether data should stay on the host."""
    leaves = jax.tree.leaves(x)
    return any(isinstance(leaf, np.memmap) for leaf in leaves) or sum(leaf.nbytes for leaf in leaves) > RESIDENT_BYTES


@dataclass(frozen=True, eq=False)
class HostArrays:
    """Batches gathered from host arrays or memory maps, in the same order as for data on the device.

    Members of an ensemble share one order, so that each batch is transferred once.
    """

    data: Examples | tuple[Inputs, Array]
    minibatches: Minibatches
    key: jax.Array
    rows: slice = field(default_factory=lambda: slice(None))  # the part of every batch that is read

    @property
    def per_epoch(self) -> int:
        return self.minibatches.per_epoch

    def batches(self, first: int, last: int) -> Iterator[Batch]:
        """The batches of steps `first` to `last`."""
        order, epoch = np.zeros(0), -1
        weights = self.minibatches.weights()
        for step in range(first, last):
            if step // self.per_epoch != epoch:
                epoch = step // self.per_epoch
                order = np.asarray(self.minibatches.order(self.key, epoch))
            index = step % self.per_epoch
            arrange = np.argsort(order[index], kind="stable")[self.rows]  # sorted, to read a memory map sequentially
            rows = order[index][arrange]
            x, y, example_weight = jax.tree.map(lambda a, rows=rows: np.asarray(a[rows]), Examples(*self.data))
            weight = weights[index][arrange]
            yield Batch(x, y, weight if example_weight is None else weight * example_weight)


@dataclass(frozen=True, eq=False)
class Loader:
    """A user's loader: ``len(loader)`` batches ``(x, y)`` or ``(x, y, weight)`` per epoch, iterated once per epoch.

    Each example has weight ``len(loader)``, times its own, so the batches of an epoch average to the exact sum. The
    first batch sets the size; smaller ones are padded. A loader that shuffles should depend on the epoch alone, through
    ``set_epoch(epoch)`` if it has that method, so that a resumed run sees the same batches.
    """

    loader: Any
    check: Callable[[Any], Examples]  # checks one batch, as the problem does
    size: int
    rows: slice = field(default_factory=lambda: slice(None))  # the part of every batch that is kept

    @property
    def per_epoch(self) -> int:
        return len(self.loader)

    def target_moments(self) -> Iterator[TargetMoments]:
        """The moments of each batch's targets, in one pass over the loader."""
        if hasattr(self.loader, "set_epoch"):
            self.loader.set_epoch(0)
        for pair in islice(self.loader, self.per_epoch):
            examples = self.check(pair)
            yield TargetMoments.from_targets(examples.y, examples.weight)

    def batches(self, first: int, last: int) -> Iterator[Batch]:
        """The batches of steps `first` to `last`."""
        step = first
        while step < last:
            epoch, skip = divmod(step, self.per_epoch)
            if hasattr(self.loader, "set_epoch"):
                self.loader.set_epoch(epoch)
            seen = 0
            for index, pair in enumerate(self.loader):
                seen = index + 1
                if index < skip:
                    continue
                if step == last:
                    return
                yield self._padded(self.check(pair))
                step += 1
            if seen < self.per_epoch:
                raise ValueError(f"the loader has length {self.per_epoch}, but yielded {seen} batches")

    def _padded(self, data: Examples) -> Batch:
        n = len(data.y)
        if n > self.size:
            raise ValueError(f"the loader yielded a batch of {n} examples, but its first batch had {self.size}")
        rows = np.arange(self.size)[self.rows]
        x, y, example_weight = jax.tree.map(lambda a: np.asarray(a)[np.minimum(rows, n - 1)], data)
        weight = np.where(rows < n, self.per_epoch, 0).astype(np.float32)
        return Batch(x, y, weight if example_weight is None else weight * example_weight)


def is_loader(data: Any) -> bool:
    """Whether `data` is a loader of batches, rather than a pair of arrays or something else.

    >>> x, y = np.zeros((4, 3)), np.zeros(4)
    >>> is_loader([x, y]), is_loader([(x, y), (x, y)])
    (False, True)
    """
    if isinstance(data, list) and data:
        return all(isinstance(batch, tuple) and len(batch) in (2, 3) and np.ndim(batch[1]) for batch in data)
    other = isinstance(data, (tuple, list, dict, str, bytes)) or hasattr(data, "shape")
    return not other and hasattr(data, "__iter__") and hasattr(data, "__len__")


class Feed:
    """The batches of a source, stacked into chunks of steps; each chunk continues where the last one ended."""

    def __init__(self, source: HostArrays | Loader, capacity: int, total: int):
        self.source, self.capacity, self.total = source, capacity, total
        self._batches: Iterator[Batch] = iter(())
        self._next = -1

    def take(self, first: int, last: int) -> Batch:
        """The batches of steps `first` to `last` along a leading axis, padded to the capacity of a chunk."""
        if first != self._next:
            self._batches = self.source.batches(first, self.total)
        taken = [next(self._batches) for _ in range(first, last)]
        self._next = last
        filled = taken + [taken[-1]] * (self.capacity - len(taken))
        return jax.tree.map(lambda *parts: np.stack(parts), *filled)
