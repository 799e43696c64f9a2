"""Training, and what is measured of a trained posterior.

predictions     log p(y | x, w_s), s = 1..S, (S, examples, classes): S draws, spread evenly over the components
NLL             -log 1/S sum_s p(y | x, w_s): the mixture, whatever the training objective was
ECE             15 bins of equal width of the highest probability
cNLL, cA, cECE  the same on corrupted images: means over the 15 kinds, of severities 1 to 5 together
members         means of the scores of single draws
diversity       pairs of members that predict different classes, divided by the error rate of their mean
"""

import time
from typing import Any

import numpy as np
from scipy.special import logsumexp

from posteriax import metrics
from posteriax.posterior import Posterior, with_batch_statistics
from posteriax.problem import Problem
from posteriax.run import Watch
from posteriax.studies.rank_1.images import Parts, load_images
from posteriax.studies.rank_1.methods import build_method, components_of
from posteriax.studies.rank_1.names import DEEP, EQUAL, GAUSSIAN
from posteriax.studies.rank_1.networks import WRN, image_problem
from posteriax.studies.rank_1.settings import Images, Mortality, Settings
from posteriax.studies.study import Cell
from posteriax.studies.workbench import Workbench

EVALUATION_KEY = 1
CLOCKED = 4  # parts of a run whose time is taken


def run_images(cell: Cell, settings: Settings, bench: Workbench) -> dict[str, Any]:
    """Train one method on images, and measure it."""
    plan = next(one for one in settings.tables if one.data == cell.settings["data"])
    method, parts = str(cell.settings["method"]), load_images(plan, bench)
    problem = image_problem(method, plan, settings, parts.train[0].shape[1:], parts.classes, cell.seed)
    norms = plan.network == WRN
    posterior = train(method, problem, parts.train, plan, settings, bench, cell.seed, norms=norms)
    result = {"parameters": number_of_parameters(posterior)}
    if norms:
        few = parts.train[0][: settings.statistics]
        posterior = with_batch_statistics(posterior, few, batch_size=min(plan.batch_size, len(few)))
    return result | measure(posterior, parts, method, plan, settings)


def train(
    method: str,
    problem: Problem,
    data: Any,
    plan: Images | Mortality,
    settings: Settings,
    bench: Workbench,
    seed: int,
    *,
    norms: bool = False,
) -> Posterior:
    """The run; processor time and wall time of a step, without compilation, go into the bench's times."""
    examples = len(data[1])
    fitted = build_method(method, plan, settings, norms=norms, examples=examples)
    posterior = bench.fit(
        problem,
        data,
        fitted,
        steps=plan.steps,
        batch_size=min(examples, images_per_step(method, plan, settings)),
        key=seed,
        watch=Watch(_clocks, every=max(1, plan.steps // CLOCKED)),
    )
    at = np.diff(posterior.trace["watched_step"])
    for name in ("seconds", "processor_seconds"):
        passed = np.diff(posterior.trace[name])
        if (ok := passed > 0).any():  # not across a kill
            bench.times[f"{name}_per_step"] = float(np.median(passed[ok] / at[ok]))
    return posterior


def images_per_step(method: str, plan: Images | Mortality, settings: Settings) -> int:
    """New examples per step: a mixture of another size than the usual K sees as many rows, its components together."""
    components = components_of(method, settings) if method.startswith("K = ") else settings.members
    return max(1, plan.batch_size * settings.members // components)


def _clocks(posterior: Posterior) -> dict[str, float]:
    return {"seconds": time.monotonic(), "processor_seconds": time.process_time()}


def number_of_parameters(posterior: Any) -> int:
    """Those that are stored, of all members together."""
    if hasattr(posterior, "num_parameters"):
        return int(posterior.num_parameters)
    return int(posterior.problem.network.num_parameters * posterior.members)


def draws_of(method: str, settings: Settings) -> int:
    """Draws for predictions: one of each member of a deep ensemble, as many for all others."""
    if method in (DEEP, EQUAL):
        return settings.members
    components = components_of(method, settings)
    # one network with random weights gets as many draws as the mixture
    return settings.draws * (components_of(GAUSSIAN, settings) if components == 1 else components)


def predict(posterior: Posterior, x: Any, draws: int) -> np.ndarray:
    """Log probabilities of every draw, (draws, examples, classes)."""
    predictive: Any = posterior.predict(x, draws, key=EVALUATION_KEY)
    return np.asarray(predictive.log_probs_per_draw, np.float64)


def measure(posterior: Posterior, parts: Parts, method: str, plan: Images, settings: Settings) -> dict[str, Any]:
    """Scores on clean and corrupted images, of the average and of single draws, and the diversity of these."""
    draws, kinds = draws_of(method, settings), len(plan.kinds)
    components = max(2, components_of(method, settings))
    (x, y), (x_worse, y_worse) = parts.test, parts.corrupted
    clean, worse = predict(posterior, x, draws), predict(posterior, x_worse, draws)
    single = clean[: min(components, draws)]
    result: dict[str, Any] = {
        "clean": scores(clean, y),
        "corrupted": by_kind(worse, y_worse, kinds),
        "severity": by_severity(worse, y_worse, kinds, len(plan.severities)),
        "member": {
            "clean": mean_scores([scores(one[None], y) for one in single]),
            "corrupted": mean_scores([by_kind(one[None], y_worse, kinds) for one in worse[: len(single)]]),
        },
    }
    if len(single) > 1:
        probs = np.exp(single).astype(np.float32)
        result["diversity"] = float(np.mean(metrics.disagreement_over_error(probs, y)))
        result["disagreement"] = float(np.mean(metrics.disagreement(probs)))
    return result


def scores(log_probs: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """NLL in nats, accuracy and ECE of the average over draws.

    >>> found = scores(np.log([[[0.9, 0.1]], [[0.7, 0.3]]]), np.array([0]))
    >>> {name: round(value, 3) for name, value in found.items()}
    {'nll': 0.223, 'accuracy': 1.0, 'ece': 0.2}
    """
    mean = logsumexp(log_probs, axis=0) - np.log(len(log_probs))
    probs = np.exp(mean)
    return {
        "nll": float(-np.take_along_axis(mean, y[:, None], axis=1).mean()),
        "accuracy": float((probs.argmax(axis=-1) == y).mean()),
        "ece": float(metrics.ece_equal_width(probs.astype(np.float32), y)),
    }


def by_kind(log_probs: np.ndarray, y: np.ndarray, kinds: int) -> dict[str, float]:
    """Scores of each kind of corruption, all severities together; their means over kinds."""
    parts = zip(np.split(log_probs, kinds, axis=1), np.split(y, kinds), strict=True)
    return mean_scores([scores(own, labels) for own, labels in parts])


def by_severity(log_probs: np.ndarray, y: np.ndarray, kinds: int, severities: int) -> dict[str, list[float]]:
    """Scores by severity, all kinds together."""
    rows = np.arange(len(y)).reshape(kinds, severities, -1)
    found = [scores(log_probs[:, own.ravel()], y[own.ravel()]) for own in np.moveaxis(rows, 1, 0)]
    return {name: [one[name] for one in found] for name in found[0]}


def mean_scores(found: list[dict[str, float]]) -> dict[str, float]:
    return {name: float(np.mean([one[name] for one in found])) for name in found[0]}
