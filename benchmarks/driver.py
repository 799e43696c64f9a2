"""The program that `px.fit` runs, as the benchmarks time it."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

import posteriax as px
from benchmarks.timing import timed
from posteriax.data.batches import Minibatches, full_batch
from posteriax.methods.ensemble import Ensemble
from posteriax.methods.method import Task
from posteriax.run.layout import members_mesh
from posteriax.run.program import Program


class Driver:
    """A run that takes its next steps when asked.

    Args:
        problem, method: what is inferred, and how.
        data: ``(x, y)``.
        members: how many run at once, each on a device of its own if there are enough.
        together: whether those that share a device take their steps together.
        batch_size: of minibatches; None for the whole data set at every step.
        mesh: the devices; by default members are spread over all.
        shard: the paths of leaves whose parameters are split over devices.
        lengths: `warmup` and `thin` of a sampler.
    """

    def __init__(
        self,
        problem: px.Problem,
        method: Any,
        data: tuple[Any, Any],
        *,
        members: int = 1,
        together: bool | None = None,
        batch_size: int | None = None,
        mesh: Mesh | None = None,
        shard: tuple[str, ...] = (),
        **lengths: Any,
    ):
        x, y = data
        example = jax.ShapeDtypeStruct(x.shape[1:], x.dtype)
        devices, full = members_mesh(members, mesh), batch_size is None
        axis = "data" if full and devices.shape["data"] > 1 else None
        task = Task(problem=problem, example=example, num_examples=len(y), steps=10**6, data_axis=axis, **lengths)
        batches = None if batch_size is None else Minibatches.of(len(y), batch_size)
        self.program = Program(Ensemble(method, members, together=together).bind(task), batches, devices, shard=shard)
        given = full_batch(data, devices.shape["data"]) if full else data
        self.data = self.program.place(jax.tree.map(jnp.asarray, given), *(["data"] if full else []))
        self.keys, self.states = self.program.begin(jax.random.key(0), self.data)
        self.step = 0

    def advance(self, steps: int) -> tuple[Any, Any, float]:
        """What the next steps recorded and drew, with a leading axis of steps, and their seconds."""
        span = np.int32(self.step), np.int32(self.step + steps)
        out, seconds = timed(lambda: self.program.chunk(self.keys, self.states, self.data, *span))
        self.states, self.step = out[0], self.step + steps
        return out[3], out[4], seconds

    def seconds_per_step(self, steps: int) -> Callable[[], float]:
        return lambda: self.advance(steps)[2] / steps

    @property
    def bytes(self) -> int:
        """What a step needs besides the data; 0 if the compiler does not say."""
        chunk = self.program.chunk.lower(self.keys, self.states, self.data, np.int32(0), np.int32(1))
        memory = chunk.compile().memory_analysis()
        data = sum(leaf.nbytes for leaf in jax.tree.leaves(self.data))
        return 0 if memory is None else memory.temp_size_in_bytes + memory.argument_size_in_bytes - data

    @property
    def parameters(self) -> int:
        """How many numbers are trained."""
        held = self.states.variational if hasattr(self.states, "variational") else self.states.latents
        return sum(leaf.size for leaf in jax.tree.leaves(held))
