"""The cost of mean-field in the true posterior, by depth: two moons, sampled by NUTS (figure 2 of the paper).

Networks of every depth have about the same number of weights. Each chain is a restart: a full and a diagonal Gaussian
are fitted to the draws of its dominant mode, and

    E_KL = KL(q_full || q_diag)            E_W = W2(draws, q_diag) - W2(draws, q_full)

each minus its null, the same for draws whose weights have been made independent (`px.analysis.mean_field_cost`). The
paper names the No-U-Turn Sampler but used a library whose version of it has trajectories of a fixed length and adapts
only the step size; `px.NUTS` chooses their length, and adapts a mass for every weight as well.
"""

from dataclasses import dataclass
from typing import Literal

import jax
import numpy as np

from posteriax import analysis
from posteriax import priors as p
from posteriax.evaluation import evaluate
from posteriax.likelihoods import Bernoulli
from posteriax.methods import HMC, NUTS, Method
from posteriax.problem import Problem
from posteriax.studies.results import Json
from posteriax.studies.study import Cell
from posteriax.studies.workbench import Workbench
from posteriax.zoo import MLP

NAME = "two moons"
SLOPES = {"ReLU": 0.0, "LeakyReLU 0.5": 0.5, "LeakyReLU 0.95": 0.95, "linear": 1.0}  # for negative inputs


@dataclass(frozen=True)
class TwoMoons:
    """Settings of this experiment."""

    widths: tuple[int, ...]  # of the hidden layers of networks with one, two, ... of them
    restarts: int  # chains per seed
    train: int = 100  # how many points; their noise has standard deviation 0.2
    warmup: int = 300  # of each chain
    draws: int = 1000
    max_doublings: int = 7  # a trajectory of NUTS has at most 2^max_doublings leapfrog steps
    sampler: Literal["NUTS", "HMC"] = "NUTS"  # HMC's trajectories have nearly the same length in all chains
    points: int = 300  # draws matched by the assignment in E_W
    activations: tuple[str, ...] = tuple(SLOPES)  # names in `SLOPES`


def cells(settings: TwoMoons, seeds: int) -> list[Cell]:
    """All restarts of a network are one cell: its chains run side by side in one program."""
    return [
        Cell(
            {"experiment": NAME, "activation": name, "depth": depth, "restarts": settings.restarts * seeds}, 0, cost=20
        )
        for name in settings.activations
        for depth in range(1, len(settings.widths) + 1)
    ]


def run(cell: Cell, settings: TwoMoons, bench: Workbench) -> dict[str, Json]:
    """Sample one network, and fit Gaussians to the draws of every chain."""
    activation, depth = SLOPES[cell["activation"]], cell["depth"]
    data = bench.load("two_moons", train=settings.train)
    sizes = (2, *[settings.widths[depth - 1]] * depth, 1)
    net = MLP(sizes, activation=Rectifier(activation), key=jax.random.key(depth))
    problem = Problem(net, Bernoulli(), p.Normal(scale=1.0))
    method: Method = NUTS(warmup=settings.warmup, max_doublings=settings.max_doublings)
    if settings.sampler == "HMC":
        method = HMC(warmup=settings.warmup, masses="adapted", target_acceptance=0.95)
    chains = cell["restarts"]
    posterior = bench.fit(problem, data.train, method, draws=settings.draws, chains=chains, key=cell.seed)
    cost = analysis.mean_field_cost(posterior, points=settings.points)
    diagnosis = posterior.diagnose(data.test[0][:100])
    kept = {name: np.atleast_2d(posterior.trace[name])[:, settings.warmup :] for name in ("acceptance", "divergent")}
    assert diagnosis.predictions is not None
    return {
        "weights": cost.weights,
        "kl": cost.kl,
        "kl_null": cost.kl_null,
        "w": cost.w,
        "w_null": cost.w_null,
        "draws_of_mode": cost.draws,
        "components": [mode.components for mode in cost.modes],
        "acceptance": kept["acceptance"].mean(),
        "divergent": kept["divergent"].mean(),
        "rhat_predictions": diagnosis.predictions.worst_rhat,
        "rhat_weights": max(leaf.median_rhat for leaf in diagnosis.leaves),
        "accuracy": evaluate(posterior.predict(data.test[0], reduce=True), data.test[1])["accuracy"],
    }


@dataclass(frozen=True)
class Rectifier:
    """x if it is positive, else slope x."""

    slope: float

    def __call__(self, x: jax.Array) -> jax.Array:
        return jax.numpy.where(x > 0, x, self.slope * x)
