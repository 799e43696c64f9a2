"""A process in another environment that runs one case at a time when asked, so that all are timed in turn."""

import contextlib
import subprocess
from collections.abc import Mapping
from types import TracebackType
from typing import IO


class Worker:
    """A process that reads names of cases and answers each with the seconds it took. A context manager.

    Args:
        command: what to start.
        environment: its environment variables; by default those of this process.
    """

    def __init__(self, command: list[str], environment: Mapping[str, str] | None = None):
        self.command, self.environment = command, environment

    def __enter__(self) -> "Worker":
        self._process = subprocess.Popen(
            self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=self.environment
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
