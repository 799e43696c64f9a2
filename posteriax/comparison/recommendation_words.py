"""The sentences of a recommendation: how sure it is, whether a network is worth it, cautions, what would change it."""

from collections.abc import Sequence

from posteriax.comparison.comparison import Comparison
from posteriax.comparison.estimates import format_estimate
from posteriax.comparison.trust import knows_where_errors_are, trust_in

FEW_ROWS = 100
FEW_NAMES = 4  # that are listed one by one
RARE = 5  # test rows of a class that is never predicted, at least, to be worth a word


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
        first = f"The difference could be chance{rows}; so could that of {listed(ties[:4])}."
    sentences = [first]
    if preferred:
        sentences.append(f"Of these, {name} is preferred because {listed(list(preferred))}.")
    if worse:
        sentences.append(f"{_all_or_listed(worse, first='The')} significantly worse.")
    return tuple(sentences)


def _all_or_listed(names: Sequence[str], first: str = "the") -> str:
    return f"{first} {len(names)} others are" if len(names) > FEW_NAMES else f"{listed(names)} {is_or_are(names)}"


def is_network_worth_it(comparison: Comparison, column: str, contenders: Sequence[str]) -> str:
    """What the baselines say about the networks."""
    scored = [name for name, row in comparison.rows.items() if column in row]
    loss = lambda name: comparison.score(column).loss(comparison.rows[name][column].value)  # noqa: E731
    baselines, networks = (
        sorted((name for name in scored if (name in comparison.baselines) is kind), key=loss) for kind in (True, False)
    )
    if not baselines or not networks:
        return ""
    base, net = baselines[0], networks[0]
    values = [format_estimate(comparison.rows[name][column]) for name in (base, net)]
    numbers = f"({comparison.score(column).title} {values[0]} against {values[1]})"
    if not any(name in contenders for name in baselines):
        return f"A network is worth it: {base}, the best of the baselines, is significantly worse than {net} {numbers}."
    if not any(name in contenders for name in networks):
        return (
            f"A network is not worth it: {base} predicts significantly better than {net}, the best of the networks "
            f"{numbers}."
        )
    return (
        f"A network is not shown to be worth it: the difference between {base}, the best of the baselines, and {net} "
        f"could be chance {numbers}."
    )


def cautions(comparison: Comparison, column: str, name: str, contenders: Sequence[str]) -> tuple[str, ...]:
    """What to know before relying on the recommended row."""
    found = []
    run, check, n = comparison.runs.get(name), comparison.reference_check, count_test_rows(comparison)
    if run is not None and run.status == "not converged":
        found.append(f"The run of {name} has not converged, and more time alone would not help.")
    elif run is not None and run.status != "converged":
        found.append(f"The run of {name} stopped at the budget, before it had converged.")
    elif check is not None and check.converged is False and name == comparison.reference:
        found.append(f"The chains of {name} have not converged ({check.doubt}).")
    if 0 < n < FEW_ROWS:
        found.append(f"There are only {n} test rows: on {n} others, the scores could look different.")
    found += [
        f"{name} never predicts {label}, which {count:,} of the {n:,} test rows are."
        for label, count in never_predicted(comparison, name)
    ]
    among = comparison.best.get(comparison.main, {}).get(column, ())
    wild = [other for other in among if other not in contenders]
    if wild:
        found.append(f"Do not use {listed(wild)}: far off on some rows, though too variable for a test to tell.")
    failed = [other for other, run in comparison.runs.items() if run.status == "failed"]
    if failed:
        found.append(f"{listed(failed)} failed and {'was' if len(failed) == 1 else 'were'} not scored.")
    return tuple(found)


def never_predicted(comparison: Comparison, name: str) -> list[tuple[str, int]]:
    """The classes that a row never predicts, and how many test rows are of each: at least five."""
    chart = comparison.charts.get(comparison.main, {}).get(name)
    if chart is None or not chart.confusion.size:
        return []
    true, predicted = chart.confusion.sum(axis=1), chart.confusion.sum(axis=0)
    labels = comparison.class_names or tuple(f"class {label}" for label in range(len(true)))
    return [(labels[c], int(true[c])) for c in range(len(true)) if true[c] >= RARE and predicted[c] == 0]


def what_would_change(
    comparison: Comparison, column: str, name: str, posterior: str | None, contenders: Sequence[str]
) -> tuple[str, ...]:
    """What would make another row the better choice."""
    found = []
    best = comparison.best.get(comparison.main, {})
    for other in ("rmse", "accuracy"):
        if other in best and other != column and name not in best[other]:
            first = best[other][0]
            own, theirs = (format_estimate(comparison.rows[row][other]) for row in (name, first))
            found.append(
                f"If only the prediction counts and not its uncertainty, use {first} ({other} {theirs} against {own})."
            )
    charts = comparison.charts.get(comparison.main, {})
    if posterior is not None and posterior != name and knows_where_errors_are(charts.get(posterior)):
        if not knows_where_errors_are(charts.get(name)):
            but = f", but it is {bias}" if (bias := trust_in(charts[posterior]).bias) else ""
            found.append(
                f"To tell which predictions to doubt, use {posterior}: its uncertainty is larger where it errs{but}."
            )
        else:
            found.append(f"If it has to be a network, use {posterior}.")
    stopped = [own for own, run in comparison.runs.items() if run.status == "stopped at the budget"]
    if stopped:
        found.append(f"With more time, {listed(stopped)} may do better: {_stopped(stopped)} at the budget.")
    if len(contenders) > 1:
        found.append("More test rows, or cross-validation, could tell the tied ones apart.")
    if len(comparison.rows) > 1 and max(comparison.seeds.values(), default=1) == 1:
        found.append(
            "So could other seeds: every method was trained once."
            if len(contenders) > 1
            else "Other seeds could change it: every method was trained once."
        )
    return tuple(found)


def _stopped(names: Sequence[str]) -> str:
    return "its run stopped" if len(names) == 1 else "their runs stopped"
