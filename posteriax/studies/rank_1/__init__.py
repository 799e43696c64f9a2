"""Rank-1 Bayesian neural networks (Dusenberry et al. 2020): one shared matrix, random factors on inputs and outputs.

    W' = W * r s'      r, s ~ 1/K sum_k q_k, Gaussian or Cauchy, one k for the whole network; W is a point estimate

The paper trains a Wide ResNet on CIFAR, a ResNet-50 on ImageNet and an LSTM on clinical records, compares the mixture
with BatchEnsemble (the same without noise), dropout, mean-field VI and deep ensembles, on clean and corrupted images,
and varies one choice at a time: where the factors are, how many components, which likelihood, which noise. Here:

- images, experiment "table": every method on CIFAR-10 and Fashion-MNIST, at the same number of parameters;
- experiment "ablation": variants of the rank-1 network, on one of them;
- experiment "mortality": the LSTM, on public records of the same kind;
- experiments "checkpoints", "induced priors" and "theorem 1": what the paper shows beside its tables.

One deep ensemble gives two rows of a table: its average, and the mean over its members, the deterministic baseline.
"""

from collections.abc import Mapping

from posteriax.studies.rank_1 import report, settings
from posteriax.studies.rank_1.demonstrations import (
    CHECKPOINTS,
    PRIORS,
    THEOREM,
    run_checkpoints,
    run_induced_priors,
    run_theorem,
)
from posteriax.studies.rank_1.experiments import run_images, run_mortality
from posteriax.studies.rank_1.networks import WRN
from posteriax.studies.rank_1.settings import BATCH_ENSEMBLE, GAUSSIAN, Rank1Settings, ablated_table, size_name
from posteriax.studies.results import Json
from posteriax.studies.study import Cell, make_study
from posteriax.studies.workbench import Workbench

RUN = {
    "table": run_images,
    "ablation": run_images,
    "mortality": run_mortality,
    CHECKPOINTS: run_checkpoints,
    PRIORS: run_induced_priors,
    THEOREM: run_theorem,
}


def cells(settings: Rank1Settings, seeds: int) -> list[Cell]:
    """All cells, seed by seed: a run that is cut short has whole repetitions. Costs are seconds at laptop scale."""
    ablated, records = ablated_table(settings), settings.mortality
    costs = [(table, 20.0 if table.network == WRN else 8.0) for table in settings.tables]
    plan = [("table", table.data, method, cost) for table, cost in costs for method in table.methods]
    variants = (*settings.variants, *map(size_name, settings.sizes))
    plan += [("ablation", ablated.data, method, 8.0) for method in variants]
    plan += [("mortality", records.data, method, 10.0) for method in records.methods]
    if settings.checkpoints:
        plan += [(CHECKPOINTS, ablated.data, f"{method}, {CHECKPOINTS}", 10.0) for method in (BATCH_ENSEMBLE, GAUSSIAN)]
    plan += [(PRIORS, "none", "all factors", 1.0)] if settings.prior_draws else []
    plan += [(THEOREM, ablated.data, THEOREM, 3.0)] if settings.theorem_images and ablated.network != WRN else []
    names = ("experiment", "data", "method")
    return [Cell(dict(zip(names, values, strict=True)), seed, cost) for seed in range(seeds) for *values, cost in plan]


def run(cell: Cell, settings: Rank1Settings, bench: Workbench) -> Mapping[str, Json]:
    """Train one method, and measure it; or a demonstration."""
    return RUN[cell["experiment"]](cell, settings, bench)


STUDY = make_study("rank-1", __file__, settings.SCALES, cells, run, report)
