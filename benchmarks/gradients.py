"""The cost of recording the signal and noise of gradients: MLP 784-400-400-10, batch 1024, Adam, mean-field."""

from collections.abc import Callable

import numpy as np
import optax
from rich.table import Table

import posteriax as px
from benchmarks.step import BATCH, driver, random_data
from benchmarks.timing import interleave, ratio_table
from posteriax import families as q
from posteriax.run.gradient_noise import record_gradients

PLAIN = "not recorded"
RECORDS = {
    "10 batches of every 100": px.run.GradientNoise(),
    "all batches, in windows of 10": px.run.GradientNoise(every=10),
}
STEPS = 100  # a whole round of windows


def report(rounds: int) -> list[Table]:
    return [table(interleave(cases(), rounds))]


def cases() -> dict[str, Callable[[], float]]:
    """A step with and without."""
    x, y = random_data()
    method = px.VI(q.Normal(), estimator="weight", optimizer=optax.adam(1e-3))
    methods = {PLAIN: method} | {name: record_gradients(method, record) for name, record in RECORDS.items()}
    return {name: driver(x, y, method).seconds_per_step(STEPS) for name, method in methods.items()}


def table(times: dict[str, np.ndarray]) -> Table:
    title = f"One step of mean-field VI, recording gradient noise: MLP 784-400-400-10, batch {BATCH}"
    return ratio_table(times, PLAIN, unit="ms", title=title, digits=3)
