"""The observer that writes checkpoints, and resumes a run from one."""

from collections.abc import Sequence
from typing import Any

import jax

from posteriax import distributed
from posteriax._internal.memory import UNSAVED_BYTES
from posteriax.run.checkpoint import Checkpoint, CheckpointError
from posteriax.run.loop import Observer, Run
from posteriax.run.program import Program


class SaveCheckpoints(Observer):
    """Saves the run at intervals, and at its end.

    Args:
        store: the folder.
        every: seconds between checkpoints.
        program: the compiled run.
        others: the observers whose results a checkpoint stores.
    """

    def __init__(self, store: Checkpoint, every: float, program: Program, others: Sequence[Observer]):
        self.store, self.every, self.program, self.others = store, every, program, others
        self.step = self.chunks = self.draws = 0  # how much of the run is already stored
        self.written = 0.0  # when, in seconds of the run
        self.layouts = [self.layout]  # in which the run has been made, without repetition

    @property
    def layout(self) -> list[int]:
        """Devices for members, devices for data, and processes."""
        return [*self.program.mesh.devices.shape, jax.process_count()]

    def load(self, key: jax.Array, batches: Any) -> Run | None:
        """The run that the folder holds; None if it is new. `batches` are those of the first step."""
        states, chunk = self.program.shapes(key, batches)
        with distributed.together("reading the checkpoint"):
            saved = self.store.load(states, type(chunk[3]), chunk[4])
            if saved is not None:
                self._check_not_longer(saved.step)
        found = {"step in the checkpoint": "none" if saved is None else f"{saved.step}, {self.store.shards[-1:]}"}
        distributed.check_same(found, "reading the checkpoint")  # a folder on one machine's own disk?
        if saved is None:
            return None
        self.written = saved.seconds
        before = saved.about.get("layouts", [])
        self.layouts = before if self.layout in before[-1:] else [*before, self.layout]
        for observer in self.others:
            observer.restore(saved.about, saved.arrays)
        self.step, self.chunks, self.draws = saved.step, len(saved.recorded), len(saved.drawn)
        states = self.program.place_states(saved.states)
        return Run(saved.step, states, saved.recorded, saved.drawn, saved.seconds)

    def after_chunk(self, run: Run) -> None:
        waiting = sum(leaf.nbytes for leaf in jax.tree.leaves(run.drawn[self.draws :]))
        if not (run.ending or run.seconds - self.written > self.every or waiting > UNSAVED_BYTES):
            return
        more = {name: value for observer in self.others for name, value in observer.saved().items()}
        more["layouts"] = self.layouts
        arrays = {name: array for observer in self.others for name, array in observer.saved_arrays().items()}
        recorded, drawn = run.recorded[self.chunks :], run.drawn[self.draws :]
        states = distributed.to_host(run.states)
        with distributed.together("writing the checkpoint"):
            if distributed.is_first():
                self.store.save(run.step, states, recorded, drawn, self.step, run.seconds, more, arrays)
        # from now on the draws are read from the file
        run.drawn[self.draws :] = self.store.stored(self.step, run.step, drawn)
        self.step, self.chunks, self.draws = run.step, len(run.recorded), len(run.drawn)
        self.written = run.seconds

    def notes(self) -> tuple[str, ...]:
        members_only = self.program.platform == "cpu" and all(data == 1 for _, data, _ in self.layouts)
        if len(self.layouts) == 1 or members_only:  # the same bits
            return ()
        each = ", then ".join(
            f"{members} x {data} devices of {processes} process{'es' * (processes > 1)}"
            for members, data, processes in self.layouts
        )
        return (
            f"resumed on another layout (members x data: {each}): equal to an uninterrupted run up to rounding, not "
            f"bit for bit",
        )

    def _check_not_longer(self, done: int) -> None:
        total = self.program.task.steps
        if done > total:
            held, asked = self.program.draws_until(done), self.program.draws_until(total)
            raise CheckpointError(
                f"the checkpoint already holds {held} draws, more than the {asked} requested: use draws={held} or more"
            )
