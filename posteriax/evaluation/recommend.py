"""Recommendation: which posterior to use, how sure that is, and what would change the answer.

The choice is among those that are best, or not significantly worse than the best, in the negative log likelihood, by at
most half a nat, and that are significantly worse than the best in as few other proper scores (accuracy, Brier score,
RMSE, CRPS) as possible. Of these, the one with the best score wins. Only those whose score is practically the same,
within 0.02 nats per example, are preferred for anything else, in this order:

    are calibrated              coverage or confidence is not significantly off
    converged                   their runs ended because they were done
    are simple                  a single model is better than a mixture, and a baseline better than a network
    are cheap                   predictions do not cost a hundred times those of the cheapest, timed on many rows

The recommendation says this in sentences: how sure it is, whether a network is worth it, cautions, and what would
change it.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from posteriax.evaluation.comparison import Comparison, Cost
from posteriax.evaluation.trust import Trust, knows_where_errors_are, trust_in
from posteriax.metrics.log_score import NLL
from posteriax.metrics.score import Score, format_estimate

MUCH_WORSE = 0.5  # nats per example
TIMES_WORSE = 2.0  # of a score that is not in nats
NEGLIGIBLE = 0.02  # nats per example; of other scores, this share of the best
EXPENSIVE = 100.0  # times the cost of the cheapest
ENOUGH_TIMED = 1000  # rows, for a time of prediction to tell more than the overhead of a call
FEW_ROWS = 100
DETECTED = 1.96 + 0.84  # standard errors of a difference that a test at 5 % finds in four of five test sets
MOST_ROWS = 1_000_000
MOST_LISTED = 4  # names in a sentence; more are counted
FEWEST_OF_CLASS = 5  # test rows for a class to be mentioned if it is never predicted


@dataclass(frozen=True)
class Recommendation:
    """Which row of a comparison to use, in words. Print it.

    Args:
        name: of the row.
        posterior: the best of the posteriors, by the same rule: `name`, unless that is a baseline; None without any.
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
    name, preferred = _choose(comparison, column, contenders)
    others = comparison.baselines.keys() | comparison.mixtures.keys()
    scored = [other for other, row in comparison.rows.items() if column in row and other not in others]
    networks = [other for other in contenders if other in scored] or _by_score(comparison, column, scored)[:1]
    posterior = name if name in networks else _choose(comparison, column, networks)[0] if networks else None
    return Recommendation(
        name,
        posterior,
        clear=len(contenders) == 1 and len(comparison.rows) > 1,
        headline=_headline(comparison, column, name, best=contenders[0]),
        reasons=how_sure(comparison, column, name, contenders, preferred),
        trust=trust_in_row(comparison, name).sentences,
        network=is_network_worth_it(comparison, column, contenders),
        cautions=cautions(comparison, column, name, contenders),
        changes=what_would_change(comparison, column, name, posterior, contenders),
    )


def _headline(comparison: Comparison, column: str, name: str, best: str) -> str:
    score, value = comparison.score(column), format_estimate(comparison.rows[name][column])
    if len(comparison.rows) == 1:
        return f"{name} is the only row: its {score.quantity} is {value}."
    if name == best:
        extreme = {"higher": "the highest", "lower": "the lowest"}.get(str(score.better), "the best")
        return f"Use {name}: its {score.quantity} is {extreme}, {value}."
    best_value = format_estimate(comparison.rows[best][column])
    if worse := worse_in(comparison, best):
        return (
            f"Use {name}: its {score.quantity} is {value}. That of {best}, {best_value}, is better, but {best} "
            f"is significantly worse in {listed([comparison.score(other).title for other in worse])}."
        )
    return (
        f"Use {name}: its {score.quantity}, {value}, is not significantly worse than the best, {best_value} ({best})."
    )


def deciding_column(comparison: Comparison) -> str | None:
    """The score that decides: the negative log likelihood, or the first one that can; None if there is none."""
    columns = [
        column
        for column in comparison.columns
        if comparison.score(column).better is not None and not comparison.score(column).against_reference
    ]
    return NLL.name if NLL.name in columns else next(iter(columns), None)


def not_worse(comparison: Comparison, column: str) -> list[str]:
    """The best row and those that are neither significantly nor far worse.

    A row whose errors vary wildly may be far worse without being significantly so.
    """
    score = comparison.score(column)
    rows = _by_score(comparison, column, [name for name, row in comparison.rows.items() if column in row])
    among = comparison.best.get(comparison.main, {}).get(column, tuple(rows[:1]) if len(rows) == 1 else tuple(rows))
    best = comparison.rows[rows[0]][column].value
    return [
        name for name in rows if name in among and not _is_far_worse(score, comparison.rows[name][column].value, best)
    ]


def trust_in_row(comparison: Comparison, name: str) -> Trust:
    """What a row's uncertainty can be trusted for, on the main test set."""
    return trust_in(comparison.charts.get(comparison.main, {}).get(name))


def _by_score(comparison: Comparison, column: str, names: Sequence[str]) -> list[str]:
    score = comparison.score(column)

    def loss(name: str) -> float:
        value = score.loss(comparison.rows[name][column].value)
        return value if math.isfinite(value) else math.inf

    return sorted(names, key=loss)


def _is_far_worse(score: Score, value: float, best: float) -> bool:
    if not math.isfinite(value):
        return math.isfinite(best)
    gap = score.loss(value) - score.loss(best)
    return gap > MUCH_WORSE if score.name == NLL.name else score.loss(best) > 0 and gap > score.loss(best) * TIMES_WORSE


def worse_in(comparison: Comparison, name: str) -> list[str]:
    """The proper scores in which a row is significantly worse than the best one, on the main test set."""
    return [
        column
        for column, among in comparison.best.get(comparison.main, {}).items()
        if comparison.score(column).proper and column in comparison.rows[name] and name not in among
    ]


def _choose(comparison: Comparison, column: str, contenders: Sequence[str]) -> tuple[str, list[str]]:
    """One of the contenders, who are in the order of their scores, and why it is preferred to others.

    Rows that are significantly worse in a proper score are out, or, if all are in some, those that are in most. Of the
    rest, the best is chosen, or one that is practically as good.
    """
    faults = {name: len(worse_in(comparison, name)) for name in contenders}
    left = [name for name in contenders if faults[name] == min(faults.values())]
    left = [name for name in left if _is_practically_as_good(comparison, column, name, left[0])]
    reasons = []
    for words, is_fine in _preferences(comparison, left):
        kept = [name for name in left if is_fine(name)]
        if kept and len(kept) < len(left):
            reasons.append(words)
            left = kept
    return left[0], reasons


def _is_practically_as_good(comparison: Comparison, column: str, name: str, best: str) -> bool:
    score = comparison.score(column)
    ours, theirs = (score.loss(comparison.rows[row][column].value) for row in (name, best))
    return name == best or ours - theirs <= NEGLIGIBLE * (1.0 if score.name == NLL.name else abs(theirs))


def _preferences(comparison: Comparison, names: Sequence[str]) -> list[tuple[str, Callable[[str], bool]]]:
    return [
        ("its uncertainty is calibrated", lambda name: trust_in_row(comparison, name).calibrated is not False),
        ("its run converged", lambda name: has_converged(comparison, name)),
        ("it is a single model", lambda name: name not in comparison.mixtures),
        ("it is simpler than a network", lambda name: name in comparison.baselines),
        ("it is far cheaper to predict with", lambda name: not _is_expensive(comparison.costs, name, names)),
    ]


def _is_expensive(costs: Mapping[str, Cost], name: str, names: Sequence[str]) -> bool:
    """Whether predictions cost a hundred times those of the cheapest; False unless all were timed on many rows."""
    if not all(other in costs and costs[other].timed_rows >= ENOUGH_TIMED for other in names):
        return False
    return costs[name].predict_ms > EXPENSIVE * min(costs[other].predict_ms for other in names)


def has_converged(comparison: Comparison, name: str) -> bool:
    """Whether there is no sign that the run has not converged: an early end, or a failed check of the reference."""
    run, check = comparison.runs.get(name), comparison.reference_check
    if run is not None and run.status != "converged":
        return False
    return not (check is not None and name == comparison.reference and check.converged is False)


def listed(names: Sequence[str]) -> str:
    """Names in a sentence.

    >>> listed(["a"]), listed(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    return names[0] if len(names) == 1 else ", ".join(names[:-1]) + " and " + names[-1]


def is_or_are(names: Sequence[str]) -> str:
    return "is" if len(names) == 1 else "are"


def count_test_rows(comparison: Comparison) -> int:
    """How many examples the main test set has; 0 if unknown."""
    charts = comparison.charts.get(comparison.main, {})
    return max((len(chart.entropies) for chart in charts.values()), default=0)


def how_sure(
    comparison: Comparison, column: str, name: str, contenders: Sequence[str], preferred: Sequence[str]
) -> tuple[str, ...]:
    """Whether others do as well, and why this one is preferred."""
    tested = comparison.best.get(comparison.main, {}).get(column, ())
    others = [other for other, row in comparison.rows.items() if other not in contenders and column in row]
    ties, worse = [other for other in contenders if other != name], [other for other in others if other not in tested]
    n = count_test_rows(comparison)
    rows = f" on the same {n:,} test rows" if n else ""
    if not ties and not worse:
        return ()
    if not ties:
        return (f"That is clear: {_all_or_listed(worse)} significantly worse{rows}.",)
    if name == contenders[0]:
        first = f"That is not certain: {listed(ties)} {is_or_are(ties)} not significantly worse{rows}."
    else:
        first = f"Its difference from {contenders[0]} could be chance{rows}."
        others_tied = [other for other in ties if other != contenders[0]]
        if others_tied:
            first += f" The same holds for {_some_listed(others_tied)}."
    sentences = [first]
    for other in worse_in(comparison, name):
        better = comparison.best[comparison.main][other][0]
        sentences.append(f"In {comparison.score(other).title}, it is significantly worse than {better}.")
    if preferred:
        sentences.append(f"Of those that score practically the same, {name} is preferred because {listed(preferred)}.")
    if worse:
        sentences.append(f"{_all_or_listed(worse, first='The')} significantly worse.")
    return tuple(sentences)


def _some_listed(names: Sequence[str]) -> str:
    """The first few names, and how many more there are.

    >>> _some_listed(["a", "b", "c", "d", "e", "f"])
    'a, b, c, d and 2 others'
    """
    more = len(names) - MOST_LISTED
    return listed(names) if more <= 1 else f"{', '.join(names[:MOST_LISTED])} and {more} others"


def _all_or_listed(names: Sequence[str], first: str = "the") -> str:
    return f"{first} {len(names)} others are" if len(names) > MOST_LISTED else f"{listed(names)} {is_or_are(names)}"


def is_network_worth_it(comparison: Comparison, column: str, contenders: Sequence[str]) -> str:
    """What the baselines say about the networks."""
    scored = [name for name, row in comparison.rows.items() if column in row and name not in comparison.mixtures]
    loss = lambda name: comparison.score(column).loss(comparison.rows[name][column].value)  # noqa: E731
    baselines, networks = (
        sorted((name for name in scored if (name in comparison.baselines) is kind), key=loss) for kind in (True, False)
    )
    if not baselines or not networks:
        return ""
    base, net = baselines[0], networks[0]
    values = [format_estimate(comparison.rows[name][column]) for name in (base, net)]
    numbers = f"({comparison.score(column).title} {values[0]} against {values[1]})"
    tied_baselines, tied_networks = ([name for name in contenders if name in kind] for kind in (baselines, networks))
    if not tied_baselines:
        return f"A network is worth it: {base}, the best of the baselines, is significantly worse than {net} {numbers}."
    if not tied_networks:
        return (
            f"A network is not worth it: {base} predicts significantly better than {net}, the best of the networks "
            f"{numbers}."
        )
    if base not in tied_baselines:
        return (
            f"A network is probably worth it: {base}, the best of the baselines, is significantly worse than {net} "
            f"{numbers}; only the difference from {_some_listed(tied_baselines)} could be chance."
        )
    if net not in tied_networks:
        return (
            f"A network is probably not worth it: {base} predicts significantly better than {net}, the best of the "
            f"networks {numbers}; only the difference from {_some_listed(tied_networks)} could be chance."
        )
    return (
        f"There is no evidence that a network is worth it: the difference between {base}, the best of the baselines, "
        f"and {net} could be chance {numbers}."
    )


def cautions(comparison: Comparison, column: str, name: str, contenders: Sequence[str]) -> tuple[str, ...]:
    """What to know before relying on the recommended row."""
    sentences = []
    run, check, n = comparison.runs.get(name), comparison.reference_check, count_test_rows(comparison)
    if run is not None and run.status == "not converged":
        sentences.append(f"The run of {name} has not converged, and more time would not help.")
    elif run is not None and run.status != "converged":
        sentences.append(f"The run of {name} stopped at the budget, before it had converged.")
    elif check is not None and check.converged is False and name == comparison.reference:
        sentences.append(f"The chains of {name} have not converged ({check.doubt}).")
    if 0 < n < FEW_ROWS:
        sentences.append(f"There are only {n} test rows: on {n} others, the scores could be different.")
    sentences += [
        f"{name} never predicts {label}, which {count:,} of the {n:,} test rows are."
        for label, count in never_predicted(comparison, name)
    ]
    among = comparison.best.get(comparison.main, {}).get(column, ())
    wild = [other for other in among if other not in contenders]
    if wild:
        sentences.append(
            f"Do not use {listed(wild)}: in {comparison.score(column).title} on average far worse, though the errors "
            f"vary too much for a test to show it."
        )
    failed = [other for other, run in comparison.runs.items() if run.status == "failed"]
    if failed:
        sentences.append(f"{listed(failed)} failed and {'was' if len(failed) == 1 else 'were'} not scored.")
    return tuple(sentences)


def never_predicted(comparison: Comparison, name: str) -> list[tuple[str, int]]:
    """The classes that a row never predicts, and how many test rows are of each: at least five."""
    chart = comparison.charts.get(comparison.main, {}).get(name)
    if chart is None or not chart.confusion.size:
        return []
    true, predicted = chart.confusion.sum(axis=1), chart.confusion.sum(axis=0)
    labels = comparison.class_names or tuple(f"class {label}" for label in range(len(true)))
    return [(labels[c], int(true[c])) for c in range(len(true)) if true[c] >= FEWEST_OF_CLASS and predicted[c] == 0]


def what_would_change(
    comparison: Comparison, column: str, name: str, posterior: str | None, contenders: Sequence[str]
) -> tuple[str, ...]:
    """What would make another row the better choice."""
    sentences = []
    best = comparison.best.get(comparison.main, {})
    for other in ("rmse", "accuracy"):
        if other in best and other != column and name not in best[other]:
            first = best[other][0]
            ours, theirs = (format_estimate(comparison.rows[row][other]) for row in (name, first))
            sentences.append(
                f"If only the prediction counts and not its uncertainty, use {first} ({other} {theirs} against {ours})."
            )
    charts = comparison.charts.get(comparison.main, {})
    if posterior is not None and posterior != name and knows_where_errors_are(charts.get(posterior)):
        if not knows_where_errors_are(charts.get(name)):
            but = f", but it is {bias}" if (bias := trust_in(charts[posterior]).bias) else ""
            sentences.append(
                f"To tell which predictions to doubt, use {posterior}: its uncertainty is larger where it errs{but}."
            )
        else:
            sentences.append(f"If it has to be a network, use {posterior}.")
    stopped = [other for other, run in comparison.runs.items() if run.status == "stopped at the budget"]
    if stopped:
        sentences.append(f"With more time, {listed(stopped)} may do better: {_stopped(stopped)} at the budget.")
    skipped = [other for other, run in comparison.runs.items() if run.status == "skipped"]
    if skipped:
        sentences.append(f"There was no time for {listed(skipped)}.")
    if len(contenders) > 1:
        enough = rows_to_tell(comparison, contenders[0], name if name != contenders[0] else contenders[1])
        sentences.append(enough or "More test rows, or cross-validation, could separate the methods that are tied.")
    if len(comparison.rows) > 1 and max(comparison.seeds.values(), default=1) == 1:
        sentences.append("Other seeds could change the answer: every method was trained once.")
    return tuple(sentences)


def rows_to_tell(comparison: Comparison, best: str, other: str) -> str:
    """How many test rows it would take to tell a row from the best one; empty if that is unknown.

    A difference d with standard error s over n examples is found at the 5 % level in four of five test sets with
    n ((1.96 + 0.84) s / d)^2 examples; with n, those of at least 2.8 s are.
    """
    apart, n = comparison.differences.get(other), count_test_rows(comparison)
    known = apart is not None and n and comparison.differences.get(best, apart).value == 0
    if apart is None or not known or not (0 < apart.error < math.inf):
        return ""
    shown = (
        f"With {n:,} test rows, a difference of less than {DETECTED * apart.error:.2g} nats between {best} and {other} "
        f"goes unnoticed"
    )
    if apart.value <= 0:
        return f"{shown}."
    needed = n * (DETECTED * apart.error / apart.value) ** 2
    many = f"about {float(f'{needed:.1g}'):,.0f}" if needed < MOST_ROWS else f"more than {MOST_ROWS:,}"
    return f"{shown}: to tell them apart would take {many}."


def _stopped(names: Sequence[str]) -> str:
    return "its run stopped" if len(names) == 1 else "their runs stopped"
