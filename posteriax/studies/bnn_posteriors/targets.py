"""HMC with other temperatures and other priors, and SGHMC with and without augmentation."""

import math
from typing import Any

import numpy as np

from posteriax import priors as p
from posteriax.data import RandomCrop, RandomFlip
from posteriax.posterior import Posterior
from posteriax.studies.bnn_posteriors.examples import load_examples, problem_of
from posteriax.studies.bnn_posteriors.methods import fit_sg_mcmc, scores_of
from posteriax.studies.bnn_posteriors.sampling import probabilities, quality, sample
from posteriax.studies.bnn_posteriors.settings import Settings
from posteriax.studies.study import Cell
from posteriax.studies.workbench import Workbench

CROP = 1  # pixels around an image
AUGMENTATIONS = ("none", "crop and flip")


def run_temperature(cell: Cell, settings: Settings, bench: Workbench) -> dict[str, Any]:
    """HMC on p(D | w)^(1/T) p(w)^(1/T)."""
    (target,) = (target for target in settings.tempered if target.name == cell.settings["target"])
    examples = load_examples(bench, target, cell.seed)
    problem = problem_of(target, examples, temperature=float(cell.settings["temperature"]))
    posterior = sample(bench, problem, examples.train, settings.short, cell.seed)
    return sampled_scores(posterior, examples.test)


def run_augmentation(cell: Cell, settings: Settings, bench: Workbench) -> dict[str, Any]:
    """SGHMC at a temperature, with or without augmentation."""
    target = settings.augmented
    examples = load_examples(bench, target, cell.seed)
    problem = problem_of(target, examples, temperature=float(cell.settings["temperature"]))
    augment = [RandomCrop(CROP), RandomFlip()] if cell.settings["augmentation"] != AUGMENTATIONS[0] else None
    posterior = fit_sg_mcmc(bench, "SGHMC", problem, examples.train, target.recipe, cell.seed, augment=augment)
    return scores_of(probabilities(posterior, examples.test[0]).mean(axis=(0, 1)), examples.test[1], None)


def run_prior(cell: Cell, settings: Settings, bench: Workbench) -> dict[str, Any]:
    """HMC under a prior of some family and variance."""
    target = settings.varied
    examples = load_examples(bench, target, cell.seed)
    prior = prior_of(str(cell.settings["family"]), float(cell.settings["variance"]))
    problem = problem_of(target, examples, prior=prior)
    posterior = sample(bench, problem, examples.train, settings.short, cell.seed)
    return sampled_scores(posterior, examples.test)


def prior_of(family: str, variance: float) -> p.Prior:
    """One prior for all weights.

    >>> prior_of("Normal", 0.25)
    Normal(scale=0.5, loc=0.0)
    """
    (prior,) = p.scale_sweep([variance], family).values()
    return prior


def sampled_scores(posterior: Posterior, test: tuple[np.ndarray, np.ndarray]) -> dict[str, Any]:
    """Scores of the average over HMC's draws, and how well they were sampled."""
    each = probabilities(posterior, test[0])
    return {"quality": quality(posterior, each), **scores_of(each.mean(axis=(0, 1), dtype=np.float64), test[1], None)}


def quarter_period(variance: float) -> float:
    """The paper's trajectory for a prior N(0, variance): pi / 2 times its scale.

    >>> round(quarter_period(1 / 5), 4)
    0.7025
    """
    return math.pi / 2 * math.sqrt(variance)
