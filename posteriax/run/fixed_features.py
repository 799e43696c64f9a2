"""The fixed part of a network, computed once for the data set instead of at every step.

A run whose problem has fixed leaves then works on features in place of inputs, and costs what the rest of the network
costs. It gives the same posterior, except for rounding.
"""

from typing import NamedTuple

import jax
import numpy as np

from posteriax._internal.memory import RESIDENT_BYTES, needed_bytes, plan_chunks
from posteriax.networks.tracing.fixed_part import Features, FixedPart
from posteriax.problem import Problem
from posteriax.run.feeding import Inputs, PreparedData


class FixedPlan(NamedTuple):
    """Whether the fixed part is computed once, and notes for the trace."""

    part: FixedPart | None = None
    notes: tuple[str, ...] = ()

    def compute(self, data: PreparedData) -> PreparedData:
        """The data with features in place of inputs; unchanged if they are not computed once."""
        if self.part is None or data.arrays is None:
            return data
        features = compute_features(self.part, data.arrays.x)
        sample = data.sample._replace(x=jax.tree.map(lambda a: a[: len(data.sample.weight)], features))
        # features are held on the device, whether or not the inputs were too large for that
        arrays = data.arrays._replace(x=features)
        return data._replace(arrays=arrays, source=None, sample=sample, given=data.arrays)


def plan_fixed_part(problem: Problem, data: PreparedData, *, training: bool, varying: str = "") -> FixedPlan:
    """Decide whether the fixed part is computed once.

    Args:
        problem: may have fixed leaves.
        data: the run's data, with inputs as given.
        training: whether the method calls the network with a key.
        varying: why inputs differ from step to step, if they do, such as "inputs are augmented".
    """
    part = problem.fixed_part(data.sample.x, training=training)
    if part is None:
        return FixedPlan()
    if data.arrays is None:
        varying = "inputs come from a loader"
    size = part.nbytes * data.num_examples
    if varying:
        why = varying
    elif size > RESIDENT_BYTES:
        why = f"its outputs, {part.numbers:,} numbers per example, would take {size / 2**30:.1f} GB"
    elif not part.treats_examples_alone(data.sample.x):
        why = "it couples the examples of a batch"
    else:
        return FixedPlan(
            part, (f"the outputs of the fixed part, {part.numbers:,} numbers per example, were computed once",)
        )
    return FixedPlan(None, (f"the fixed part is computed at every step: {why}",))


def compute_features(part: FixedPart, x: Inputs) -> Features:
    """The features of all examples, in host memory; computed in chunks that fit the working memory."""
    n = jax.tree.leaves(x)[0].shape[0]

    def compiled(_: int, rows: int) -> tuple[jax.stages.Compiled, int]:
        specs = jax.tree.map(
            lambda a: jax.ShapeDtypeStruct((rows, *a.shape[1:]), jax.dtypes.canonicalize_dtype(a.dtype)), x
        )
        run = jax.jit(part.features).lower(specs).compile()
        return run, needed_bytes(run)

    chunks = plan_chunks(compiled, draws=1, examples=n, draw_bytes=0, couples_examples=lambda: False)
    kept = jax.tree.map(lambda spec: np.empty((n, *spec.shape), spec.dtype), part.spec)
    for start, chunk in chunks.chunks(x):
        values = jax.device_get(chunks.run(chunk))
        for leaf, chunk_leaf in zip(jax.tree.leaves(kept), jax.tree.leaves(values), strict=True):
            leaf[start : start + chunks.rows] = chunk_leaf[: n - start]
    return kept
