"""Outcome: what became of a method that was run without supervision."""

from dataclasses import dataclass

from posteriax.evaluation.run_end import Status
from posteriax.posterior.posterior import Posterior


@dataclass(frozen=True, eq=False)
class Outcome:
    """A posterior, and whether its run ended because it was done.

    Args:
        status: in one phrase. A failed run has no posterior, and must not be scored.
        posterior: what was inferred; None if the run failed.
        details: the numbers behind the status and what was tried, one sentence each.
        seconds: how long it took.

    >>> Outcome("failed", details=("SWAG's weights became infinite at step 40.",)).posterior is None
    True
    """

    status: Status
    posterior: Posterior | None = None
    details: tuple[str, ...] = ()
    seconds: float = 0.0


class MethodFailed(RuntimeError):
    """A method failed with all of its settings; `outcome` says how."""

    def __init__(self, method: object, outcome: Outcome):
        super().__init__(f"{method} failed: {'; '.join(outcome.details)}")
        self.outcome = outcome
