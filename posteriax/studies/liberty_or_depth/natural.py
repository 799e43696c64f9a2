"""Mean-field against matrix normals, trained by natural gradients: what stands in for the paper's table 2.

    q.Normal          steps as VOGN          eps per weight, from the mean of squared gradients
    q.MatrixNormal    steps as noisy K-FAC   Kronecker factors of a layer's curvature

The table compares published results of both on ImageNet, with ResNets. Here an MLP on Fashion-MNIST is trained by both,
from the same initial weights and with the same numbers of trials for the step sizes, chosen on held-out images.
A trial that diverges is not chosen, and smaller steps are tried as long as the smallest is the best.
"""

import math
from dataclasses import dataclass

import jax
import numpy as np
import optax

from posteriax import families as q
from posteriax import priors as p
from posteriax.evaluation import evaluate
from posteriax.likelihoods import Categorical
from posteriax.methods import VI, natural_gradient
from posteriax.problem import Problem
from posteriax.studies.results import Json
from posteriax.studies.study import Cell
from posteriax.studies.workbench import Examples, Workbench, average_pixels
from posteriax.zoo import MLP

NAME = "natural gradients"
MEAN_FIELD, STRUCTURED = "mean-field", "matrix normal"
FAMILIES: dict[str, q.Family] = {MEAN_FIELD: q.Normal(0.01), STRUCTURED: q.MatrixNormal(0.01)}
HELD_OUT = 0.2  # of the training images, while step sizes are chosen
RATE, PRECISION_RATE = 0.03, 0.01  # where the trials start
FURTHER = 4  # trials of still smaller steps, each a third of the last


@dataclass(frozen=True)
class NaturalGradients:
    """Settings of this experiment."""

    data: str = "fashion_mnist"
    train: int = 10_000  # images
    test: int = 10_000
    pool: int = 2  # images are averaged over squares of so many pixels
    widths: tuple[int, ...] = (64, 64)
    epochs: int = 20
    batch_size: int = 100
    trials: tuple[float, ...] = (0.3, 1.0, 3.0)  # factors on the step size of the mean
    draws: int = 64  # for predictions


def cells(settings: NaturalGradients, seeds: int) -> list[Cell]:
    return [
        Cell({"experiment": NAME, "family": family}, seed, cost=20)
        for seed in range(seeds if settings.widths else 0)
        for family in FAMILIES
    ]


def run(cell: Cell, settings: NaturalGradients, bench: Workbench) -> dict[str, Json]:
    """Scores on the test set, after the step size was chosen."""
    data = bench.load(settings.data)
    order = np.random.default_rng((cell.seed, 11)).permutation(len(data.train[1]))[: settings.train]
    (x, y), tests = (data.train[0][order], data.train[1][order]), settings.test or None
    centre, scale = x.mean(), x.std()
    x, x_test = (
        ((average_pixels(a, settings.pool) - centre) / scale).reshape(len(a), -1) for a in (x, data.test[0][:tests])
    )
    y_test, kept = data.test[1][:tests], round(len(y) * (1 - HELD_OUT))
    sizes = (x.shape[1], *settings.widths, len(data.classes))

    def scores(train: Examples, test: Examples, factor: float) -> dict[str, float]:
        net = MLP(sizes, key=jax.random.key(cell.seed))
        steps = settings.epochs * len(train[1]) // settings.batch_size
        falling = optax.cosine_decay_schedule(RATE * factor, max(1, steps))
        method = VI(FAMILIES[cell["family"]], optimizer=natural_gradient(falling, PRECISION_RATE))
        problem = Problem(net, Categorical(), p.Normal(1.0))
        batch = min(settings.batch_size, len(train[1]))
        posterior = bench.fit(problem, train, method, epochs=settings.epochs, batch_size=batch, key=cell.seed)
        found = evaluate(posterior.predict(test[0], draws=settings.draws, key=1), test[1])
        return {name: float(found[name]) for name in ("nll", "accuracy", "ece")}

    def finished(train: Examples, test: Examples, factor: float) -> dict[str, float] | None:
        """The scores, unless the step size was so large that the run diverged."""
        try:
            return scores(train, test, factor)
        except FloatingPointError:
            return None

    def held_out_nll(factor: float) -> float:
        found = finished((x[:kept], y[:kept]), (x[kept:], y[kept:]), factor)
        return found["nll"] if found else math.inf

    nll = {factor: held_out_nll(factor) for factor in settings.trials}
    further = FURTHER if len(nll) > 1 else 0
    while further and min(nll, key=lambda f: nll[f]) == min(nll):
        nll[min(nll) / 3] = held_out_nll(min(nll) / 3)
        further -= 1
    for factor in sorted((f for f in nll if nll[f] < math.inf), key=lambda f: nll[f]):
        if result := finished((x, y), (x_test, y_test), factor):
            return {**result, "factor": factor, "trials": {f"{f:g}": value for f, value in nll.items()}}
    raise FloatingPointError(f"runs with all step sizes diverged, {', '.join(map(str, settings.trials))} times {RATE}")
