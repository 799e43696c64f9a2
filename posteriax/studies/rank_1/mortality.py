"""Death in hospital, predicted from two days of intensive care: an LSTM over measurements, most of them missing."""

from typing import Any

import numpy as np
from scipy.special import logsumexp

from posteriax import metrics
from posteriax.studies.rank_1.measuring import draws_of, mean_scores, number_of_parameters, predict, scores, train
from posteriax.studies.rank_1.networks import mortality_problem
from posteriax.studies.rank_1.settings import Mortality, Settings
from posteriax.studies.study import Cell
from posteriax.studies.workbench import Workbench

Records = dict[str, np.ndarray]


def run_mortality(cell: Cell, settings: Settings, bench: Workbench) -> dict[str, Any]:
    """Train one method on the records, and measure it on those of other patients, as they are and with more missing."""
    plan, method = settings.mortality, str(cell.settings["method"])
    data = bench.load(plan.data)
    x, y = select(data.train, plan.examples, plan)
    x_test, y_test = select(data.test, plan.tests, plan)
    shape = x["values"].shape[-1], x["static"].shape[-1]
    problem = mortality_problem(method, plan, settings, shape, cell.seed)
    posterior = train(method, problem, (x, y), plan, settings, bench, cell.seed)
    draws = draws_of(method, settings)
    found, fewer = predict(posterior, x_test, draws), predict(posterior, remove(x_test, plan.removed), draws)
    single = found[: settings.members]
    return {
        "parameters": number_of_parameters(posterior),
        "clean": clinical_scores(found, y_test),
        "fewer": clinical_scores(fewer, y_test),
        "member": {
            "clean": mean_scores([clinical_scores(one[None], y_test) for one in single]),
            "fewer": mean_scores([clinical_scores(one[None], y_test) for one in fewer[: len(single)]]),
        },
        "missing": float(1 - x_test["observed"].mean()),
    }


def select(part: tuple[Records, np.ndarray], count: int, plan: Mortality) -> tuple[Records, np.ndarray]:
    """The first stays, and their last hours."""
    x, y = part
    rows = slice(count or None)
    return {name: a[rows] if name == "static" else a[rows, -plan.hours :] for name, a in x.items()}, y[rows]


def remove(x: Records, share: float) -> Records:
    """The same records with a share of the measurements missing, chosen at random."""
    kept = (np.random.default_rng(0).random(x["values"].shape) >= share).astype(np.float32)
    return x | {"values": x["values"] * kept, "observed": x["observed"] * kept}


def clinical_scores(log_probs: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """NLL, accuracy and ECE, and the area under the precision-recall curve."""
    risk = np.exp(logsumexp(log_probs[..., 1], axis=0) - np.log(len(log_probs)))
    return scores(log_probs, y) | {"auc_pr": float(metrics.average_precision(risk.astype(np.float32), y))}
