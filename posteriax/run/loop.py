"""The loop that drives every run: compiled chunks of steps, with observers called between them.

    while steps are left and nobody asks to stop:
        take a chunk of steps        one compiled program, about half a second long
        synchronise                  if there are several processes
        call every observer          the warm-up's check, watches, stop rules, progress, Ctrl-C; checkpoints last

An observer that is not needed is not there, so what a run does not use costs it nothing.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from posteriax import distributed
from posteriax._internal.interruption import Stop
from posteriax._internal.leaf_paths import leaf_paths
from posteriax._internal.progress import Progress
from posteriax.posterior.trace import Trace
from posteriax.run.feeding import Supply
from posteriax.run.program import Draws, Infos, Program, States, Streams

SECONDS_PER_CHUNK = 0.5  # how often observers are called


@dataclass
class Run:
    """The progress of a run, updated by the loop.

    Args:
        step: how many steps have been taken.
        states: of all members, on the devices.
        recorded: what steps recorded, one item per chunk, (steps, members) in host memory.
        drawn: the draws that were kept, one item per chunk; in host memory, or in a checkpoint's files.
        seconds: the run time so far.
        rate: steps per second of the last chunk.
        ending: whether the last chunk has been taken.
    """

    step: int
    states: States
    recorded: list[Infos]
    drawn: list[Draws]
    seconds: float = 0.0
    rate: float = 0.0
    ending: bool = False


class Observer:
    """Observes a run. Override what is needed; by default every method does nothing.

    >>> class Impatient(Observer):
    ...     def asks_to_stop(self) -> bool:
    ...         return True
    >>> Impatient().asks_to_stop(), Observer().asks_to_stop()
    (True, False)
    """

    def identity(self) -> dict[str, str]:
        """What the run's result depends on because of this observer, by name.

        A checkpoint is resumed only if all of it is unchanged.
        """
        return {}

    def next_stop(self, step: int) -> int | None:
        """The last step that a chunk starting at `step` may run to."""
        return None

    def asks_to_stop(self) -> bool:
        """Whether the run should end here; asked before and after `after_chunk`, and when a run is resumed."""
        return False

    def after_chunk(self, run: Run) -> None:
        """Called after every chunk."""

    def saved(self) -> dict[str, Any]:
        """What a checkpoint should store for this observer, as JSON."""
        return {}

    def saved_arrays(self) -> dict[str, np.ndarray]:
        """Arrays that a checkpoint should store, under names that no other observer uses."""
        return {}

    def restore(self, saved: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        """Restore what a checkpoint stored for all observers."""

    def chosen(self, states: States) -> States:
        """The states that the posterior is made of, given the last ones."""
        return states

    def dropped(self) -> int:
        """How many of each chain's first draws to leave out of the posterior: they count as warm-up."""
        return 0

    def headline(self) -> str:
        """What the progress bar should show for this observer."""
        return ""

    def trace_arrays(self) -> dict[str, np.ndarray]:
        """Arrays to add to the posterior's trace."""
        return {}

    def notes(self) -> tuple[str, ...]:
        """Notes to add to the posterior's trace."""
        return ()


def run_steps(
    program: Program,
    supply: Supply,
    keys: Streams,
    run: Run,
    observers: Sequence[Observer],
    synchronize: Callable[[Run], None] = lambda run: None,
) -> None:
    """Take all steps, unless an observer stops the run.

    `synchronize` is called after every chunk, before the observers: see :class:`SyncProcesses`.
    """
    total, began = program.task.steps, time.monotonic() - run.seconds
    length = program.capacity if program.fed else 1
    while run.step < total and not run.ending:
        first, before = run.step, time.monotonic()
        stops = [stop for observer in observers if (stop := observer.next_stop(first)) is not None]
        _take_chunk(program, supply, keys, run, min(first + length, total, *stops))
        now = time.monotonic()
        run.rate, run.seconds = (run.step - first) / max(now - before, 1e-9), now - began
        synchronize(run)
        run.ending = run.step == total or any(observer.asks_to_stop() for observer in observers)
        for observer in observers:
            observer.after_chunk(run)
            run.ending = run.ending or observer.asks_to_stop()  # by what it has just seen: the checkpoint comes last
        if not program.fed:
            length = int(np.clip(run.rate * SECONDS_PER_CHUNK, 1, min(program.capacity, 8 * length)))


def _take_chunk(program: Program, supply: Supply, keys: Streams, run: Run, last: int) -> None:
    batches, first = supply.take(run.step, last), run.step
    states, *others = program.chunk(keys, run.states, batches, np.int32(first), np.int32(last))
    reached, well, infos, draws = distributed.gathered(others)
    if not np.asarray(well).all():
        raise FloatingPointError(_what_went_wrong(program, states, int(np.asarray(reached).min()), infos))
    run.states, run.step = states, last
    run.recorded.append(_to_host(infos, last - first))
    kept = program.draws_until(last) - program.draws_until(first)
    if program.method.samples and kept:
        run.drawn.append(_to_host(draws, kept))


def trace_of(
    program: Program, recorded: list[Infos], notes: tuple[str, ...] = (), seconds: float = 0.0, dropped: int = 0
) -> Trace:
    """What steps recorded, by name: (steps, ...) for one member, (members, steps, ...) for several.

    `dropped` draws of each chain count as warm-up.
    """
    joined = jax.tree.map(lambda *parts: np.concatenate(parts), *recorded)._asdict()
    single = program.members == 1
    values = {name: (a[:, 0] if single else np.moveaxis(a, 1, 0)) for name, a in joined.items()}
    warmup = program.task.warmup + dropped * program.task.thin
    return Trace(values, notes, seconds, warmup, dict(program.method.arviz_names))


def first_bad_leaf(states: States) -> str:
    """The path of the first leaf with a non-finite value; empty if there is none."""
    for path, leaf in zip(leaf_paths(states), jax.tree.leaves(distributed.gathered(states)), strict=True):
        if jnp.issubdtype(leaf.dtype, jnp.floating) and not np.isfinite(np.asarray(leaf)).all():
            return path
    return ""


def _to_host(buffers: Infos | Draws, count: int) -> Infos | Draws:
    # sliced on the host: on the device every new length would be compiled
    return jax.tree.map(lambda a: np.array(np.asarray(a)[:count]), buffers)


def _what_went_wrong(program: Program, states: States, reached: int, infos: Infos) -> str:
    leaf = first_bad_leaf(states)
    where = f"the first leaf that is not finite is {leaf}" if leaf else "all leaves are still finite"
    return (
        f"{program.method.name} stopped at step {reached} of {program.task.steps}: {infos._fields[0]} is not finite, "
        f"and {where}. A smaller learning rate or step size, scaled inputs or a narrower prior usually help."
    )


class ShowProgress(Observer):
    """Shows the rate, the remaining time, the first quantity that steps record, and other observers' headlines."""

    def __init__(self, bar: Progress, others: Sequence[Observer] = ()):
        self.bar, self.others = bar, others

    def after_chunk(self, run: Run) -> None:
        infos = run.recorded[-1]
        recorded = f"{infos._fields[0]} {float(np.mean(infos[0][-100:])):.4g}"
        headlines = [headline for observer in self.others if (headline := observer.headline())]
        self.bar.update(run.step, run.rate, ", ".join([recorded, *headlines]))


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


class SyncProcesses:
    """Synchronises clocks and stop requests of the processes that make a run together, after every chunk.

    Each measures its own time, and a signal may reach only one of them. All continue with the times of process 0, which
    decide how long the next chunk is and when a checkpoint is due, and all stop if one of them was asked to.

    Args:
        stop: whether this process was asked to stop.

    Attributes:
        stop: whether the run should stop; the same in all processes.
    """

    def __init__(self, stop: Stop):
        self._local_stop = stop
        self.stop = Stop() if distributed.several() else stop

    def __call__(self, run: Run) -> None:
        if not distributed.several():
            return
        messages = distributed.exchange([self._local_stop.asked, run.rate, run.seconds], f"taking steps to {run.step}")
        self.stop.asked = any(asked for asked, _, _ in messages)
        _, run.rate, run.seconds = messages[0]
