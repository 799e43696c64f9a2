"""posteriax beside other libraries on the same work, timed in turn in one run.

    python -m benchmarks other_libraries step          # beside bayesian-torch, torchbnn and blitz
    python -m benchmarks other_libraries resnet20      # MAP and mean-field beside PyTorch, also: lenet
    python -m benchmarks other_libraries leapfrog      # beside Pyro, TyXe and loops over PyTorch's gradients

The first run installs the other libraries into ``.venv-peers`` in the current folder. A worker process there runs one
case at a time on request, so that both sides are timed in turn.

For PyTorch's samplers only the leapfrog step is timed, on one thread, where it is fastest. TyXe's HMC is Pyro's with
TyXe's potential. hamiltorch has no release: a loop over autograd's gradients with PyTorch's distributions as priors, as
in hamiltorch, stands in for it, beside a minimal loop.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
from rich.table import Table

import posteriax as px
from benchmarks import leapfrog, step
from benchmarks.driver import Driver
from benchmarks.timing import interleave, ratio_table
from benchmarks.worker import Worker, make_environment
from posteriax import families as q

ENVIRONMENT = Path(".venv-peers")
PACKAGES = ("torch==2.13.0", "bayesian-torch", "torchbnn", "blitz-bayesian-pytorch", "pyro-ppl", "tyxe==0.0.2")
WORKER = Path(__file__).with_name("other_libraries_worker.py")
IMAGES, STEPS = 128, 3


@dataclass(frozen=True)
class ImageRace:
    """MAP and mean-field steps of one network, relative to PyTorch's deterministic step."""

    name: str
    build: Callable[..., Any]
    shape: tuple[int, int, int]

    @property
    def peer(self) -> str:
        return f"PyTorch, {self.name}"

    def cases(self) -> dict[str, Callable[[], float]]:
        rng = np.random.default_rng(0)
        data = rng.normal(size=(4 * IMAGES, *self.shape)).astype(np.float32), rng.integers(0, 10, 4 * IMAGES)
        problem = px.Problem(self.build(key=jax.random.key(0)), px.Categorical())
        adam = optax.adam(1e-3)
        methods = {
            "MAP": px.MAP(adam),
            "mean-field, one draw": px.VI(q.Normal(), estimator="weight", optimizer=adam),
            "mean-field, auto": px.VI(q.Normal(), optimizer=adam),
            "mean-field, flipout": px.VI(q.Normal(), estimator="flipout", optimizer=adam),
        }
        return {
            name: Driver(problem, method, data, batch_size=IMAGES).seconds_per_step(STEPS)
            for name, method in methods.items()
        }

    def table(self, times: dict[str, np.ndarray]) -> Table:
        return ratio_table(times, self.peer, unit="ms", title=f"One step of {self.name}, batch {IMAGES}, Adam")


RESNET20 = ImageRace("ResNet-20-FRN", px.zoo.resnet20, (32, 32, 3))
LENET = ImageRace("LeNet-5", px.zoo.lenet5, (28, 28, 1))
RACES: dict[str, tuple[Any, tuple[str, ...]]] = {
    "step": (step, ("deterministic PyTorch", "bayesian-torch", "torchbnn", "blitz")),
    "resnet20": (RESNET20, (RESNET20.peer,)),
    "lenet": (LENET, (LENET.peer,)),
    "leapfrog": (
        leapfrog,
        ("Pyro", "Pyro, jit_compile", "TyXe", "eager PyTorch, hamiltorch's way", "eager PyTorch, lean"),
    ),
}


def report(race: str, rounds: int) -> list[Table]:
    return [RACES[race][0].table(race_times(race, rounds))]


def race_times(name: str, rounds: int) -> dict[str, np.ndarray]:
    """Seconds of every case of posteriax and of the others, one for each round."""
    bench, others = RACES[name]
    with Worker([make_environment(ENVIRONMENT, PACKAGES), str(WORKER), *others]) as worker:
        return interleave(bench.cases() | {other: partial(worker.seconds, other) for other in others}, rounds)
