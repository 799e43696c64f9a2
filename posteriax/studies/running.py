"""Running a study: every cell once, in order, resumable at any moment.

folder/study.json          study, scale and settings: another study is refused
folder/registered.json     the claims with which the run started, which never change afterwards
folder/cells/NAME.json     one finished cell each, written at once or not at all
folder/running/            checkpoints of the cell that is running
folder/results.json        all finished cells and the verdicts (docs/studies.md)

The last is enough to go on from: in a folder with nothing else, it is unpacked first.
"""

import contextlib
import fcntl
import json
import os
import platform
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import asdict
from fnmatch import fnmatchcase
from pathlib import Path

import jax

from posteriax.__about__ import __version__
from posteriax._internal.atomic_file import whole_file
from posteriax.data import DataError, DataSet
from posteriax.studies.registration import digest, register
from posteriax.studies.results import FORMAT, VERSION, Json, Results, ResultsError, from_json, plain, read_results
from posteriax.studies.study import SCALES, Cell, Study, verdicts
from posteriax.studies.workbench import Workbench, load_data


class StudyFolder:
    """Finished cells of one study. Open it with :func:`open_folder`."""

    def __init__(self, path: Path):
        self.path = path
        self.running = path / "running"

    def finished(self, cell: Cell) -> dict[str, Json] | None:
        """What a cell gave, with its times; None if it is not finished."""
        path = self._cell_file(cell)
        try:
            stored = json.loads(path.read_text())
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise ResultsError(f"{path} is damaged ({error}): delete it, and the cell runs again") from error
        if not isinstance(stored, dict) or not {"result", "times"} <= stored.keys():
            raise ResultsError(f"{path} does not hold the result of a cell: delete it, and the cell runs again")
        return stored

    def keep(self, cell: Cell, result: Mapping[str, Json], times: Mapping[str, float], commit: str | None) -> None:
        """Store what a cell gave; its checkpoints are no longer needed."""
        content = {"cell": cell.name, "result": plain(result), "times": plain(times), "commit": commit}
        write_json(self._cell_file(cell), content)
        shutil.rmtree(self.running, ignore_errors=True)

    def checkpoints(self, cell: Cell) -> Path:
        """Where a cell's runs keep their checkpoints; those of other cells are removed."""
        folder = self.running / _file_name(cell.name)
        for other in self.running.glob("*"):
            if other != folder:
                shutil.rmtree(other, ignore_errors=True)
        return folder

    def registered(self, now: Mapping[str, Json], waiting: Collection[str]) -> dict[str, Json] | None:
        """What the run committed to: these claims if it starts now, those of its first start if not.

        Claims that are new since are added if cells that they need have yet to run; no other is changed. None if cells
        were finished before anything was registered.
        """
        path = self.path / "registered.json"
        if not path.exists():
            if any((self.path / "cells").iterdir()):
                return None
            write_json(path, now)
        stored: dict[str, Json] = json.loads(path.read_text())
        names = {claim["name"] for claim in stored["claims"]}
        if new := [c for c in now["claims"] if c["name"] in waiting and c["name"] not in names]:
            claims = [*stored["claims"], *new]
            stored = {"claims": claims, "claims_sha256": digest(claims), "settings_sha256": now["settings_sha256"]}
            write_json(path, stored)
        return stored

    def _cell_file(self, cell: Cell) -> Path:
        return self.path / "cells" / f"{_file_name(cell.name)}.json"


@contextlib.contextmanager
def open_folder(path: Path, identity: Mapping[str, Json]) -> Iterator[StudyFolder]:
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
        _unpack(path)
        _check_identity(path / "study.json", plain(identity))
        yield StudyFolder(path)
    finally:
        os.close(lock)


def write_json(path: Path, content: Json) -> None:
    """The same content gives the same bytes."""
    with whole_file(path) as file:
        file.write((json.dumps(content, indent=1, allow_nan=False) + "\n").encode())


def _check_identity(path: Path, identity: dict[str, Json]) -> None:
    if not path.exists():
        write_json(path, identity)
        return
    try:
        stored = json.loads(path.read_text())
    except ValueError as error:
        raise ResultsError(f"{path} is damaged ({error}): use another folder") from error
    if changed := list(_changes(stored, identity)):
        raise ResultsError(f"{path.parent} holds another study: {'; '.join(changed)}. Use another folder.")
    if stored != identity:
        write_json(path, identity)


def _changes(stored: Json, now: Json, name: str = "") -> Iterator[str]:
    """What is different, in words, but for settings that are new: cells that have run did without them.

    >>> list(_changes({"steps": 1, "net": {"width": 4}}, {"steps": 2, "net": {"width": 4, "depth": 2}}))
    ['steps was 1, is now 2']
    """
    if name == "settings.data":  # files that must be there
        return
    if isinstance(stored, dict) and isinstance(now, dict):
        for key in stored:
            yield from _changes(stored[key], now.get(key), f"{name}.{key}".lstrip("."))
    elif isinstance(stored, list) and isinstance(now, list) and len(stored) == len(now):
        for number, (before, after) in enumerate(zip(stored, now, strict=True)):
            yield from _changes(before, after, f"{name}[{number}]")
    elif stored != now:
        yield f"{name} was {stored}, is now {now}"


def _file_name(cell: str) -> str:
    return re.sub(r"[^\w.+-]+", "_", cell)


def _unpack(path: Path) -> None:
    """Write the files of a folder that has only its results, such as one from a repository."""
    if (path / "study.json").exists() or not (path / "results.json").exists():
        return
    read_results(path / "results.json")  # is checked
    stored = json.loads((path / "results.json").read_text())
    for cell in stored["cells"]:
        content = {"cell": cell["name"], "result": cell["result"], "times": stored["times"].get(cell["name"], {})}
        content["commit"] = stored["made_by"].get("commit")
        write_json(path / "cells" / f"{_file_name(cell['name'])}.json", content)
    if stored.get("registered"):
        write_json(path / "registered.json", stored["registered"])
    write_json(path / "study.json", {name: stored[name] for name in ("study", "scale", "settings")})


Report = Callable[[str], None]


class MissingData(Exception):
    """Data sets that a study needs are not there. `messages` has one line for each."""

    def __init__(self, messages: list[str]):
        super().__init__("\n".join(messages))
        self.messages = messages


def run_study(
    study: Study,
    out: Path,
    *,
    scale: str = "laptop",
    seeds: int | None = None,
    trial: bool = False,
    only: Mapping[str, Collection[str]] | None = None,
    command: str = "",
    report: Report = lambda line: None,
    progress: bool | None = None,
) -> Results:
    """Run the cells that are not finished yet, and write ``results.json``.

    Args:
        study: which one.
        out: the folder; the same call again resumes a run that was killed, with the same results.
        scale: "smoke" (a minute, no data), "laptop" (sized for two hours on two cores) or "paper" (the whole).
        seeds: how many repetitions; by default those of the scale, and one for a trial. More than before adds the
            missing ones.
        trial: the shortest possible run of every cell on made-up data, to see that the scale builds.
        only: run cells with these settings alone, by name; each has patterns, such as ``{"method": ["rank-1 *"]}``, and
            "seed" is one. The others wait, with the claims that depend on them.
        command: what to quote on the page as the way to get these results.
        report: is told how far the study is, before each cell.
        progress: show the progress bars of the runs; by default if standard error is a terminal.

    Raises:
        MissingData: before anything runs.
        ResultsError: if the folder is in use or holds another study.
        ValueError: if there is no such scale, or no such cell.
    """
    if scale not in SCALES:
        raise ValueError(f"there is no scale {scale!r}; there are {', '.join(SCALES)}")
    settings = study.scales[scale]
    settings = study.one_step(settings) if trial else settings
    if seeds is None:
        seeds = 1 if trial else settings.seeds
    if seeds < 1:
        raise ValueError(f"seeds must be at least 1, got {seeds}")
    loaded: dict[Hashable, DataSet] = {}
    if not trial:
        check_data(settings.data)
    scale = f"{scale}, trial" if trial else scale
    cells = study.cells(settings, seeds)
    chosen = choose_cells(cells, only or {})
    identity = {"study": study.name, "scale": scale, "settings": plain(asdict(settings))}
    with open_folder(out, identity) as folder:
        about = {**identity, "seeds": seeds, "made_by": made_by(command)}
        before = from_json(_content(folder, cells, about))
        waiting = [claim.name for claim in study.claims if claim.waits(before)]
        about["registered"] = folder.registered(register(study, settings), waiting)
        _write_results(study, folder, cells, about)
        clock = _Clock(chosen, report)
        for number, cell in enumerate(chosen):
            if folder.finished(cell):
                clock.skip(cell)
                continue
            clock.announce(number, cell)
            bench = Workbench(folder.checkpoints(cell), trial=trial, progress=progress, loaded=loaded)
            began = time.monotonic()
            result = study.run(cell, settings, bench)
            seconds = time.monotonic() - began
            folder.keep(cell, result, {"seconds": seconds, **bench.times}, about["made_by"]["commit"])
            _write_results(study, folder, cells, about)
            clock.finish(cell, seconds)
    return read_results(out)


def choose_cells(cells: Sequence[Cell], only: Mapping[str, Collection[str]]) -> list[Cell]:
    """The cells whose settings match.

    Args:
        cells: of a study.
        only: patterns by the name of a setting, as for files; a cell must match one for each of the names.

    >>> cells = [Cell({"method": "map"}, 0), Cell({"method": "vi"}, 0)]
    >>> [cell.name for cell in choose_cells(cells, {"method": ["m*"]})]
    ['map, seed 0']

    Raises:
        ValueError: if none does, with the settings that there are.
    """

    def matches(cell: Cell) -> bool:
        settings = {**cell.settings, "seed": cell.seed}
        return all(
            name in settings and any(fnmatchcase(str(settings[name]), pattern) for pattern in patterns)
            for name, patterns in only.items()
        )

    chosen = [cell for cell in cells if matches(cell)]
    if not chosen:
        values: dict[str, dict[str, None]] = {}
        for cell in cells:
            for name, value in cell.settings.items():
                values.setdefault(name, {})[str(value)] = None
        known = "; ".join(f"{name}: {', '.join(those)}" for name, those in values.items())
        raise ValueError(f"no cell has {dict(only)}. There are {known}")
    return chosen


def check_data(names: tuple[str, ...]) -> None:
    """Load every data set once, so that what is missing is said before anything runs."""
    messages = []
    for name in names:
        try:
            load_data(name)
        except DataError as error:
            messages.append(str(error))
    if messages:
        raise MissingData(messages)


def _write_results(study: Study, folder: StudyFolder, cells: list[Cell], about: Mapping[str, Json]) -> None:
    """Write what is finished so far, with verdicts."""
    content = _content(folder, cells, about)
    judged = verdicts(study, from_json(content))
    content["verdicts"] = [{"claim": name, **plain(asdict(verdict))} for name, verdict in judged.items()]
    write_json(folder.path / "results.json", content)


def _content(folder: StudyFolder, cells: list[Cell], about: Mapping[str, Json]) -> dict[str, Json]:
    """The content of the file of results, without verdicts."""
    finished = {cell.name: folder.finished(cell) for cell in cells}
    done = [(cell, stored) for cell in cells if (stored := finished[cell.name])]
    waiting = [cell for cell in cells if not finished[cell.name]]
    commits = dict.fromkeys(str(stored["commit"]) for _, stored in done if stored.get("commit"))
    if commits:
        about = {**about, "made_by": {**about["made_by"], "commit": ", ".join(commits)}}
    return {
        "format": FORMAT,
        "version": VERSION,
        **about,
        "complete": len(done) == len(cells),
        "cells": [
            {"name": cell.name, "settings": dict(cell.settings), "seed": cell.seed, "result": stored["result"]}
            for cell, stored in done
        ],
        "waiting": [{"name": cell.name, "settings": dict(cell.settings), "seed": cell.seed} for cell in waiting],
        "times": {cell.name: stored["times"] for cell, stored in done},
    }


def made_by(command: str) -> dict[str, Json]:
    """What produced a file of results, for whoever wants to produce it again."""
    return {
        "command": command,
        "posteriax": __version__,
        "commit": _commit(),
        "jax": jax.__version__,
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, {jax.default_backend()}",
    }


def _commit() -> str | None:
    """The commit of the source tree, if posteriax runs from one."""
    here = Path(__file__).parent
    call = ["git", "-C", str(here), "describe", "--always", "--dirty", "--exclude=*"]
    try:
        return subprocess.run(call, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


class _Clock:
    """Tells how far a study is, with the time left by the cells' relative costs."""

    def __init__(self, cells: list[Cell], report: Report):
        self.total, self.report = len(cells), report
        self.left = sum(cell.cost for cell in cells)
        self.spent = self.seconds = 0.0

    def announce(self, number: int, cell: Cell) -> None:
        left = f", about {_duration(self.left * self.seconds / self.spent)} left" if self.spent else ""
        self.report(f"cell {number + 1} of {self.total}: {cell.name}{left}")

    def skip(self, cell: Cell) -> None:
        self.left -= cell.cost

    def finish(self, cell: Cell, seconds: float) -> None:
        self.left -= cell.cost
        self.spent += cell.cost
        self.seconds += seconds


def _duration(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"
