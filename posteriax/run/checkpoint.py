"""Checkpoints: a folder that holds a run, so that it can be killed at any moment and resumed bit for bit.

    folder/state.tensors        all that the next step needs, and the list of shards
    folder/steps-A-B.tensors    what steps A to B recorded and drew
    folder/lock                 held by the run that writes here

A shard is written first; the state that names it, with its digest, is then put in place by a rename. A crash between
the two leaves a shard that no state names, and the next run overwrites it.

Of several processes that make a run together, the first writes and all read, so that the folder must be on storage that
they share. Files hold whole arrays: how a run was spread over devices and processes does not show in them.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from posteriax import distributed
from posteriax._internal.tensor_file import FileArray, file_arrays, read_tensors, write_tensors

KIND = "checkpoint"
SHARD = "checkpoint shard"


STEP = "computation of a step"  # its name among the settings that identify a run


class CheckpointError(RuntimeError):
    """A checkpoint folder that is in use, damaged, not writable, or holds another run. The message says which."""


class Saved(NamedTuple):
    """A run as it was saved."""

    step: int
    states: Any
    recorded: list[Any]
    drawn: list[Any]
    seconds: float
    about: dict[str, Any]  # what observers saved
    arrays: dict[str, np.ndarray]  # the same


class Checkpoint:
    """A folder for one run. Open it with :func:`open_checkpoint`.

    Args:
        folder: where.
        settings: what the run depends on, by name; a folder with different settings is refused.
    """

    def __init__(self, folder: Path, settings: dict[str, str]):
        self.folder, self.settings = folder, settings
        self.shards: list[dict[str, str]] = []

    def load(self, states: Any, info: type, draws: Any) -> Saved | None:
        """What the folder holds, or None if it is new.

        Args:
            states: shapes of the states, for their structure.
            info: the NamedTuple that the method records.
            draws: shapes of one draw, for their structure, or None.
        """
        try:
            about, arrays, _ = read_tensors(self.folder / "state.tensors", KIND, CheckpointError)
        except FileNotFoundError:
            return None
        self._compare(about["settings"])
        self.shards = about["shards"]
        restored = _fill(states, arrays, "state")
        recorded, drawn = [], []
        for shard in self.shards:
            infos, some = self._load_shard(shard, info, draws)
            recorded.append(infos)
            drawn += [some] if some is not None else []
        others = {name: array for name, array in arrays.items() if not name.startswith("state:")}
        return Saved(about["step"], restored, recorded, drawn, about["seconds"], about, others)

    def save(
        self,
        step: int,
        states: Any,
        recorded: list[Any],
        drawn: list[Any],
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
            write_tensors(self.folder / "state.tensors", {**more, **about}, {**more_arrays, **state})
        self.shards = shards

    def stored(self, first: int, step: int, drawn: list[Any]) -> list[Any]:
        """The draws of steps `first` to `step` as they are in the file, so that those in memory can be freed."""
        return [_fill(drawn[0], file_arrays(self.folder / _shard_name(first, step)), "draw")] if drawn else []

    def _load_shard(self, shard: dict[str, str], info: type, draws: Any) -> tuple[Any, Any]:
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
def open_checkpoint(folder: Any, settings: dict[str, str]) -> Iterator[Checkpoint]:
    """Create the folder if necessary, and hold its lock during the run. Of several processes, only the first writes."""
    path = Path(folder)
    if not distributed.is_first():
        yield Checkpoint(path, settings)
        return
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


def _fill(structure: Any, arrays: dict[str, np.ndarray] | dict[str, FileArray], prefix: str) -> Any:
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
        raise CheckpointError(
            f"cannot write the checkpoint to {folder}: {error.strerror}. The previous checkpoint is intact."
        ) from error
