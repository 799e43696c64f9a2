"""Full-covariance against mean-field VI by depth, on Iris (figure 3 of the paper).

    q(w) = N(mu, L L') over all weights of the network            against           q(w) = N(mu, diag(sigma^2))

Both are trained from the same initial weights and scored by the test negative log-likelihood, on several splits of the
150 examples. The gap is that of mean-field minus that of full covariance.
"""

from dataclasses import dataclass

import jax
import numpy as np
import optax

from posteriax import families as q
from posteriax import priors as p
from posteriax.evaluation import EarlyStopping, evaluate
from posteriax.likelihoods import Categorical
from posteriax.methods import VI, Ensemble
from posteriax.problem import Problem
from posteriax.studies.liberty_or_depth.product_matrices import leaky_relu
from posteriax.studies.results import Json
from posteriax.studies.study import Cell
from posteriax.studies.workbench import Workbench, split_members
from posteriax.zoo import MLP

NAME = "iris"
SCALE = 0.0025  # initial standard deviation, softplus(-6)
FAMILIES = {"mean-field": q.Normal(SCALE), "full covariance": q.FullCovariance("network", SCALE)}


@dataclass(frozen=True)
class Iris:
    """Settings of this experiment."""

    depths: tuple[int, ...] = (1, 2, 3, 4)  # numbers of hidden layers
    width: int = 4  # of each
    splits: int = 2  # of the data, per seed
    starts: int = 4  # initial weights per split
    steps: int = 3000  # of each fit
    batch_size: int = 120
    gradient_draws: int = 4  # of the weights, for each gradient
    learning_rate: float = 0.0  # of AMSGrad; 0 for the optimizer that VI has by default, whose rates fall to 0
    patience: int = 0  # epochs without improvement on a fifth of the training set before it stops; 0 never does
    draws: int = 500  # for predictions


def cells(settings: Iris, seeds: int) -> list[Cell]:
    return [
        Cell({"experiment": NAME, "family": family, "depth": depth}, seed, cost=5)
        for seed in range(settings.splits * seeds)
        for depth in settings.depths
        for family in FAMILIES
    ]


def run(cell: Cell, settings: Iris, bench: Workbench) -> dict[str, Json]:
    """Fit one family on one split, from several initial weights side by side; scores are means over these."""
    depth, family = cell["depth"], cell["family"]
    data = bench.load("iris", seed=cell.seed)
    net = MLP((4, *[settings.width] * depth, 3), activation=leaky_relu, key=jax.random.key(cell.seed))
    problem = Problem(net, Categorical(), p.Normal(scale=1.0))
    optimizer = optax.amsgrad(settings.learning_rate) if settings.learning_rate else None
    method = VI(FAMILIES[family], optimizer=optimizer, draws=settings.gradient_draws)
    stop = EarlyStopping(fraction=0.2, patience=settings.patience, every=1) if settings.patience else None
    posterior = bench.fit(
        problem,
        data.train,
        Ensemble(method, settings.starts),
        steps=settings.steps,
        batch_size=settings.batch_size,
        key=cell.seed,
        stop=stop,
    )
    predictives = [member.predict(data.test[0], settings.draws, key=1) for member in split_members(posterior)]
    scores = [evaluate(predictive, data.test[1]) for predictive in predictives]
    elbo = np.atleast_2d(posterior.trace["elbo"])
    tenth = max(1, elbo.shape[1] // 10)
    return {
        "nll": np.mean([score["nll"] for score in scores]),
        "accuracy": np.mean([score["accuracy"] for score in scores]),
        "elbo": elbo[:, -tenth:].mean(),
        "elbo_before": elbo[:, -2 * tenth : -tenth].mean() if elbo.shape[1] > 1 else None,
        "weights": problem.network.num_parameters,
    }
