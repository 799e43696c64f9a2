"""``px.UntilMixed``: the rule that ends a sampler's run once its chains agree on their predictions."""

import math
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import jax
import numpy as np

from posteriax._internal.checks import check_count, check_inputs, check_positive
from posteriax.diagnostics.chain_agreement import sample_indices
from posteriax.diagnostics.chains import FEWEST_DRAWS, ess_bulk
from posteriax.diagnostics.chains import rhat as rhat_of
from posteriax.diagnostics.verdict import format_rhat
from posteriax.posterior.draws import DrawsPosterior
from posteriax.problem import Problem
from posteriax.run.sampling_rule import DrawsVerdict, SamplingRule

EXAMINED = 1000  # draws of each chain at most, unless more effective draws are asked for
SOONEST, LATEST = 1.2, 2.0  # a run looks again after so many times as many draws


@dataclass(frozen=True, eq=False)
class UntilMixed(SamplingRule):
    """Draw until the chains agree on their predictions, for ``px.fit(..., px.HMC(), stop=px.UntilMixed(x))``.

    The run ends as soon as the rank-normalised split R-hat of the predictions (class probabilities, or means) is below
    `rhat` and their effective draws are at least `effective_draws`, both at every test point; or when `seconds` are
    over; or when it has taken all its `draws`. The trace says which, in a note, and has what was found at every look:
    "checked_draws" (of each chain so far), "checked_rhat" (the largest) and "checked_effective_draws" (the fewest).

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

    Args:
        x: test inputs to compare predictions at.
        rhat: the limit for R-hat.
        effective_draws: how many at least, of all chains together.
        seconds: the limit of time, from before the first compilation; looked at about twice a second, but never within
            a transition. A run whose warm-up would take longer raises RuntimeError. None for no limit.
        points: at most so many of the inputs are examined, a seeded sample if there are more.

    >>> import numpy as np, posteriax as px
    >>> x = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
    >>> problem = px.Problem((lambda w, x: x @ w, np.zeros((3, 1), np.float32)), px.Normal(scale=1.0))
    >>> stop = px.UntilMixed(x, rhat=1.05, effective_draws=200)
    >>> posterior = px.fit(problem, (x, x[:, 0]), px.HMC(warmup=50), draws=5000, chains=2, key=0, stop=stop)
    >>> posterior.trace.notes[-1]
    'stopped after ... draws of each chain, which were enough: R-hat 1.0..., ... effective draws'
    >>> posterior.trace["checked_rhat"][-1] < 1.05
    np.True_
    """

    x: Any
    _: KW_ONLY
    rhat: float = 1.01
    effective_draws: float = 400
    seconds: float | None = None
    points: int = 200
    chosen: np.ndarray = field(init=False, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "x", check_inputs(self.x))
        if not (isinstance(self.rhat, (int, float)) and 1.0 < self.rhat < math.inf):
            raise ValueError(f"rhat must be a number above 1, got {self.rhat!r}")
        check_positive("effective_draws", self.effective_draws)
        check_count("points", self.points)
        object.__setattr__(self, "chosen", sample_indices(jax.tree.leaves(self.x)[0].shape[0], self.points))

    @property
    def settings(self) -> str:
        return f"R-hat {self.rhat!r}, {self.effective_draws!r} effective draws, {self.points} points"

    @property
    def inputs(self) -> Any:
        return self.x

    def check(self, problem: Problem, chains: int) -> None:
        if chains < 2:
            raise ValueError("px.UntilMixed compares chains: run several, chains=4")
        problem.output_spec(self.x)

    def first(self, chains: int) -> int:
        return max(FEWEST_DRAWS, math.ceil(self.effective_draws / chains))

    def most(self, chains: int) -> int:
        return max(EXAMINED, math.ceil(4 * self.effective_draws / chains))

    def look(self, posterior: DrawsPosterior) -> np.ndarray:
        if posterior.problem.couples_examples(self.x):
            values = posterior.predict(self.x).per_draw()[:, self.chosen]  # it must see its examples together
        else:
            values = posterior.predict(jax.tree.map(lambda a: a[self.chosen], self.x)).per_draw()
        return values.reshape(len(values), -1)

    def judge(self, values: np.ndarray) -> DrawsVerdict:
        found = [self._judge(values, 0)]
        if not found[0].enough and values.shape[1] >= 2 * FEWEST_DRAWS:
            found.append(self._judge(values, values.shape[1] // 2))
        return min(found, key=lambda one: (not one.enough, one.numbers["checked_rhat"]))

    def _judge(self, values: np.ndarray, dropped: int) -> DrawsVerdict:
        kept = values[:, dropped:]
        worst, least = float(np.fmax.reduce(rhat_of(kept))), float(np.min(ess_bulk(kept)))
        missing = max((worst - 1.0) / (self.rhat - 1.0), self.effective_draws / least)
        return DrawsVerdict(
            enough=worst < self.rhat and least >= self.effective_draws,
            dropped=dropped,
            numbers={"checked_rhat": worst, "checked_effective_draws": least},
            words=f"R-hat {format_rhat(worst)}, {least:.0f} effective draws",
            again=float(np.clip(np.nan_to_num(missing, nan=LATEST), SOONEST, LATEST)),
        )
