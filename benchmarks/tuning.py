"""What each item of :mod:`posteriax._internal.cpu_tuning` is worth on this machine: with it and without, in turn."""

import contextlib
import os
import sys
from collections.abc import Callable
from functools import partial

import numpy as np
from rich.table import Table

from benchmarks.start import FIRST_STEP, seconds_of_process
from benchmarks.timing import interleave, ratio_table
from benchmarks.worker import Worker
from posteriax._internal.cpu_tuning import IMAGES, LLVM_LEVELS, NARROW, NOISE_ONCE, SUMS, SWITCH, UNROLLED_BITS

# cases of benchmarks.compilers, and the items that matter to each
STEPS = {
    "step of the MLP, mean-field VI": ("all on", NOISE_ONCE, UNROLLED_BITS, LLVM_LEVELS),
    "step of LeNet, MAP": ("all on", IMAGES, SUMS),
    "leapfrog of a last layer, HMC": ("all on", NARROW),
}
STARTS = ("all on", LLVM_LEVELS)


def report(rounds: int) -> list[Table]:
    """Seconds with everything on and with one item off: of training steps, and of a process up to its first step."""
    baseline, start = _label("all on"), "a new process up to its first training step"
    tables = [
        ratio_table(_step_times(step, names, rounds), baseline, unit="ms", title=step, digits=3)
        for step, names in STEPS.items()
    ]
    starts: dict[str, Callable[[], float]] = {
        _label(name): partial(seconds_of_process, FIRST_STEP, environment=_without(name)) for name in STARTS
    }
    start_times = interleave(starts, max(rounds // 3, 1))
    return [*tables, ratio_table(start_times, baseline, unit="s", title=start, digits=3)]


def _step_times(step: str, names: tuple[str, ...], rounds: int) -> dict[str, np.ndarray]:
    command = [sys.executable, "-m", "benchmarks.compilers"]
    with contextlib.ExitStack() as stack:
        workers = {name: stack.enter_context(Worker(command, _without(name))) for name in names}
        for worker in workers.values():  # one after another: all compile before any is timed
            worker.seconds(step)
        cases: dict[str, Callable[[], float]] = {
            _label(name): partial(worker.seconds, step) for name, worker in workers.items()
        }
        return interleave(cases, rounds)


def _label(name: str) -> str:
    return name if name == "all on" else f"without {name}"


def _without(name: str) -> dict[str, str]:
    return {**os.environ, SWITCH: "" if name == "all on" else name}
