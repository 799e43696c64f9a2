"""Runs that tests make in one process or in several: ``python several_processes.py WHAT FOLDER ...``.

    runs FOLDER NAME ...           some of `RUNS`, then calls that must fail in all processes
    interrupted FOLDER             VI: predictions, a run that goes on from one process, and a pre-empted run
    killed FOLDER NAME PROCESS MOMENT   a run in which a process kills itself, at one of `MOMENTS`
    resumed FOLDER NAME            the same run, to its end

Process 0 saves draws as FOLDER/NAME-PROCESSES.npz, and prints what it found.
"""

import contextlib
import os
import signal
import sys
from pathlib import Path
from unittest import mock

import compilation  # noqa: F401  first
import equinox as eqx
import jax
import numpy as np
import optax

import posteriax as px
from posteriax import families as q
from posteriax.run import checkpoint, loop

if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", int(os.environ.get("JAX_NUM_CPU_DEVICES", "2")))
SGD = optax.sgd(1e-2)
(X, Y), _ = px.data.two_moons(train=60, test=1)
# A split batch is summed in another order. Leapfrogs let the rounding grow as exp(sqrt(curvature) * time): here, in 0.3
# units of time with a curvature of at most 100 (60 examples), twentyfold.
SHORT = px.HMC(step_size=0.01, trajectory=0.05, start="network", warmup=1)


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
    "chains": lambda folder: dict(data=(X, Y), method=px.HMC(warmup=20, step_size=0.01), draws=10, chains=2),
    "data": lambda folder: dict(data=on_disk(folder), method=SHORT, draws=5),
    "VI": lambda folder: dict(data=(X, Y), method=px.VI(q.Normal(), "flipout", SGD), steps=20, batch_size=20),
    "host": lambda folder: dict(data=on_disk(folder), method=px.VI(optimizer=SGD), steps=20, batch_size=20),
    "loader": lambda folder: dict(data=Parts(), method=px.MAP(SGD), steps=20),
}


# when a process dies: the first is before any checkpoint, the others in the fourth chunk of steps
MOMENTS = ("at the start", "in a collective", "after steps", "between shard and state", "writing the state")


def run(name, folder, **options):
    problem = px.Problem(eqx.nn.MLP(2, 2, 8, 1, key=jax.random.key(0)), px.Categorical())
    arguments = RUNS[name](folder) | options
    data, method = arguments.pop("data"), arguments.pop("method")
    return px.fit(problem, data, method, **({"key": 0} | arguments))


def run_with_checkpoint(folder, name="VI"):
    """A run that saves after every step."""
    with mock.patch.object(loop, "SECONDS_PER_CHUNK", 1e-6):
        return run(name, folder, checkpoint=folder / "run", checkpoint_every=1e-9)


def save(posterior, path):
    if px.distributed.is_first():
        leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(posterior.sample(0, 4))]
        np.savez(path, *leaves)


def in_chunk(number, act):
    """Do something at the end of the chunk with that number."""
    settle, seen = loop.SyncProcesses.__call__, [0]

    def settle_later(self, run):
        seen[0] += 1
        if seen[0] == number:
            act()
        settle(self, run)

    loop.SyncProcesses.__call__ = settle_later
    return lambda: setattr(loop.SyncProcesses, "__call__", settle)


@contextlib.contextmanager
def preempted(process=0):
    """The process gets a SIGTERM in its third chunk."""
    act = (lambda: os.kill(os.getpid(), signal.SIGTERM)) if jax.process_index() == process else (lambda: None)
    restore = in_chunk(3, act)
    try:
        yield
        raise AssertionError("the run was not stopped")
    except px.run.Interrupted as stopped:
        print("interrupted:", stopped)
    finally:
        restore()


def arrange_death(moment):
    die = lambda: os.kill(os.getpid(), signal.SIGKILL)  # noqa: E731
    write, saves, take, chunks = checkpoint.write_tensors, [0], loop._take_chunk, [0]

    def takes(*arguments):
        chunks[0] += 1
        if chunks[0] == 4:
            die()
        take(*arguments)

    def writes(path, *rest):
        state = path.name == "state.tensors"
        saves[0] += not state
        if saves[0] == 4 and state and moment == "between shard and state":
            die()
        if saves[0] == 4 and state and moment == "writing the state":
            os.replace = lambda *_: die()
        return write(path, *rest)

    if moment == "at the start":
        die()
    elif moment == "in a collective":
        loop._take_chunk = takes
    elif moment == "after steps":
        in_chunk(4, die)
    else:
        checkpoint.write_tensors = writes


def refused(name, call):
    """Print the error of a call that every process must refuse."""
    try:
        call()
    except Exception as error:
        print(f"refused {name}: {type(error).__name__}: {error}")


def runs(folder, *names):
    """The posteriors by name."""
    made = {name: run(name, folder) for name in names}
    for name, posterior in made.items():
        save(posterior, folder / f"{name}-{jax.process_count()}.npz")
    return made


def refusals(folder):
    me = jax.process_index()
    refused("key", lambda: run("VI", folder, key=me))
    refused("data", lambda: run("VI", folder, data=(X + me, Y)))
    refused("labels", lambda: run("VI", folder, data=(X, Y + 2 * me)))
    refused("members", lambda: run("chains", folder, chains=3, mesh=px.distributed.mesh(members=2)))
    refused("one process", lambda: run("chains", folder, mesh=px.distributed.mesh(members=1)))
    refused("batch", lambda: run("VI", folder, batch_size=1))


def interrupted(folder):
    count = jax.process_count()
    posterior = runs(folder, "VI")["VI"]
    for split in ("members", "data"):
        predictive = posterior.predict(X[:31], draws=5, mesh=px.distributed.mesh(**{split: count}))
        if px.distributed.is_first():
            np.savez(folder / f"predicted by {split}.npz", predictive.per_draw())
    save(run_with_checkpoint(folder / "from one"), folder / f"from one-{count}.npz")
    with preempted(process=1):
        run_with_checkpoint(folder)
    save(run_with_checkpoint(folder), folder / f"preempted-{count}.npz")


def main(what, folder, *rest):
    if what == "runs":
        runs(folder, *rest)
        refusals(folder)
    elif what == "interrupted":
        interrupted(folder)
    elif what == "killed":
        name, process, moment = rest
        if jax.process_index() == int(process):
            arrange_death(moment)
        run_with_checkpoint(folder, name)
    else:
        save(run_with_checkpoint(folder, *rest), folder / f"resumed-{jax.process_count()}.npz")
    print("done", jax.process_index())


if __name__ == "__main__":
    px.distributed.initialize()
    main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
