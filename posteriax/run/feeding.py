"""A run's data: checked first, then held on the devices or fed to them chunk by chunk."""

from dataclasses import replace
from functools import reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P
from jaxtyping import PyTree

from posteriax import distributed
from posteriax._internal.checks import check_count
from posteriax.data.batches import Batch, Examples, Minibatches, full_batch
from posteriax.data.sources import Feed, HostArrays, Loader, is_large, is_loader
from posteriax.data.target_scale import TargetMoments
from posteriax.methods.method import Method
from posteriax.problem import Inputs as Inputs
from posteriax.problem import Problem
from posteriax.run.layout import Part, local_part
from posteriax.run.program import DeviceData, Program, streams

DEFAULT_BATCH_SIZE = 64

TrainingData = Any  # (x, y), (x, y, weight), or a loader of either


class PreparedData(NamedTuple):
    """A run's data: as arrays for the device, or as a source of batches on the host."""

    arrays: Examples | None  # None for a loader
    source: HostArrays | Loader | None
    minibatches: Minibatches | None
    num_examples: int
    total_weight: float | None  # of the examples, if they have weights
    per_epoch: int
    sample: Batch  # a batch on the host, for its shapes and for tracing the network
    given: Examples | None = None  # as given, if `arrays` has what the fixed part of the network computes from x
    part_of_batches: Part | None = None  # that a loader yields in this process, if it was told to
    target_scale: float | None = None  # the targets' standard deviation, if the likelihood needs it


class Supply:
    """The data of the steps of a chunk, on the devices. A process reads and copies only what its own devices need."""

    def __init__(self, data: PreparedData, program: Program):
        self.program, self.feed = program, None
        self.size, self.rows = len(data.sample.weight), local_part(program.mesh).rows(len(data.sample.weight))
        if data.source is not None:
            in_parts = data.part_of_batches is not None  # its batches are this process's part already
            source = data.source if in_parts or not distributed.several() else replace(data.source, rows=self.rows)
            self.feed = Feed(source, program.capacity, program.task.steps)
        elif program.method.full_batch:
            assert data.arrays is not None  # full-batch methods take no loader
            parts = program.mesh.shape["data"] * program.method.micro_batches  # of equal size
            self.resident = program.place(_ready(full_batch(data.arrays, parts)), "data")
        else:
            self.resident = program.place(_ready(data.arrays))

    def take(self, first: int, last: int) -> DeviceData:
        """The data of steps `first` to `last`."""
        if self.feed is None:
            return self.resident
        batches = self.feed.take(first, last)  # (steps, examples, ...)
        if not distributed.several():
            return self.program.place(batches, None, "data")
        spec = P(None, "data")
        return distributed.place_rows(batches, self.rows.start, self.size, self.program.mesh, spec, axis=1)


def _ready(arrays: PyTree) -> PyTree:
    # with several processes, each slices its part off first
    return arrays if distributed.several() else jax.tree.map(jnp.asarray, arrays)


def prepare_data(
    problem: Problem, data: TrainingData, method: Method, batch_size: int | None, key: jax.Array, part: Part = Part()
) -> PreparedData:
    """Check the data of a run, of whose batches this process feeds `part`."""
    name = method.name
    if method.full_batch and batch_size is not None:
        raise ValueError(f"{name} needs the whole data set at every step: leave batch_size out")
    if is_loader(data):
        if method.full_batch:
            raise ValueError(f"{name} needs the whole data set at every step: give arrays (x, y), not a loader")
        if batch_size is not None:
            raise ValueError("a loader sets its own batch size: leave batch_size out")
        if len(data) == 0:
            raise ValueError("the loader has no batches")
        return _prepare_loader(problem, data, part)
    examples = problem.check_weighted(data)
    n = len(examples.y)
    size = (
        n
        if method.full_batch
        else min(n, check_count("batch_size", DEFAULT_BATCH_SIZE if batch_size is None else batch_size))
    )
    minibatches = Minibatches.of(n, size)
    rows = np.arange(minibatches.size)
    x, y, weight = examples
    first_x, first_y = jax.tree.map(lambda a: np.asarray(a[rows]), (x, y))
    sample = Batch(first_x, first_y, np.ones(minibatches.size, np.float32))
    stream = is_large(x) and not method.full_batch
    source = HostArrays(examples, minibatches, streams(key, 0).order) if stream else None
    total = None if weight is None else float(weight.sum(dtype=np.float64))
    scale = TargetMoments.from_targets(y, weight).scale if problem.likelihood.needs_target_scale else None
    return PreparedData(
        arrays=examples,
        source=source,
        minibatches=minibatches,
        num_examples=n,
        total_weight=total,
        per_epoch=minibatches.per_epoch,
        sample=sample,
        target_scale=scale,
    )


def _prepare_loader(problem: Problem, data: TrainingData, part: Part) -> PreparedData:
    in_parts = part.total > 1 and hasattr(data, "for_process")
    if in_parts:
        data = data.for_process(part.number, part.total)
    size = len(problem.check_weighted(next(iter(data))).y)
    loader = Loader(data, problem.check_weighted, size)
    sample = next(iter(loader.batches(0, 1)))
    if in_parts:  # of the size of a complete batch
        size *= part.total
        sample = jax.tree.map(lambda a: np.concatenate([a] * part.total), sample)
    return PreparedData(
        arrays=None,
        source=loader,
        minibatches=None,
        num_examples=len(data) * size,
        total_weight=None,
        per_epoch=len(data),
        sample=sample,
        part_of_batches=part if in_parts else None,
        target_scale=_loaded_scale(loader, in_parts=in_parts) if problem.likelihood.needs_target_scale else None,
    )


def _loaded_scale(loader: Loader, *, in_parts: bool) -> float:
    """The targets' standard deviation, from one pass over a loader, or over the parts of it that processes have."""
    moments = reduce(TargetMoments.merge, loader.target_moments())
    if not in_parts:
        return moments.scale
    message = [moments.weight, moments.mean.tolist(), moments.squares.tolist()]
    messages = distributed.exchange(message, "reading y")
    for process, received in enumerate(messages):
        if isinstance(received, str):  # an error, which a process sends to all instead
            raise distributed.ProcessError(f"process {process} failed when reading y: {received}")
    parts = [TargetMoments(weight, np.asarray(mean), np.asarray(squares)) for weight, mean, squares in messages]
    return reduce(TargetMoments.merge, parts).scale
