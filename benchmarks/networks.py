"""What a posterior costs on the papers' networks: compilation, a step, memory and parameters.

A step is compared with one in plain JAX: the loss of the network, its gradient and Adam, compiled by itself.

Each network is measured in a process of its own, on random data, with all of its methods compiled first and then timed
in turn. A mixture of K components gets 1/K of the examples, so that all methods compute the same number of rows.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import optax
from rich.table import Table

import posteriax as px
from benchmarks.driver import Driver
from benchmarks.timing import interleave, make_table, ratios_of, timed
from posteriax import families as q

COMPONENTS = 4
PLAIN = "plain JAX, deterministic"


class NetworkCase(NamedTuple):
    """A network, the shape of an example, how many of them a step takes; `words`, if they are indices of words."""

    build: Callable[..., Any]
    shape: tuple[int, ...]
    batch: int
    words: int = 0


NETWORKS = {
    "lenet5": NetworkCase(px.zoo.lenet5, (28, 28, 1), 128),
    "resnet20": NetworkCase(px.zoo.resnet20, (32, 32, 3), 128),
    "resnet18": NetworkCase(px.zoo.resnet18, (32, 32, 3), 32),
    "wide_resnet": NetworkCase(px.zoo.wide_resnet, (32, 32, 3), 8),
    "lstm": NetworkCase(px.zoo.lstm, (100,), 64, words=20_000),
    "vit_tiny": NetworkCase(px.zoo.vit_tiny, (32, 32, 3), 64),
}
METHODS: dict[str, Callable[[], Any]] = {
    "MAP": px.MAP,
    "mean-field, one draw": lambda: px.VI(q.Normal(), estimator="weight"),
    "mean-field, auto": lambda: px.VI(q.Normal()),
    "k-tied(2), one draw": lambda: px.VI(q.KTied(2), estimator="weight"),
    f"rank-1({COMPONENTS})": lambda: px.VI(q.Rank1(COMPONENTS)),
    "SWAG": px.SWAG,
}


def report(names: Sequence[str], rounds: int) -> list[Table]:
    """One table for each network."""
    for name in names:
        if name not in NETWORKS:
            raise SystemExit(f"no network {name!r}; there are {', '.join(NETWORKS)}")
    return [_table(name, _in_a_process(name, rounds)) for name in names or NETWORKS]


def _in_a_process(name: str, rounds: int) -> dict[str, dict[str, Any]]:
    command = [sys.executable, "-m", __name__, name, str(rounds)]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def _table(name: str, measured: dict[str, dict[str, Any]]) -> Table:
    title = f"{name}: {NETWORKS[name].batch} examples of {NETWORKS[name].shape} a step"
    table = make_table(
        title, ("to the first step, s", "step, ms", "over plain", "10 % to 90 %", "memory, MB", "parameters")
    )
    baseline = np.array(measured[PLAIN]["seconds"])
    for method, case in measured.items():
        seconds = np.array(case["seconds"])
        table.add_row(
            method,
            f"{case['first']:.1f}",
            f"{1e3 * np.median(seconds):.3g}",
            *ratios_of(seconds, baseline),
            f"{case['bytes'] / 1e6:,.0f}",
            f"{case['parameters']:,}",
        )
    return table


def _measure(name: str, rounds: int) -> dict[str, dict[str, Any]]:
    case, rng = NETWORKS[name], np.random.default_rng(0)
    net = case.build(key=jax.random.key(0))
    rows = 2 * case.batch
    shape = (rows, *case.shape)
    x = rng.integers(0, case.words, shape) if case.words else rng.normal(size=shape).astype(np.float32)
    outputs = jax.eval_shape(px.network(net).apply, px.network(net).params, x)
    y = rng.integers(0, max(outputs.shape[-1], 2), rows)
    problem = px.Problem(net, px.Categorical() if outputs.shape[-1] > 1 else px.Bernoulli())
    measured, cases = {}, {}
    cases[PLAIN], measured[PLAIN] = _plain_step(problem, jax.numpy.asarray(x[: case.batch]), y[: case.batch])
    for method, make in METHODS.items():
        batch = case.batch // COMPONENTS if method.startswith("rank-1") else case.batch

        def begin(make: Any = make, batch: int = batch) -> Driver:
            driver = Driver(problem, make(), (x, y), batch_size=batch)
            driver.advance(1)
            return driver

        driver, first = timed(begin)
        measured[method] = {"first": first, "bytes": driver.bytes, "parameters": driver.parameters}
        cases[method] = driver.seconds_per_step(1)
    for method, seconds in interleave(cases, rounds).items():
        measured[method]["seconds"] = seconds.tolist()
    return measured


def _plain_step(problem: px.Problem, x: Any, y: Any) -> tuple[Callable[[], float], dict[str, Any]]:
    """A deterministic step without posteriax's loop: its seconds when called, and what it needs."""
    optimizer = optax.adam(1e-3)

    def loss(params: Any) -> jax.Array:
        return -problem.likelihood.log_prob({}, problem.network.apply(params, x), y).sum()

    @jax.jit
    def step(params: Any, state: Any) -> tuple[Any, Any]:
        updates, state = optimizer.update(jax.grad(loss)(params), state)
        return optax.apply_updates(params, updates), state

    params = problem.network.params
    start = params, optimizer.init(params)
    _, first = timed(lambda: step(*start))
    memory = step.lower(*start).compile().memory_analysis()
    needed = 0 if memory is None else memory.temp_size_in_bytes + memory.argument_size_in_bytes
    size = sum(leaf.size for leaf in jax.tree.leaves(params))
    return lambda: timed(lambda: step(*start))[1], {"first": first, "bytes": needed, "parameters": size}


if __name__ == "__main__":
    print(json.dumps(_measure(sys.argv[1], int(sys.argv[2]))))
