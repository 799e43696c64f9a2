"""Variance Networks: layers that keep what they have learned in the variances of their weights.

    w_ij ~ N(mu_ij, alpha mu_ij^2), log-uniform prior    variational dropout: with one alpha per layer, log alpha grows
                                                         until the means no longer matter, a phase transition
    w_ij ~ N(0, sigma_ij^2)                              the same from scratch: the KL to the log-uniform prior is
                                                         constant, so only the expected log-likelihood is trained

A network predicts in three ways: with one draw of its weights (stochastic), with their means (deterministic), and with
the average over draws (ensemble). The paper trains LeNet-5 on MNIST and a VGG-like network on CIFAR, compares
parameterisations of the noise, finds by the curvature of the loss which weights need their noise, and attacks the
networks. One file here for each: accuracy, curvature, attack, toy; the claims and their bounds are in claims.

Neklyudov, Molchanov, Ashukha and Vetrov 2019, Variance Networks: When Expectation Does Not Meet Your Expectations,
ICLR; the figures are those of its first version (arXiv 1803.03764), the toy problem is that of the published one.
"""

from collections.abc import Mapping
from typing import Any

from posteriax.studies.study import Cell as Cell
from posteriax.studies.study import Study as Study
from posteriax.studies.variance_networks.claims import CLAIMS as CLAIMS
from posteriax.studies.variance_networks.experiments import run_accuracy as run_accuracy
from posteriax.studies.variance_networks.experiments import run_attack as run_attack
from posteriax.studies.variance_networks.experiments import run_curvature as run_curvature
from posteriax.studies.variance_networks.experiments import run_toy as run_toy
from posteriax.studies.variance_networks.page import FIGURES as FIGURES
from posteriax.studies.variance_networks.page import tables as tables
from posteriax.studies.variance_networks.settings import (
    LAPTOP as LAPTOP,
)
from posteriax.studies.variance_networks.settings import (
    PAPER as PAPER,
)
from posteriax.studies.variance_networks.settings import (
    SMOKE as SMOKE,
)
from posteriax.studies.variance_networks.settings import (
    VarianceSettings as VarianceSettings,
)
from posteriax.studies.variance_networks.settings import (
    one_step as one_step,
)
from posteriax.studies.workbench import Workbench as Workbench

SUMMARY = """\
LeNet-5 on MNIST, with pixels in [0, 1] and without augmentation or batch normalisation; only its first dense layer
(800 x 500 weights) is random. The accuracy table is trained on all 60,000 images: dropout of the hidden units for two
epochs, and a zero-mean layer with |.| behind it, from scratch, for nine (the paper: 200 epochs), in batches of 64,
which on images held out from training had fewer errors than 128 in the same time. All other
experiments use the first 6,000 images for some 500 steps and 1,000 test images. So short a run passes through the
phase transition because log alpha is held at -5 for a fifth of the run and then moves quickly: its learning rate is
1, falling to 0, and its Adam forgets squared gradients after ten steps. With the usual memory of a thousand steps the
first gradients of the KL, which falls as 1 / alpha, would keep all later steps small. This schedule was chosen
because the transition shows with it, after 18 others, on images held out from training: with slower ones log alpha
rose to 7.8 and the means could be set to 0 without loss, yet the mean weights still predicted 98 % of the images. So
the claims on the transition say that it can happen, not that it must. Free parameters of single weights have a rate
of 0.1, not 1: with the larger one, tried once with additive noise, log alpha ended at 19.5, the means at 13 % and the
ensemble at 84 %. What is said here about flexible parameterisations depends on that choice. Attacks are on MNIST
instead of CIFAR-10, on 100 images, with ensembles of three networks instead of five. The VGG-like network and CIFAR
are left to the paper scale.
"""

PARAMETERISATIONS = ("layer", "neuron", "weight", "additive", "student-t")
RUN = {
    "accuracy": run_accuracy,
    "parameterisation": run_accuracy,
    "curvature": run_curvature,
    "attack": run_attack,
    "toy": run_toy,
}


def cells(settings: VarianceSettings, seeds: int) -> list[Cell]:
    """All cells, seed by seed: a run that is cut short has whole repetitions."""
    first, large = settings.data[0], settings.vgg_width > 0
    one = [("accuracy", "LeNet-5", first, method, 10.0) for method in settings.table]
    if large:
        one += [("accuracy", "VGG", name, method, 100.0) for name in settings.data[1:] for method in settings.table]
    one += [("parameterisation", "LeNet-5", first, method, 3.0) for method in PARAMETERISATIONS]
    one.append(("curvature", "LeNet-5", first, "softplus", 5.0))
    one.append(("attack", *(("VGG", settings.data[1]) if large else ("LeNet-5", first)), "both", 12.0))
    one.append(("toy", "two units", "four Gaussians", "zero-mean", 1.0))
    names = ("experiment", "network", "data", "method")
    return [Cell(dict(zip(names, own, strict=True)), seed, cost) for seed in range(seeds) for *own, cost in one]


def run(cell: Cell, settings: VarianceSettings, bench: Workbench) -> Mapping[str, Any]:
    return RUN[str(cell.settings["experiment"])](cell, settings, bench)


STUDY = Study(
    name="variance-networks",
    title="Variance Networks: information in the variances of weights, not in their means",
    paper="Neklyudov, Molchanov, Ashukha and Vetrov 2019, Variance Networks: When Expectation Does Not Meet Your "
    "Expectations, ICLR (arXiv 1803.03764)",
    summary=SUMMARY,
    claims=CLAIMS,
    scales={"smoke": SMOKE, "laptop": LAPTOP, "paper": PAPER},
    one_step=one_step,
    cells=cells,
    run=run,
    tables=tables,
    figures=FIGURES,
)
