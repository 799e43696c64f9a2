"""Rank-1 Bayesian neural networks (Dusenberry et al. 2020): one shared matrix, random factors on inputs and outputs.

    W' = W * r s'      r, s ~ 1/K sum_k q_k, Gaussian or Cauchy, one k for the whole network; W is a point estimate

The paper trains a Wide ResNet on CIFAR, a ResNet-50 on ImageNet and an LSTM on clinical records, compares the mixture
with BatchEnsemble (the same without noise), dropout, mean-field VI and deep ensembles, on clean and corrupted images,
and varies one choice at a time: where the factors are, how many components, which likelihood, which noise. Here:

- images, experiment "table": every method on CIFAR-10 and Fashion-MNIST, at the same number of parameters;
- experiment "ablation": variants of the rank-1 network on Fashion-MNIST;
- experiment "mortality": the LSTM, on public records of the same kind.

One deep ensemble gives two rows of a table: its average, and the mean over its members, the deterministic baseline.
"""

from collections.abc import Mapping
from typing import Any

from posteriax.studies.rank_1.claims import CLAIMS as CLAIMS
from posteriax.studies.rank_1.experiments import run_images as run_images
from posteriax.studies.rank_1.experiments import run_mortality as run_mortality
from posteriax.studies.rank_1.page import FIGURES as FIGURES
from posteriax.studies.rank_1.page import tables as tables
from posteriax.studies.rank_1.remarks import SUMMARY as SUMMARY
from posteriax.studies.rank_1.settings import (
    LAPTOP as LAPTOP,
)
from posteriax.studies.rank_1.settings import (
    PAPER as PAPER,
)
from posteriax.studies.rank_1.settings import (
    SMOKE as SMOKE,
)
from posteriax.studies.rank_1.settings import (
    Rank1Settings as Rank1Settings,
)
from posteriax.studies.rank_1.settings import (
    one_step as one_step,
)
from posteriax.studies.rank_1.settings import size_name as size_name
from posteriax.studies.study import Cell as Cell
from posteriax.studies.study import Study as Study
from posteriax.studies.workbench import Workbench as Workbench


def cells(settings: Rank1Settings, seeds: int) -> list[Cell]:
    """All cells, seed by seed: a run that is cut short has whole repetitions. Costs are seconds at laptop scale."""
    last = settings.tables[-1]
    plan = [
        ("table", one.data, method, 20.0 if one is not last else 8.0)
        for one in settings.tables
        for method in one.methods
    ]
    variants = (*settings.variants, *map(size_name, settings.sizes))
    plan += [("ablation", last.data, method, 8.0) for method in variants]
    plan += [("mortality", settings.mortality.data, method, 10.0) for method in settings.mortality.methods]
    names = ("experiment", "data", "method")
    return [Cell(dict(zip(names, own, strict=True)), seed, cost) for seed in range(seeds) for *own, cost in plan]


def run(cell: Cell, settings: Rank1Settings, bench: Workbench) -> Mapping[str, Any]:
    """Train one method, and measure it."""
    return (run_mortality if cell.settings["experiment"] == "mortality" else run_images)(cell, settings, bench)


STUDY = Study(
    name="rank-1",
    title="Rank-1 factors: an ensemble at the price of one network",
    paper=(
        "M. W. Dusenberry, G. Jerfel, Y. Wen, Y. Ma, J. Snoek, K. Heller, B. Lakshminarayanan, D. Tran (2020). "
        "Efficient and Scalable Bayesian Neural Nets with Rank-1 Factors. ICML."
    ),
    summary=SUMMARY,
    claims=CLAIMS,
    scales={"smoke": SMOKE, "laptop": LAPTOP, "paper": PAPER},
    one_step=one_step,
    cells=cells,
    run=run,
    tables=tables,
    figures=FIGURES,
)
