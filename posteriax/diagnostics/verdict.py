"""The verdict of a diagnosis: what the numbers mean, where it is worst, and what to do first.

Predictions outrank weights. Networks have symmetries (neurons can be permuted and rescaled), so chains may be in
different parts of weight space and still be the same functions; what matters is whether their predictions agree.
"""

import math
from collections.abc import Sequence

import numpy as np

from posteriax.diagnostics.chain_agreement import (
    ChainAgreement,
    Compared,
    groups_of_chains,
    rhat_by_chance,
    rhat_limit,
)
from posteriax.diagnostics.chains import EFFECTIVE_PER_CHAIN, RHAT_BAD, RHAT_MIXED
from posteriax.diagnostics.sampler import MOST_DIVERGENT, SamplerSummary, diverges
from posteriax.diagnostics.training import TrainingSummary

NUMBERS = ["no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
LOW_ACCEPTANCE = 0.4
LOW_EBFMI = 0.3
OBJECTIVES = {"elbo": "ELBO", "log_joint": "log joint"}  # those of other methods go by their own names


def find_shortcomings(
    compared: Sequence[ChainAgreement],
    limit: float,
    stuck: Sequence[int],
    sampler: SamplerSummary | None,
    *,
    chains: int,
    draws: int,
) -> list[str]:
    """Why chains have not converged, a few words each; empty if nothing is known to be wrong.

    Args:
        compared: predictions if there are any, otherwise leaves; empty if there are too few draws to compare.
        limit: for R-hat.
        stuck: chains that never moved.
        sampler: what the sampler recorded.
        chains, draws: the number of chains, and of draws of each that were examined.
    """
    reasons = [f"{which_chains(stuck).lower()} never moved"] if stuck else []
    worst = max((row.worst_rhat for row in compared if not np.isnan(row.worst_rhat)), default=np.nan)
    if worst > limit:
        reasons.append(f"R-hat {format_rhat(worst)} (limit {format_rhat(limit)})")
    needed, least = EFFECTIVE_PER_CHAIN * chains, min((row.smallest_ess for row in compared), default=chains * draws)
    if not compared or least < needed:
        kind = "effective draws" if compared else "draws"
        reasons.append(f"{least:.0f} {kind} ({needed} effective draws needed, {EFFECTIVE_PER_CHAIN} per chain)")
    if sampler is not None and diverges(sampler):
        count, total = sum(sampler.divergences or ()), chains * sampler.transitions
        plural = "s" if count > 1 else ""
        reasons.append(f"{count} divergent transition{plural} of {total:,} (at most 1 in {1 / MOST_DIVERGENT:,.0f})")
    return reasons


def movement_lines(stuck: Sequence[int], chains: int) -> list[str]:
    """Chains whose weights never change."""
    if not stuck:
        return []
    stuck_names = f"{which_chains(stuck)} of {count_in_words(chains)}"
    who = (
        "The chain" if chains == 1 else f"All {count_in_words(chains)} chains" if len(stuck) == chains else stuck_names
    )
    return [f'{who} never moved: every proposal was rejected. Use a smaller step_size=, or start="map".']


def prediction_lines(predictions: Compared, draws: int) -> list[str]:
    """The predictions of several chains."""
    (summary,), chains, by_chance = predictions.summaries, predictions.chains, rhat_by_chance(predictions.columns)
    if np.isnan(summary.worst_rhat):
        return ["The predictions are identical in every draw, so there is nothing to compare. Use other inputs."]
    if summary.worst_rhat <= max(RHAT_BAD, by_chance):
        good = f"above {RHAT_MIXED} on {percent(summary.above_good)} of test points"
        line = _agreement_line("function-space R-hat", predictions, good)
        return [line, *effective_draws_lines(summary.smallest_ess, chains, draws)]
    extent = f"function-space R-hat above {RHAT_BAD} on {percent(summary.above_bad)} of test points, at most "
    extent += format_rhat(summary.worst_rhat)
    groups = groups_of_chains(predictions.columns)
    if len(groups) == 1:
        text = f"The {count_in_words(chains)} chains are in the same place but mix too slowly: {extent}."
        return [f"{text} Take more draws, or longer trajectories."]
    return [f"{_which_have_not_mixed(groups, chains)}: {extent}. Lengthen the warm-up (warmup=)."]


def weight_lines(weights: Compared, draws: int, *, predicted: bool) -> list[str]:
    """The weights of several chains; a side note if predictions were examined."""
    leaves, chains, by_chance = weights.summaries, weights.chains, rhat_by_chance(weights.columns)
    worst = max(leaves, key=lambda leaf: np.nan_to_num(leaf.worst_rhat, nan=0.0, posinf=np.inf))
    good, bad = (percent(_weighted_share(leaves, field)) for field in ("above_good", "above_bad"))
    disagree = worst.worst_rhat > max(RHAT_BAD, by_chance)
    extent = f"R-hat above {RHAT_BAD} for {bad} of the weights, at most {format_rhat(worst.worst_rhat)} in {worst.name}"
    if predicted:
        note = f"In weight space the chains differ ({extent}). Networks have symmetries: predictions are what count."
        return [note] if disagree else []
    if disagree:
        return [
            f"In weight space the {count_in_words(chains)} chains have not mixed: {extent}. "
            "Networks have symmetries, so they may still be the same functions: "
            "check their predictions with diagnose(x)."
        ]
    least = min(leaf.smallest_ess for leaf in leaves)
    good = f"above {RHAT_MIXED} for {good} of the weights"
    line = _agreement_line("weight-space R-hat", weights, good)
    return [line, *effective_draws_lines(least, chains, draws)]


def _agreement_line(what: str, compared: Compared, good: str) -> str:
    """One line about chains that show no clear sign of not having mixed."""
    by_chance, limit = rhat_by_chance(compared.columns), rhat_limit(compared.columns)
    worst = max(row.worst_rhat for row in compared.summaries if not np.isnan(row.worst_rhat))
    least = min(row.smallest_ess for row in compared.summaries)
    many, most = count_in_words(compared.chains), f"{what} at most {format_rhat(worst)}"
    chance = f"but with so few effective draws chance alone gives up to {format_rhat(by_chance)}"
    if worst <= RHAT_MIXED:
        return f"The {many} chains agree: {most}, at least {least:.0f} effective draws."
    if worst <= limit and least >= EFFECTIVE_PER_CHAIN * compared.chains:
        chance = f"where chance alone gives up to {format_rhat(by_chance)} over so many values"
        return f"The {many} chains agree: {most}, {chance}; at least {least:.0f} effective draws."
    if worst <= min(by_chance, RHAT_BAD):
        return f"No sign that the {many} chains differ: {most}, {chance}."
    if worst <= by_chance:
        return f"It is unclear whether the {many} chains have mixed: {most}, {chance}."
    return f"The {many} chains nearly agree: {most}, {good}. More draws would show whether they differ."


def single_chain_lines(compared: Compared, draws: int) -> list[str]:
    """A single chain, by its predictions if there are any, otherwise by its weights."""
    least = min(summary.smallest_ess for summary in compared.summaries)
    text = "Mixing cannot be checked with one chain: run chains=4."
    return [f"{text} On its own it has at least {least:.0f} effective draws.", *effective_draws_lines(least, 1, draws)]


def effective_draws_lines(least: float, chains: int, draws: int) -> list[str]:
    """The weight or prediction with the fewest effective draws."""
    needed = EFFECTIVE_PER_CHAIN * chains
    if least >= needed:
        return []
    enough = float(f"{draws * needed / max(least, 1.0):.1g}")
    return [
        f"Too few effective draws: {least:.0f} at worst, where {needed} are needed ({EFFECTIVE_PER_CHAIN} per chain). "
        f"Try about draws={max(enough, draws + 1):.0f}."
    ]


def sampler_lines(sampler: SamplerSummary | None) -> list[str]:
    """What the sampler recorded."""
    if sampler is None:
        return []
    lines = []
    if sampler.cut is not None and max(sampler.cut) > 0:
        where = which_chains([chain for chain, share in enumerate(sampler.cut) if share > 0]).lower()
        lines.append(
            f"Trajectories were cut short by max_leapfrogs=, by up to {percent(max(sampler.cut))} ({where}), so draws "
            f"are more correlated than necessary. Raise max_leapfrogs=."
        )
    if sampler.divergences is not None and any(sampler.divergences):
        count = sum(sampler.divergences)
        where = which_chains([chain for chain, diverged in enumerate(sampler.divergences) if diverged]).lower()
        many = f"{count} divergent transition{'s' if count > 1 else ''} after warm-up ({where})"
        if diverges(sampler):
            lines.append(
                f"{many}: the step size is too large for part of the posterior, which the draws then miss. Raise "
                f"target_acceptance=, or set a smaller step_size=."
            )
        else:
            lines.append(
                f"{many}, few enough to be tolerated. If the tails matter, see whether a higher target_acceptance= "
                f"changes the result."
            )
    if sampler.acceptance is not None and min(sampler.acceptance) < LOW_ACCEPTANCE:
        where = which_chains([chain for chain, rate in enumerate(sampler.acceptance) if rate < LOW_ACCEPTANCE]).lower()
        lines.append(
            f"Low acceptance, {min(sampler.acceptance):.2f} ({where}): use a smaller step_size=, or a longer warmup= "
            f"to find one."
        )
    if sampler.ebfmi is not None and np.nanmin([*sampler.ebfmi, 1.0]) < LOW_EBFMI:
        where = which_chains([chain for chain, value in enumerate(sampler.ebfmi) if value < LOW_EBFMI]).lower()
        lines.append(
            f"E-BFMI {np.nanmin(sampler.ebfmi):.2f}, below {LOW_EBFMI} ({where}): chains explore the tails of the "
            f"posterior slowly. Take more draws, and reconsider heavy-tailed priors."
        )
    return lines


def training_lines(training: TrainingSummary | None, members: int) -> list[str]:
    """A posterior that was optimised."""
    none = "It was optimised, not sampled, so there are no chains to compare and no R-hat."
    if training is None:
        return ["Too few steps were recorded to tell whether training has converged.", none]
    if training.level_step is not None:
        return [_level_line(training), none]
    return [
        _stationarity_line(training, members) if training.stationarity else _objective_line(training, members),
        none,
    ]


def _level_line(training: TrainingSummary) -> str:
    """From a run that was to end when its objective is level."""
    if training.converged:
        return "converged"
    name = OBJECTIVES.get(training.objective, training.objective)
    longer = f"give it more time, or more than {training.steps} steps"
    return f"The {name} was still rising when the run ended, so it had not converged: {longer}."


def _stationarity_line(training: TrainingSummary, members: int) -> str:
    """From the gradients of the last steps, which are informative even after the learning rate has decayed to zero."""

    def whose(concerned: tuple[int, ...]) -> str:
        return f"{len(concerned)} of {members} members" if members > 1 else "Training"

    if training.not_stationary:
        longer = f"train longer (try steps={_round(4 * training.steps)})"
        return f"{whose(training.not_stationary)} had not converged: {longer}."
    if training.falling:
        return (
            f"The objective of {whose(training.falling).lower()} was falling at the end, so it had not converged: use "
            f"a smaller learning rate."
        )
    if training.unsure:
        advice = "use a larger batch_size=, more draws= in px.VI, or train longer"
        who = whose(training.unsure).lower() if members == 1 else whose(training.unsure)
        return f"The gradients are too noisy to tell whether {who} converged: {advice}."
    return "converged"


def _objective_line(training: TrainingSummary, members: int) -> str:
    """From the objective alone."""
    name = OBJECTIVES.get(training.objective, training.objective)
    moving = training.falling or training.rising
    whose = f" of {len(moving)} of {members} members" if moving and members > 1 else ""
    longer = f"train longer (try steps={_round(4 * training.steps)})"
    if training.falling:
        return (
            f"The {name}{whose} was falling when training ended, so it had not converged: use a smaller learning rate."
        )
    if training.rising:
        return f"The {name}{whose} was still rising when training ended, so it had not converged: {longer}."
    if training.rising_before:
        return (
            f"Not shown to have converged: the {name} levelled off, but it was rising just before, and a learning rate "
            f"that decays to zero ends any rise. {longer.capitalize()}, and see whether it ends higher."
        )
    return f"The {name} levelled off: converged, judging by the objective alone."


def _round(steps: int) -> int:
    return int(float(f"{steps:.1g}"))


def _weighted_share(leaves: Sequence[ChainAgreement], field: str) -> float:
    """The share over all leaves, weighted by their sizes."""
    return float(np.average([getattr(leaf, field) for leaf in leaves], weights=[leaf.size for leaf in leaves]))


def _which_have_not_mixed(groups: tuple[tuple[int, ...], ...], chains: int) -> str:
    if len(groups) == chains:
        return (
            f"No two of the {count_in_words(chains)} chains have mixed"
            if chains > 2
            else "The two chains have not mixed"
        )
    if len(groups[0]) > len(groups[1]):
        outside = sorted(chain for group in groups[1:] for chain in group)
        names = which_chains(outside).lower()
        have = "has" if len(outside) == 1 else "have"
        how_many = f"{count_in_words(len(outside)).capitalize()} of {count_in_words(chains)} chains"
        return f"{how_many} ({names}) {have} not mixed with the others"
    together = "; ".join(which_chains(group).lower() for group in groups)
    return (
        f"The {count_in_words(chains)} chains have mixed only within {count_in_words(len(groups))} groups ({together})"
    )


def worst_quantity(summaries: Sequence[ChainAgreement]) -> str:
    """The weight or test point with the largest R-hat or, for one chain, the fewest effective draws.

    >>> worst_quantity([ChainAgreement("w", 6, 6, 1.62, 1.1, 1.0, 0.5, 9.0, 80.0, 12.0, worst="w[2, 0]")])
    'Worst: w[2, 0], R-hat 1.62; fewest effective draws in w, 9.'
    """
    known = [summary for summary in summaries if not np.isnan(summary.worst_rhat)]
    fewest = min(summaries, key=lambda summary: summary.smallest_ess)
    draws = f"fewest effective draws in {fewest.name}, {fewest.smallest_ess:.0f}."
    if not known:
        return f"Worst: {fewest.worst}; {draws}"
    worst = max(known, key=lambda summary: summary.worst_rhat)
    return f"Worst: {worst.worst}, R-hat {format_rhat(worst.worst_rhat)}; {draws}"


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
    needed = EFFECTIVE_PER_CHAIN * compared.chains
    if least < needed:
        return f"draws={max(math.ceil(float(f'{draws * needed / max(least, 1.0):.1g}')), 2 * draws)}"
    return "chains=4" if compared.chains == 1 else None


def which_chains(chains: Sequence[int]) -> str:
    """`Chain 2`, or `Chains 0, 1 and 3`."""
    names = [str(chain) for chain in chains]
    return f"Chain {names[0]}" if len(names) == 1 else f"Chains {', '.join(names[:-1])} and {names[-1]}"


def count_in_words(count: int) -> str:
    return NUMBERS[count] if count < len(NUMBERS) else str(count)


def percent(share: float) -> str:
    """
    >>> percent(0.14), percent(0.0042), percent(1.0), percent(0.999)
    ('14 %', '0.42 %', '100 %', '99.9 %')
    """
    digits = f"{100 * share:.2g}" if share < 0.1 else f"{100 * share:.0f}"
    return f"{100 * share:.3g} %" if digits == "100" and share < 1.0 else f"{digits} %"


def format_rhat(rhat: float) -> str:
    """An R-hat with the digits that matter: more near 1, fewer if chains are far apart.

    >>> format_rhat(1.0042), format_rhat(1.18), format_rhat(23.7), format_rhat(float("inf"))
    ('1.004', '1.18', '24', 'inf')
    """
    return f"{rhat:.3f}" if rhat < 1.1 else f"{rhat:.2f}" if rhat < 10 else f"{rhat:.2g}"
