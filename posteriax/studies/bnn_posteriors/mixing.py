"""HMC with unit masses and fixed step size, as the paper has it: trajectory length, step size, burn-in."""

from typing import Any

import numpy as np

from posteriax.methods import HMC
from posteriax.posterior import Posterior
from posteriax.problem import Problem
from posteriax.studies.bnn_posteriors.examples import load_examples, problem_of
from posteriax.studies.bnn_posteriors.methods import nll_of, scores_of
from posteriax.studies.bnn_posteriors.sampling import probabilities, quality
from posteriax.studies.bnn_posteriors.settings import Mixing, Settings
from posteriax.studies.bnn_posteriors.targets import quarter_period
from posteriax.studies.study import Cell
from posteriax.studies.workbench import Workbench

ATTEMPTS, AGAIN = 5, 1000  # with a large step size, and what is added to the key of the next


def run_mixing(cell: Cell, settings: Settings, bench: Workbench) -> dict[str, Any]:
    """Chains from initial weights, for one trajectory length and step size."""
    mixing, target = settings.mixing, settings.mixing.target
    examples = load_examples(bench, target, cell.seed)
    problem = problem_of(target, examples)
    trajectory = float(cell.settings["trajectory"]) * quarter_period(target.prior_variance)
    step_size = min(float(cell.settings["step"]) * mixing.step_size, trajectory)
    method = HMC(
        step_size=step_size,
        trajectory=trajectory,
        warmup=mixing.burn_in,
        start="network",
        max_leapfrogs=200_000,
        jitter=0.0,
    )
    posterior = _fit(bench, problem, examples.train, method, mixing, cell.seed)
    x, y = examples.test
    each = probabilities(posterior, x)
    nll = [[nll_of(probs, y) for probs in chain] for chain in each]
    return {
        "quality": quality(posterior, each),
        "log_joint": np.atleast_2d(posterior.trace["log_joint"]).mean(axis=0),
        "draw_nll": np.mean(nll, axis=0),  # of single draws, by iteration after the burn-in
        **scores_of(each.mean(axis=(0, 1), dtype=np.float64), y, None),
    }


def _fit(bench: Workbench, problem: Problem, train: Any, method: HMC, mixing: Mixing, key: int) -> Posterior:
    """The chains; if one of them has not moved by the end of the burn-in, all start again from other weights."""
    for attempt in range(ATTEMPTS):
        try:
            return bench.fit(
                problem, train, method, draws=mixing.draws, chains=mixing.chains, key=key + AGAIN * attempt
            )
        except RuntimeError as error:
            if "warm-up proposals" not in str(error) or attempt == ATTEMPTS - 1:
                raise
    raise AssertionError("the last attempt returns or raises")
