"""What each item of :mod:`posteriax._internal.cpu_tuning` is worth on this machine: with it and without, in turn."""

import contextlib
import os
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from posteriax._internal.cpu_tuning import LLVM_LEVELS, NOISE_ONCE, SWITCH, UNROLLED_BITS
from posteriax.cli.bench.start import FIRST_STEP, seconds_of_process
from posteriax.cli.bench.timing import interleave, ratio_table
from posteriax.cli.bench.worker import Worker

STEP = "step of the MLP, mean-field VI"  # a case of posteriax.cli.bench.compilers
STEPS = ("all on", NOISE_ONCE, UNROLLED_BITS, LLVM_LEVELS)
STARTS = ("all on", LLVM_LEVELS)


def report(rounds: int) -> list[Any]:
    """Seconds with everything on and with one item off: of a training step, and of a process up to its first step."""
    command = [sys.executable, "-m", "posteriax.cli.bench.compilers"]
    with contextlib.ExitStack() as stack:
        workers = {name: stack.enter_context(Worker(command, _without(name))) for name in STEPS}
        for worker in workers.values():  # one after another: all compile before any is timed
            worker.seconds(STEP)
        steps: dict[str, Callable[[], float]] = {
            _label(name): partial(worker.seconds, STEP) for name, worker in workers.items()
        }
        step_times = interleave(steps, rounds)
    starts: dict[str, Callable[[], float]] = {
        _label(name): partial(seconds_of_process, FIRST_STEP, environment=_without(name)) for name in STARTS
    }
    start_times = interleave(starts, max(rounds // 3, 1))
    baseline, start = _label("all on"), "a new process up to its first training step"
    return [
        ratio_table(step_times, baseline, unit="ms", title=STEP, digits=3),
        ratio_table(start_times, baseline, unit="s", title=start, digits=3),
    ]


def _label(name: str) -> str:
    return name if name == "all on" else f"without {name}"


def _without(name: str) -> dict[str, str]:
    return {**os.environ, SWITCH: "" if name == "all on" else name}
