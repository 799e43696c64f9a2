"""Three demonstrations beside the tables: members over a run, priors that factors induce, and theorem 1.

checkpoints       accuracy, NLL and disagreement over error rate of members at the last readings of a run (figure 5)
induced priors    w' = w r, w ~ N(0, 1), with normal, Cauchy or Student factors r (figure 1), from draws
theorem 1         the variance of the score under rank-1 factors over that under the matching full-rank perturbation
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import stats

from posteriax import metrics
from posteriax.analysis import score_variance
from posteriax.methods import MAP
from posteriax.posterior import Posterior
from posteriax.run import Watch
from posteriax.studies.rank_1.experiments import (
    build_method,
    choose_scales,
    draw_count,
    images_per_step,
    load_images,
    predict,
    scores,
    with_statistics,
)
from posteriax.studies.rank_1.networks import WRN, image_problem
from posteriax.studies.rank_1.settings import DEEP, Rank1Settings, ablated_table
from posteriax.studies.results import Json
from posteriax.studies.study import Cell
from posteriax.studies.workbench import Workbench

CHECKPOINTS, PRIORS, THEOREM = "checkpoints", "induced priors", "theorem 1"
FREEDOM = 4.0  # degrees of freedom of the Student-t prior that an inverse-gamma variance induces
FACTORS: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "normal": lambda rng, count: rng.standard_normal(count),
    "Cauchy": lambda rng, count: rng.standard_cauchy(count),
    "inverse-gamma": lambda rng, count: np.sqrt(1 / rng.gamma(FREEDOM / 2, 2 / FREEDOM, count)),
    "none": lambda rng, count: np.ones(count),
}
EDGES = np.linspace(-6, 6, 121)  # of the weights in histograms
NEAR, FAR = 0.1, 5.0


def run_checkpoints(cell: Cell, settings: Rank1Settings, bench: Workbench) -> dict[str, Json]:
    """Train one method of the ablations' table, and measure its members along the last half of the run."""
    table, method = ablated_table(settings), cell["method"].removesuffix(f", {CHECKPOINTS}")
    parts = load_images(table, bench, cell.seed)
    plan, tuning = choose_scales(method, table, parts, settings, bench, cell.seed)
    problem = image_problem(method, plan, settings, parts.train[0].shape[1:], parts.classes, cell.seed)
    (x, y), examples = parts.test, len(parts.train[1])

    def watched(posterior: Posterior) -> dict[str, float]:
        ready = with_statistics(posterior, parts.train, plan, settings)
        draws = predict(ready, x, draw_count(method, settings), settings.examples_per_draw)
        probs = np.exp(draws[: settings.members]).astype(np.float32)
        found = scores(draws, y) | {"diversity": float(np.mean(metrics.disagreement_over_error(probs, y)))}
        return {name: found[name] for name in ("nll", "accuracy", "diversity")}

    every = max(1, plan.steps // (2 * settings.checkpoints))
    norms = plan.network == WRN
    posterior: Any = bench.fit(
        problem,
        parts.train,
        build_method(method, plan, settings, norms=norms, examples=examples),
        steps=plan.steps,
        batch_size=min(examples, images_per_step(method, plan, settings)),
        key=cell.seed,
        watch=Watch(watched, every=every),
    )
    last = slice(-settings.checkpoints, None)
    readings = {name: np.asarray(posterior.trace[name], float)[last] for name in ("nll", "accuracy", "diversity")}
    return {**readings, **({"tuning": tuning} if tuning else {})}


def run_induced_priors(cell: Cell, settings: Rank1Settings, bench: Workbench) -> dict[str, Json]:
    """Shares of weights near 0 and far from it, and histograms, by the prior of the factor."""
    rng, count = np.random.default_rng(cell.seed), settings.prior_draws
    result: dict[str, Json] = {}
    for name, draw in FACTORS.items():
        w = rng.standard_normal(count) * draw(rng, count)
        density = np.histogram(w, EDGES)[0] / count / np.diff(EDGES)
        result[name] = {"near": (np.abs(w) < NEAR).mean(), "far": (np.abs(w) > FAR).mean(), "density": density}
        if name == "inverse-gamma":
            result["distance"] = stats.kstest(w, stats.t(FREEDOM).cdf).statistic * np.sqrt(count)
    return result


def run_theorem(cell: Cell, settings: Rank1Settings, bench: Workbench) -> dict[str, Json]:
    """Variance of the score at a trained network, under factors on the inputs of its second matrix and without them.

    The mean over test images, relative to that of the matching full-rank perturbation to first order.
    """
    plan = ablated_table(settings)
    parts = load_images(plan, bench, cell.seed)
    problem = image_problem(DEEP, plan, settings, parts.train[0].shape[1:], parts.classes, cell.seed)
    steps, batch = max(1, plan.steps // 4), min(len(parts.train[1]), plan.batch_size)
    posterior = bench.fit(problem, parts.train, MAP(), steps=steps, batch_size=batch, key=cell.seed)
    (x, y), count = parts.test, settings.theorem_images
    (leaf, *_) = [path for path in problem.leaf_names if path.endswith("weight") and "1" in path.split("/")]
    found = score_variance(posterior, (x[:count], y[:count]), leaf, 1e-4, draws=settings.theorem_draws, key=cell.seed)
    full = found.full_rank.mean()
    away = np.abs(found.independent / found.full_rank - 1)
    return {"ratio": found.rank1.mean() / full, "independent_away": np.median(away)}
