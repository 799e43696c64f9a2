"""Can a posterior serve as a reference? Only if its chains agree on their predictions and have not diverged."""

import math
from dataclasses import dataclass

from jaxtyping import PyTree

from posteriax.diagnostics.chain_agreement import worst_rhat_of_predictions
from posteriax.diagnostics.chains import FEWEST_DRAWS, RHAT_CHANCE
from posteriax.diagnostics.diagnosis import is_sampled
from posteriax.diagnostics.sampler import excess_divergences, summarize_sampler
from posteriax.likelihoods.predictive import Predictive
from posteriax.posterior.draws import DrawsPosterior
from posteriax.posterior.posterior import Posterior


@dataclass(frozen=True)
class ReferenceCheck:
    """Whether distances to a reference can be trusted.

    Args:
        name: of the reference.
        rhat: the largest R-hat of its predictions (rank-normalised, split); NaN if unknown.
        unknown: why it is unknown.
        divergences: how many transitions diverged after the warm-up, if too many did (docs/diagnostics.md); else 0.

    >>> ReferenceCheck("HMC", 1.62).note
    'HMC has not converged: R-hat 1.62 in function space (limit 1.05). Distances to it say little.'
    >>> ReferenceCheck("HMC", 1.01).converged
    True
    >>> ReferenceCheck("HMC", 1.01, divergences=76).note
    'HMC has not converged: 76 divergent transitions. Distances to it say little.'
    """

    name: str
    rhat: float = math.nan
    unknown: str = ""
    divergences: int = 0

    @property
    def converged(self) -> bool | None:
        """Whether R-hat is at most 1.05 and few transitions diverged; None if unknown.

        Effective draws do not count here: a comparison looks at some of a reference's draws only, and reports the
        distance between two halves of them as the floor of all distances.
        """
        if self.divergences:
            return False
        return None if math.isnan(self.rhat) else self.rhat <= RHAT_CHANCE

    @property
    def doubt(self) -> str:
        """Why it has not converged, in a few words; empty if it has, or if that is unknown."""
        if self.converged is not False:
            return ""
        diverged = f"{self.divergences:,} divergent transition{'s' if self.divergences > 1 else ''}"
        parts = [diverged] if self.divergences else []
        return " and ".join([*parts, *([f"R-hat {self.rhat:.2f}"] if self.rhat > RHAT_CHANCE else [])])

    @property
    def note(self) -> str:
        """One or two sentences."""
        if self.converged is None:
            return f"Whether {self.name} has converged cannot be checked: {self.unknown}."
        if self.converged:
            return f"The chains of {self.name} agree: R-hat {self.rhat:.2f} in function space (limit {RHAT_CHANCE})."
        limit = f" in function space (limit {RHAT_CHANCE})" if self.rhat > RHAT_CHANCE else ""
        return f"{self.name} has not converged: {self.doubt}{limit}. Distances to it say little."

    @property
    def distance_words(self) -> str:
        """A heading for distances to the reference."""
        return f"distance to {self.name}" + (f", which has not converged: {self.doubt}" if self.doubt else "")


def check_reference(
    name: str, posterior: Posterior | Predictive | None, x: PyTree, draws: int | None = None
) -> ReferenceCheck:
    """Compare a reference's chains by their predictions: probabilities of classes, or means.

    Args:
        name: of the reference.
        posterior: the reference; or a predictive or None, for draws that do not say which chain they came from.
        x: test inputs; at most 2,000 are examined, a seeded sample if there are more.
        draws: how many draws of all chains together to examine; all by default.
    """
    if not isinstance(posterior, Posterior):
        return ReferenceCheck(
            name, unknown="a predictive does not say which chain a draw came from; pass the posterior"
        )
    source = posterior.drawn_from
    if not isinstance(source, DrawsPosterior) or not is_sampled(source):
        return ReferenceCheck(name, unknown="it was not sampled, so there are no chains to compare")
    chains, draws_per_chain = source.chains, source.draws_per_chain
    if chains < 2:
        return ReferenceCheck(name, unknown="it has only one chain; run chains=4")
    taken = draws_per_chain if draws is None else min(draws_per_chain, max(FEWEST_DRAWS, draws // chains))
    if taken < FEWEST_DRAWS:
        return ReferenceCheck(name, unknown=f"its chains have fewer than {FEWEST_DRAWS} draws each")
    rhat = worst_rhat_of_predictions(posterior, x, chains, taken)
    sampler = summarize_sampler(posterior.trace)
    divergences = excess_divergences(sampler)
    unknown = "its predictions are identical in every draw" if math.isnan(rhat) else ""
    return ReferenceCheck(name, rhat, unknown, divergences)
