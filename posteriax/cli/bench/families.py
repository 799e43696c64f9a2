"""The cost of a step of every family relative to a deterministic one, its memory and its parameters.

MLP 784-400-400-10, Adam, 1024 rows per step: a mixture of K components gets 1024 / K examples, so that all do the same
number of products.
"""

from typing import Any

import numpy as np
import optax

import posteriax as px
from posteriax import families as q
from posteriax import priors as p
from posteriax.cli.bench.step import BATCH, DETERMINISTIC, driver_program, hand_written, random_data, timed
from posteriax.cli.bench.timing import interleave

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
        "Normal, natural gradient": px.VI(q.Normal(), estimator="weight", optimizer=px.natural_gradient()),
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


def run_families(rounds: int = 15) -> tuple[dict[str, np.ndarray], dict[str, tuple[int, int]]]:
    """Seconds per step of each, timed in turn; and for each the bytes its step needs and its parameters."""
    x, y = random_data()
    cases = {DETERMINISTIC: hand_written(x, y, mean_field=False)}
    sizes: dict[str, tuple[int, int]] = {}
    for name, method in methods().items():
        rows = BATCH // COMPONENTS if "Rank1" in name else BATCH
        prior = p.LogUniform() if "Multiplicative" in name else p.Normal(scale=0.3)
        program = driver_program(x, y, method, batch_size=rows, prior=prior)
        cases[name] = timed(program, x, y)
        sizes[name] = program.bytes, program.parameters
    return interleave(cases, rounds), sizes


def table(times: dict[str, np.ndarray], sizes: dict[str, tuple[int, int]]) -> Any:
    from rich.table import Table

    title = f"One step of MLP 784-400-400-10, {BATCH} rows, Adam"
    result = Table(title=title, title_justify="left")
    result.add_column("")
    for column in ("ms", "over deterministic", "10 % to 90 %", "peak memory, MB", "parameters"):
        result.add_column(column, justify="right")
    for name, values in times.items():
        ratios = values / times[DETERMINISTIC]
        low, high = np.quantile(ratios, [0.1, 0.9])
        size = sizes.get(name)
        more = ("", "") if size is None else (f"{size[0] / 2**20:.0f}", f"{size[1]:,}")
        result.add_row(
            name, f"{np.median(values) * 1e3:.1f}", f"{np.median(ratios):.2f}", f"{low:.2f} to {high:.2f}", *more
        )
    return result
