"""The folder of a study: what is finished stays, whatever happens to the process.

folder/study.json          study, scale and settings: another study is refused
folder/cells/NAME.json     one finished cell each, written at once or not at all
folder/running/            checkpoints of the cell that is running
folder/results.json        all finished cells and the verdicts (docs/studies.md)
"""

import contextlib
import fcntl
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from posteriax._internal.atomic_file import whole_file
from posteriax.studies.results import ResultsError, plain
from posteriax.studies.study import Cell


class StudyFolder:
    """Finished cells of one study. Open it with :func:`open_folder`."""

    def __init__(self, path: Path):
        self.path = path
        self.running = path / "running"

    def finished(self, cell: Cell) -> dict[str, Any] | None:
        """What a cell gave, with its times; None if it is not finished."""
        path = self._path_of(cell)
        try:
            stored = json.loads(path.read_text())
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise ResultsError(f"{path} is damaged ({error}): delete it, and the cell runs again") from error
        if not isinstance(stored, dict) or not {"result", "times"} <= stored.keys():
            raise ResultsError(f"{path} does not hold the result of a cell: delete it, and the cell runs again")
        return stored

    def keep(self, cell: Cell, result: Mapping[str, Any], times: Mapping[str, float]) -> None:
        """Store what a cell gave; its checkpoints are no longer needed."""
        write_json(self._path_of(cell), {"cell": cell.name, "result": plain(result), "times": plain(times)})
        shutil.rmtree(self.running, ignore_errors=True)

    def place_for(self, cell: Cell) -> Path:
        """Where a cell's runs keep their checkpoints; those of other cells are removed."""
        place = self.running / _file_name(cell)
        for other in self.running.glob("*"):
            if other != place:
                shutil.rmtree(other, ignore_errors=True)
        return place

    def _path_of(self, cell: Cell) -> Path:
        return self.path / "cells" / f"{_file_name(cell)}.json"


@contextlib.contextmanager
def open_folder(path: Path, identity: Mapping[str, Any]) -> Iterator[StudyFolder]:
    """Create the folder if necessary, and hold its lock.

    Args:
        path: the folder.
        identity: what its cells depend on, as plain data; a folder with another identity is refused.

    Raises:
        ResultsError: if the folder is in use, or holds another study.
    """
    (path / "cells").mkdir(parents=True, exist_ok=True)
    lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ResultsError(f"another study is writing to {path}: wait for it, or use another folder") from None
        _check_identity(path / "study.json", plain(identity))
        yield StudyFolder(path)
    finally:
        os.close(lock)


def write_json(path: Path, content: Any) -> None:
    """The same content gives the same bytes."""
    with whole_file(path) as file:
        file.write((json.dumps(content, indent=1, allow_nan=False) + "\n").encode())


def _check_identity(path: Path, identity: dict[str, Any]) -> None:
    if not path.exists():
        write_json(path, identity)
        return
    try:
        stored = json.loads(path.read_text())
    except ValueError as error:
        raise ResultsError(f"{path} is damaged ({error}): use another folder") from error
    changed = [
        f"{name} was {stored.get(name)}, is now {identity.get(name)}"
        for name in sorted(stored.keys() | identity.keys())
        if stored.get(name) != identity.get(name)
    ]
    if changed:
        raise ResultsError(f"{path.parent} holds another study: {'; '.join(changed)}. Use another folder.")


def _file_name(cell: Cell) -> str:
    return re.sub(r"[^\w.+-]+", "_", cell.name)
