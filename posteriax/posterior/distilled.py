"""A distilled posterior: one network that predicts what a whole posterior predicts, and how far it is from it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import posteriax
from posteriax.networks.widening import Widening
from posteriax.posterior.draws import DrawsPosterior

if TYPE_CHECKING:
    from posteriax.evaluation import Conformal

DISTANCE = "distance"  # begins the names of distances in the trace


@dataclass(frozen=True, eq=False, repr=False)
class DistilledPosterior(DrawsPosterior):
    """What :func:`px.distil` returns: a posterior like any other, at the cost of one draw.

    Args:
        draws: the network's params, with two axes of length 1.
        widening: how the network became wide enough, if it is the posterior's own.
    """

    widening: Widening | None = None

    @property
    def distances(self) -> dict[str, dict[str, float]]:
        """How far it is from its teacher, by the name of the inputs and of the measure."""
        found: dict[str, dict[str, float]] = {}
        for name, value in self.trace.items():
            if name.startswith(f"{DISTANCE}/"):
                _, inputs, measure = name.split("/")
                found.setdefault(inputs, {})[measure] = float(value[0])
        return found

    @property
    def conformal(self) -> "Conformal | None":
        """Intervals or sets with a guarantee, from the held-out targets; None if there were none.

        ``distilled.conformal.interval(distilled.predict(x))`` holds its level for targets like the held-out ones,
        however far the network is from its teacher.
        """
        if "conformal" not in self.trace:
            return None
        level, threshold, examples, classes = map(float, self.trace["conformal"])
        score = "probability" if classes else "stretch"
        return posteriax.evaluation.Conformal(level, threshold, int(examples), bool(classes), score)

    def report(self) -> str:
        """The distances, one line for each kind of inputs."""
        lines = []
        for inputs, measures in self.distances.items():
            lines.append(f"{inputs}: " + ", ".join(f"{name} {value:.3g}" for name, value in measures.items()))
        calibrated = self.conformal
        if calibrated is not None:
            thing = "sets" if calibrated.classes else "intervals"
            lines.append(
                f"conformal {thing}: {100 * calibrated.level:g} %, from {calibrated.examples:,} held-out targets"
            )
        return "\n".join(lines)

    def _size(self) -> str:
        return f"one network of {self.problem.network.num_parameters:,} weights"
