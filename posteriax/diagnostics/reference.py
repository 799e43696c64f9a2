"""Can a posterior serve as a reference? Only if its chains agree on their predictions."""

import math
from dataclasses import dataclass
from typing import Any

import jax

from posteriax.diagnostics.columns import FEWEST_DRAWS
from posteriax.diagnostics.diagnosis import is_sampled
from posteriax.diagnostics.weights_and_predictions import worst_rhat_of_predictions
from posteriax.posterior import DrawsPosterior, Posterior

LIMIT = 1.05  # for R-hat in function space


@dataclass(frozen=True)
class ReferenceCheck:
    """Whether distances to a reference can be trusted.

    Args:
        name: of the reference.
        rhat: the largest R-hat of its predictions (rank-normalised, split); NaN if unknown.
        unknown: why it is unknown.

    >>> ReferenceCheck("HMC", 1.62).note
    'HMC has not converged: R-hat 1.62 in function space (limit 1.05). Distances to it say little.'
    >>> ReferenceCheck("HMC", 1.01).converged
    True
    """

    name: str
    rhat: float = math.nan
    unknown: str = ""

    @property
    def converged(self) -> bool | None:
        """Whether R-hat is at most 1.05; None if unknown."""
        return None if math.isnan(self.rhat) else self.rhat <= LIMIT

    @property
    def note(self) -> str:
        """One or two sentences."""
        if self.converged is None:
            return f"Whether {self.name} has converged cannot be checked: {self.unknown}."
        if self.converged:
            return f"The chains of {self.name} agree: R-hat {self.rhat:.2f} in function space (limit {LIMIT})."
        return (
            f"{self.name} has not converged: R-hat {self.rhat:.2f} in function space (limit {LIMIT}). Distances to it "
            f"say little."
        )

    @property
    def distance_words(self) -> str:
        """A heading for distances to the reference."""
        doubt = f", which has not converged: R-hat {self.rhat:.2f}" if self.converged is False else ""
        return f"distance to {self.name}{doubt}"


def check_reference(name: str, posterior: Any, x: Any, draws: int | None = None) -> ReferenceCheck:
    """Compare a reference's chains by their predictions: probabilities of classes, or means.

    Args:
        name: of the reference.
        posterior: the reference, or a predictive, whose draws do not say which chain they came from.
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
    chains, each = jax.tree.leaves(source.draws)[0].shape[:2]
    if chains < 2:
        return ReferenceCheck(name, unknown="it has only one chain; run chains=4")
    taken = each if draws is None else min(each, max(FEWEST_DRAWS, draws // chains))
    if taken < FEWEST_DRAWS:
        return ReferenceCheck(name, unknown=f"its chains have fewer than {FEWEST_DRAWS} draws each")
    rhat = worst_rhat_of_predictions(posterior, x, chains, taken)
    return ReferenceCheck(name, rhat, "its predictions are identical in every draw" if math.isnan(rhat) else "")
