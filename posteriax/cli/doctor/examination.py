"""Running the checks in new processes, and their results."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from posteriax._internal import jax_release

LONGEST = 600  # seconds, many times as long as the checks take


@dataclass(frozen=True)
class CheckResult:
    """The result of one check.

    Args:
        name: of the program.
        excess: its largest error over the bound on rounding errors; at most 1 if it is correct.
        crash: how the process ended, if this program crashed it.
    """

    name: str
    excess: float
    crash: str = ""

    @property
    def correct(self) -> bool:
        return not self.crash and self.excess <= 1.0


@dataclass(frozen=True)
class Examination:
    """The results of all checks.

    Args:
        results: for programs as `compiled_by` compiles them.
        plain: for programs as JAX compiles them by itself; None if that is the same, or was not requested.
        compiled_by: posteriax, or JAX by itself.
    """

    results: tuple[CheckResult, ...]
    plain: tuple[CheckResult, ...] | None = None
    compiled_by: str = "posteriax"

    @property
    def correct(self) -> bool:
        """Whether all programs are correct, as `compiled_by` compiles them."""
        return all(result.correct for result in self.results)


def examine(unguarded: bool = False) -> Examination:
    """Compile and run all checks here, in new processes.

    Args:
        unguarded: only as JAX compiles by itself, even if posteriax would switch something off.
    """
    plain = jax_release.environment_without_guard()
    if unguarded:
        return Examination(_run(plain), compiled_by="JAX by itself")
    return Examination(_run(dict(os.environ)), _run(plain) if jax_release.is_guarded() else None)


def _run(environment: dict[str, str]) -> tuple[CheckResult, ...]:
    # the same posteriax as here, wherever it was imported from
    root = str(Path(jax_release.__file__).parents[1])
    path = os.pathsep.join(part for part in (root, environment.get("PYTHONPATH", "")) if part)
    command = [sys.executable, "-W", "ignore", "-m", "posteriax.cli.doctor.checks"]
    variables = {**environment, "PYTHONPATH": path}
    with subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as worker:
        try:
            lines, errors = worker.communicate(timeout=LONGEST)
        except subprocess.TimeoutExpired:  # a miscompiled program may also never end (jax-ml/jax issue 39257)
            worker.kill()
            lines, errors = worker.communicate()
    return read_results(lines, worker.returncode, errors)


def read_results(lines: str, code: int, errors: str = "") -> tuple[CheckResult, ...]:
    """What a worker wrote; the program during which it ended early is reported too.

    >>> read_results('{"starts": "sum"}', -11)
    (CheckResult(name='sum', excess=inf, crash='SIGSEGV'),)
    """
    results, current = [], "starting JAX"
    for line in map(json.loads, lines.splitlines()):
        if "starts" in line:
            current = line["starts"]
        else:
            results.append(CheckResult(**line))
    if code:
        reason = signal.Signals(-code).name if code < 0 else (errors.strip().splitlines() or [f"exit code {code}"])[-1]
        results.append(CheckResult(current, float("inf"), crash=reason))
    return tuple(results)
