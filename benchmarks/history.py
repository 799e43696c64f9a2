"""Ratios by commit: the cases of `benchmarks.compilers` in several commits of this repository, timed in turn.

Each commit is unpacked into a temporary folder, and a process there compiles its own cases with this interpreter. In
a round every commit runs every case once, so that other load on the machine slows all of them alike. A step or
leapfrog is divided by the hand-written one that the same process ran in the same round.

What was measured is added to docs/results/benchmark_history.json, from which docs/benchmark_history.md is written.
"""

import contextlib
import io
import json
import os
import platform
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from benchmarks.compilers import CASES
from benchmarks.timing import make_table
from benchmarks.worker import Worker, interleave_workers

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results" / "benchmark_history.json"
PAGE = ROOT / "docs" / "benchmark_history.md"
FIGURE = ROOT / "docs" / "figures" / "benchmark_history.png"
BEGIN, END = "<!-- written by: python -m benchmarks history -->\n", "<!-- end of what is written -->"
# each case, and the hand-written one that it is divided by
BASELINES = {
    "step of the MLP, mean-field VI": "step of the MLP, deterministic",
    "step of LeNet, MAP": "step of the MLP, deterministic",
    "step of LeNet, mean-field VI (local)": "step of the MLP, deterministic",
    "leapfrog, HMC": "leapfrog, hand-written",
    "leapfrog of a last layer, HMC": "leapfrog, hand-written",
}
assert {*BASELINES, *BASELINES.values()} <= set(CASES)


def report(commits: Sequence[str], rounds: int) -> list[Table]:
    """Measure commits, add them to the results, and write the page; without commits only write the page."""
    if commits:
        records = measure([resolve(commit) for commit in commits], rounds)
        write_results(merge(read_results(), records))
    write_page(read_results())
    return [table(read_results())]


def resolve(commit: str) -> str:
    """The full name of a commit."""
    return _git("rev-parse", "--verify", f"{commit}^{{commit}}").decode().strip()


def measure(commits: Sequence[str], rounds: int) -> list[dict[str, Any]]:
    """A record of each commit: what was compared, and the ratios of every case, one for each round."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        workers = {}
        for commit in commits:
            tree = Path(folder) / commit
            with tarfile.open(fileobj=io.BytesIO(_git("archive", "--format=tar", commit))) as archive:
                archive.extractall(tree, filter="data")
            command = [sys.executable, "-m", "benchmarks.compilers"]
            environment = os.environ | {"PYTHONPATH": str(tree)}
            workers[commit] = stack.enter_context(Worker(command, environment, tree))
        times = interleave_workers(workers, CASES, rounds)
    return [describe(commit, {case: times[case][commit] for case in CASES}) for commit in commits]


def describe(commit: str, times: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """A commit, the machine, and the 10 %, 50 % and 90 % quantiles of each ratio."""
    import jax

    date, subject = _git("show", "-s", "--format=%cI%n%s", commit).decode().strip().split("\n", 1)
    return {
        "commit": commit[:7],
        "date": date,
        "subject": subject,
        "jax": jax.__version__,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "rounds": len(next(iter(times.values()))),
        "ratios": {
            case: [round(float(value), 3) for value in np.quantile(times[case] / times[baseline], [0.1, 0.5, 0.9])]
            for case, baseline in BASELINES.items()
        },
    }


def read_results() -> list[dict[str, Any]]:
    """All records, the oldest commit first."""
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else []


def merge(old: Sequence[dict[str, Any]], new: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """All records, by date; a commit that was measured again has its new record only."""
    again = {record["commit"] for record in new}
    return sorted([*(r for r in old if r["commit"] not in again), *new], key=lambda record: record["date"])


def write_results(records: Sequence[dict[str, Any]]) -> None:
    RESULTS.write_text(json.dumps(records, indent=1) + "\n")


def table(records: Sequence[dict[str, Any]]) -> Table:
    """Medians by commit, for a terminal."""
    made = make_table("Over hand-written JAX, by commit", tuple(BASELINES))
    for record in records:
        made.add_row(record["commit"], *(f"{record['ratios'][case][1]:.2f}" for case in BASELINES))
    return made


def write_page(records: Sequence[dict[str, Any]]) -> None:
    """The table of the page, and its figure."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}{markdown(records)}{END}{rest.partition(END)[2]}")
    draw(records).savefig(FIGURE, dpi=150)


def markdown(records: Sequence[dict[str, Any]]) -> str:
    """A table with a row for each commit: medians, and the range of 80 % of the rounds."""
    heads = " | ".join(BASELINES)
    lines = [f"| commit | date | JAX | {heads} |", "| --- | --- | --- " + "| ---: " * len(BASELINES) + "|"]
    for record in records:
        cells = [f"{middle:.2f} ({low:.2f} to {high:.2f})" for low, middle, high in record["ratios"].values()]
        row = [f"`{record['commit']}` {record['subject']}", record["date"][:10], record["jax"], *cells]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |")
    return "\n" + "\n".join(lines) + "\n\n"


def draw(records: Sequence[dict[str, Any]]) -> Any:
    """One panel for each case: the median by commit, with the range of 80 % of the rounds."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(BASELINES), figsize=(2.5 * len(BASELINES), 3.2), layout="constrained")
    at = np.arange(len(records))
    for axis, case in zip(axes, BASELINES, strict=True):
        low, middle, high = np.array([record["ratios"][case] for record in records]).T
        axis.errorbar(at, middle, [middle - low, high - middle], fmt="o-", color="#0072B2", capsize=3, linewidth=1)
        axis.set_xticks(at, [record["commit"] for record in records], rotation=90, fontsize="small")
        axis.set_title(case.replace(", ", ",\n"), fontsize="small")
        axis.set_ylim(0, 1.15 * high.max())
    axes[0].set_ylabel("over hand-written JAX")
    return figure


def _git(*arguments: str) -> bytes:
    return subprocess.run(["git", "-C", str(ROOT), *arguments], check=True, capture_output=True).stdout
