"""Running the checks in new processes, and the report: what is installed, a table of results, a verdict."""

import importlib.metadata
import json
import os
import platform
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from posteriax.__about__ import __version__
from posteriax._internal import jax_release
from posteriax.cli.environment import console

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


def run_doctor(unguarded: bool = False) -> int:
    """Examine this installation, print the report, and return the exit code: 1 if something is computed wrongly."""
    examination = examine(unguarded)
    print_report(console(), describe_installation(), examination)
    return 0 if examination.correct else 1


def print_report(screen: Console, facts: Mapping[str, str], examination: Examination) -> None:
    """Facts, one line for each program, and the verdict."""
    for name, fact in facts.items():
        screen.print(f"{name:<10} {escape(fact)}", highlight=False, soft_wrap=True)
    table = Table(title="Largest error / what rounding explains", title_justify="left")
    table.add_column("program")
    columns = [(f"as {examination.compiled_by} compiles", examination.results)]
    if examination.plain is not None:
        columns.append(("as JAX compiles by itself", examination.plain))
    by_name = [{result.name: result for result in results} for _, results in columns]
    for heading, _ in columns:
        table.add_column(heading, justify="right")
    for name in dict.fromkeys(name for results in by_name for name in results):
        table.add_row(name, *(describe(results.get(name)) for results in by_name))
    screen.print(table)
    screen.print(verdict(examination), highlight=False, soft_wrap=True)


def describe(result: CheckResult | None) -> str:
    """
    >>> describe(CheckResult("sum", 0.031)), describe(CheckResult("sum", 4e5)), describe(None)
    ('0.031 ok', '4e+05 WRONG', 'not run')
    """
    if result is None:
        return "not run"
    if result.crash:
        return f"{result.crash} WRONG"
    return f"{result.excess:.2g} {'ok' if result.correct else 'WRONG'}"


def verdict(examination: Examination) -> str:
    """The conclusion, and what to do."""
    advice = "Install a correct release: pip install 'jax==0.10.1' 'jaxlib==0.10.1'."
    wrong, plainly_wrong = describe_wrong(examination.results), describe_wrong(examination.plain or ())
    by = examination.compiled_by
    if wrong:
        return f"WRONG: as {by} compiles here, {wrong}. Do not trust results. {advice}"
    correct = (
        f"CORRECT: as {by} compiles here, {len(examination.results)} programs agree with float64 NumPy to rounding."
    )
    if not plainly_wrong:
        return correct
    return (
        f"{correct}\nWRONG: as JAX compiles by itself, {plainly_wrong}. Importing posteriax switches off the cause; "
        f"for programs that do not import it, set XLA_FLAGS={jax_release.FLAG} in the environment."
    )


def describe_wrong(results: tuple[CheckResult, ...]) -> str:
    """
    >>> describe_wrong((CheckResult("sum", 1e6), CheckResult("scan", 0.5), CheckResult("sorting", float("inf"))))
    '2 of 3 programs are wrong (sum; sorting)'
    """
    wrong = [result.name for result in results if not result.correct]
    return f"{len(wrong)} of {len(results)} programs are wrong ({'; '.join(wrong)})" if wrong else ""


PACKAGES = ("jax", "jaxlib", "numpy", "equinox", "quax", "optax", "blackjax", "numpyro", "safetensors", "flax", "scipy")


def describe_installation() -> dict[str, str]:
    """Versions, devices, cores and memory, as text. Starts JAX's backend."""
    import jax
    import jaxlib.version

    kinds = Counter(device.device_kind for device in jax.devices())
    facts = {
        "posteriax": __version__,
        "python": f"{platform.python_version()}, {platform.system()} {platform.machine()}",
        "packages": ", ".join(f"{name} {version}" for name, version in versions().items()),
        "devices": ", ".join(f"{count} {kind}" for kind, count in kinds.items()),
        "cores": str(os.cpu_count()),
        "memory": memory(),
    }
    flags = jax_release.environment_without_guard()["XLA_FLAGS"]
    guard = f"posteriax switches off the YNN fusion, which is wrong on CPUs in jaxlib {jaxlib.version.__version__}"
    facts |= {"XLA_FLAGS": flags} if flags else {}
    return facts | ({"guard": guard} if jax_release.is_guarded() else {})


def versions() -> dict[str, str]:
    """Versions of the installed packages that results depend on."""
    installed = {package.name: package.version for package in importlib.metadata.distributions()}
    return {name: installed[name] for name in PACKAGES if name in installed}


def memory() -> str:
    """The machine's memory, total and free."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30 if hasattr(os, "sysconf") else None
    if total is None:
        return "unknown"
    table = Path("/proc/meminfo")
    lines = table.read_text().splitlines() if table.exists() else []
    free = [int(line.split()[1]) / 2**20 for line in lines if line.startswith("MemAvailable")]
    return f"{total:.1f} GB" + (f", {free[0]:.1f} GB free" if free else "")
