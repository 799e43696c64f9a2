"""Recommendation: which posterior to use, how sure that is, and what would change the answer.

The choice is among those that are best, or not significantly worse than the best, in the negative log likelihood. Of
these, in this order, those are preferred that

    converged                   their runs ended because they were done
    are calibrated              coverage or confidence is not significantly off
    are simple                  a baseline that predicts as well as a network is the better choice
    are cheap                   predictions cost at most three times those of the cheapest

and of those left, the one with the best score.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from posteriax.comparison.comparison import Comparison
from posteriax.comparison.estimates import format_estimate
from posteriax.comparison.recommendation_words import cautions, how_sure, is_network_worth_it, what_would_change
from posteriax.comparison.trust import Trust, trust_in
from posteriax.metrics import NLL, Score

MUCH_WORSE = 1.0  # nats per example
TIMES_WORSE = 2.0  # of a score that is not in nats
CHEAP = 3.0  # times the cost of the cheapest


@dataclass(frozen=True)
class Recommendation:
    """Which row of a comparison to use, in words. Print it.

    Args:
        name: of the row.
        posterior: of the posterior to use if it has to be one: `name`, unless that is a baseline; None without any.
        clear: whether all others are significantly worse.
        headline: one sentence.
        reasons: how sure that is, and why this one of several.
        trust: what its uncertainty can be trusted for.
        network: whether a network is worth it beside the baselines; empty if there are none.
        cautions: what to know before relying on it.
        changes: what would change the answer.

    >>> print(Recommendation("hmc", "hmc", clear=True, headline="Use hmc.", cautions=("There are only 36 test rows.",)))
    Use hmc.
    There are only 36 test rows.
    """

    name: str
    posterior: str | None
    clear: bool
    headline: str
    reasons: tuple[str, ...] = ()
    trust: tuple[str, ...] = ()
    network: str = ""
    cautions: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()

    def __str__(self) -> str:
        parts = (self.headline, *self.reasons), self.trust, (self.network,), self.cautions, self.changes
        return "\n".join(text for sentences in parts if (text := " ".join(filter(None, sentences))))


def recommend(comparison: Comparison) -> Recommendation:
    """The row to use, from its scores, its calibration, its cost and how its run ended.

    >>> from posteriax.metrics import Estimate
    >>> rows = {"MAP": {"nll": Estimate(0.5, 0.01)}, "HMC": {"nll": Estimate(0.3, 0.01)}}
    >>> advice = recommend(Comparison({"test": rows}, best={"test": {"nll": ("HMC",)}}))
    >>> print(advice.headline, *advice.reasons)
    Use HMC: its negative log likelihood (nll) is the lowest, 0.30 ± 0.01. That is clear: MAP is significantly worse.
    """
    column = deciding_column(comparison)
    if column is None:
        raise ValueError("there is nothing to decide by: the comparison has no score of which more or less is better")
    contenders = not_worse(comparison, column)
    name, preferred = _choose(comparison, contenders)
    networks = [other for other in contenders if other not in comparison.baselines]
    if not networks:
        others = [own for own, row in comparison.rows.items() if column in row and own not in comparison.baselines]
        networks = _by_score(comparison, column, others)[:1]
    posterior = name if name in networks else _choose(comparison, networks)[0] if networks else None
    return Recommendation(
        name,
        posterior,
        clear=len(contenders) == 1 and len(comparison.rows) > 1,
        headline=_headline(comparison, column, name, best=contenders[0]),
        reasons=how_sure(comparison, column, name, contenders, preferred),
        trust=trust_of(comparison, name).sentences,
        network=is_network_worth_it(comparison, column, contenders),
        cautions=cautions(comparison, column, name, contenders),
        changes=what_would_change(comparison, column, name, posterior, contenders),
    )


def _headline(comparison: Comparison, column: str, name: str, best: str) -> str:
    score, own = comparison.score(column), format_estimate(comparison.rows[name][column])
    if len(comparison.rows) == 1:
        return f"{name} was scored alone: its {score.quantity} is {own}."
    if name == best:
        extreme = {"higher": "the highest", "lower": "the lowest"}.get(str(score.better), "the best")
        return f"Use {name}: its {score.quantity} is {extreme}, {own}."
    least = format_estimate(comparison.rows[best][column])
    return f"Use {name}: its {score.quantity}, {own}, is not significantly worse than the best, {least} of {best}."


def deciding_column(comparison: Comparison) -> str | None:
    """The score that decides: the negative log likelihood, or the first one that can; None if there is none."""
    columns = [
        column
        for column in comparison.columns
        if comparison.score(column).better is not None and not comparison.score(column).against_reference
    ]
    return NLL.name if NLL.name in columns else next(iter(columns), None)


def not_worse(comparison: Comparison, column: str) -> list[str]:
    """The best row and those that are not significantly worse, nor worse by far.

    A row whose errors vary wildly may be far worse and still not significantly so.
    """
    score = comparison.score(column)
    rows = _by_score(comparison, column, [name for name, row in comparison.rows.items() if column in row])
    among = comparison.best.get(comparison.main, {}).get(column, tuple(rows[:1]) if len(rows) == 1 else tuple(rows))
    best = comparison.rows[rows[0]][column].value
    return [name for name in rows if name in among and not _far(score, comparison.rows[name][column].value, best)]


def trust_of(comparison: Comparison, name: str) -> Trust:
    """What a row's uncertainty can be trusted for, on the main test set."""
    return trust_in(comparison.charts.get(comparison.main, {}).get(name))


def _by_score(comparison: Comparison, column: str, names: Sequence[str]) -> list[str]:
    score = comparison.score(column)

    def loss(name: str) -> float:
        value = score.loss(comparison.rows[name][column].value)
        return value if math.isfinite(value) else math.inf

    return sorted(names, key=loss)


def _far(score: Score, value: float, best: float) -> bool:
    if not math.isfinite(value):
        return math.isfinite(best)
    gap = score.loss(value) - score.loss(best)
    return gap > MUCH_WORSE if score.name == NLL.name else score.loss(best) > 0 and gap > score.loss(best) * TIMES_WORSE


def _choose(comparison: Comparison, contenders: Sequence[str]) -> tuple[str, list[str]]:
    """One of the contenders, who are in the order of their scores, and why it is preferred to others."""
    left, reasons = list(contenders), []
    for words, is_fine in _preferences(comparison, contenders):
        kept = [name for name in left if is_fine(name)]
        if kept and len(kept) < len(left):
            reasons.append(words)
            left = kept
    return left[0], reasons


def _preferences(comparison: Comparison, contenders: Sequence[str]) -> list[tuple[str, Callable[[str], bool]]]:
    costs = {name: comparison.costs[name].predict_ms for name in contenders if name in comparison.costs}
    cheapest = min(costs.values(), default=math.nan)
    return [
        ("its run converged", lambda name: has_converged(comparison, name)),
        ("its uncertainty is calibrated", lambda name: trust_of(comparison, name).calibrated is not False),
        ("it is simpler than a network", lambda name: name in comparison.baselines),
        ("it is cheap to predict with", lambda name: not costs.get(name, cheapest) > CHEAP * cheapest),
    ]


def has_converged(comparison: Comparison, name: str) -> bool:
    """Whether nothing is known against it: its run did not stop early, and it is not a reference that has not mixed."""
    run, check = comparison.runs.get(name), comparison.reference_check
    if run is not None and run.status != "converged":
        return False
    return not (check is not None and name == comparison.reference and check.converged is False)
