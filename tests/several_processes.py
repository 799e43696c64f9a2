"""Runs that tests make in one process or in several: ``python several_processes.py RUN FOLDER``.

Process 0 saves what the run returns as FOLDER/NAME-of-processes.npz.
"""

import os
import sys
from pathlib import Path

import compilation  # noqa: F401  first
import equinox as eqx
import jax
import numpy as np
import optax

import posteriax as px
from posteriax import families as q

jax.config.update("jax_num_cpu_devices", int(os.environ.get("JAX_NUM_CPU_DEVICES", "1")))
ADAM = optax.adam(1e-2)
(X, Y), _ = px.data.two_moons(train=60, test=1)
HMC = px.HMC(step_size=0.01, start="network", warmup=2)


class Parts:
    """A loader that can be told to yield one part of every batch."""

    def __init__(self, number=0, total=1):
        self.number, self.total = number, total

    def for_process(self, number, total):
        return Parts(number, total)

    def __len__(self):
        return 3

    def __iter__(self):
        for first in range(0, 60, 20):
            size = 20 // self.total
            rows = slice(first + size * self.number, first + size * (self.number + 1))
            yield X[rows], Y[rows]


def on_disk(folder):
    path = folder / "x.npy"
    if not path.exists():
        with open(path.with_suffix(f".{os.getpid()}"), "wb") as file:
            np.save(file, X)
        os.replace(path.with_suffix(f".{os.getpid()}"), path)
    return np.load(path, mmap_mode="r"), Y


RUNS = {
    "chains": lambda folder: dict(data=(X, Y), method=HMC, draws=5, chains=2),
    "data": lambda folder: dict(data=on_disk(folder), method=HMC, draws=5),
    "VI": lambda folder: dict(data=(X, Y), method=px.VI(q.Normal(), "flipout", ADAM), steps=20, batch_size=20),
    "host": lambda folder: dict(data=on_disk(folder), method=px.VI(optimizer=ADAM), steps=20, batch_size=20),
    "loader": lambda folder: dict(data=Parts(), method=px.MAP(ADAM), steps=20),
}


def run(name, folder, **options):
    problem = px.Problem(eqx.nn.MLP(2, 2, 8, 1, key=jax.random.key(0)), px.Categorical())
    arguments = RUNS[name](folder) | options
    data, method = arguments.pop("data"), arguments.pop("method")
    return px.fit(problem, data, method, **({"key": 0} | arguments))


def save(posterior, path):
    if px.distributed.is_first():
        leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(posterior.sample(0, 4))]
        np.savez(path, *leaves)


def main(names, folder):
    for name in names.split(","):
        save(run(name, folder), folder / f"{name}-{jax.process_count()}.npz")


if __name__ == "__main__":
    px.distributed.initialize()
    main(sys.argv[1], Path(sys.argv[2]))
    print("done", jax.process_index())
