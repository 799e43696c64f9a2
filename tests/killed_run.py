"""One run with a checkpoint folder, in a process of its own that may be made to kill itself.

    python killed_run.py METHOD FOLDER MOMENT OUT

MOMENT is "never" or one of `MOMENTS`; OUT is where a finished run saves its posterior. "plain" as FOLDER runs without a
checkpoint.
"""

import os
import signal
import sys
from pathlib import Path

import equinox as eqx
import jax
import optax

import posteriax as px
from posteriax import families as q
from posteriax._internal import atomic_file as whole_file
from posteriax.run import checkpoint, fitting, loop

MIXED = {
    "layers/0/weight": q.Rank1(2),
    "layers/0/bias": q.Rank1(2),
    "layers/1/weight": q.MatrixNormal(),
    "layers/1/bias": q.LowRank(1),
}
# every method; a few steps more than three saves take
METHODS = {
    "VI": (px.VI(MIXED), {"steps": 120, "batch_size": 25}),
    "MAP": (px.MAP(), {"steps": 120, "batch_size": 25}),
    "HMC": (px.HMC(warmup=20, max_leapfrogs=300, start="network"), {"draws": 40, "chains": 2}),
    "NUTS": (px.NUTS(warmup=20, max_doublings=4, start="network"), {"draws": 40, "chains": 2}),
    "MCLMC": (px.MCLMC(warmup=50, thin=7, start="network"), {"draws": 20, "chains": 2}),
    "SGHMC": (
        px.SGHMC(1e-4, cyclical=True, preconditioner="rmsprop", warmup_epochs=5, epochs_per_draw=3),
        {"draws": 15, "chains": 2, "batch_size": 25},
    ),
    "SGLD": (px.SGLD(1e-4, warmup_epochs=5, epochs_per_draw=3), {"draws": 15, "chains": 2, "batch_size": 25}),
    "SWAG": (px.Ensemble(px.SWAG(rank=5), members=2), {"epochs": 40, "batch_size": 25}),
    "Laplace": (px.Ensemble(px.Laplace(), members=2), {"epochs": 40, "batch_size": 25}),
    "Ensemble": (px.Ensemble(px.VI(q.KTied(1)), members=3), {"steps": 120, "batch_size": 25}),
    "early stopping": (
        px.MAP(optax.adam(0.1)),
        {"steps": 120, "batch_size": 25, "stop": px.EarlyStopping(fraction=0.4, patience=4, every=3)},
    ),
    "MAP of the last layer": (px.MAP(), {"steps": 120, "batch_size": 25}),
}
FIXED = {"MAP of the last layer": "!layers/1"}
MOMENTS = ("at the start", "before a save", "writing a shard", "between shard and state", "writing the state")


def die():
    os.kill(os.getpid(), signal.SIGKILL)


class Killed(BaseException):
    """What stands for a kill within a process that must live on."""


def arrange_death(moment: str) -> None:
    """Die at the third save of this process, at the given moment of it."""
    saves = 0
    save, write = checkpoint.Checkpoint.save, checkpoint.write_tensors

    def counted_save(self, *args):
        nonlocal saves
        saves += 1
        if saves == 3 and moment == "before a save":
            die()
        return save(self, *args)

    def counted_write(path, about, arrays):
        is_state = path.name == "state.tensors"
        if saves == 3 and moment == "between shard and state" and is_state:
            die()
        if saves == 3 and moment == ("writing the state" if is_state else "writing a shard"):
            whole_file.os.replace = lambda *_: die()  # written aside, not yet in place
        return write(path, about, arrays)

    checkpoint.Checkpoint.save = counted_save
    checkpoint.write_tensors = counted_write
    if moment == "at the start":
        fitting._run = lambda *_: die()


def fit(name: str, folder: str | None) -> px.Posterior:
    loop.SECONDS_PER_CHUNK = 0.002  # many short chunks, each saved
    method, length = METHODS[name]
    problem = px.Problem(eqx.nn.MLP(2, 2, 8, 1, key=jax.random.key(0)), px.Categorical(), fixed=FIXED.get(name, ()))
    data, _ = px.data.two_moons(train=60, test=1)
    where = {} if folder is None else {"checkpoint": folder, "checkpoint_every": 1e-9}
    return px.fit(problem, data, method, key=0, **length, **where)


def main(name: str, folder: str, moment: str, out: str) -> None:
    if moment != "never":
        arrange_death(moment)
    fit(name, None if folder == "plain" else folder).save(out)


if __name__ == "__main__":
    jax.config.update("jax_compilation_cache_dir", str(Path(__file__).parents[1] / ".pytest_cache" / "jax"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_num_cpu_devices", 2)
    main(*sys.argv[1:])
