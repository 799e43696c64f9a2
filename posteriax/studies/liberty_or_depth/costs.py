"""What a training step costs by family and width (table 1 of the paper).

    mean-field    K^2 in time and parameters            matrix normal    K^3 in time, K^2 in parameters
    k-tied        K^2, with k 2 K numbers for scales    full covariance  K^4 in parameters

for a layer of K inputs and K outputs, by the paper for a forward pass. Here a step of VI, in a network with two such
layers; full covariance of a layer of K x K weights only up to a width.
"""

from dataclasses import dataclass

import jax
import numpy as np

from posteriax import families as q
from posteriax import priors as p
from posteriax.likelihoods import Categorical
from posteriax.methods import VI
from posteriax.problem import Problem
from posteriax.studies.results import Json
from posteriax.studies.study import Cell
from posteriax.studies.workbench import Workbench
from posteriax.zoo import MLP

NAME = "costs"
CLASSES = 10


@dataclass(frozen=True)
class Costs:
    """Settings of this experiment."""

    widths: tuple[int, ...] = (16, 32, 64, 128, 256)  # K
    full_widths: tuple[int, ...] = (8, 16, 24, 32)  # of the network with full covariance
    examples: int = 128  # one batch
    steps: int = 60


FAMILIES: dict[str, q.Family] = {
    "mean-field": q.Normal(),
    "2-tied": q.KTied(2),
    "matrix normal": q.MatrixNormal(),
    "full covariance": q.FullCovariance(),
}


def cells(settings: Costs, seeds: int) -> list[Cell]:
    return [Cell({"experiment": NAME}, seed, cost=20) for seed in range(seeds if settings.widths else 0)]


def run(cell: Cell, settings: Costs, bench: Workbench) -> dict[str, Json]:
    """Seconds of a step and numbers of parameters, by family and width."""
    rng = np.random.default_rng(cell.seed)
    seconds: dict[str, list[float]] = {}
    parameters: dict[str, list[int]] = {}
    for name, family in FAMILIES.items():
        widths = settings.full_widths if name == "full covariance" else settings.widths
        for width in widths:
            x = rng.normal(size=(settings.examples, width)).astype(np.float32)
            y = rng.integers(CLASSES, size=len(x))
            net = MLP((width, width, width, CLASSES), key=jax.random.key(cell.seed))
            posterior = bench.fit_timed(
                Problem(net, Categorical(), p.Normal(1.0)),
                (x, y),
                VI(family, estimator="weight"),
                steps=settings.steps,
                batch_size=len(x),
                key=cell.seed,
                every=max(1, settings.steps // 4),
            )
            seconds.setdefault(name, []).append(bench.times.pop("seconds_per_step", 0.0))
            parameters.setdefault(name, []).append(int(posterior.num_parameters))
    bench.times.pop("processor_seconds_per_step", None)
    return {
        "widths": settings.widths,
        "full_widths": settings.full_widths,
        "seconds": seconds,
        "parameters": parameters,
    }
