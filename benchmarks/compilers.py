"""How fast the programs of several installations of JAX are: the same cases, timed in turn.

Each installation is a Python interpreter that can import JAX and posteriax. One process of each compiles all cases, and
then runs one at a time when asked: in a round, every installation runs every case once, so that other load on the
machine slows all of them alike. Ratios are taken within a round.
"""

import contextlib
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from rich.table import Table

from benchmarks.timing import ratio_table
from benchmarks.worker import Worker, interleave_workers

CASES = (
    "step of the MLP, deterministic",
    "step of the MLP, mean-field VI",
    "step of LeNet, MAP",
    "step of LeNet, mean-field VI (local)",
    "leapfrog, hand-written",
    "leapfrog, HMC",
    "leapfrog of a last layer, HMC",
)


def report(interpreters: list[str], rounds: int, cpu_time: bool = False) -> list[Table]:
    return tables(run_compilers(interpreters, rounds, cpu_time))


def run_compilers(interpreters: list[str], rounds: int, cpu_time: bool = False) -> dict[str, dict[str, np.ndarray]]:
    """Seconds by case and interpreter, one for each round.

    Args:
        interpreters: paths of Python interpreters.
        rounds: how often each case is timed.
        cpu_time: measure the CPU time of all threads instead of wall time: useful on a busy machine.
    """
    command = ["-m", "benchmarks.compilers", *(["--cpu-time"] if cpu_time else [])]
    with contextlib.ExitStack() as stack:
        workers = {python: stack.enter_context(Worker([python, *command])) for python in interpreters}
        return interleave_workers(workers, CASES, rounds)


def tables(times: dict[str, dict[str, np.ndarray]]) -> list[Table]:
    """One table for each case, with ratios to the first interpreter."""
    return [
        ratio_table(
            seconds, next(iter(seconds)), unit="µs" if case.startswith("leapfrog") else "ms", title=case, digits=3
        )
        for case, seconds in times.items()
    ]


def make_case(name: str) -> Callable[[], float]:
    """Compile a case here; what is returned runs it once and returns the seconds of one step or leapfrog."""
    import jax

    import posteriax as px
    from benchmarks import leapfrog, step
    from benchmarks.driver import Driver
    from posteriax import families as q
    from posteriax import priors as p

    x, y = step.random_data()
    images = jax.random.normal(jax.random.key(3), (512, 28, 28, 1))
    (two_x, two_y), _ = px.data.two_moons(train=500, test=1)

    def lenet_step(method: Any) -> Callable[[], float]:
        init = jax.nn.initializers.he_normal()
        network = px.zoo.LeNet((28, 28, 1), (6, 16), 120, 10, padding="VALID", init=init, key=jax.random.key(0))
        problem = px.Problem(network, px.Categorical(), p.Normal(scale=0.3))
        return Driver(problem, method, (images, y[: len(images)]), batch_size=64).seconds_per_step(2)

    def last_layer_leapfrog(leapfrogs: int = 10) -> Callable[[], float]:
        features = jax.nn.relu(jax.random.normal(jax.random.key(4), (10_000, 500)))
        problem = px.Problem(px.zoo.Dense(500, 10, key=jax.random.key(0)), px.Categorical(), p.Normal(scale=0.1))
        hmc = px.HMC(step_size=1e-3, trajectory=1e-3 * leapfrogs, masses="prior", start="network")
        labels = jax.random.randint(jax.random.key(5), (len(features),), 0, 10)
        transition = Driver(problem, hmc, (features, labels), warmup=0, thin=1).seconds_per_step(1)
        return lambda: transition() / leapfrogs

    makers: dict[str, Callable[[], Callable[[], float]]] = {
        CASES[0]: lambda: step.hand_written(x, y, mean_field=False),
        CASES[1]: lambda: step.driver(x, y, px.VI(q.Normal(), estimator="weight")).seconds_per_step(5),
        CASES[2]: lambda: lenet_step(px.MAP()),
        CASES[3]: lambda: lenet_step(px.VI(q.Normal(), estimator="local")),
        CASES[4]: lambda: leapfrog.hand_written(two_x, two_y),
        CASES[5]: lambda: leapfrog.through_driver(two_x, two_y, 1),
        CASES[6]: last_layer_leapfrog,
    }
    return makers[name]()


def main(cpu_time: bool) -> None:
    """Answer names of cases on standard input with seconds on standard output."""
    made: dict[str, Callable[[], float]] = {}
    for line in sys.stdin:
        name = line.strip()
        if name not in made:
            made[name] = make_case(name)
        threads, began = time.process_time(), time.perf_counter()
        seconds = made[name]()
        busy = (time.process_time() - threads) / (time.perf_counter() - began)  # threads, on average
        print(seconds * busy if cpu_time else seconds, flush=True)


if __name__ == "__main__":
    main("--cpu-time" in sys.argv)
