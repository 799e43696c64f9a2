"""Observers of every run: progress, Ctrl-C, and the check of a sampler's warm-up."""

from collections.abc import Sequence

import numpy as np

from posteriax._internal.interruption import Stop
from posteriax._internal.progress import Progress
from posteriax.run.loop import Observer, Run, trace_of
from posteriax.run.program import Program


class ShowProgress(Observer):
    """Shows the rate, the remaining time, the first quantity that steps record, and what other observers have found."""

    def __init__(self, bar: Progress, others: Sequence[Observer] = ()):
        self.bar, self.others = bar, others

    def after_chunk(self, run: Run) -> None:
        infos = run.recorded[-1]
        recorded = f"{infos._fields[0]} {float(np.mean(infos[0][-100:])):.4g}"
        found = [headline for observer in self.others if (headline := observer.headline())]
        self.bar.update(run.step, run.rate, ", ".join([recorded, *found]))


class StopOnInterrupt(Observer):
    """Ends the run after the chunk in which Ctrl-C was pressed."""

    def __init__(self, stop: Stop):
        self.stop = stop

    def asks_to_stop(self) -> bool:
        return self.stop.asked


class CheckWarmup(Observer):
    """Lets the sampler check its own warm-up, and raise if it has failed."""

    def __init__(self, program: Program):
        self.program, self.warmup = program, program.task.warmup

    def next_stop(self, step: int) -> int | None:
        return self.warmup if step < self.warmup else None

    def after_chunk(self, run: Run) -> None:
        if self.warmup and run.step == self.warmup:
            self.program.kernel.check_warmup(trace_of(self.program, run.recorded))
