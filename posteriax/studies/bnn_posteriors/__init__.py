"""What are the posteriors of Bayesian neural networks really like? (Izmailov, Vikram, Hoffman and Wilson 2021)

    p(w | D) ~ p(D | w) p(w)        sampled by full-batch HMC, and compared with what is used in its place

The paper samples the posteriors of a ResNet and a CNN-LSTM by HMC on hundreds of accelerators, and asks how well the
chains mix, how the true posterior predicts, which temperature and prior it needs, what happens under corruption, and
how close cheaper methods come. One file here for each:

    methods.py       all methods beside HMC: scores, agreement, total variation, corruptions, inputs from elsewhere
    mixing.py        trajectory length, step size and burn-in of HMC as the paper has it
    targets.py       temperatures, with and without augmentation; scale and family of the prior
    shift.py         noise on pixels, and the EmpCov prior
    regression.py    UCI sets

PosteriorsSettings are in settings.py and scales.py, claims with their bounds in claims.py.
"""

from collections.abc import Mapping
from typing import Any

from posteriax.studies.bnn_posteriors.claims import CLAIMS as CLAIMS
from posteriax.studies.bnn_posteriors.experiments import (
    AUGMENTATIONS as AUGMENTATIONS,
)
from posteriax.studies.bnn_posteriors.experiments import (
    run_augmentation as run_augmentation,
)
from posteriax.studies.bnn_posteriors.experiments import run_mixing as run_mixing
from posteriax.studies.bnn_posteriors.experiments import (
    run_prior as run_prior,
)
from posteriax.studies.bnn_posteriors.experiments import run_regression as run_regression
from posteriax.studies.bnn_posteriors.experiments import run_shift as run_shift
from posteriax.studies.bnn_posteriors.experiments import (
    run_temperature as run_temperature,
)
from posteriax.studies.bnn_posteriors.methods import run_methods as run_methods
from posteriax.studies.bnn_posteriors.page import FIGURES as FIGURES
from posteriax.studies.bnn_posteriors.page import tables as tables
from posteriax.studies.bnn_posteriors.remarks import SUMMARY as SUMMARY
from posteriax.studies.bnn_posteriors.settings import (
    LAPTOP as LAPTOP,
)
from posteriax.studies.bnn_posteriors.settings import (
    PAPER as PAPER,
)
from posteriax.studies.bnn_posteriors.settings import (
    SMOKE as SMOKE,
)
from posteriax.studies.bnn_posteriors.settings import PosteriorsSettings as PosteriorsSettings
from posteriax.studies.bnn_posteriors.settings import (
    one_step as one_step,
)
from posteriax.studies.study import Cell as Cell
from posteriax.studies.study import Study as Study
from posteriax.studies.workbench import Workbench as Workbench

RUN = {
    "methods": run_methods,
    "mixing": run_mixing,
    "temperature": run_temperature,
    "augmentation": run_augmentation,
    "prior": run_prior,
    "shift": run_shift,
    "regression": run_regression,
}


def cells(settings: PosteriorsSettings, seeds: int) -> list[Cell]:
    """All cells, seed by seed: a run that is cut short has whole repetitions. A seed of UCI is a split."""
    every = []
    for seed in range(seeds):
        every += [Cell({"experiment": "methods", "target": t.name}, seed, 10.0) for t in settings.targets]
        every += [
            Cell({"experiment": "mixing", "trajectory": trajectory, "step": step}, seed, 3.0)
            for trajectory, step in swept(settings)
        ]
        every += [
            Cell({"experiment": "temperature", "target": t.name, "temperature": temperature}, seed, 3.0)
            for t in settings.tempered
            for temperature in settings.temperatures
        ]
        every += [
            Cell({"experiment": "augmentation", "augmentation": name, "temperature": temperature}, seed, 1.0)
            for name in AUGMENTATIONS
            for temperature in settings.cold
        ]
        every += [
            Cell({"experiment": "prior", "family": family, "variance": variance}, seed, 3.0)
            for family, variance in priors(settings)
        ]
        every += [Cell({"experiment": "shift", "target": settings.shifted.name}, seed, 6.0)] if settings.noises else []
    chosen = settings.regression
    splits = range(max(chosen.splits, seeds))
    return every + [
        Cell({"experiment": "regression", "data": name}, split, 3.0) for split in splits for name in chosen.sets
    ]


def swept(settings: PosteriorsSettings) -> list[tuple[float, float]]:
    """Pairs of trajectory length and step size: one varies at a time."""
    mixing = settings.mixing
    lengths = [(trajectory, mixing.steps[0]) for trajectory in mixing.trajectories]
    return lengths + [(1.0, step) for step in mixing.steps[1:]]


def priors(settings: PosteriorsSettings) -> list[tuple[str, float]]:
    """Pairs of family and variance: one varies at a time."""
    usual = settings.varied.prior_variance
    return [("Normal", v) for v in settings.variances] + [(family, usual) for family in settings.families]


def run(cell: Cell, settings: PosteriorsSettings, bench: Workbench) -> Mapping[str, Any]:
    return RUN[str(cell.settings["experiment"])](cell, settings, bench)


STUDY = Study(
    name="bnn-posteriors",
    title="What are Bayesian neural network posteriors really like?",
    paper="Izmailov, Vikram, Hoffman and Wilson 2021, What Are Bayesian Neural Network Posteriors Really Like?, ICML; "
    "EmpCov and noise on pixels: Izmailov, Nicholson, Lotfi and Wilson 2021, Dangers of Bayesian Model Averaging under "
    "Covariate Shift, NeurIPS",
    summary=SUMMARY,
    claims=CLAIMS,
    scales={"smoke": SMOKE, "laptop": LAPTOP, "paper": PAPER},
    one_step=one_step,
    cells=cells,
    run=run,
    tables=tables,
    figures=FIGURES,
)
