"""Large networks on two devices: memory of each, with parameters copied to both and with parameters in parts."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from rich.table import Table

import posteriax as px
from benchmarks.driver import Driver
from benchmarks.timing import make_table
from posteriax import families as q

SHAPE = (32, 32, 3)


class ShardingCase(NamedTuple):
    """A network, a method, and how many examples a step takes."""

    network: Callable[..., Any]
    method: Callable[[], Any]
    batch: int


CASES = {
    "mean-field ResNet-18": ShardingCase(px.zoo.resnet18, lambda: px.VI(q.Normal(), "weight"), 32),
    "rank-1(4) WRN-28-10": ShardingCase(px.zoo.wide_resnet, lambda: px.VI(q.Rank1(4)), 8),
}


class Cost(NamedTuple):
    """Of one device: bytes of parameters and optimiser state, bytes of a step's working memory; seconds of a step."""

    state: int
    working: int
    seconds: float


def report(rounds: int) -> list[Table]:
    columns = ("copied: state, MB", "working", "s", "split: state, MB", "working", "s")
    table = make_table("A step on two devices; memory of each", columns)
    for name, case in CASES.items():
        row = [f"{name}, batch {case.batch}"]
        for shard in (False, True):
            cost = measure_cost(case, shard, rounds)
            row += [f"{cost.state / 1e6:,.0f}", f"{cost.working / 1e6:,.0f}", f"{cost.seconds:.3g}"]
        table.add_row(*row)
    return [table]


def measure_cost(case: ShardingCase, shard: bool, rounds: int) -> Cost:
    """Build the step, take it, and look at what each device holds."""
    random = np.random.default_rng(0)
    data = random.normal(size=(case.batch, *SHAPE)).astype(np.float32), random.integers(0, 10, case.batch)
    problem = px.Problem(case.network(key=jax.random.key(0)), px.Categorical())
    names = tuple(problem.leaf_names) if shard else ()
    driver = Driver(problem, case.method(), data, batch_size=case.batch, mesh=px.distributed.mesh(data=2), shard=names)
    held = sum(leaf.addressable_shards[0].data.nbytes for leaf in jax.tree.leaves(driver.states))
    step = driver.program.chunk.lower(driver.keys, driver.states, driver.data, np.int32(0), np.int32(1))
    memory = step.compile().memory_analysis()
    driver.advance(1)
    seconds = float(np.median([driver.advance(1)[2] for _ in range(rounds)]))
    return Cost(held, 0 if memory is None else memory.temp_size_in_bytes, seconds)
