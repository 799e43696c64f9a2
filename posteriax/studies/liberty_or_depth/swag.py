"""SWAG against SWAG-Diag by depth: PreResNets on images (figure 4 of the paper).

SWAG fits a Gaussian to the weights along a run of SGD: the variance of each weight plus the last K deviations from the
mean, or, SWAG-Diag, the variances alone. Both come from the same run here, so that they differ by their covariance and
nothing else:

    SWAG         N(mu, diag(v) / 2 + D D' / (2 (K - 1)))                SWAG-Diag    N(mu, diag(v))
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
import optax
from jax.flatten_util import ravel_pytree

from posteriax import analysis, zoo
from posteriax import families as q
from posteriax import priors as p
from posteriax.data import RandomCrop, RandomFlip
from posteriax.evaluation import evaluate
from posteriax.likelihoods import Categorical
from posteriax.methods import MAP, SWAG
from posteriax.posterior import Posterior, VariationalPosterior, with_batch_statistics
from posteriax.problem import Problem
from posteriax.studies.results import Json
from posteriax.studies.study import Cell
from posteriax.studies.workbench import Examples, Workbench, average_pixels

NAME = "SWAG"
SCORED = ("nll", "accuracy", "ece")
KINDS = {"SWAG-Diag": "diagonal", "SWAG": "low_rank"}
SWA, SGD = CONTROLS = ("SWA", "SGD")  # the mean of the weights, and a run of SGD to the end: no posterior


@dataclass(frozen=True)
class PreResNets:
    """Settings of this experiment."""

    data: str  # the images
    depths: tuple[int, ...]  # of the PreResNets: 6 n + 2, and 9 n + 2 from 44 on
    train: int = 0  # how many images; 0 for all
    test: int = 0
    pixels: int = 32  # height and width to which images are averaged down
    crop: int = 4  # padding of the random crops
    epochs: int = 300
    batch_size: int = 128
    start_learning_rate: float = 0.1
    learning_rate: float = 0.05
    weight_decay: float = 3e-4
    collect: float = 140 / 300  # the last fraction of the run, with a snapshot after every epoch
    rank: int = 20  # K
    draws: int = 30  # for predictions, each with its own batch statistics
    measured_on: int = 0  # training images, on which these are measured; 0 for all


def cells(settings: PreResNets, seeds: int) -> list[Cell]:
    return [
        Cell({"experiment": NAME, "depth": depth}, seed, cost=2.0 * depth)
        for seed in range(seeds)
        for depth in settings.depths
    ]


def run(cell: Cell, settings: PreResNets, bench: Workbench) -> dict[str, Json]:
    """Train one network, and score both Gaussians of its run."""
    data = bench.load(settings.data).first(settings.train or None, settings.test or None)  # type: ignore[arg-type]
    (x, y), (x_test, y_test) = data.train, data.test
    x, x_test = (average_pixels(images, images.shape[1] // settings.pixels) for images in (x, x_test))
    mean, scale = x.mean(axis=(0, 1, 2)), x.std(axis=(0, 1, 2))
    x, x_test = (x - mean) / scale, (x_test - mean) / scale
    net = zoo.preresnet(cell["depth"], classes=len(data.classes), key=jax.random.key(cell.seed))
    prior = p.Normal(scale=1 / math.sqrt(settings.weight_decay * len(x)))  # weight decay is per example
    method = SWAG(
        learning_rate=settings.learning_rate,
        start_learning_rate=settings.start_learning_rate,
        rank=settings.rank,
        collect=settings.collect,
    )
    augment = [RandomCrop(settings.crop), RandomFlip()] if settings.crop else None
    run_length = {"epochs": settings.epochs, "batch_size": settings.batch_size}
    problem = Problem(net, Categorical(), prior)
    posterior = bench.fit_variational(problem, (x, y), method, key=cell.seed, augment=augment, **run_length)
    nll = np.ravel(posterior.trace["nll_per_example"]).astype(np.float64)
    per_epoch = max(1, len(nll) // settings.epochs)
    result: dict[str, Json] = {
        "training_nll": nll[: per_epoch * settings.epochs].reshape(-1, per_epoch).mean(axis=1).round(4),
        "snapshots": np.ravel(posterior.trace["snapshots"])[-1],
    }
    for kind, gaussian in {"low_rank": posterior, "diagonal": swag_diagonal(posterior)}.items():
        measured = with_batch_statistics(gaussian, x[: settings.measured_on or None], batch_size=settings.batch_size)
        scores = evaluate(measured.predict(x_test, settings.draws, key=1), y_test)
        result[kind] = {name: scores[name] for name in SCORED}
    for name, network in (
        (SWA, analysis.at_mean(posterior)),
        (SGD, train_without_average(problem, (x, y), settings, bench, cell.seed, augment)),
    ):
        measured = with_batch_statistics(network, x[: settings.measured_on or None], batch_size=settings.batch_size)
        scores = evaluate(measured.predict(x_test), y_test)
        result[name] = {score: scores[score] for score in SCORED}
    return result


def train_without_average(
    problem: Problem, train: Examples, settings: PreResNets, bench: Workbench, seed: int, augment: Any
) -> Posterior:
    """SGD with momentum for as many epochs, whose rate stays, and then falls to a hundredth in the last half."""
    steps = settings.epochs * -(-len(train[1]) // settings.batch_size)
    rate = settings.start_learning_rate / len(train[1])  # of an objective that sums over examples
    falling = optax.join_schedules(
        [optax.constant_schedule(rate), optax.linear_schedule(rate, rate / 100, max(1, steps // 2))], [steps // 2]
    )
    method = MAP(optax.sgd(falling, momentum=0.9))
    run_length = {"epochs": settings.epochs, "batch_size": settings.batch_size}
    return bench.fit(problem, train, method, key=seed, augment=augment, **run_length)


def swag_diagonal(posterior: VariationalPosterior) -> VariationalPosterior:
    """SWAG-Diag from the snapshots of SWAG, whose diagonal part has half of their variances."""
    names = posterior.problem.leaf_names
    joint, unravel = posterior.variational[names[0]], ravel_pytree(posterior.problem.latents)[1]
    flat = {"mean": joint["mean"], "log_scale": joint["log_scale"] + 0.5 * math.log(2)}
    leaves = {name: jax.tree.leaves(jax.vmap(unravel)(value)) for name, value in flat.items()}
    variational = {path: {name: leaves[name][i] for name in flat} for i, path in enumerate(names)}
    return replace(posterior, families=dict.fromkeys(names, q.Normal()), variational=variational)
