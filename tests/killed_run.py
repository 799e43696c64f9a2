"""Runs with a checkpoint folder, in processes of their own that may be made to kill themselves.

    python killed_run.py METHOD FOLDER MOMENT ...

MOMENT is one of `MOMENTS`, at which a run is killed; "never", which saves its posterior as FOLDER/resumed; or "plain",
without a checkpoint, saved as FOLDER/plain. The runs follow each other. Prints how each ended, as JSON: the number of
the signal that killed it, or 0.
"""

import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path

import compilation  # noqa: F401  first
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
MOONS, _ = px.data.two_moons(train=60, test=1)
# every method; a few steps more than three saves take. `make test` resumes the first in its own process
DAILY = {
    "VI": (px.VI(q.Normal()), {"steps": 120, "batch_size": 25}),
}
LESS_OFTEN = {
    "VI, several families": (px.VI(MIXED), {"steps": 120, "batch_size": 25}),
    "until mixed": (
        px.HMC(warmup=20, max_leapfrogs=300, start="network"),
        {"draws": 500, "chains": 2, "stop": px.run.UntilMixed(MOONS[0], rhat=1.2, effective_draws=40, points=20)},
    ),
    "MAP": (px.MAP(), {"steps": 120, "batch_size": 25}),
    "HMC": (px.HMC(warmup=20, max_leapfrogs=300, start="network"), {"draws": 40, "chains": 2}),
    "NUTS": (px.NUTS(warmup=20, max_doublings=4, start="network"), {"draws": 40, "chains": 2}),
    "MCLMC": (px.MCLMC(warmup=50, thin=7, start="network"), {"draws": 20, "chains": 2}),
    # warm-ups long enough for correlations to be estimated
    "AdjustedMCLMC": (px.AdjustedMCLMC(warmup=60, max_steps=50, start="network"), {"draws": 20, "chains": 2}),
    "HMC, low-rank masses": (
        px.HMC(warmup=60, max_leapfrogs=300, start="network", masses="low-rank"),
        {"draws": 20, "chains": 2},
    ),
    "SGHMC": (
        px.SGHMC(1e-4, cyclical=True, preconditioner="rmsprop", warmup_epochs=5, epochs_per_draw=3),
        {"draws": 15, "chains": 2, "batch_size": 25},
    ),
    "SGLD": (px.SGLD(1e-4, warmup_epochs=5, epochs_per_draw=3), {"draws": 15, "chains": 2, "batch_size": 25}),
    "SWAG": (px.Ensemble(px.SWAG(rank=5), members=2), {"epochs": 40, "batch_size": 25}),
    "Laplace": (px.Ensemble(px.Laplace(), members=2), {"epochs": 40, "batch_size": 25}),
    "Laplace, low-rank": (px.Laplace(structure="low-rank", rank=5), {"epochs": 40, "batch_size": 25}),
    "Ensemble": (px.Ensemble(px.VI(q.KTied(1)), members=3), {"steps": 120, "batch_size": 25}),
    "early stopping": (
        px.MAP(optax.adam(0.1)),
        {"steps": 120, "batch_size": 25, "stop": px.evaluation.EarlyStopping(fraction=0.4, patience=4, every=3)},
    ),
    "MAP of the last layer": (px.MAP(), {"steps": 120, "batch_size": 25}),
}
METHODS = DAILY | LESS_OFTEN
FIXED = {"MAP of the last layer": "!layers/1"}
MOMENTS = ("at the start", "before a save", "writing a shard", "between shard and state", "writing the state")


def die():
    os.kill(os.getpid(), signal.SIGKILL)


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


def fit(name: str, folder: str | None) -> px.posterior.Posterior:
    loop.SECONDS_PER_CHUNK = 0.002  # many short chunks, each saved
    method, length = METHODS[name]
    problem = px.Problem(eqx.nn.MLP(2, 2, 8, 1, key=jax.random.key(0)), px.Categorical(), fixed=FIXED.get(name, ()))
    where = {} if folder is None else {"checkpoint": folder, "checkpoint_every": 1e-9}
    return px.fit(problem, MOONS, method, key=0, **length, **where)


def main(name: str, folder: Path, moment: str) -> None:
    if moment in MOMENTS:
        arrange_death(moment)
    if moment == "plain":
        fit(name, None).save(folder / "plain")
    else:
        fit(name, folder / "run").save(folder / "resumed")


def in_a_fork(run: Callable[[], None]) -> int:
    """The signal that ends a process that does this, or 0. JAX must not have started yet."""
    child = os.fork()
    if child == 0:
        try:
            run()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    if os.WIFEXITED(status) and os.WEXITSTATUS(status):
        raise RuntimeError("a run failed by itself")
    return os.WTERMSIG(status)


if __name__ == "__main__":
    ends = [in_a_fork(partial(main, sys.argv[1], Path(sys.argv[2]), moment)) for moment in sys.argv[3:]]
    print(json.dumps(ends))
