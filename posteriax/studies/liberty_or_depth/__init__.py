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
from pathlib import Path
from types import ModuleType

from posteriax.studies.claims import read_paper
from posteriax.studies.liberty_or_depth import iris, product_matrices, report, swag, two_moons
from posteriax.studies.liberty_or_depth.iris import Iris
from posteriax.studies.liberty_or_depth.product_matrices import ProductMatrices
from posteriax.studies.liberty_or_depth.swag import PreResNets
from posteriax.studies.liberty_or_depth.two_moons import TwoMoons
from posteriax.studies.results import Json
from posteriax.studies.study import Cell, Study
from posteriax.studies.workbench import Workbench


@dataclass(frozen=True)
class LibertySettings:
    """The settings of each experiment, how many seeds, and the data that must be there."""

    seeds: int
    data: tuple[str, ...]
    product_matrices: ProductMatrices
    two_moons: TwoMoons
    iris: Iris
    swag: PreResNets


# the experiments, by the name of their settings, in the order in which they run
EXPERIMENTS: dict[str, ModuleType] = {
    "product_matrices": product_matrices,
    "two_moons": two_moons,
    "iris": iris,
    "swag": swag,
}

SMOKE = LibertySettings(
    seeds=1,
    data=("fashion_small", "two_moons", "iris", "made-up/cifar10"),
    product_matrices=ProductMatrices("fashion_small", train=256, layers=(1, 3), epochs=1, draws=100),
    two_moons=TwoMoons(
        (3, 2), restarts=2, train=40, warmup=10, draws=60, max_doublings=3, points=20, activations=("ReLU",)
    ),
    iris=Iris(depths=(1, 2), splits=1, starts=2, steps=20, gradient_draws=1, draws=20),
    swag=PreResNets("made-up/cifar10", (8,), pixels=8, crop=1, epochs=2, collect=1.0, batch_size=32, rank=2, draws=2),
)
LAPTOP = LibertySettings(
    seeds=3,
    data=("fashion_mnist", "two_moons", "iris", "cifar10"),
    product_matrices=ProductMatrices("fashion_mnist", epochs=5),
    two_moons=TwoMoons((12, 5, 4, 3), restarts=4, draws=800, max_doublings=6),  # 49, 51, 57 and 49 weights
    iris=Iris(depths=(1, 2, 3)),
    swag=PreResNets(
        *("cifar10", (8, 14)),
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
PAPER = LibertySettings(
    seeds=5,
    data=("fashion_mnist", "two_moons", "iris", "cifar100"),
    product_matrices=ProductMatrices("fashion_mnist", gradient_draws=16),
    two_moons=TwoMoons(  # about 1,000 weights
        (250, 29, 21, 17, 15, 13, 12, 11, 10, 10), restarts=4, warmup=1000, draws=10_000, max_doublings=10, points=1000
    ),
    iris=Iris(splits=4, starts=1, steps=8000, batch_size=16, gradient_draws=1, learning_rate=1e-3, patience=30),
    swag=PreResNets("cifar100", (8, 14, 20, 26, 32, 38, 56, 83, 110, 164)),
)


def one_step(settings: LibertySettings) -> LibertySettings:
    short = {name: module.one_step(getattr(settings, name)) for name, module in EXPERIMENTS.items()}
    return replace(settings, **short)


def cells(settings: LibertySettings, seeds: int) -> list[Cell]:
    return [cell for name, module in EXPERIMENTS.items() for cell in module.cells(getattr(settings, name), seeds)]


def run(cell: Cell, settings: LibertySettings, bench: Workbench) -> Mapping[str, Json]:
    (name,) = (name for name, module in EXPERIMENTS.items() if cell["experiment"] == module.NAME)
    return EXPERIMENTS[name].run(cell, getattr(settings, name), bench)


STUDY = Study(
    name="liberty-or-depth",
    paper=read_paper(Path(__file__).with_name("paper.md"), vars(report)),
    scales={"smoke": SMOKE, "laptop": LAPTOP, "paper": PAPER},
    one_step=one_step,
    cells=cells,
    run=run,
    tables=report.tables,
    figures=report.FIGURES,
)
