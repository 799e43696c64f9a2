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
from jax.flatten_util import ravel_pytree

from posteriax import families as q
from posteriax import priors as p
from posteriax import zoo
from posteriax.data.augmentation import RandomCrop, RandomFlip
from posteriax.evaluation.evaluate import evaluate
from posteriax.likelihoods.classes import Categorical
from posteriax.methods.swag import SWAG
from posteriax.posterior.batch_statistics import with_batch_statistics
from posteriax.posterior.posterior import Posterior
from posteriax.posterior.variational import VariationalPosterior
from posteriax.problem import Problem
from posteriax.studies.liberty_or_depth.iris import with_error
from posteriax.studies.results import Results
from posteriax.studies.study import Cell, Claim, Table
from posteriax.studies.workbench import Workbench

NAME = "SWAG"
KINDS = {"SWAG-Diag": "diagonal", "SWAG": "low_rank"}


@dataclass(frozen=True)
class PreResNets:
    """Settings of this experiment.

    Args:
        data: the images.
        depths: of the PreResNets: 6 n + 2, and 9 n + 2 from 44 on.
        train, test: how many images; 0 for all.
        pixels: height and width to which images are averaged down.
        crop: padding of the random crops.
        epochs, batch_size: of SGD.
        collect: the last fraction of the run, with a snapshot after every epoch.
        rank: K.
        draws: for predictions, each with its own batch statistics.
        measured_on: training images, on which these are measured; 0 for all.
    """

    data: str
    depths: tuple[int, ...]
    train: int = 0
    test: int = 0
    pixels: int = 32
    crop: int = 4
    epochs: int = 300
    batch_size: int = 128
    start_learning_rate: float = 0.1
    learning_rate: float = 0.05
    weight_decay: float = 3e-4
    collect: float = 140 / 300
    rank: int = 20
    draws: int = 30
    measured_on: int = 0


def one_step(settings: PreResNets) -> PreResNets:
    """Two steps: SWAG needs two snapshots."""
    return replace(settings, train=settings.batch_size, test=8, epochs=2, collect=1.0, draws=2)


def cells(settings: PreResNets, seeds: int) -> list[Cell]:
    return [
        Cell({"experiment": NAME, "depth": depth}, seed, cost=2.0 * depth)
        for seed in range(seeds)
        for depth in settings.depths
    ]


def run(cell: Cell, settings: PreResNets, bench: Workbench) -> dict[str, Any]:
    """Train one network, and score both Gaussians of its run."""
    data = bench.load(settings.data).first(settings.train or None, settings.test or None)  # type: ignore[arg-type]
    (x, y), (x_test, y_test) = data.train, data.test
    x, x_test = average_down(x, settings.pixels), average_down(x_test, settings.pixels)
    mean, scale = x.mean(axis=(0, 1, 2)), x.std(axis=(0, 1, 2))
    x, x_test = (x - mean) / scale, (x_test - mean) / scale
    net = zoo.preresnet(int(cell.settings["depth"]), classes=len(data.classes), key=jax.random.key(cell.seed))
    prior = p.Normal(scale=1 / math.sqrt(settings.weight_decay * len(x)))  # weight decay is per example
    method = SWAG(
        learning_rate=settings.learning_rate,
        start_learning_rate=settings.start_learning_rate,
        rank=settings.rank,
        collect=settings.collect,
    )
    augment = [RandomCrop(settings.crop), RandomFlip()] if settings.crop else None
    run_length = {"epochs": settings.epochs, "batch_size": settings.batch_size}
    posterior = bench.fit(
        Problem(net, Categorical(), prior), (x, y), method, key=cell.seed, augment=augment, **run_length
    )
    assert isinstance(posterior, VariationalPosterior)
    nll = np.ravel(posterior.trace["nll_per_example"]).astype(np.float64)
    per_epoch = max(1, len(nll) // settings.epochs)
    found: dict[str, Any] = {
        "training_nll": nll[: per_epoch * settings.epochs].reshape(-1, per_epoch).mean(axis=1).round(4),
        "snapshots": np.ravel(posterior.trace["snapshots"])[-1],
    }
    both: dict[str, Posterior] = {"low_rank": posterior, "diagonal": diagonal_of(posterior)}
    for kind, one in both.items():
        measured = with_batch_statistics(one, x[: settings.measured_on or None], batch_size=settings.batch_size)
        scores = evaluate(measured.predict(x_test, settings.draws, key=1), y_test)
        found[kind] = {name: scores[name] for name in ("nll", "accuracy", "ece")}
    return found


def diagonal_of(posterior: VariationalPosterior) -> VariationalPosterior:
    """SWAG-Diag from the snapshots of SWAG, whose diagonal part has half of their variances."""
    names = posterior.problem.leaf_names
    joint, unravel = posterior.variational[names[0]], ravel_pytree(posterior.problem.latents)[1]
    flat = {"mean": joint["mean"], "log_scale": joint["log_scale"] + 0.5 * math.log(2)}
    leaves = {name: jax.tree.leaves(jax.vmap(unravel)(value)) for name, value in flat.items()}
    variational = {path: {name: leaves[name][i] for name in flat} for i, path in enumerate(names)}
    return replace(posterior, families=dict.fromkeys(names, q.Normal()), variational=variational)


def average_down(images: np.ndarray, pixels: int) -> np.ndarray:
    """Images of fewer pixels, each the average of a square.

    >>> average_down(np.arange(4.0).reshape(1, 2, 2, 1), 1).ravel().tolist()
    [1.5]
    """
    n, height, _, channels = images.shape
    by = height // pixels
    return images if by == 1 else images.reshape(n, pixels, by, pixels, by, channels).mean(axis=(2, 4))


def depths(results: Results) -> list[int]:
    return sorted({int(cell.settings["depth"]) for cell in results.of(experiment=NAME)})


def difference(results: Results, score: str, depth: int) -> np.ndarray:
    """SWAG-Diag minus SWAG, by seed."""
    one, other = (results.values(f"{kind}.{score}", experiment=NAME, depth=depth) for kind in KINDS.values())
    return one - other


def largest_difference(results: Results, score: str) -> np.ndarray:
    """By seed, for the depth where the mean difference is largest."""
    return max((difference(results, score, depth) for depth in depths(results)), key=lambda each: abs(each.mean()))


CLAIMS = (
    Claim(
        name="SWAG-Diag has the likelihood of SWAG",
        sentence="In PreResNets of any depth, SWAG and SWAG-Diag show no visible difference in log-likelihood.",
        paper="figure 4, by eye; CIFAR-100",
        quantity="test NLL, SWAG-Diag minus SWAG, at the depth where it differs most (nats)",
        measure=lambda r: largest_difference(r, "nll"),
        above=-0.05,
        below=0.05,
    ),
    Claim(
        name="SWAG-Diag has the accuracy of SWAG",
        sentence="Nor is there a visible difference in accuracy.",
        paper="appendix C.4; CIFAR-100",
        quantity="test accuracy, SWAG-Diag minus SWAG, at the depth where it differs most",
        measure=lambda r: largest_difference(r, "accuracy"),
        above=-0.02,
        below=0.02,
    ),
)


def tables(results: Results) -> list[Table]:
    rows = []
    for depth in depths(results):
        row = [str(depth)]
        for kind in KINDS.values():
            row += [
                with_error(results.values(f"{kind}.{score}", experiment=NAME, depth=depth))
                for score in ("nll", "accuracy", "ece")
            ]
        last = [cell.result["training_nll"][-1] for cell in results.of(experiment=NAME, depth=depth)]
        rows.append([*row, with_error(difference(results, "nll", depth)), f"{np.mean(last):.2f}"])
    columns = [f"{score}, {name}" for name in KINDS for score in ("NLL", "accuracy", "ECE")]
    caption = (
        "PreResNets: test scores of both Gaussians, mean over seeds and its standard error, and the training NLL of "
        "the last epoch."
    )
    return [Table(caption, ["depth", *columns, "NLL, SWAG-Diag - SWAG", "training NLL"], rows)]
