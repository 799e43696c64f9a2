"""Variance Networks: layers that keep what they have learned in the variances of their weights.

    w_ij ~ N(mu_ij, alpha mu_ij^2), log-uniform prior    variational dropout: with one alpha per layer, log alpha grows
                                                         until the means no longer matter, a phase transition
    w_ij ~ N(0, sigma_ij^2)                              the same from scratch: the KL to the log-uniform prior is
                                                         constant, so only the expected log-likelihood is trained

A network predicts in three ways: with one draw of its weights (stochastic), with their means (deterministic), and with
the average over draws (ensemble). The paper trains LeNet-5 on MNIST and a VGG-like network on CIFAR, compares
parameterisations of the noise, finds by the curvature of the loss which weights need their noise, and attacks the
networks.

Neklyudov, Molchanov, Ashukha and Vetrov 2019, Variance Networks: When Expectation Does Not Meet Your Expectations,
ICLR; the figures are those of its first version (arXiv 1803.03764), the toy problem is that of the published one.
"""

from collections.abc import Mapping

from posteriax.studies.results import Json
from posteriax.studies.study import Cell, make_study
from posteriax.studies.variance_networks import experiments, report, settings
from posteriax.studies.variance_networks.settings import VarianceSettings
from posteriax.studies.workbench import Workbench

PARAMETERISATIONS = ("layer", "neuron", "weight", "additive", "student-t")
RUN = {
    "accuracy": experiments.run_accuracy,
    "parameterisation": experiments.run_accuracy,
    "curvature": experiments.run_curvature,
    "attack": experiments.run_attack,
    "toy": experiments.run_toy,
}


def cells(settings: VarianceSettings, seeds: int) -> list[Cell]:
    """All cells, seed by seed: a run that is cut short has whole repetitions."""
    first, large = settings.data[0], settings.vgg_width > 0
    plan = [("accuracy", "LeNet-5", first, method, 10.0) for method in settings.table]
    if large:
        plan += [("accuracy", "VGG", name, method, 100.0) for name in settings.data[1:] for method in settings.table]
    plan += [("parameterisation", "LeNet-5", first, method, 3.0) for method in PARAMETERISATIONS]
    plan.append(("curvature", "LeNet-5", first, "softplus", 5.0))
    plan.append(("attack", *(("VGG", settings.data[1]) if large else ("LeNet-5", first)), "both", 12.0))
    plan.append(("toy", "two units", "four Gaussians", "zero-mean", 1.0))
    names = ("experiment", "network", "data", "method")
    return [Cell(dict(zip(names, values, strict=True)), seed, cost) for seed in range(seeds) for *values, cost in plan]


def run(cell: Cell, settings: VarianceSettings, bench: Workbench) -> Mapping[str, Json]:
    return RUN[cell["experiment"]](cell, settings, bench)


STUDY = make_study("variance-networks", __file__, settings.SCALES, cells, run, report)
