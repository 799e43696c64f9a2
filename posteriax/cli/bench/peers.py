"""Other libraries on the same work, in a second environment, timed in turn with posteriax.

The environment is made once, in ``.venv-peers`` of the current folder; a worker process in it does one case at a time
when asked, so that both sides are measured in the same minutes.
"""

import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import TracebackType

from posteriax.cli.bench.worker import Worker

ENVIRONMENT = Path(".venv-peers")
PACKAGES = ("torch==2.13.0", "bayesian-torch", "torchbnn", "blitz-bayesian-pytorch", "pyro-ppl", "tyxe==0.0.2")
WORKER = Path(__file__).with_name("peer_worker.py")


class Peers:
    """A worker process for the given cases. A context manager."""

    def __init__(self, names: tuple[str, ...]):
        self.names = names

    def __enter__(self) -> "Peers":
        self._worker = Worker([make_environment(), str(WORKER), *self.names]).__enter__()
        return self

    def cases(self) -> dict[str, Callable[[], float]]:
        """For each case, a function that has the worker do it once and returns the seconds it says it took."""
        return {name: partial(self._worker.seconds, name) for name in self.names}

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._worker.__exit__(kind, error, trace)


def make_environment() -> str:
    """The Python of the second environment, which is made if it is not there."""
    python = ENVIRONMENT / "bin" / "python"
    done = ENVIRONMENT / ".done"
    if not done.exists() or done.read_text() != "\n".join(PACKAGES):
        print(f"installing {', '.join(PACKAGES)} into {ENVIRONMENT}", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(ENVIRONMENT)], check=True)
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*install, PACKAGES[0]], check=True)  # first, so that no other build of it is taken
        subprocess.run([*install, *PACKAGES], check=True)
        done.write_text("\n".join(PACKAGES))
    return str(python)
