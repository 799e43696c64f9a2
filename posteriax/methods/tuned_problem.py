"""A problem whose prior was chosen by the marginal likelihood, and a record of the choice."""

from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from posteriax.posterior import DrawsPosterior, Trace
from posteriax.problem import Problem


@dataclass(frozen=True, eq=False)
class Tuning:
    """What was chosen; prints as a table.

    Args:
        scales: the prior's standard deviation for each leaf (root mean square, if it differs between weights).
        noise: the standard deviation of Gaussian noise, in the units that the network's outputs have; None if it was
            not tuned.
        log_evidence: Laplace's approximation of log p(D) at the mode under the chosen prior.
        history: the same in each round that led there.
        effective: how many weights of each leaf the data determine.
        sizes: how many weights each leaf has.
        structure: of the curvature.
    """

    scales: dict[str, float]
    noise: float | None
    log_evidence: float
    history: np.ndarray
    effective: dict[str, float]
    sizes: dict[str, int]
    structure: str

    def __str__(self) -> str:
        width = max(map(len, self.scales))
        lines = [f"{'leaf':{width}}  prior scale  weights  determined by the data"]
        lines += [
            f"{name:{width}}  {scale:11.4g}  {self.sizes[name]:7,}  {self.effective[name]:.1f}"
            for name, scale in self.scales.items()
        ]
        lines += [] if self.noise is None else [f"noise {self.noise:.4g}"]
        lines.append(f"log evidence {self.log_evidence:.1f} ({self.structure} curvature)")
        return "\n".join(lines)


@dataclass(frozen=True, eq=False)
class TunedProblem(Problem):
    """A problem with the prior that :func:`posteriax.priors.tune` chose.

    Args:
        tuning: the scales, the noise and the evidence; print it.
        latents_at_mode: the most probable latents under the chosen prior.
    """

    tuning: Any = field(default=None, repr=False)  # a Tuning
    latents_at_mode: Any = field(default=None, repr=False)

    @property
    def mode(self) -> DrawsPosterior:
        """The most probable weights under the chosen prior, found on the way: ``px.Laplace(mode=tuned.mode)``."""
        return DrawsPosterior(self, Trace({}), jax.tree.map(lambda leaf: leaf[None, None], self.latents_at_mode))
