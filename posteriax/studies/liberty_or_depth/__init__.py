"""Liberty or Depth: do deep networks need more than a mean-field posterior? (Farquhar, Smith and Gal 2020)

The paper argues that the mean-field approximation, which makes all weights independent, costs little in deep networks,
because a product of matrices with independent entries has correlated entries. Its experiments, one file each:

    product_matrices.py     covariances of product matrices and local product matrices, Fashion-MNIST      figure 1
    two_moons.py            what mean-field loses in modes of the true posterior, sampled by NUTS          figure 2
    iris.py                 full-covariance against mean-field VI by depth                                 figure 3
    swag.py                 SWAG against SWAG-Diag by depth of PreResNets                                  figure 4
    costs.py                time and parameters of a training step, by family and width                    table 1
    bimodal.py              a mean-field network whose predictive distribution has two modes         proposition 4
    natural.py              mean-field against matrix normals, trained by natural gradients                table 2

The paper shows these results as figures without numbers, so that its claims are about orders and sizes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

from posteriax.studies.liberty_or_depth import bimodal, costs, iris, natural, product_matrices, report, swag, two_moons
from posteriax.studies.liberty_or_depth.bimodal import Bimodal
from posteriax.studies.liberty_or_depth.costs import Costs
from posteriax.studies.liberty_or_depth.iris import Iris
from posteriax.studies.liberty_or_depth.natural import NaturalGradients
from posteriax.studies.liberty_or_depth.product_matrices import ProductMatrices
from posteriax.studies.liberty_or_depth.swag import PreResNets
from posteriax.studies.liberty_or_depth.two_moons import TwoMoons
from posteriax.studies.results import Json
from posteriax.studies.scales import read_scales
from posteriax.studies.study import Cell, make_study
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
    costs: Costs = field(default_factory=Costs)
    bimodal: Bimodal = field(default_factory=Bimodal)
    natural: NaturalGradients = field(default_factory=NaturalGradients)


# the experiments, by the name of their settings, in the order in which they run
EXPERIMENTS: dict[str, ModuleType] = {
    "product_matrices": product_matrices,
    "two_moons": two_moons,
    "iris": iris,
    "swag": swag,
    "costs": costs,
    "bimodal": bimodal,
    "natural": natural,
}

SCALES = read_scales(Path(__file__).with_name("scales.toml"), LibertySettings)


def cells(settings: LibertySettings, seeds: int) -> list[Cell]:
    return [cell for name, module in EXPERIMENTS.items() for cell in module.cells(getattr(settings, name), seeds)]


def run(cell: Cell, settings: LibertySettings, bench: Workbench) -> Mapping[str, Json]:
    (name,) = (name for name, module in EXPERIMENTS.items() if cell["experiment"] == module.NAME)
    return EXPERIMENTS[name].run(cell, getattr(settings, name), bench)


STUDY = make_study("liberty-or-depth", __file__, SCALES, cells, run, report)
