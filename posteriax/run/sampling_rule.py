"""Ending a sampler's run once it has drawn enough: when to look at its draws, and what is kept of them.

The loop knows only what a rule declares here. What draws are judged by is up to the rule: diagnostics belong to a room
above this one, so `px.UntilMixed`, which compares chains by their predictions, lives there and derives from
:class:`SamplingRule`.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import numpy as np

from posteriax._internal.checks import check_positive
from posteriax.posterior.draws import DrawsPosterior, take_draws
from posteriax.posterior.trace import Trace
from posteriax.problem import Problem
from posteriax.run.checkpoint import digest
from posteriax.run.loop import Observer, Run
from posteriax.run.program import Program

BLOCK = 50  # draws of each chain that are examined together: one compiled shape, so the same bits however they come
CLOSEST = 10  # draws between two looks
WARMUP_CHUNK = 0.05  # seconds: steps may become a hundred times longer once a sampler has adapted
EARLIEST = 0.25  # of the time: before, nothing is said about whether the rest suffices for the warm-up


class DrawsVerdict(NamedTuple):
    """What a rule found in the draws so far.

    Args:
        enough: whether the run may end.
        dropped: how many of each chain's first examined draws it would leave out.
        numbers: what it measured, by the names that the trace gives them.
        words: the same in a few words.
        again: after how many times as many draws to look again.
    """

    enough: bool
    dropped: int
    numbers: dict[str, float]
    words: str
    again: float


@dataclass(frozen=True, kw_only=True, eq=False)
class SamplingRule(ABC):
    """What ends a sampler's run; :class:`px.UntilMixed` explains the settings.

    Args:
        seconds: after which the run ends whatever was found; None for no limit. A run whose warm-up would take longer
            ends as soon as that is clear.
    """

    seconds: float | None = None

    def __post_init__(self) -> None:
        if self.seconds is not None:
            check_positive("seconds", self.seconds)

    fewest: ClassVar[int] = 4  # draws of each chain without which nothing can be said

    @property
    @abstractmethod
    def settings(self) -> str:
        """What findings depend on beside the draws and `inputs`: a resumed run keeps them if this has not changed."""

    @property
    @abstractmethod
    def inputs(self) -> Any:
        """The arrays that findings depend on."""

    @abstractmethod
    def check(self, problem: Problem, chains: int) -> None:
        """Raise if draws of this problem cannot be judged."""

    @abstractmethod
    def first(self, chains: int) -> int:
        """Draws of each chain before the first look."""

    @abstractmethod
    def most(self, chains: int) -> int:
        """The largest number of draws of each chain to examine; of more, evenly spaced ones, at least half as many."""

    @abstractmethod
    def look(self, posterior: DrawsPosterior) -> np.ndarray:
        """What each draw is judged by, (draws, columns), all draws of a chain before those of the next."""

    @abstractmethod
    def judge(self, values: np.ndarray) -> DrawsVerdict:
        """What the examined draws say, (chains, draws, columns)."""


class Look(NamedTuple):
    """A look at a run: draws of each chain so far, what was found, and how many of each chain's first to leave out."""

    draws: int
    found: DrawsVerdict
    left_out: int


class StopSampling(Observer):
    """Looks at the draws of a run at growing intervals, and ends it when the rule has found enough or time is over."""

    def __init__(self, rule: SamplingRule, program: Program):
        rule.check(program.task.problem, program.members)
        self.rule, self.program = rule, program
        self.due = rule.first(program.members)  # draws of each chain at the next look
        self.looks: list[Look] = []
        self.final: Look | None = None  # at the end, if no look was due: a run that is continued forgets it
        self.over = False
        self.chunks, self.rate = 0, 0.0  # how many, and steps per second of the last one
        self.began, self.before = time.monotonic(), 0.0  # seconds of a resumed run before it was resumed
        self.stride, self.values = 1, np.empty((program.members, 0, 0))  # of the draws that were examined

    def next_stop(self, step: int) -> int | None:
        warmup = self.program.task.warmup
        if self.rule.seconds is not None and step < warmup:
            return step + max(1, int(WARMUP_CHUNK * self.rate))
        at = warmup + self.due * self.program.task.thin
        return at if step < at else None

    def asks_to_stop(self) -> bool:
        return self.over or (self._last is not None and self._last.found.enough)

    def after_chunk(self, run: Run) -> None:
        draws, self.final = self.program.draws_until(run.step), None
        self.chunks, self.rate = self.chunks + 1, run.rate
        self.over = self._time_is_over() or self._warmup_is_too_long(run.step)
        ends = (self.over or run.step == self.program.task.steps) and draws >= self.rule.fewest
        if draws:
            self._examine(run, draws, every=draws >= self.due or ends)
        if draws >= self.due:
            self.looks.append(self._look(draws))
            self.due = max(draws + CLOSEST, round(draws * self.looks[-1].found.again))
        elif ends:
            self.final = self._look(draws)

    def _examine(self, run: Run, draws: int, *, every: bool) -> None:
        """Examine the draws that have come since, every one or whole blocks; where there are too many, every second."""
        while draws > self.stride * self.rule.most(self.program.members):
            self.stride, self.values = 2 * self.stride, self.values[:, ::2]
        due = np.arange(self.stride * self.values.shape[1], draws, self.stride)
        for first in range(0, len(due) if every else len(due) - BLOCK + 1, BLOCK):
            some = due[first : first + BLOCK]
            padded = np.concatenate([some, np.full(BLOCK - len(some), some[-1])])
            taken = jax.tree.map(lambda *chunks, padded=padded: take_draws(chunks, padded), *run.drawn)
            seen = self.rule.look(DrawsPosterior(self.program.task.problem, Trace({}), taken))
            seen = seen.reshape(self.program.members, BLOCK, -1)[:, : len(some)]
            self.values = np.concatenate([self.values, seen], axis=1) if self.values.size else seen

    def _look(self, draws: int) -> Look:
        found = self.rule.judge(self.values)
        return Look(draws, found, self.stride * found.dropped)

    @property
    def _last(self) -> Look | None:
        return self.final or (self.looks[-1] if self.looks else None)

    @property
    def _seconds(self) -> float:
        return self.before + time.monotonic() - self.began

    def _time_is_over(self) -> bool:
        return self.rule.seconds is not None and self._seconds >= self.rule.seconds

    def _warmup_is_too_long(self, step: int) -> bool:
        """Whether the warm-up would not end in time at the current rate, to which compilation does not count."""
        limit, seconds, missing = self.rule.seconds, self._seconds, self.program.task.warmup - step
        if limit is None or missing <= 0 or self.chunks < 3 or seconds < EARLIEST * limit:
            return False
        return missing > self.rate * (limit - seconds)

    @property
    def _settings(self) -> str:
        return f"{self.rule.settings}, {digest(self.rule.inputs)}"

    def saved(self) -> dict[str, Any]:
        looks = {"due": self.due, "looks": self.looks, "final": self.final}
        return {"sampling_seconds": self._seconds, "sampling_rule": self._settings, "sampling_looks": looks}

    def restore(self, saved: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        self.before = saved.get("sampling_seconds", saved["seconds"])
        self.over = self._time_is_over()
        if saved.get("sampling_rule") == self._settings:  # another rule looks anew
            looks = saved["sampling_looks"]
            self.due, self.looks = looks["due"], [_restored(look) for look in looks["looks"]]
            self.final = looks["final"] and _restored(looks["final"])

    def dropped(self) -> int:
        return 0 if self._last is None else self._last.left_out

    def headline(self) -> str:
        return "" if self._last is None else self._last.found.words

    def trace_arrays(self) -> dict[str, np.ndarray]:
        looks = [*self.looks, *([self.final] if self.final else [])]
        if not looks:
            return {}
        names = looks[-1].found.numbers
        measured = {name: np.array([look.found.numbers[name] for look in looks]) for name in names}
        return {"checked_draws": np.array([look.draws for look in looks]), **measured}

    def notes(self) -> tuple[str, ...]:
        if (last := self._last) is None:
            return ()
        if last.found.enough:
            ending = f"stopped after {last.draws} draws of each chain, which were enough"
        elif self.over:
            ending = f"stopped by its limit of {self.rule.seconds:g} seconds after {last.draws} draws of each chain"
        else:
            ending = f"{last.draws} draws of each chain were not enough"
        left_out = f"; the first {last.left_out} of each count as warm-up" if last.left_out else ""
        return (f"{ending}: {last.found.words}{left_out}",)


def _restored(look: list[Any]) -> Look:
    draws, found, left_out = look
    return Look(draws, DrawsVerdict(*found), left_out)
