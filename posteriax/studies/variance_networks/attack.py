"""Targeted iterative fast-sign attacks on dropout networks, variance networks, and ensembles of either.

    x <- clip(x + step sign(d log p(t | x, D) / dx))        t: the label after the true one

Every iteration attacks new draws of the weights, and its result is predicted with draws that it has not seen.
"""

from dataclasses import replace
from typing import Any

import jax
import numpy as np

from posteriax import analysis
from posteriax.comparison import FGSM
from posteriax.posterior import Posterior, VariationalPosterior
from posteriax.studies.study import Cell
from posteriax.studies.variance_networks.settings import Settings
from posteriax.studies.variance_networks.training import (
    Examples,
    lenet_problem,
    load_images,
    train,
    vgg_problem,
)
from posteriax.studies.workbench import Workbench


def run_attack(cell: Cell, settings: Settings, bench: Workbench) -> dict[str, Any]:
    """Success rates and entropies by iteration, for five ways to predict."""
    name = str(cell.settings["data"])
    training, test = load_images(bench, name, settings.subset, settings.attacked)
    trained = {}
    for method in ("dropout", "layer"):
        members = []
        for member in range(settings.members):
            key = settings.members * cell.seed + member
            if cell.settings["network"] == "VGG":
                (problem, families), epochs = vgg_problem(method, 10, settings, key), settings.vgg_epochs
            else:
                (problem, families), epochs = lenet_problem(method, settings, key), settings.subset_epochs
            schedule: dict[str, Any] = {"epochs": epochs, "batch_size": settings.subset_batch}
            members.append(train(bench, method, problem, families, training, settings, **schedule, key=key))
        trained[method] = members
    predictors: dict[str, Posterior] = {
        "dropout, means": analysis.at_mean(trained["dropout"][0]),
        "dropout": trained["dropout"][0],
        "deep ensemble": analysis.at_mean(join(trained["dropout"])),
        "variance": trained["layer"][0],
        "variance ensemble": join(trained["layer"]),
    }
    return {name: attacked(posterior, test, settings) for name, posterior in predictors.items()}


def join(members: list[VariationalPosterior]) -> VariationalPosterior:
    """One posterior of several networks with the same structure."""
    stacked = jax.tree.map(lambda *own: np.concatenate(own), *[member.variational for member in members])
    return replace(members[0], variational=stacked)


def attacked(posterior: Posterior, test: Examples, settings: Settings) -> dict[str, Any]:
    """Success rate, accuracy and mean predictive entropy in nats after each iteration; 0 is the clean images."""
    (x, y), attack = test, FGSM(settings.step, target="next", draws=settings.attack_draws)
    success, accuracy, entropy, open_to_attack = [], [], [], None
    for iteration in range(settings.iterations + 1):
        step = attack.run(posterior, x, y, key=iteration)
        labels, target = step.labels[0], np.asarray(step.target)
        open_to_attack = labels != target if open_to_attack is None else open_to_attack
        success.append((labels == target)[open_to_attack].mean())
        accuracy.append((labels == step.y).mean())
        entropy.append(step.entropies[0].mean())
        x = step.x
    return {"success": success, "accuracy": accuracy, "entropy": entropy}
