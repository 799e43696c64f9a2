"""What are the posteriors of Bayesian neural networks really like? (Izmailov, Vikram, Hoffman and Wilson 2021)

    p(w | D) ~ p(D | w) p(w)        sampled by full-batch HMC, and compared with what is used in its place

The paper samples the posteriors of a ResNet and a CNN-LSTM by HMC on hundreds of accelerators, and asks how well the
chains mix, how the true posterior predicts, which temperature and prior it needs, what happens under corruption, and
how close cheaper methods come.
"""

from collections.abc import Mapping

from posteriax.studies.bnn_posteriors import experiments, methods, report, settings
from posteriax.studies.bnn_posteriors.settings import PosteriorsSettings
from posteriax.studies.results import Json, Setting
from posteriax.studies.study import Cell, make_study
from posteriax.studies.workbench import Workbench

RUN = {
    "methods": methods.run_methods,
    "mixing": experiments.run_mixing,
    "temperature": experiments.run_temperature,
    "augmentation": experiments.run_augmentation,
    "prior": experiments.run_prior,
    "grid": experiments.run_grid,
    "architecture": experiments.run_architecture,
    "shift": experiments.run_shift,
    "regression": experiments.run_regression,
}


def cells(settings: PosteriorsSettings, seeds: int) -> list[Cell]:
    """All cells, seed by seed: a run that is cut short has whole repetitions.

    A seed of UCI is a split, of which there are as many as the settings say; more seeds than they say add splits.
    """
    mixing, varied, uci = settings.mixing, settings.varied, settings.regression
    # one setting varies at a time
    sweeps = [(t, mixing.steps[0]) for t in mixing.trajectories] + [(1.0, step) for step in mixing.steps[1:]]
    priors = [("Normal", v) for v in settings.variances] + [(f, varied.prior_variance) for f in settings.families]
    plan: list[tuple[float, dict[str, Setting]]] = []
    plan += [(10.0, {"experiment": "methods", "target": target.name}) for target in settings.targets]
    plan += [(3.0, {"experiment": "mixing", "trajectory": t, "step": step}) for t, step in sweeps]
    plan += [
        (3.0, {"experiment": "temperature", "target": target.name, "temperature": t})
        for target in settings.tempered
        for t in settings.temperatures
    ]
    plan += [
        (1.0, {"experiment": "augmentation", "augmentation": name, "temperature": t})
        for name in experiments.AUGMENTATIONS
        for t in settings.cold
    ]
    plan += [(3.0, {"experiment": "prior", "family": family, "variance": v}) for family, v in priors]
    plan += [
        (3.0, {"experiment": "grid", "variance": v, "temperature": t})
        for v in settings.grid_variances
        for t in settings.grid_temperatures
    ]
    plan += [(3.0, {"experiment": "architecture", "target": target.name}) for target in settings.architectures]
    if settings.noises:
        shifted = (settings.shifted, *settings.also_shifted)
        plan += [(6.0, {"experiment": "shift", "target": target.name}) for target in shifted]
    dear = {target.name for target in settings.targets if target.words}
    listed = [
        Cell(values, seed, cost)
        for seed in range(seeds)
        for cost, values in plan
        if seed < settings.review_seeds or values.get("target") not in dear
    ]
    splits = range(uci.splits + max(0, seeds - settings.seeds))
    return listed + [Cell({"experiment": "regression", "data": name}, s, 3.0) for s in splits for name in uci.sets]


def run(cell: Cell, settings: PosteriorsSettings, bench: Workbench) -> Mapping[str, Json]:
    return RUN[cell["experiment"]](cell, settings, bench)


STUDY = make_study("bnn-posteriors", __file__, settings.SCALES, cells, run, report)
