"""Liberty or Depth: do deep networks need more than a mean-field posterior? (Farquhar, Smith and Gal 2020)

The paper argues that the mean-field approximation, which makes all weights independent, costs little in deep networks,
because a product of matrices with independent entries has correlated entries. Its four experiments, one file each:

    product_matrices.py     covariances of product matrices and local product matrices, Fashion-MNIST      figure 1
    two_moons.py            what mean-field loses in modes of the true posterior, sampled by NUTS          figure 2
    iris.py                 full-covariance against mean-field VI by depth                                 figure 3
    swag.py                 SWAG against SWAG-Diag by depth of PreResNets                                  figure 4

The paper shows these results as figures without numbers, so that its claims are about orders and sizes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

from posteriax.studies.liberty_or_depth import figures, iris, product_matrices, swag, two_moons
from posteriax.studies.results import Results as Results
from posteriax.studies.study import Cell as Cell
from posteriax.studies.study import Study as Study
from posteriax.studies.study import Table as Table
from posteriax.studies.workbench import Workbench as Workbench


@dataclass(frozen=True)
class Settings:
    """The settings of each experiment, how many seeds, and the data that must be there."""

    seeds: int
    data: tuple[str, ...]
    product_matrices: product_matrices.ProductMatrices
    two_moons: two_moons.TwoMoons
    iris: iris.Iris
    swag: swag.PreResNets


# the experiments, by the name of their settings, in the order in which they run
EXPERIMENTS: dict[str, ModuleType] = {
    "product_matrices": product_matrices,
    "two_moons": two_moons,
    "iris": iris,
    "swag": swag,
}

SMOKE = Settings(
    seeds=1,
    data=("fashion_small", "two_moons", "iris", "made-up/cifar10"),
    product_matrices=product_matrices.ProductMatrices("fashion_small", train=256, layers=(1, 3), epochs=1, draws=100),
    two_moons=two_moons.TwoMoons(
        (3, 2), restarts=2, train=40, warmup=10, draws=60, max_doublings=3, points=20, activations=("ReLU",)
    ),
    iris=iris.Iris(depths=(1, 2), splits=1, starts=2, steps=20, gradient_draws=1, draws=20),
    swag=swag.PreResNets(
        "made-up/cifar10", (8,), pixels=8, crop=1, epochs=2, collect=1.0, batch_size=32, rank=2, draws=2
    ),
)
LAPTOP = Settings(
    seeds=3,
    data=("fashion_mnist", "two_moons", "iris", "cifar10"),
    product_matrices=product_matrices.ProductMatrices("fashion_mnist", epochs=5),
    two_moons=two_moons.TwoMoons((12, 5, 4, 3), restarts=4, draws=800, max_doublings=6),  # 49, 51, 57 and 49 weights
    iris=iris.Iris(depths=(1, 2, 3)),
    swag=swag.PreResNets(
        "cifar10",
        (8, 14),
        train=1920,
        test=1000,
        pixels=16,
        crop=2,
        epochs=20,
        collect=0.5,
        rank=10,
        draws=10,
        measured_on=640,
    ),
)
PAPER = Settings(
    seeds=5,
    data=("fashion_mnist", "two_moons", "iris", "cifar100"),
    product_matrices=product_matrices.ProductMatrices("fashion_mnist", gradient_draws=16),
    two_moons=two_moons.TwoMoons(  # about 1,000 weights
        (250, 29, 21, 17, 15, 13, 12, 11, 10, 10), restarts=4, warmup=1000, draws=10_000, max_doublings=10, points=1000
    ),
    iris=iris.Iris(splits=4, starts=1, steps=8000, batch_size=16, gradient_draws=1, learning_rate=1e-3, patience=30),
    swag=swag.PreResNets("cifar100", (8, 14, 20, 26, 32, 38, 56, 83, 110, 164)),
)


def one_step(settings: Settings) -> Settings:
    short = {name: module.one_step(getattr(settings, name)) for name, module in EXPERIMENTS.items()}
    return replace(settings, **short)


def cells(settings: Settings, seeds: int) -> list[Cell]:
    return [cell for name, module in EXPERIMENTS.items() for cell in module.cells(getattr(settings, name), seeds)]


def run(cell: Cell, settings: Settings, bench: Workbench) -> Mapping[str, Any]:
    (name,) = (name for name, module in EXPERIMENTS.items() if cell.settings["experiment"] == module.NAME)
    return EXPERIMENTS[name].run(cell, getattr(settings, name), bench)


def tables(results: Results) -> list[Table]:
    return [table for module in EXPERIMENTS.values() for table in module.tables(results)]


SUMMARY = """\
Four experiments: the covariance of products of mean-field weight matrices (Fashion-MNIST, all images); the cost of
mean-field in modes of the true posterior, sampled by NUTS (two moons, 100 points); full-covariance against mean-field
VI (Iris); SWAG against SWAG-Diag (PreResNets). The paper's appendix with most settings was not available; where the
text is silent, choices are ours. At laptop scale, two-moons networks have about 50 weights at every depth instead of
1,000, and at most four hidden layers: E_KL needs many more draws than weights. Each chain is one restart, with
trajectories of at most 63 steps. Iris uses 120 training and 30 test examples, several splits, and VI trained until the
ELBO has levelled off, rather than stopped early. SWAG uses 1,920 images of CIFAR-10 averaged down to 16 x 16 pixels, 20
epochs of which 10 are collected, and PreResNets of depth 8 and 14, instead of CIFAR-100, 300 epochs and depths up to
164; both Gaussians come from the same run."""

STUDY = Study(
    name="liberty-or-depth",
    title="Liberty or Depth: deep networks do not need complex weight posteriors",
    paper="Farquhar, Smith and Gal. Liberty or Depth: Deep Bayesian Neural Nets Do Not Need Complex Weight Posterior "
    "Approximations. NeurIPS 2020.",
    summary=SUMMARY.replace("\n", " "),
    claims=tuple(claim for module in EXPERIMENTS.values() for claim in module.CLAIMS),
    scales={"smoke": SMOKE, "laptop": LAPTOP, "paper": PAPER},
    one_step=one_step,
    cells=cells,
    run=run,
    tables=tables,
    figures={
        "product_matrices": figures.product_matrices,
        "two_moons": figures.two_moons,
        "iris": figures.iris,
        "swag": figures.swag,
    },
)
