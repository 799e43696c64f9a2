"""Trust: what a posterior's uncertainty can be trusted for, judged on the test set, in sentences.

Binomial tests at the 5 % level compare coverage and confidence with what happened, with a Bonferroni correction over
groups of examples, so that chance alone is seldom reported as a fault.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.special import bdtr, bdtrc, ndtr, ndtri  # scipy.stats takes half a second to import

from posteriax.evaluation.chart_summaries import ChartSummary
from posteriax.evaluation.uncertainty_deciles import Deciles

LEVEL = 0.05
PROMISED = 0.9
SLIGHT = 0.02  # a gap of this size is called slight, however significant


class Trust(NamedTuple):
    """What a posterior's uncertainty can be trusted for.

    Args:
        calibrated: whether coverage, or confidence, is not significantly off; None if it is unknown.
        bias: "over-confident", "under-confident" or "".
        sentences: for a report.
    """

    calibrated: bool | None
    bias: str
    sentences: tuple[str, ...]


def trust_in(chart: ChartSummary | None) -> Trust:
    """From what the charts show of a posterior on a test set.

    >>> deciles = Deciles(*np.array([[1.0, 2.0], [1.1, 2.3], [0.91, 0.89]]), count=np.array([100, 100]))
    >>> trust_in(ChartSummary(deciles=deciles)).sentences[0]
    'Its 90 % intervals hold 90 % of the 200 test targets: take them at face value.'
    """
    if chart is None or not len(chart.deciles.count):
        return Trust(None, "", ())
    return _trust_in_intervals(chart.deciles) if len(chart.deciles.covered) else _trust_in_probabilities(chart)


def knows_where_errors_are(chart: ChartSummary | None) -> bool:
    """Whether errors are significantly larger where the uncertainty is."""
    return chart is not None and len(chart.deciles.count) > 1 and _ranks_errors(chart.deciles)


def percent(share: float) -> str:
    """A share in percent; never rounded to all or none.

    >>> percent(0.873), percent(0.9996), percent(1.0), percent(0.0004)
    ('87 %', 'over 99 %', '100 %', 'under 1 %')
    """
    if 0 < share < 0.005:
        return "under 1 %"
    if 0.995 <= share < 1:
        return "over 99 %"
    return f"{100 * share:.0f} %"


def _trust_in_intervals(deciles: Deciles) -> Trust:
    n = int(deciles.count.sum())
    inside = round(float(deciles.covered @ deciles.count))
    share = inside / n
    calibrated = _two_sided(inside, n, PROMISED) >= LEVEL
    bias = "" if calibrated else "over-confident" if share < PROMISED else "under-confident"
    text = f"Its 90 % intervals hold {percent(share)} of the {n:,} test targets: "
    if calibrated:
        text += "take them at face value."
    elif share < PROMISED:
        text += f"it is {_slightly(PROMISED - share)}over-confident, so treat them as {percent(share)} intervals."
    else:
        text += f"it is {_slightly(share - PROMISED)}under-confident, and they are wider than necessary."
    sentences = [text, *_where_off(deciles, calibrated)]
    return Trust(calibrated, bias, (*sentences, *_ranking(deciles, "rmse", lambda value: f"{value:.3g}")))


def _where_off(deciles: Deciles, calibrated: bool) -> list[str]:
    """In which groups intervals hold too few targets."""
    groups = len(deciles.count)
    if groups < 2:
        return []
    held = np.round(deciles.covered * deciles.count)
    short = [g for g in range(groups) if bdtr(held[g], deciles.count[g], PROMISED) < LEVEL / groups]
    if not short:
        return ["That holds from its most to its least certain predictions."] if calibrated else []
    if len(short) == groups:
        return ["They hold too few at every level of certainty."]
    share = float(held[short].sum() / deciles.count[short].sum())
    return [f"It is over-confident {_where(short, groups)}: there, they hold only {percent(share)}."]


def _where(chosen: list[int], groups: int) -> str:
    number = len(chosen)
    for end, indices in (("most", range(number)), ("least", range(groups - number, groups))):
        if chosen == list(indices):
            which = f"{number} {end} certain {_part(groups)}s" if number > 1 else f"{end} certain {_part(groups)}"
            return f"in the {which} of its predictions"
    return f"in {number} of {groups} groups of predictions, by how certain it is"


def _trust_in_probabilities(chart: ChartSummary) -> Trust:
    total = int(chart.count.sum())
    if not total:
        return Trust(None, "", ())
    share, claimed = (float(values @ chart.count / total) for values in (chart.right, chart.confidence))
    error = math.sqrt(max(float(chart.confidence * (1 - chart.confidence) @ chart.count), 1e-12)) / total
    off = [i for i in range(len(chart.count)) if _overstated(chart, i) < LEVEL / len(chart.count)]
    calibrated = 2 * ndtr(-abs(share - claimed) / error) >= LEVEL and not off
    bias = "" if calibrated else "over-confident" if claimed > share else "under-confident"
    text = f"It is right in {percent(share)} of the {total:,} test rows, and on average {percent(claimed)} sure: "
    text += "take its probabilities at face value." if calibrated else f"it is {_slightly(abs(claimed - share))}{bias}."
    sentences = [text]
    if off:
        worst = max(off, key=lambda i: (chart.confidence[i] - chart.right[i]) * chart.count[i])
        sentences.append(
            f"When it is about {percent(chart.confidence[worst])} sure, it is right in {percent(chart.right[worst])} "
            f"({chart.count[worst]:,} rows)."
        )
    return Trust(calibrated, bias, (*sentences, *_ranking(chart.deciles, "share of wrong answers", percent)))


def _overstated(chart: ChartSummary, i: int) -> float:
    """The chance of so few right answers in a bin if its confidence were correct."""
    count = int(chart.count[i])
    return float(bdtr(round(float(chart.right[i]) * count), count, min(float(chart.confidence[i]), 1.0)))


def _ranking(deciles: Deciles, error: str, shown: Callable[[float], str]) -> list[str]:
    """Whether the uncertainty tells where errors are."""
    n = int(deciles.count.sum())
    if len(deciles.count) < 2:
        constant = n >= 20 and math.isnan(deciles.rank_correlation)
        return ["It is equally sure of all predictions: it does not tell where errors are."] if constant else []
    if not _ranks_errors(deciles):
        return ["Its uncertainty does not tell where errors are larger."] if n >= 50 else []
    part = _part(len(deciles.count))
    return [
        f"Its uncertainty tells where errors are: the {error} is {shown(deciles.observed[0])} in its most certain "
        f"{part} of the test rows and {shown(deciles.observed[-1])} in its least certain one."
    ]


def _ranks_errors(deciles: Deciles) -> bool:
    """A one-sided test of Spearman's rank correlation, whose standard error is about 1 / sqrt(N)."""
    return deciles.rank_correlation > ndtri(1 - LEVEL / 2) / math.sqrt(deciles.count.sum())


def _part(groups: int) -> str:
    return {10: "tenth", 5: "fifth", 4: "quarter", 3: "third", 2: "half"}.get(groups, "group")


def _two_sided(successes: int, n: int, chance: float) -> float:
    """The p-value of a binomial test: twice the smaller tail."""
    return min(1.0, 2 * float(min(bdtr(successes, n, chance), bdtrc(successes - 1, n, chance))))


def _slightly(gap: float) -> str:
    return "slightly " if gap < SLIGHT else ""
