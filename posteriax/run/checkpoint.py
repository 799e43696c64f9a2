"""Checkpoints: a folder that holds a run, so that it can be killed at any moment and resumed bit for bit.

    folder/state.tensors        all that the next step needs, and the list of shards
    folder/steps-A-B.tensors    what steps A to B recorded and drew
    folder/lock                 held by the run that writes here

A shard is written first; the state that names it, with its digest, is then put in place by a rename. A crash between
the two leaves a shard that no state names, and the next run overwrites it.

If several processes make a run together, the first writes and all read, so the folder must be on storage that they
share. Files hold complete arrays, independent of how a run was spread over devices and processes.

A checkpoint is resumed only by the run that wrote it: `run_identity` lists what a run's result depends on.
"""

import contextlib
import fcntl
import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import PyTree

from posteriax import __about__, distributed
from posteriax._internal.leaf_paths import describe_leaves
from posteriax._internal.memory import UNSAVED_BYTES
from posteriax._internal.settings import to_plain
from posteriax._internal.tensor_file import FileArray, file_arrays, read_tensors, write_tensors
from posteriax.data.augmentation import Augmentation
from posteriax.data.batches import Batch, Examples
from posteriax.methods.ensemble import Members
from posteriax.problem import Problem
from posteriax.run.loop import Observer, Run
from posteriax.run.program import DeviceData, Draws, Infos, Program, States

KIND = "checkpoint"
SHARD = "checkpoint shard"
STATE = "state.tensors"
STEP = "computation of a step"  # its name among the settings that identify a run


class CheckpointError(RuntimeError):
    """A checkpoint folder is in use, damaged, not writable, or holds another run. The message says which."""


class Saved(NamedTuple):
    """A run as it was saved."""

    step: int
    states: States
    recorded: list[Infos]
    drawn: list[Draws]
    seconds: float
    about: dict[str, Any]  # what observers saved
    arrays: dict[str, np.ndarray]  # the arrays that observers saved


class Checkpoint:
    """A folder for one run. Open it with :func:`open_checkpoint`.

    Args:
        folder: where.
        settings: what the run depends on, by name; a folder with different settings is refused.
    """

    def __init__(self, folder: Path, settings: dict[str, str]):
        self.folder, self.settings = folder, settings
        self.shards: list[dict[str, str]] = []

    def load(self, states: States, info: type, draws: Draws | None) -> Saved | None:
        """What the folder holds, or None if it is new.

        Args:
            states: shapes of the states, for their structure.
            info: the NamedTuple that the method records.
            draws: shapes of one draw, for their structure, or None.
        """
        try:
            about, arrays, _ = read_tensors(self.folder / STATE, KIND, CheckpointError)
        except FileNotFoundError:
            return None
        self._compare(about["settings"])
        self.shards = about["shards"]
        restored = _fill(states, arrays, "state")
        recorded, drawn = [], []
        for shard in self.shards:
            infos, shard_draws = self._load_shard(shard, info, draws)
            recorded.append(infos)
            drawn += [shard_draws] if shard_draws is not None else []
        others = {name: array for name, array in arrays.items() if not name.startswith("state:")}
        return Saved(about["step"], restored, recorded, drawn, about["seconds"], about, others)

    def save(
        self,
        step: int,
        states: States,
        recorded: list[Infos],
        drawn: list[Draws],
        first: int,
        seconds: float,
        more: dict[str, Any],
        more_arrays: dict[str, np.ndarray],
    ) -> None:
        """Store the run at `step`: states, what was recorded and drawn since step `first`, and what observers add."""
        arrays = {}
        for name in recorded[0]._fields:
            arrays[f"info:{name}"] = np.concatenate([getattr(chunk, name) for chunk in recorded])
        if drawn:
            leaves = zip(*map(jax.tree.leaves, drawn), strict=True)
            arrays |= {f"draw:{i}": np.concatenate(parts) for i, parts in enumerate(leaves)}
        shard = _shard_name(first, step)
        with _explained(self.folder):
            digest = write_tensors(self.folder / shard, {"format": SHARD}, arrays)
            shards = [*self.shards, {"name": shard, "sha256": digest}]
            state = {f"state:{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(states))}
            about = {"format": KIND, "step": step, "seconds": seconds, "settings": self.settings, "shards": shards}
            write_tensors(self.folder / STATE, {**more, **about}, {**more_arrays, **state})
        self.shards = shards

    def stored(self, first: int, step: int, drawn: list[Draws]) -> list[Draws]:
        """The draws of steps `first` to `step` as they are in the file, so that those in memory can be freed."""
        return [_fill(drawn[0], file_arrays(self.folder / _shard_name(first, step)), "draw")] if drawn else []

    def _load_shard(self, shard: dict[str, str], info: type, draws: Draws | None) -> tuple[Infos, Draws | None]:
        path = self.folder / shard["name"]
        try:
            _, arrays, digest = read_tensors(path, SHARD, CheckpointError)
        except FileNotFoundError:
            raise CheckpointError(f"the checkpoint's file {path} is missing") from None
        if digest != shard["sha256"]:
            raise CheckpointError(f"{path} does not belong to this checkpoint")
        infos = info(**{name: arrays[f"info:{name}"] for name in info._fields})  # type: ignore[attr-defined]
        if "draw:0" not in arrays:
            return infos, None
        return infos, _fill(draws, file_arrays(path), "draw")  # checked above, and read again when needed

    def _compare(self, stored: dict[str, str]) -> None:
        if stored == self.settings:
            return
        changed = [
            "a step computes something else (other settings, or another version of posteriax)"
            if name == STEP
            else f"{name} was {_short(stored.get(name))}, is now {_short(self.settings.get(name))}"
            for name in sorted(stored.keys() | self.settings.keys())
            if stored.get(name) != self.settings.get(name)
        ]
        raise CheckpointError(
            f"{self.folder} holds another run: {'; '.join(changed)}. Use the same settings, or another folder."
        )


@contextlib.contextmanager
def open_checkpoint(folder: str | os.PathLike[str], settings: dict[str, str]) -> Iterator[Checkpoint]:
    """Create the folder if necessary, and hold its lock during the run. Of several processes, only the first writes."""
    path = Path(folder)
    if not distributed.is_first():
        yield Checkpoint(path, settings)
        return
    if path.exists() and not path.is_dir():
        raise CheckpointError(f"{path} is a file: checkpoint= takes a folder, which is created if it does not exist")
    with _explained(path):
        path.mkdir(parents=True, exist_ok=True)
        lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise CheckpointError(f"another run is writing to {path}: wait for it, or use another folder") from None
        for aside in path.glob(".*.tensors.*"):  # left by a run that was killed while writing
            aside.unlink()
        yield Checkpoint(path, settings)
    finally:
        os.close(lock)


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

    def load(self, key: jax.Array, batches: DeviceData) -> Run | None:
        """The run that the folder holds; None if it is new. `batches` are those of the first step."""
        states, chunk = self.program.shapes(key, batches)
        with distributed.together("reading the checkpoint"):
            saved = self.store.load(states, type(chunk[3]), chunk[4])
            if saved is not None:
                self._check_not_longer(saved.step)
        contents = {"step in the checkpoint": "none" if saved is None else f"{saved.step}, {self.store.shards[-1:]}"}
        distributed.check_same(contents, "reading the checkpoint")  # they differ if the folder is on a local disk
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
        layouts = ", then ".join(
            f"{members} x {data} devices of {processes} process{'es' * (processes > 1)}"
            for members, data, processes in self.layouts
        )
        return (
            f"resumed on another layout (members x data: {layouts}): equal to an uninterrupted run up to rounding, not "
            f"bit for bit",
        )

    def _check_not_longer(self, done: int) -> None:
        total = self.program.task.steps
        if done > total:
            held, asked = self.program.draws_until(done), self.program.draws_until(total)
            raise CheckpointError(
                f"the checkpoint already holds {held} draws, more than the {asked} requested: use draws={held} or more"
            )


def run_identity(
    members: Members, key: jax.Array, data: Examples | None, batch: Batch, augment: Augmentation | None = None
) -> dict[str, str]:
    """What a run's result depends on, by name. Functions are identified by the computation of one step."""
    kernel, task = members.kernel, members.kernel.task
    problem = task.problem
    if task.data_axis is not None:  # the axis exists only on the devices
        kernel = kernel.method.bind(replace(task, data_axis=None))
    start = jax.eval_shape(kernel.init, key, problem.latents, batch)
    step = str(jax.make_jaxpr(kernel.step)(key, start, batch))
    # a sampler's run may be extended later: its steps do not depend on how many follow
    length = {} if kernel.method.samples else {"steps": str(task.steps)}
    if augment is not None:
        length["augmentation"] = str(augment)
        step += str(jax.make_jaxpr(augment)(key, batch.x))
    return length | {
        "method": kernel.method.name,
        "members": str(members.count),
        "warm-up": str(task.warmup),
        "steps from draw to draw": str(task.thin),
        "batch size": str(len(batch.weight)),
        "examples": str(task.num_examples),
        "key": str(np.asarray(jax.random.key_data(key)).tolist()),
        "temperature": str(problem.temperature),
        "prior": _prior_identity(problem),
        "network": ", ".join(describe_leaves(problem.network.params)),
        "starting weights": digest_arrays((problem.network.params, members.starts.draws)),
        **({} if problem.network.fixed is None else {"fixed leaves": digest_arrays(problem.network.fixed.values)}),
        "data": digest_arrays(data),
        STEP: hashlib.sha256(re.sub(r"0x[0-9a-f]+", "", step).encode()).hexdigest(),
        "versions": f"posteriax {__about__.__version__}, jax {jax.__version__}",
    }


def _prior_identity(problem: Problem) -> str:
    try:
        text = str(to_plain(problem.prior))
    except TypeError:  # a user's own prior: the computation of a step identifies it
        return type(problem.prior).__name__
    return text if len(text) < 1000 else hashlib.sha256(text.encode()).hexdigest()


def digest_arrays(tree: PyTree) -> str:
    """A digest of all arrays of a tree, with their shapes and dtypes."""
    digest = hashlib.sha256()
    for leaf in jax.tree.leaves(tree):
        array = np.ascontiguousarray(leaf)
        digest.update(f"{array.dtype} {array.shape}".encode())
        digest.update(array.view(np.uint8).data if array.size else b"")
    return digest.hexdigest()


def _fill(structure: PyTree, arrays: dict[str, np.ndarray] | dict[str, FileArray], prefix: str) -> PyTree:
    """A tree of the same structure, of the arrays "prefix:0", "prefix:1", ..."""
    count = len(jax.tree.leaves(structure))
    return jax.tree.unflatten(jax.tree.structure(structure), [arrays[f"{prefix}:{i}"] for i in range(count)])


def _shard_name(first: int, step: int) -> str:
    return f"steps-{first}-{step}.tensors"


def _short(value: str | None) -> str:
    text = str(value)
    return text if len(text) <= 60 else text[:57] + "..."


@contextlib.contextmanager
def _explained(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        intact = ". The previous checkpoint is intact." if os.path.exists(folder / STATE) else ""
        raise CheckpointError(f"cannot write the checkpoint to {folder}: {error.strerror}{intact}") from error
