"""How a method's run ended: what a reader must know before its scores."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Status = Literal["converged", "stopped at the budget", "not converged", "failed"]
STATUSES: tuple[Status, ...] = ("converged", "stopped at the budget", "not converged", "failed")


@dataclass(frozen=True)
class RunEnd:
    """How a method's run ended.

    Args:
        status: "converged"; "stopped at the budget", before it had converged; "not converged", which more time would
            not change, as with chains that diverge; or "failed". What failed is listed, but not scored.
        details: the numbers behind the status and what was tried, one sentence each.
        seconds: how long it took.

    >>> RunEnd("stopped at the budget", ("The ELBO was still rising.",)).status
    'stopped at the budget'
    """

    status: Status
    details: tuple[str, ...] = ()
    seconds: float = math.nan

    def __post_init__(self) -> None:
        if self.status not in STATUSES:
            raise ValueError(f"status must be one of {', '.join(map(repr, STATUSES))}, got {self.status!r}")


def run_ends(runs: Mapping[str, Any]) -> dict[str, RunEnd]:
    """How each run ended, from anything that has `status`, `details` and `seconds`.

    >>> run_ends({"hmc": RunEnd("converged")})
    {'hmc': RunEnd(status='converged', details=(), seconds=nan)}
    """
    return {
        str(name): RunEnd(run.status, tuple(map(str, run.details)), float(run.seconds)) for name, run in runs.items()
    }
