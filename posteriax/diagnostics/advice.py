"""Where a sampled posterior is worst, and the one thing to try first."""

import math
from collections.abc import Sequence

import numpy as np

from posteriax.diagnostics.agreement import Agreement, Compared, groups_of_chains
from posteriax.diagnostics.sampler import SamplerSummary
from posteriax.diagnostics.verdict import WANTED_PER_CHAIN, diverges
from posteriax.diagnostics.wording import shown


def worst_place(summaries: Sequence[Agreement]) -> str:
    """The weight or test point with the largest R-hat or, for one chain, the fewest effective draws.

    >>> worst_place([Agreement("w", 6, 6, 1.62, 1.1, 1.0, 0.5, 9.0, 80.0, 12.0, worst="w[2, 0]")])
    'Worst: w[2, 0], R-hat 1.62; fewest effective draws in w, 9.'
    """
    known = [summary for summary in summaries if not np.isnan(summary.worst_rhat)]
    fewest = min(summaries, key=lambda summary: summary.smallest_ess)
    draws = f"fewest effective draws in {fewest.name}, {fewest.smallest_ess:.0f}."
    if not known:
        return f"Worst: {fewest.worst}; {draws}"
    worst = max(known, key=lambda summary: summary.worst_rhat)
    return f"Worst: {worst.worst}, R-hat {shown(worst.worst_rhat)}; {draws}"


def try_first(
    compared: Compared, sampler: SamplerSummary | None, *, draws: int, stuck: bool, warmup: int
) -> str | None:
    """What is most likely to help; None if nothing is wrong.

    Args:
        compared: predictions if there are any, otherwise weights.
        sampler: what the sampler recorded.
        stuck: whether any chain never moved.
        warmup: its length.
    """
    if sampler is not None and sampler.cut is not None and max(sampler.cut) > 0:
        return f"max_leapfrogs= at least {math.ceil(10 / (1 - max(sampler.cut))) / 10:g} times as large"
    if stuck:
        return "let the warm-up find step_size=, or use a tenth of it"
    if sampler is not None and diverges(sampler):
        return "target_acceptance=0.95"
    if len(groups_of_chains(compared.columns)) > 1:  # in different places, rather than mixing slowly in the same one
        return f"warmup={2 * warmup}, twice as long" if warmup else "a longer warm-up"
    least = min(summary.smallest_ess for summary in compared.summaries)
    wanted = WANTED_PER_CHAIN * compared.chains
    if least < wanted:
        return f"draws={max(math.ceil(float(f'{draws * wanted / max(least, 1.0):.1g}')), 2 * draws)}"
    return "chains=4" if compared.chains == 1 else None
