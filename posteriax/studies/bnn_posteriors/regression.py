"""UCI regression over standard splits: HMC beside a deep ensemble, mean-field VI, SGLD and MAP."""

import math
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from posteriax import priors as p
from posteriax import zoo
from posteriax.comparison import evaluate
from posteriax.data import DataSet
from posteriax.posterior import Posterior
from posteriax.problem import Normal, Problem
from posteriax.studies.bnn_posteriors.methods import (
    ENSEMBLE_ROW,
    HMC_ROW,
    MAP_ROW,
    VI_DRAWS,
    VI_ROW,
    chains_of,
    fit_ensemble,
    fit_mean_field,
    fit_sg_mcmc,
    mean_of,
)
from posteriax.studies.bnn_posteriors.sampling import quality, sample
from posteriax.studies.bnn_posteriors.settings import Regression, Settings
from posteriax.studies.study import Cell
from posteriax.studies.workbench import Workbench

ROWS = (HMC_ROW, "SGLD", ENSEMBLE_ROW, VI_ROW, MAP_ROW)


def run_regression(cell: Cell, settings: Settings, bench: Workbench) -> dict[str, Any]:
    """All methods on one split of one set."""
    name = str(cell.settings["data"])
    chosen, data = settings.regression.of_set(name), bench.load(name, split=cell.seed)
    train = training_rows(data.train, chosen.rows, cell.seed)
    return {"rows": len(train[1]), **fit_all(bench, chosen, train, data, cell.seed)}


def fit_all(bench: Workbench, chosen: Regression, train: Any, data: DataSet, seed: int) -> dict[str, Any]:
    """The scores of every method on `data.test`, in the units of the data, from training on `train`."""
    problem = regression_problem(chosen, train[0].shape[1])
    ensemble = fit_ensemble(bench, problem, train, chosen.recipe, seed)
    longer = replace(chosen.recipe, epochs=chosen.start_epochs, members=chosen.sampling.chains)
    start = fit_ensemble(bench, problem, train, longer, seed) if chosen.start_epochs else ensemble
    truth = sample(bench, problem, train, chosen.sampling, seed, start=start)
    found = {
        HMC_ROW: scores_in_units(truth, data),
        ENSEMBLE_ROW: scores_in_units(ensemble, data),
        MAP_ROW: single_members(ensemble, data),
        VI_ROW: scores_in_units(fit_mean_field(bench, problem, train, chosen.recipe, seed, ensemble), data),
        "SGLD": scores_in_units(fit_sg_mcmc(bench, "SGLD", problem, train, chosen.recipe, seed), data),
    }
    chains, each = chosen.sampling.chains, chosen.sampling.draws
    means = truth.predict(data.test[0]).per_draw().reshape(chains, each, -1)
    return {**found, "quality": quality(truth, means)}


def regression_problem(chosen: Regression, inputs: int) -> Problem:
    outputs = 2 if chosen.scale == "predicted" else 1
    net = zoo.uci_mlp(inputs=inputs, hidden=(chosen.hidden,), outputs=outputs, key=jax.random.key(0))
    return Problem(net, Normal(scale=chosen.scale), p.Normal(math.sqrt(chosen.prior_variance)))


def training_rows(train: Any, most: int, seed: int) -> Any:
    """All training rows, or a random part of them."""
    x, y = train
    rows = np.sort(np.random.default_rng((seed, 6)).permutation(len(y))[:most])
    return x[rows], y[rows]


def scores_in_units(posterior: Posterior, data: DataSet) -> dict[str, float]:
    """RMSE and mean log-likelihood, in the units of the data: those of the average over draws, a mixture."""
    predictive = posterior.predict(data.test[0], None if posterior.support else VI_DRAWS)
    return _in_units(evaluate(predictive, data.test[1], scores=["rmse", "nll"]), data)


def single_members(ensemble: Posterior, data: DataSet) -> dict[str, float]:
    """The same for single members of an ensemble, on average."""
    return mean_of([scores_in_units(member, data) for member in chains_of(ensemble)])


def _in_units(found: dict[str, float], data: DataSet) -> dict[str, float]:
    assert data.target_scaling is not None
    unit = float(np.asarray(data.target_scaling.scale).reshape(-1)[0])
    return {"rmse": found["rmse"] * unit, "log_likelihood": -found["nll"] - math.log(unit)}
