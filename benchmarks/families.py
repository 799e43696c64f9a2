"""The cost of a step of every family relative to a deterministic one, its memory and its parameters.

MLP 784-400-400-10, Adam, 1024 rows per step: a mixture of K components gets 1024 / K examples, so that all do the same
number of products.
"""

from typing import Any

import numpy as np
import optax
from rich.table import Table

import posteriax as px
from benchmarks.step import BATCH, DETERMINISTIC, STEPS, driver, hand_written, random_data
from benchmarks.timing import interleave, ratio_table
from posteriax import families as q
from posteriax import priors as p

COMPONENTS = 4


def methods() -> dict[str, Any]:
    """Every family, with the estimators that differ; full covariance is left out: it would not fit in memory."""

    def vi(family: Any, estimator: Any = "weight") -> px.VI:
        return px.VI(family, estimator=estimator, optimizer=optax.adam(1e-3))

    return {
        "MAP": px.MAP(optax.adam(1e-3)),
        "Normal, weight": vi(q.Normal()),
        "Normal, flipout": vi(q.Normal(), "flipout"),
        "Normal, local": vi(q.Normal(), "local"),
        "Normal, natural gradient": px.VI(q.Normal(), estimator="weight", optimizer=px.methods.natural_gradient()),
        "KTied(2), weight": vi(q.KTied(2)),
        "KTied(2), local": vi(q.KTied(2), "local"),
        "MatrixNormal, weight": vi(q.MatrixNormal()),
        "MatrixNormal, local": vi(q.MatrixNormal(), "local"),
        "LowRank(4), weight": vi(q.LowRank(4)),
        "Rank1(4), one draw a component": vi(q.Rank1(COMPONENTS), "factor"),
        "Rank1(4), one draw an example": vi(q.Rank1(COMPONENTS), "auto"),
        "Rank1(4) point (BatchEnsemble)": vi(q.Rank1(COMPONENTS, noise="point"), "factor"),
        "MultiplicativeNormal, weight": vi(q.MultiplicativeNormal()),
        "ZeroMeanNormal, weight": vi(q.ZeroMeanNormal()),
        "ZeroMeanNoise, weight": vi(q.ZeroMeanNoise()),
        "Dropout(0.1), one mask an example": vi(q.Dropout(0.1), "auto"),
    }


def report(rounds: int) -> list[Table]:
    x, y = random_data()
    cases = {DETERMINISTIC: hand_written(x, y, mean_field=False)}
    sizes: dict[str, tuple[int, int]] = {}
    for name, method in methods().items():
        rows = BATCH // COMPONENTS if "Rank1" in name else BATCH
        prior = p.LogUniform() if "Multiplicative" in name else p.Normal(scale=0.3)
        run = driver(x, y, method, batch_size=rows, prior=prior)
        cases[name] = run.seconds_per_step(STEPS)
        sizes[name] = run.bytes, run.parameters
    return [table(interleave(cases, rounds), sizes)]


def table(times: dict[str, np.ndarray], sizes: dict[str, tuple[int, int]]) -> Table:
    """Times, and by family the bytes its step needs and its parameters."""
    more = {
        "peak memory, MB": {name: f"{needed / 2**20:.0f}" for name, (needed, _) in sizes.items()},
        "parameters": {name: f"{parameters:,}" for name, (_, parameters) in sizes.items()},
    }
    title = f"One step of MLP 784-400-400-10, {BATCH} rows, Adam"
    return ratio_table(times, DETERMINISTIC, unit="ms", title=title, more=more)
