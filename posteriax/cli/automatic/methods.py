"""Every method by name, with settings that suit data of any size."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import posteriax as px
from posteriax import families as q
from posteriax._internal.compiler import jit
from posteriax.cli.tables.reading import DataError
from posteriax.data import Batch
from posteriax.methods import pack_small_leaves

REFERENCE = "hmc"
DEFAULT_METHODS = ("map", "ensemble", "mean-field", "k-tied", "rank-1", "swag", "hmc")
SLOW = 2e7  # weights times rows of a table, from which a sampler's time is worth a word
GRADIENTS = {"hmc": 25, "nuts": 60, "mclmc": 40}  # of a draw, as on the tables this was tried with


@dataclass(frozen=True)
class Run:
    """A method and how long to run it: what `px.fit` is given."""

    method: Any
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Circumstances:
    """What settings depend on.

    Args:
        problem: what is inferred.
        rows: examples to learn from.
        images: whether they are images.
        quick: a fifth of the steps and draws, for a first look.
    """

    problem: px.Problem
    rows: int
    images: bool = False
    quick: bool = False

    @property
    def batch_size(self) -> int:
        return min(self.rows, 128 if self.images else 512)

    def count(self, number: int) -> int:
        return max(number // 5, 10) if self.quick else number

    def steps(self, number: int) -> int:
        """Steps for data of any size: that many, but of large data at least twenty epochs."""
        return self.count(max(number, 20 * self.rows // self.batch_size))

    def epochs(self, number: int) -> int:
        """Epochs of small batches: fewer of large data."""
        return self.count(min(number, max(40, number * 1000 // self.rows)))


def _optimised(make: Callable[[Circumstances, Any], Any], number: int) -> Callable[[Circumstances], Run]:
    def run(at: Circumstances) -> Run:
        steps = at.steps(number)
        rate = optax.cosine_decay_schedule(5e-3 if at.images else 1e-2, steps)
        return Run(make(at, pack_small_leaves(optax.adam(rate))), {"steps": steps, "batch_size": at.batch_size})

    return run


def _sampled(make: Callable[[Circumstances], Any]) -> Callable[[Circumstances], Run]:
    return lambda at: Run(make(at), {"draws": at.count(300), "chains": 2})


METHODS: dict[str, Callable[[Circumstances], Run]] = {
    "map": _optimised(lambda at, optimizer: px.MAP(optimizer), 2000),
    "ensemble": _optimised(lambda at, optimizer: px.Ensemble(px.MAP(optimizer), 5), 2000),
    "mean-field": _optimised(lambda at, optimizer: px.VI(q.Normal(), optimizer=optimizer), 4000),
    "k-tied": _optimised(lambda at, optimizer: px.VI(q.KTied(2), optimizer=optimizer), 4000),
    "rank-1": _optimised(lambda at, optimizer: px.VI(q.Rank1(4), optimizer=optimizer), 1000),
    "swag": lambda at: Run(px.SWAG(), {"epochs": at.epochs(200), "batch_size": min(at.rows, 64)}),
    "hmc": _sampled(lambda at: px.HMC(warmup=at.count(200))),
    "nuts": _sampled(lambda at: px.NUTS(warmup=at.count(300), max_doublings=8)),
    "mclmc": _sampled(lambda at: px.MCLMC(start="map", warmup=at.count(3000))),
    "sghmc": lambda at: Run(
        px.SGHMC(warmup_epochs=at.epochs(100), epochs_per_draw=max(1, at.epochs(100) // 10)),
        {"draws": at.count(200), "chains": 2, "batch_size": min(at.rows, 64)},
    ),
}


def check_methods(names: Sequence[str]) -> list[str]:
    """The names, each once; an error that lists all methods if one is unknown.

    >>> check_methods(["MAP", "hmc", "map"])
    ['map', 'hmc']
    """
    wanted = list(dict.fromkeys(name.strip().lower() for name in names if name.strip()))
    unknown = [name for name in wanted if name not in METHODS]
    if unknown or not wanted:
        named = f"unknown method {', '.join(map(repr, unknown))}" if unknown else "no methods named"
        raise DataError(f"{named}; there are {', '.join(METHODS)}")
    return wanted


def expected_seconds(name: str, run: Run, problem: px.Problem, data: Any) -> float | None:
    """A rough guess at how long a sampler takes, from the time of one gradient; None where it is no matter."""
    rows, is_table = len(data[1]), np.ndim(data[0]) == 2
    if name not in GRADIENTS or (is_table and rows * problem.network.num_parameters < SLOW):
        return None
    x, y = problem.check(data)
    batch = Batch(jnp.asarray(x), jnp.asarray(y), jnp.ones(rows))
    gradient = jit(jax.grad(lambda unknowns: problem.log_joint(unknowns, batch)))
    jax.block_until_ready(gradient(problem.unknowns))
    began = time.perf_counter()
    jax.block_until_ready(gradient(problem.unknowns))
    each = time.perf_counter() - began
    transitions = run.arguments["draws"] + run.method.warmup / (20 if name == "mclmc" else 1)
    per_device = math.ceil(run.arguments["chains"] / jax.device_count())
    return float(np.ceil(each * GRADIENTS[name] * transitions * per_device))
