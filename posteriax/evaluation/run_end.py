"""How a method's run ended: what a reader must know before reading its scores."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from posteriax.posterior.posterior import Posterior

Status = Literal["converged", "stopped at the budget", "not converged", "failed"]


@dataclass(frozen=True)
class RunEnd:
    """How a method's run ended, and what it inferred.

    Args:
        status: "converged"; "stopped at the budget", before it had converged; "not converged", which more time would
            not change, as with chains that diverge; or "failed". A failed run is listed, but not scored.
        details: the numbers behind the status and what was tried, one sentence each.
        seconds: how long it took.
        posterior: what was inferred; None if the run failed, or if the posterior is kept elsewhere.

    >>> RunEnd("stopped at the budget", ("The ELBO was still rising.",)).status
    'stopped at the budget'
    """

    status: Status
    details: tuple[str, ...] = ()
    seconds: float = math.nan
    posterior: Posterior | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        statuses = get_args(Status)
        if self.status not in statuses:
            raise ValueError(f"status must be one of {', '.join(map(repr, statuses))}, got {self.status!r}")


def run_ends(runs: Mapping[str, Any]) -> dict[str, RunEnd]:
    """How each run ended, from anything that has `status`, `details` and `seconds`.

    >>> run_ends({"hmc": RunEnd("converged")})
    {'hmc': RunEnd(status='converged', details=(), seconds=nan)}
    """
    return {
        str(name): RunEnd(run.status, tuple(map(str, run.details)), float(run.seconds)) for name, run in runs.items()
    }
