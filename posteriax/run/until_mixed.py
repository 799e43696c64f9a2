"""Sampling until the chains agree on their predictions.

    enough    R-hat < 1.01 and at least 400 effective draws at every test point, of all draws or of their second half
    look      at 400 / chains draws of each chain, then where R-hat - 1, which falls like 1 / draws, would be enough

Networks have symmetries, so that chains may differ in their weights and still be the same functions: only predictions
are compared. The rule looks at the run at numbers of draws that depend on the draws alone, and examines them in blocks
of one shape, so that results do not depend on chunking.
"""

import math
import time
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, NamedTuple

import jax
import numpy as np

from posteriax import distributed
from posteriax._internal.checks import check_count, check_inputs, check_positive
from posteriax.data.sources import is_loader
from posteriax.diagnostics.chain_agreement import sample_indices
from posteriax.diagnostics.chains import FEWEST_DRAWS, RHAT_MIXED, ess_bulk
from posteriax.diagnostics.chains import rhat as split_rhat
from posteriax.diagnostics.sampler import excess_divergences, summarize_sampler
from posteriax.diagnostics.verdict import format_rhat
from posteriax.methods.ensemble import Members
from posteriax.posterior.draws import DrawsPosterior, take_draws
from posteriax.posterior.trace import Trace
from posteriax.problem import Problem
from posteriax.run.checkpoint import digest_arrays
from posteriax.run.feeding import Inputs, TrainingData
from posteriax.run.loop import Observer, Run, trace_of
from posteriax.run.program import Program
from posteriax.run.stopping import StopRule

EXAMINED = 1000  # draws of each chain at most, unless more effective draws are asked for
SOONEST, LATEST = 1.2, 2.0  # the number of draws grows by a factor in this range before the next look
BLOCK = 50  # draws of each chain that are examined together: one compiled shape, whatever the chunks
CLOSEST = 10  # draws between two looks
WARMUP_CHUNK = 0.05  # seconds: steps may become a hundred times longer once a sampler has adapted
EARLIEST = 0.25  # of the time limit: before that, it is too early to tell whether the warm-up will fit
TIMED = 0.05  # of the limit: steps must have taken as long, after compilation, for their rate to be known


class DrawsVerdict(NamedTuple):
    """What the draws so far say.

    Args:
        enough: whether the run may end.
        dropped: how many of each chain's first examined draws to leave out.
        numbers: what was measured, by the names that the trace gives them.
        words: the same in a few words.
        again: the factor by which to grow the number of draws before the next look.
    """

    enough: bool
    dropped: int
    numbers: dict[str, float]
    words: str
    again: float


@dataclass(frozen=True, eq=False)
class UntilMixed(StopRule):
    """Draw until the chains agree on their predictions, for ``px.fit(..., px.HMC(), stop=px.run.UntilMixed(x))``.

    The run ends as soon as the rank-normalised split R-hat of the predictions (class probabilities, or means) is below
    `rhat` and their effective draws are at least `effective_draws`, both at every test point; or when `seconds` are
    over; or when it has taken all its `draws`. The trace says which, in a note, and has the result of every look:
    "checked_draws" (of each chain so far), "checked_rhat" (the largest) and "checked_effective_draws" (the fewest).
    `trace.converged` is true if the chains agree and at most one transition in 1,000 diverged.

    Chains that began far from the posterior spoil the R-hat of all draws together for a long time. Whenever all draws
    fail, the run is therefore judged without the first half of them as well (Gelman and Rubin 1992). If the rest
    passes, it is the posterior, and the first half counts as warm-up. At the end of a run that has not mixed, the
    half is left out if R-hat is smaller without it.

    Looks are few and cheap: the first after effective_draws / chains draws, the next where R-hat - 1, which falls like
    1 / draws, would be small enough, but after 1.2 to 2 times as many draws. They examine at most 1,000 draws of each
    chain, evenly spaced. Because a run may end whenever a look is favourable, the R-hat that it ends with is a little
    optimistic.

    Without `seconds`, runs with the same key end at the same draw, whatever happens to them: a run that was killed and
    resumed from its checkpoint gives the same bits. A limit of time makes the number of draws, not the draws
    themselves, depend on the machine. The same call with more `seconds`, or another rule, continues the run.

    To judge draws by something else, derive a rule and override `look` and `judge`.

    Args:
        x: test inputs to compare predictions at; by default training inputs.
        rhat: the limit for R-hat.
        effective_draws: how many at least, of all chains together.
        seconds: the limit of time, from before the first compilation; looked at about twice a second, but never within
            a transition. A run whose warm-up would take longer raises RuntimeError. None for no limit.
        points: how many of the inputs to examine at most; a seeded sample if there are more.

    >>> import numpy as np, posteriax as px
    >>> x = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
    >>> problem = px.Problem((lambda w, x: x @ w, np.zeros((3, 1), np.float32)), px.Normal(scale=1.0))
    >>> stop = px.run.UntilMixed(x, rhat=1.05, effective_draws=200)
    >>> posterior = px.fit(problem, (x, x[:, 0]), px.HMC(warmup=50), draws=5000, chains=2, key=0, stop=stop)
    >>> posterior.trace.notes[-1]
    'converged after ... draws of each chain: R-hat 1.0..., ... effective draws'
    >>> posterior.trace["checked_rhat"][-1] < 1.05
    np.True_
    """

    x: Inputs = None
    _: KW_ONLY
    rhat: float = RHAT_MIXED
    effective_draws: float = 400
    seconds: float | None = None
    points: int = 200
    chosen: np.ndarray = field(init=False, repr=False)  # which of the inputs are examined

    def __post_init__(self) -> None:
        if self.seconds is not None:
            check_positive("seconds", self.seconds)
        if not (isinstance(self.rhat, (int, float)) and 1.0 < self.rhat < math.inf):
            raise ValueError(f"rhat must be a number above 1, got {self.rhat!r}")
        check_positive("effective_draws", self.effective_draws)
        check_count("points", self.points)
        count = 0
        if self.x is not None:
            object.__setattr__(self, "x", check_inputs(self.x))
            count = jax.tree.leaves(self.x)[0].shape[0]
        object.__setattr__(self, "chosen", sample_indices(count, self.points))

    def for_data(self, problem: Problem, data: TrainingData, key: jax.Array) -> tuple["UntilMixed", TrainingData]:
        if self.x is not None:
            return self, data
        if is_loader(data):
            batch = next(iter(data), None)
            return self if batch is None else replace(self, x=problem.check_weighted(batch).x), data
        inputs = problem.check_weighted(data).x
        rows = sample_indices(jax.tree.leaves(inputs)[0].shape[0], self.points)
        return replace(self, x=jax.tree.map(lambda leaf: np.asarray(leaf[rows]), inputs)), data

    def prepare(self, members: Members) -> Members:
        method = members.kernel.method
        if not method.samples:
            raise ValueError(
                f"stop={type(self).__name__}(...) is for samplers: {method.name} optimises, and "
                "px.evaluation.EarlyStopping(...) can end it"
            )
        if self.seconds is not None and distributed.several():
            raise ValueError("a limit of seconds is for runs of one process: several would measure different times")
        if members.count < 2:
            raise ValueError("px.run.UntilMixed compares chains: run several, chains=4")
        members.kernel.problem.output_spec(self.x)  # raises if the network cannot read them
        return members

    def observer(self, program: Program) -> "StopWhenMixed":
        return StopWhenMixed(self, program)

    @property
    def settings(self) -> str:
        """What looks depend on besides the draws: a resumed run keeps its looks if this has not changed."""
        limits = f"R-hat {self.rhat!r}, {self.effective_draws!r} effective draws, {self.points} points"
        return f"{limits}, {digest_arrays(self.x)}"

    def first_look(self, chains: int) -> int:
        """Draws of each chain before the first look."""
        return max(FEWEST_DRAWS, math.ceil(self.effective_draws / chains))

    def most_examined(self, chains: int) -> int:
        """The largest number of draws of each chain to examine; of more, evenly spaced ones, at least half as many."""
        return max(EXAMINED, math.ceil(4 * self.effective_draws / chains))

    def look(self, posterior: DrawsPosterior) -> np.ndarray:
        """What draws are judged by, (draws, columns), all draws of a chain before those of the next."""
        if posterior.problem.couples_examples(self.x):
            values = posterior.predict(self.x).per_draw()[:, self.chosen]  # it must see its examples together
        else:
            values = posterior.predict(jax.tree.map(lambda a: a[self.chosen], self.x)).per_draw()
        return values.reshape(len(values), -1)

    def judge(self, values: np.ndarray) -> DrawsVerdict:
        """What the examined draws say, (chains, draws, columns)."""
        verdicts = [self._judge_without(values, 0)]
        if not verdicts[0].enough and values.shape[1] >= 2 * FEWEST_DRAWS:
            verdicts.append(self._judge_without(values, values.shape[1] // 2))
        return min(verdicts, key=lambda verdict: (not verdict.enough, verdict.numbers["checked_rhat"]))

    def _judge_without(self, values: np.ndarray, dropped: int) -> DrawsVerdict:
        kept = values[:, dropped:]
        worst, least = float(np.fmax.reduce(split_rhat(kept))), float(np.min(ess_bulk(kept)))
        missing = max((worst - 1.0) / (self.rhat - 1.0), self.effective_draws / least)
        return DrawsVerdict(
            enough=worst < self.rhat and least >= self.effective_draws,
            dropped=dropped,
            numbers={"checked_rhat": worst, "checked_effective_draws": least},
            words=f"R-hat {format_rhat(worst)}, {least:.0f} effective draws",
            again=float(np.clip(np.nan_to_num(missing, nan=LATEST), SOONEST, LATEST)),
        )


class Look(NamedTuple):
    """A look at a run.

    Args:
        draws: of each chain so far.
        verdict: on the draws that were examined.
        left_out: how many of each chain's first draws to leave out.
        divergences: how many transitions diverged, if more than can be tolerated; otherwise 0.
    """

    draws: int
    verdict: DrawsVerdict
    left_out: int
    divergences: int


class StopWhenMixed(Observer):
    """Looks at the draws of a run at growing intervals, and ends it when they are enough or time is over."""

    def __init__(self, rule: UntilMixed, program: Program):
        self.rule, self.program = rule, program
        self.due = rule.first_look(program.members)  # draws of each chain at the next look
        self.looks: list[Look] = []
        self.final: Look | None = None  # at the end, if no look was due: a run that is continued forgets it
        self.over = False
        self.rate = 0.0  # steps per second of the last chunk
        self.warming: list[tuple[float, int]] = []  # seconds and steps after every chunk of the warm-up
        self.began, self.before = time.monotonic(), 0.0  # seconds of a resumed run before it was resumed
        self.stride, self.values = 1, np.empty((program.members, 0, 0))  # of the draws that were examined

    def next_stop(self, step: int) -> int | None:
        warmup = self.program.task.warmup
        if self.rule.seconds is not None and step < warmup:
            return step + max(1, int(WARMUP_CHUNK * self.rate))
        at = warmup + self.due * self.program.task.thin
        return at if step < at else None

    def asks_to_stop(self) -> bool:
        return self.over or (self._last is not None and self._last.verdict.enough)

    def after_chunk(self, run: Run) -> None:
        draws, self.final = self.program.draws_until(run.step), None
        self.rate = run.rate
        self.over = self._time_is_over() or self._warmup_is_too_long(run.step)
        ends = (self.over or run.step == self.program.task.steps) and draws >= FEWEST_DRAWS
        if draws:
            self._examine(run, draws, every=draws >= self.due or ends)
        if draws >= self.due:
            self.looks.append(self._look(run, draws))
            self.due = max(draws + CLOSEST, round(draws * self.looks[-1].verdict.again))
        elif ends:
            self.final = self._look(run, draws)

    def _examine(self, run: Run, draws: int, *, every: bool) -> None:
        """Examine the new draws, every one or complete blocks; where there are too many, every second."""
        while draws > self.stride * self.rule.most_examined(self.program.members):
            self.stride, self.values = 2 * self.stride, self.values[:, ::2]
        due = np.arange(self.stride * self.values.shape[1], draws, self.stride)
        for first in range(0, len(due) if every else len(due) - BLOCK + 1, BLOCK):
            block = due[first : first + BLOCK]
            padded = np.concatenate([block, np.full(BLOCK - len(block), block[-1])])
            taken = jax.tree.map(lambda *chunks, padded=padded: take_draws(chunks, padded), *run.drawn)
            seen = self.rule.look(DrawsPosterior(self.program.task.problem, Trace({}), taken))
            seen = seen.reshape(self.program.members, BLOCK, -1)[:, : len(block)]
            self.values = np.concatenate([self.values, seen], axis=1) if self.values.size else seen

    def _look(self, run: Run, draws: int) -> Look:
        verdict = self.rule.judge(self.values)
        left_out = self.stride * verdict.dropped
        sampler = summarize_sampler(trace_of(self.program, run.recorded, dropped=left_out))
        return Look(draws, verdict, left_out, excess_divergences(sampler))

    @property
    def _last(self) -> Look | None:
        return self.final or (self.looks[-1] if self.looks else None)

    @property
    def _seconds(self) -> float:
        return self.before + time.monotonic() - self.began

    def _time_is_over(self) -> bool:
        return self.rule.seconds is not None and self._seconds >= self.rule.seconds

    def _warmup_is_too_long(self, step: int) -> bool:
        """Whether the warm-up would not end in time at the rate of the last half of the time that steps have taken.

        A single chunk is over in a moment, in which another program may have had the processor.
        """
        limit, seconds, missing = self.rule.seconds, self._seconds, self.program.task.warmup - step
        if limit is None or missing <= 0:
            return False
        self.warming.append((seconds, step))
        compiled = self.warming[0][0]
        if seconds < max(EARLIEST * limit, compiled + TIMED * limit):
            return False
        before, first = min(self.warming, key=lambda chunk: abs(chunk[0] - (compiled + seconds) / 2))
        return missing > (step - first) / max(seconds - before, 1e-9) * (limit - seconds)

    def saved(self) -> dict[str, Any]:
        looks = {"due": self.due, "looks": self.looks, "final": self.final}
        return {"sampling_seconds": self._seconds, "sampling_rule": self.rule.settings, "sampling_looks": looks}

    def restore(self, saved: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        self.before = saved.get("sampling_seconds", saved["seconds"])
        self.over = self._time_is_over()
        if saved.get("sampling_rule") == self.rule.settings:  # another rule looks anew
            looks = saved["sampling_looks"]
            self.due, self.looks = looks["due"], [_restored(look) for look in looks["looks"]]
            self.final = looks["final"] and _restored(looks["final"])

    def dropped(self) -> int:
        return 0 if self._last is None else self._last.left_out

    def headline(self) -> str:
        return "" if self._last is None else self._last.verdict.words

    @property
    def converged(self) -> bool:
        """Whether the draws are enough, and not too many transitions diverged, which more draws would not cure."""
        return self._last is not None and self._last.verdict.enough and not self._last.divergences

    def trace_arrays(self) -> dict[str, np.ndarray]:
        converged = {"converged": np.array([self.converged])}
        looks = [*self.looks, *([self.final] if self.final else [])]
        if not looks:
            return converged
        names = looks[-1].verdict.numbers
        measured = {name: np.array([look.verdict.numbers[name] for look in looks]) for name in names}
        return {"checked_draws": np.array([look.draws for look in looks]), **measured, **converged}

    def notes(self) -> tuple[str, ...]:
        if (last := self._last) is None:
            return ("not converged: too few draws to compare the chains",)
        ending = f"after {last.draws} draws of each chain"
        if self.over and not last.verdict.enough:
            ending += f", at its limit of {self.rule.seconds:g} seconds"
        left_out = f"; the first {last.left_out} of each count as warm-up" if last.left_out else ""
        diverged = f", but {last.divergences:,} divergent transitions" if last.divergences else ""
        return (f"{'' if self.converged else 'not '}converged {ending}: {last.verdict.words}{diverged}{left_out}",)


def _restored(look: list[Any]) -> Look:
    draws, verdict, left_out, divergences = look
    return Look(draws, DrawsVerdict(*verdict), left_out, divergences)
