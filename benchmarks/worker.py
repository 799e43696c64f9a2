"""Processes in other environments: they run one case at a time when asked, so that all cases are timed in turn."""

import contextlib
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import IO

import numpy as np

from benchmarks.timing import interleave


class Worker:
    """A process that reads names of cases and answers each with the seconds it took. A context manager.

    Args:
        command: what to start.
        environment: its environment variables; by default those of this process.
        folder: where it runs; by default here.
    """

    def __init__(self, command: list[str], environment: Mapping[str, str] | None = None, folder: Path | None = None):
        self.command, self.environment, self.folder = command, environment, folder

    def __enter__(self) -> "Worker":
        self._process = subprocess.Popen(
            self.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=self.environment,
            cwd=self.folder,
        )
        return self

    def seconds(self, name: str) -> float:
        """Have the process run one case once."""
        requests, answers = self._pipes()
        try:
            requests.write(name + "\n")
            requests.flush()
            answer = answers.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            raise RuntimeError(f"the worker {self.command[0]} ended while running {name}")
        return float(answer)

    def _pipes(self) -> tuple[IO[str], IO[str]]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        return self._process.stdin, self._process.stdout

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._pipes()[0].close()
        self._process.wait(timeout=60)


def interleave_workers(
    workers: Mapping[str, Worker], cases: Sequence[str], rounds: int
) -> dict[str, dict[str, np.ndarray]]:
    """Seconds by case and worker, one for each round, in which every worker runs every case once."""
    for worker in workers.values():  # one after another: all compile before any is timed
        for case in cases:
            worker.seconds(case)
    runs: dict[str, Callable[[], float]] = {
        f"{case}\n{name}": partial(worker.seconds, case) for case in cases for name, worker in workers.items()
    }
    times = interleave(runs, rounds)
    return {case: {name: times[f"{case}\n{name}"] for name in workers} for case in cases}


def make_environment(folder: Path, packages: Sequence[str], remove: Sequence[str] = ()) -> str:
    """The Python of a second environment with these packages, which is created if necessary.

    Args:
        folder: where the environment is.
        packages: what to install; the first one before the others, so that they choose no other build of it.
        remove: what to uninstall afterwards.
    """
    python, done = folder / "bin" / "python", folder / ".done"
    if not done.exists() or done.read_text() != "\n".join(packages):
        print(f"installing {', '.join(packages)} into {folder}", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        pip = [str(python), "-m", "pip"]
        install = [*pip, "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*install, packages[0]], check=True)
        subprocess.run([*install, *packages], check=True)
        if remove:
            subprocess.run([*pip, "uninstall", "--quiet", "--yes", *remove], check=True)
        done.write_text("\n".join(packages))
    return str(python)
