"""Diagnosis: whether a posterior can be trusted and, if not, what to do."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import PyTree

from posteriax._internal.checks import check_count, check_inputs
from posteriax.diagnostics.chain_agreement import (
    ChainAgreement,
    Compared,
    compare_chains_of_predictions,
    compare_chains_of_weights,
    rhat_limit,
)
from posteriax.diagnostics.chains import FEWEST_DRAWS, RHAT_BAD, RHAT_MIXED
from posteriax.diagnostics.sampler import SamplerSummary, summarize_sampler
from posteriax.diagnostics.training import TrainingSummary, summarize_training
from posteriax.diagnostics.verdict import (
    count_in_words,
    find_shortcomings,
    format_rhat,
    movement_lines,
    percent,
    prediction_lines,
    sampler_lines,
    single_chain_lines,
    training_lines,
    try_first,
    weight_lines,
    worst_quantity,
)
from posteriax.posterior.draws import DrawsPosterior
from posteriax.posterior.posterior import Posterior


@dataclass(frozen=True, repr=False)
class Diagnosis:
    """What :meth:`Posterior.diagnose` found. Print it: a table, and a verdict.

    Args:
        verdict: what it means and what to do, one line each.
        chains: number of chains, or of members of an ensemble.
        draws: how many draws of each chain were examined.
        predictions: how well the chains agree on predictions; None without test inputs.
        leaves: how well they agree on the weights of each leaf.
        sampler: acceptance, step size, divergences and energy, if recorded.
        training: how the objective changed, if the posterior was optimised.
        shortcomings: why chains have not converged, a few words each; empty if nothing is known to be wrong.

    >>> print(Diagnosis("All is well.", chains=4, draws=500))
    All is well.
    """

    verdict: str
    chains: int
    draws: int
    predictions: ChainAgreement | None = None
    leaves: tuple[ChainAgreement, ...] = ()
    sampler: SamplerSummary | None = None
    training: TrainingSummary | None = None
    shortcomings: tuple[str, ...] = ()

    @property
    def converged(self) -> bool | None:
        """Whether training has converged, or the chains have: none of them is stuck, and

        - the largest R-hat is at most 1.01, or what chance alone gives over as many values, but never above 1.05;
        - every value has at least 100 effective draws per chain, all chains together (Vehtari et al. 2021);
        - at most one transition in 1,000 diverged after the warm-up, if the sampler records that.

        The values are predictions or, without test inputs, weights. None if nothing is wrong but too little is known:
        there is only one chain, or the predictions never change. The first line of the verdict says the same.
        """
        if self.training is not None:
            return self.training.converged
        if self.shortcomings:
            return False
        rhats = [row.worst_rhat for row in ([self.predictions] if self.predictions else self.leaves)]
        return None if not rhats or np.isnan(rhats).any() else True

    def __str__(self) -> str:
        rows = (*([self.predictions] if self.predictions else []), *self.leaves)
        lines = [str(self.sampler)] if self.sampler else []
        return "\n".join([*([_table(rows, self.chains, self.draws)] if rows else []), *lines, self.verdict])

    __repr__ = __str__


def diagnose(posterior: Posterior, x: PyTree = None, draws: int | None = None) -> Diagnosis:
    """Have the chains mixed, and are there enough draws? Or, for a posterior that was optimised: has it converged?

    Args:
        posterior: from any method.
        x: test inputs. With them, chains are compared by their predictions, which are what counts: class probabilities
            or means. Without them, only weights can be compared.
        draws: how many draws of each chain to examine, evenly spaced; all by default.

    At most 2,000 weights of a leaf and 2,000 test points are examined: a seeded sample if there are more.

    >>> import equinox as eqx, jax, posteriax as px
    >>> (x, y), (x_test, _) = px.data.two_moons(train=50, test=20)
    >>> problem = px.Problem(eqx.nn.MLP(2, 2, 4, 1, key=jax.random.key(0)), px.Categorical())
    >>> posterior = px.fit(problem, (x, y), px.HMC(warmup=20), draws=20, chains=2, key=0)
    >>> diagnosis = posterior.diagnose(x_test)
    >>> diagnosis.chains, diagnosis.predictions.size, len(diagnosis.leaves)
    (2, 20, 4)
    """
    source = posterior.drawn_from
    if not isinstance(source, DrawsPosterior) or not is_sampled(source):
        training = summarize_training(posterior.trace)
        members = max((np.atleast_2d(values).shape[0] for values in posterior.trace.values()), default=1)
        return Diagnosis("\n".join(training_lines(training, members)), members, 1, training=training)
    chains, draws_per_chain = source.chains, source.draws_per_chain
    taken = draws_per_chain if draws is None else min(check_count("draws", draws), draws_per_chain)
    sampler = summarize_sampler(posterior.trace)
    if taken < FEWEST_DRAWS:
        few = f"Too few draws: {taken} per chain, but at least {FEWEST_DRAWS} are needed. Raise draws=."
        missing = find_shortcomings((), RHAT_MIXED, (), sampler, chains=chains, draws=taken)
        return _concluded([few, *sampler_lines(sampler)], Diagnosis("", chains, taken, None, (), sampler), missing)
    weights = compare_chains_of_weights(source, taken)
    predictions = None
    if x is not None:
        predictions = compare_chains_of_predictions(posterior, check_inputs(x), chains, taken)
    stuck = [chain for chain, variances in enumerate(weights.columns.variances) if not variances.any()]
    lines = [*_verdict(weights, predictions, stuck, taken), *sampler_lines(sampler)]
    what_counts = weights if predictions is None else predictions
    first = try_first(what_counts, sampler, draws=taken, stuck=bool(stuck), warmup=posterior.trace.warmup)
    if first is not None:
        lines += [worst_quantity(what_counts.summaries), f"Try first: {first}."]
    summary = predictions.summaries[0] if predictions is not None else None
    limit = rhat_limit(what_counts.columns) if chains > 1 else RHAT_MIXED
    missing = find_shortcomings(what_counts.summaries, limit, stuck, sampler, chains=chains, draws=taken)
    return _concluded(lines, Diagnosis("", chains, taken, summary, tuple(weights.summaries), sampler), missing)


def _concluded(lines: list[str], diagnosis: Diagnosis, shortcomings: Sequence[str]) -> Diagnosis:
    """The diagnosis of chains with its verdict, which begins with what `converged` says."""
    diagnosis = replace(diagnosis, shortcomings=tuple(shortcomings))
    if diagnosis.converged:
        lines = [f"Converged. {lines[0]}", *lines[1:]]
    elif diagnosis.converged is False:
        lines = [f"Not converged: {'; '.join(shortcomings)}.", *lines]
    return replace(diagnosis, verdict="\n".join(lines))


def is_sampled(posterior: DrawsPosterior) -> bool:
    """Whether draws are states of chains rather than the results of training runs."""
    several = posterior.draws_per_chain > 1
    return several or posterior.trace.warmup > 0 or "acceptance" in posterior.trace


def _verdict(weights: Compared, predictions: Compared | None, stuck: list[int], draws: int) -> list[str]:
    lines = movement_lines(stuck, weights.chains)
    if len(stuck) == weights.chains:
        return lines
    if weights.chains == 1:
        return lines + single_chain_lines(predictions or weights, draws)
    if predictions is not None:
        lines += prediction_lines(predictions, draws)
        if predictions.summaries[0].worst_rhat > RHAT_BAD:
            return lines
    return lines + weight_lines(weights, draws, predicted=predictions is not None)


def _table(rows: Sequence[ChainAgreement], chains: int, draws: int) -> str:
    from rich.console import Console
    from rich.table import Table

    title = f"{count_in_words(chains)} chain{'s' if chains > 1 else ''} of {draws} draws".capitalize()
    table = Table(title=title, title_justify="left", title_style="")
    table.add_column("")
    for heading in ("size", "R-hat worst", "median", "> 1.01", "> 1.1", "ESS least", "median", "tail least"):
        table.add_column(heading, justify="right")
    for row in rows:
        size = f"{row.size:,}" if row.looked_at == row.size else f"{row.looked_at:,} of {row.size:,}"
        several = chains > 1 and not np.isnan(row.worst_rhat)
        rhats = [format_rhat(row.worst_rhat), format_rhat(row.median_rhat), percent(row.above_good)]
        rhats = [*rhats, percent(row.above_bad)] if several else [""] * 4
        ess = [f"{value:,.0f}" for value in (row.smallest_ess, row.median_ess, row.smallest_tail_ess)]
        table.add_row(row.name, size, *rhats, *ess)
    console = Console(width=200, force_terminal=False)
    with console.capture() as capture:
        console.print(table)
    return "\n".join(line.rstrip() for line in capture.get().rstrip().splitlines())
