"""One process of ``python -m benchmarks scaling``: ``python -m benchmarks.scaling_worker CASE DEVICES CORES FILE``.

DEVICES is the number of devices of all processes together, CORES how many cores each process may use. Process 0 writes
what it measured to FILE.
"""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
from jax.sharding import PartitionSpec as P

import posteriax as px
from benchmarks.driver import Driver
from benchmarks.mlp import mlp, mlp_weights
from benchmarks.timing import timed
from posteriax import families as q

STEP_SIZE, LEAPFROGS = 1e-5, 20
FEW_LEAPFROGS = 4  # of convolutional networks, a hundred times as slow
REPEATS = 7
SIZES = [4, 4_096, 65_536, 1_048_576, 16_777_216]  # bytes of collectives


def hmc(leapfrogs: int) -> px.HMC:
    """With as many leapfrogs in every trajectory."""
    return px.HMC(step_size=STEP_SIZE, trajectory=STEP_SIZE * (leapfrogs - 0.5), jitter=0.0, start="network", warmup=1)


def images(count: int, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    return random.normal(size=(count, *shape)).astype(np.float32), random.integers(0, 10, count)


def chains(devices: int, per_device: int) -> Callable[[], float]:
    """Leapfrogs of all chains, MLP of 1,017 weights, 500 points."""
    data, _ = px.data.two_moons(train=500, test=1)
    problem = px.Problem((mlp, mlp_weights((2, 29, 29, 2))), px.Categorical())
    count = devices * per_device
    driver = Driver(problem, hmc(LEAPFROGS), data, members=count, mesh=px.distributed.mesh(members=devices))
    return lambda: driver.advance(10)[2] / (10 * LEAPFROGS * count)


def gradients(network: Any, shape: tuple[int, ...], examples: int, devices: int) -> Callable[[], float]:
    """Leapfrogs with the gradient of the full batch, whose examples are split."""
    problem = px.Problem(network(key=jax.random.key(0)), px.Categorical())
    driver = Driver(problem, hmc(FEW_LEAPFROGS), images(examples, shape), mesh=px.distributed.mesh(data=devices))
    return lambda: driver.advance(1)[2] / FEW_LEAPFROGS


def vi(devices: int, batch: int) -> Callable[[], float]:
    """Steps of mean-field VI, MLP 784-400-400-10, whose batches are split."""
    problem = px.Problem((mlp, mlp_weights((784, 400, 400, 10))), px.Categorical())
    method = px.VI(q.Normal(), optimizer=optax.adam(1e-3))
    driver = Driver(
        problem, method, images(4 * batch, (784,)), batch_size=batch, mesh=px.distributed.mesh(data=devices)
    )
    return driver.seconds_per_step(10)


def collectives(devices: int) -> dict[str, float]:
    """Seconds of one sum over the devices, by its bytes: the median of many, each waiting for the last."""
    return {str(size): _seconds_of_sum(devices, size, repeats=200 if size < 2**20 else 10) for size in SIZES}


def _seconds_of_sum(devices: int, size: int, repeats: int) -> float:
    mesh = px.distributed.mesh(data=devices)

    def average(_: Any, value: jax.Array) -> jax.Array:
        return jax.lax.psum(value, "data") / devices

    spread = jax.jit(
        jax.shard_map(
            lambda x: jax.lax.fori_loop(0, repeats, average, x), mesh=mesh, in_specs=P(), out_specs=P(), check_vma=False
        )
    )
    x = px.distributed.place(np.zeros(size // 4, np.float32), mesh, P())
    spread(x).block_until_ready()
    return float(np.median([timed(lambda: spread(x))[1] / repeats for _ in range(REPEATS)]))


def cases(devices: int) -> dict[str, Callable[[], Callable[[], float]]]:
    """By name: strong scaling has the same work on any number of devices, weak scaling the same on each."""
    cnn, resnet = px.zoo.lenet5, px.zoo.resnet20
    return {
        "chains, strong": lambda: chains(devices, 2 // devices),
        "chains, weak": lambda: chains(devices, 1),
        "cnn, strong": lambda: gradients(cnn, (28, 28, 1), 1024, devices),
        "cnn, weak": lambda: gradients(cnn, (28, 28, 1), 512 * devices, devices),
        "vi, strong": lambda: vi(devices, 1024),
        "vi, weak": lambda: vi(devices, 512 * devices),
        "resnet20, strong": lambda: gradients(resnet, (32, 32, 3), 64, devices),
        "resnet20, half": lambda: gradients(resnet, (32, 32, 3), 32, devices),
    }


def main(case: str, devices: int, cores: int, file: str) -> None:
    number = int(os.environ.get("POSTERIAX_PROCESS", "0"))
    if hasattr(os, "sched_setaffinity"):
        allowed = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {allowed[i % len(allowed)] for i in range(number * cores, (number + 1) * cores)})
    jax.config.update("jax_num_cpu_devices", devices // int(os.environ.get("POSTERIAX_PROCESSES", "1")))
    here, _ = px.distributed.initialize()
    if case == "collectives":
        result: Any = collectives(devices)
    else:
        seconds = cases(devices)[case]()
        seconds()
        result = [seconds() for _ in range(REPEATS)]
    if here == 0:
        Path(file).write_text(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
