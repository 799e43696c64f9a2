"""The cost of recording the signal and noise of gradients: MLP 784-400-400-10, batch 1024, Adam, mean-field."""

from typing import Any

import numpy as np
import optax

import posteriax as px
from posteriax import families as q
from posteriax.cli.bench.step import BATCH, driver_program, random_data, timed
from posteriax.cli.bench.timing import interleave, ratio_table
from posteriax.run import record_gradients

PLAIN = "not recorded"
RECORDS = {"10 batches of every 100": px.GradientNoise(), "all batches, in windows of 10": px.GradientNoise(every=10)}
STEPS = 100  # a whole round of windows


def run_gradients(rounds: int = 15) -> dict[str, np.ndarray]:
    """Time a step with and without, in turn."""
    x, y = random_data()
    method = px.VI(q.Normal(), estimator="weight", optimizer=optax.adam(1e-3))
    cases = {PLAIN: timed(driver_program(x, y, method), x, y, STEPS)}
    for name, record in RECORDS.items():
        cases[name] = timed(driver_program(x, y, record_gradients(method, record)), x, y, STEPS)
    return interleave(cases, rounds)


def table(times: dict[str, np.ndarray]) -> Any:
    title = f"One step of mean-field VI, recording gradient noise: MLP 784-400-400-10, batch {BATCH}"
    return ratio_table(times, PLAIN, unit=1e-3, unit_name="ms", title=title, digits=3)
