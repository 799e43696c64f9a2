"""The cost of mean-field in the true posterior, by depth: two moons, sampled by NUTS (figure 2 of the paper).

Networks of every depth have about the same number of weights. Each chain is a restart: a full and a diagonal Gaussian
are fitted to the draws of its dominant mode, and

    E_KL = KL(q_full || q_diag)            E_W = W2(draws, q_diag) - W2(draws, q_full)

each minus its null, the same for draws whose weights have been made independent (`px.analysis.mean_field_cost`). The
paper names the No-U-Turn Sampler but used a library whose version of it has trajectories of a fixed length and adapts
only the step size; `px.NUTS` chooses their length, and adapts a mass for every weight as well.
"""

from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

from posteriax import analysis
from posteriax import priors as p
from posteriax.evaluation.evaluate import evaluate
from posteriax.likelihoods.classes import Bernoulli
from posteriax.methods.nuts import NUTS
from posteriax.problem import Problem
from posteriax.studies.results import Results
from posteriax.studies.study import Cell, Claim, Table
from posteriax.studies.workbench import Workbench
from posteriax.zoo.mlp import MLP

NAME = "two moons"
SLOPES = {"ReLU": 0.0, "LeakyReLU 0.5": 0.5, "LeakyReLU 0.95": 0.95, "linear": 1.0}  # for negative inputs


@dataclass(frozen=True)
class TwoMoons:
    """Settings of this experiment.

    Args:
        widths: of the hidden layers of networks with one, two, ... of them.
        restarts: chains per seed.
        train: how many points; their noise has standard deviation 0.2.
        warmup, draws: of each chain.
        max_doublings: a trajectory has at most 2^max_doublings leapfrog steps.
        activations: names in `SLOPES`.
        points: draws matched by the assignment in E_W.
    """

    widths: tuple[int, ...]
    restarts: int
    train: int = 100
    warmup: int = 300
    draws: int = 1000
    max_doublings: int = 7
    points: int = 300
    activations: tuple[str, ...] = tuple(SLOPES)


def one_step(settings: TwoMoons) -> TwoMoons:
    return replace(settings, restarts=2, warmup=20, draws=8, max_doublings=3)


def cells(settings: TwoMoons, seeds: int) -> list[Cell]:
    """All restarts of a network are one cell: its chains run side by side in one program."""
    return [
        Cell(
            {"experiment": NAME, "activation": name, "depth": depth, "restarts": settings.restarts * seeds}, 0, cost=20
        )
        for name in settings.activations
        for depth in range(1, len(settings.widths) + 1)
    ]


def run(cell: Cell, settings: TwoMoons, bench: Workbench) -> dict[str, Any]:
    """Sample one network, and fit Gaussians to the draws of every chain."""
    activation, depth = SLOPES[str(cell.settings["activation"])], int(cell.settings["depth"])
    data = bench.load("two_moons", train=settings.train)
    sizes = (2, *[settings.widths[depth - 1]] * depth, 1)
    net = MLP(sizes, activation=Rectifier(activation), key=jax.random.key(depth))
    problem = Problem(net, Bernoulli(), p.Normal(scale=1.0))
    method = NUTS(warmup=settings.warmup, max_doublings=settings.max_doublings)
    chains = int(cell.settings["restarts"])
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


def depths(results: Results) -> list[int]:
    return sorted({int(cell.settings["depth"]) for cell in results.of(experiment=NAME)})


def activations(results: Results) -> list[str]:
    return [name for name in SLOPES if results.of(experiment=NAME, activation=name)]


def excess(results: Results, measure: str, activation: str, depth: int) -> np.ndarray:
    """E_KL or E_W ("kl" or "w") minus its null, by restart; infinity minus infinity is NaN."""
    (cell,) = results.of(experiment=NAME, activation=activation, depth=depth)
    value, null = (np.array(cell.result[name], np.float64) for name in (measure, f"{measure}_null"))
    return value - null


def fall(results: Results, measure: str) -> np.ndarray:
    """How much of the cost with one hidden layer is gone with the most, by restart, for the activation where it is
    least: 1 - E(deepest) / mean E(1)."""
    deepest = depths(results)[-1]
    each = [
        1 - excess(results, measure, name, deepest) / excess(results, measure, name, 1).mean()
        for name in activations(results)
    ]
    return min(each, key=lambda values: float(values.mean()))


def closer_to_linear(results: Results) -> np.ndarray:
    """By restart: distance of LeakyReLU 0.95's curve of E_KL by depth from ReLU's minus that from the linear
    network's, and the same for LeakyReLU 0.5 the other way round; the smaller of the two."""
    if len(activations(results)) < len(SLOPES):
        return np.array([])
    curves = {n: np.array([excess(results, "kl", n, d) for d in depths(results)]) for n in SLOPES}
    centres = {name: curve.mean(axis=1, keepdims=True) for name, curve in curves.items()}

    def apart(name: str, other: str) -> np.ndarray:
        return np.abs(curves[name] - centres[other]).mean(axis=0)

    shallow = apart("LeakyReLU 0.95", "ReLU") - apart("LeakyReLU 0.95", "linear")
    sharp = apart("LeakyReLU 0.5", "linear") - apart("LeakyReLU 0.5", "ReLU")
    return min(shallow, sharp, key=lambda values: float(values.mean()))


NARROW = (
    "It does for slopes of 0.95 and 1 (E_KL from 1.7 to 0.8 nats, E_W from 0.12 to 0.04), and for all four from one to "
    "two hidden layers: to 0.54, 0.31, 0.43 and 0.45 of E_KL. With ReLU and slope 0.5 it rises again at three and four "
    "layers. Networks of the same size are narrow there, with 4 and 3 units: their chains fall into four to five "
    "components instead of one, 3 to 7 % of the transitions diverge, R-hat of the weights reaches 1.55, and the mode "
    "is left with 240 to 360 draws for some 50 weights, whose null is four times what remains. A Gaussian is no "
    "description of such a posterior, whatever its covariance; networks of 1,000 weights, as in the paper, are about "
    "15 to 20 units wide at these depths."
)
CLAIMS = (
    Claim(
        name="E_KL falls with depth",
        sentence="The information lost by a mean-field approximation of a posterior mode almost disappears with depth, "
        "whatever the activation.",
        paper="figure 2b: large with one hidden layer, rapidly decreasing; about 1,000 weights, 20 restarts",
        quantity="1 - E_KL(deepest) / E_KL(one hidden layer), null subtracted, by restart; the activation where it "
        "falls least",
        measure=lambda r: fall(r, "kl"),
        above=0.5,
        remark=NARROW,
    ),
    Claim(
        name="E_W falls with depth",
        sentence="The Wasserstein error of a mean-field approximation falls with depth, whatever the activation.",
        paper="figure 2a: large with one hidden layer, rapidly decreasing; about 1,000 weights, 20 restarts",
        quantity="1 - E_W(deepest) / E_W(one hidden layer), null subtracted, by restart; the activation where it "
        "falls least",
        measure=lambda r: fall(r, "w"),
        above=0.5,
        remark="The same as for E_KL: for the activation where it falls least, slope 0.5, E_W is 0.16 with one layer, "
        "0.05 with two and 0.12 with four narrow ones.",
    ),
    Claim(
        name="shallow kinks behave as linear",
        sentence="LeakyReLU 0.95 behaves like a linear network, and LeakyReLU 0.5 like ReLU.",
        paper="figure 2, by eye",
        quantity="E_KL, mean over depths of the distance from the other kind minus that from its own kind (nats), by "
        "restart; the smaller of LeakyReLU 0.95 and 0.5",
        measure=closer_to_linear,
        above=0.0,
        remark="LeakyReLU 0.95 does behave like a linear network, at every depth. LeakyReLU 0.5 lies between the two, "
        "and closer to the linear network: at four layers its E_KL is 1.9 nats, that of ReLU 3.4, of the linear one "
        "0.8.",
    ),
)


def tables(results: Results) -> list[Table]:
    rows = []
    for cell in results.of(experiment=NAME):
        activation, depth, found = cell.settings["activation"], cell.settings["depth"], cell.result
        cost = [_with_error(excess(results, name, activation, depth)) for name in ("kl", "w")]
        nulls = [f"{np.array(found[name], float).mean():.3g}" for name in ("kl_null", "w_null")]
        chains = [
            f"{np.mean(found['draws_of_mode']):.0f}",
            f"{found['acceptance']:.2f}",
            f"{found['divergent']:.2%}",
            f"{found['rhat_predictions']:.2f}",
            f"{found['rhat_weights']:.2f}",
        ]
        row = [activation, depth, found["weights"], cost[0], nulls[0], cost[1], nulls[1], *chains]
        rows.append([*map(str, row), f"{found['accuracy']:.1%}"])
    headings = ["activation", "hidden layers", "weights", "E_KL (nats)", "null", "E_W", "null", "draws of the mode"]
    headings += ["acceptance", "divergent", "R-hat, predictions", "R-hat, weights", "test accuracy"]
    caption = (
        "Two moons: E_KL and E_W minus their null, mean over restarts and its standard error; the null; and how well "
        "the chains sampled. R-hat compares restarts: the worst of the predictions at 100 test points, and the largest "
        "of the leaves' medians over weights, which is above 1 where restarts found different modes."
    )
    return [Table(caption, headings, rows)]


def _with_error(values: np.ndarray) -> str:
    return f"{values.mean():.3g} ± {values.std(ddof=1) / np.sqrt(len(values)):.2g}"
