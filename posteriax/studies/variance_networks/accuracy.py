"""Stochastic, deterministic and ensemble accuracies of a network, and what its variance layer needs for them."""

from typing import Any

import jax
import numpy as np

from posteriax import analysis
from posteriax.families import DiagonalGaussian
from posteriax.posterior import Posterior, VariationalPosterior
from posteriax.studies.study import Cell
from posteriax.studies.variance_networks.settings import Settings
from posteriax.studies.variance_networks.training import (
    LAYER,
    Examples,
    lenet_problem,
    load_images,
    train,
    vgg_problem,
)
from posteriax.studies.workbench import Workbench

WATCHED_DRAWS = 10


def run_accuracy(cell: Cell, settings: Settings, bench: Workbench) -> dict[str, Any]:
    """One row of the accuracy table, or one parameterisation."""
    method, whole = str(cell.settings["method"]), cell.settings["experiment"] == "accuracy"
    name = str(cell.settings["data"])
    sizes = (settings.examples, settings.test) if whole else (settings.subset, settings.subset_test)
    training, test = load_images(bench, name, *sizes)
    epochs = settings.dropout_epochs if method == "dropout" else settings.epochs
    batch_size = settings.batch_size
    if not whole:
        epochs, batch_size = settings.subset_epochs, settings.subset_batch
    if cell.settings["network"] == "VGG":
        classes = 100 if name.endswith("cifar100") else 10  # with coarse labels too, as in the paper
        problem, families = vgg_problem(method, classes, settings, cell.seed)
        epochs = settings.vgg_epochs
    else:
        problem, families = lenet_problem(method, settings, cell.seed, whole=whole)
    watch = watched_accuracies(test, settings) if method == "layer" else None
    schedule: dict[str, Any] = {"epochs": epochs, "batch_size": batch_size, "key": cell.seed}
    posterior = train(bench, method, problem, families, training, settings, **schedule, watch=watch)
    found = measure(posterior, training, test, settings)
    return found if watch is None else found | {"curve": curve(posterior)}


def watched_accuracies(test: Examples, settings: Settings) -> Any:
    """What is measured along a run, on some of the test examples."""
    few = settings.watched_test or None
    return analysis.accuracies((test[0][:few], test[1][:few]), draws=min(settings.draws, WATCHED_DRAWS))


def measure(posterior: VariationalPosterior, training: Examples, test: Examples, settings: Settings) -> dict[str, Any]:
    """Accuracies, and for a variance layer: log alpha, the ELBO, and the accuracies without means and with shuffled
    variances."""
    x, y = test
    predictive: Any = posterior.predict(x, settings.draws)
    fixed: Any = analysis.at_mean(posterior).predict(x)
    found = {
        "stochastic": (predictive.log_probs_per_draw.argmax(axis=-1) == y).mean(),
        "deterministic": (fixed.probs.argmax(axis=-1) == y).mean(),
        "ensemble": (predictive.probs.argmax(axis=-1) == y).mean(),
        "above_chance": above_chance(np.asarray(fixed.probs.argmax(axis=-1)), np.asarray(y)),
    }
    family = posterior.families[LAYER]
    if isinstance(family, DiagonalGaussian):
        mean, scale = (np.asarray(a[0]) for a in _moments(posterior, family))
        if mean.any():
            found["log_alpha"] = np.median(2 * np.log(scale[mean != 0] / np.abs(mean[mean != 0])))
        found |= elbo(posterior, training, settings)
        few = slice(settings.subset_test or None)
        found["kept"] = (predictive.probs[few].argmax(axis=-1) == y[few]).mean()
        for name, change in (("without_means", analysis.zero_mean), ("shuffled", analysis.permute)):
            found[name] = ensemble_accuracy(change(posterior, LAYER), (x[few], y[few]), settings.draws)
    return found


def above_chance(predicted: np.ndarray, y: np.ndarray) -> float:
    """How far an accuracy is above that of guessing labels as often as they are predicted, in standard errors.

    A constant prediction is exactly at chance, whichever class it is.

    >>> above_chance(np.zeros(10, int), np.arange(10))
    0.0
    """
    classes = range(int(max(predicted.max(), y.max())) + 1)
    chance = sum((predicted == c).mean() * (y == c).mean() for c in classes)
    error = np.sqrt(chance * (1 - chance) / len(y))
    return float(((predicted == y).mean() - chance) / error) if error > 0 else 0.0


def elbo(posterior: VariationalPosterior, training: Examples, settings: Settings) -> dict[str, float]:
    """The ELBO on the training set, in nats, with the KL of the variance layer alone: other weights are points.

    Its expected log-likelihood is that of some examples, times the size of the training set over their number.
    """
    x, y = (part[: settings.elbo_examples] for part in training)
    predictive: Any = posterior.predict(x, settings.draws)
    log_probs = predictive.log_probs_per_draw[:, np.arange(len(y)), y]
    index = posterior.problem.leaf_names.index(LAYER)
    prior = posterior.problem.leaf_priors[index]
    kl = _layer_kl(posterior, prior)
    likelihood = len(training[1]) * float(np.asarray(log_probs, np.float64).mean())
    return {"elbo": likelihood - kl, "kl": kl}


def _layer_kl(posterior: VariationalPosterior, prior: Any) -> float:
    family, own = posterior.families[LAYER], posterior.variational[LAYER]
    return float(family.kl(jax.tree.map(lambda a: a[0], own), prior, jax.random.key(0)))


def _moments(posterior: VariationalPosterior, family: DiagonalGaussian) -> Any:
    return jax.vmap(family.moments)(posterior.variational[LAYER])


def ensemble_accuracy(posterior: Posterior, test: Examples, draws: int) -> float:
    """Accuracy of the average over draws."""
    predictive: Any = posterior.predict(test[0], draws)
    return float((predictive.probs.argmax(axis=-1) == test[1]).mean())


def curve(posterior: Posterior) -> dict[str, Any]:
    """The accuracies along the run."""
    found = analysis.phase_transition(posterior)
    return {
        "step": found.steps,
        "stochastic": found.stochastic,
        "deterministic": found.deterministic,
        "ensemble": found.ensemble,
        "log_alpha": found.log_alpha,
        "transition": found.transition,
    }
