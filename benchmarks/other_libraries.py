"""posteriax beside other libraries on the same work, timed in turn in one run.

    python benchmarks/other_libraries.py step          # beside bayesian-torch, torchbnn and blitz
    python benchmarks/other_libraries.py resnet20      # MAP and mean-field beside PyTorch, also: lenet
    python benchmarks/other_libraries.py leapfrog      # beside Pyro, TyXe and loops over PyTorch's gradients

The first run installs the other libraries into ``.venv-peers`` in the current folder. A worker process there runs one
case at a time on request, so that both sides are timed in turn.

For PyTorch's samplers only the leapfrog step is timed, on one thread, where it is fastest. TyXe's HMC is Pyro's with
TyXe's potential. hamiltorch has no release: a loop over autograd's gradients with PyTorch's distributions as priors, as
in hamiltorch, stands in for it, beside a minimal loop.
"""

import argparse
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from images import LENET, RESNET20
from rich.console import Console

from posteriax.cli.bench import leapfrog, step
from posteriax.cli.bench.timing import interleave
from posteriax.cli.bench.worker import Worker
from posteriax.cli.environment import use_all_cores

ENVIRONMENT = Path(".venv-peers")
PACKAGES = ("torch==2.13.0", "bayesian-torch", "torchbnn", "blitz-bayesian-pytorch", "pyro-ppl", "tyxe==0.0.2")
WORKER = Path(__file__).with_name("other_libraries_worker.py")
RACES: dict[str, tuple[Any, tuple[str, ...]]] = {
    "step": (step, ("deterministic PyTorch", "bayesian-torch", "torchbnn", "blitz")),
    "resnet20": (RESNET20, (RESNET20.peer,)),
    "lenet": (LENET, (LENET.peer,)),
    "leapfrog": (
        leapfrog,
        ("Pyro", "Pyro, jit_compile", "TyXe", "eager PyTorch, hamiltorch's way", "eager PyTorch, lean"),
    ),
}


def race(name: str, rounds: int) -> dict[str, np.ndarray]:
    """Seconds of every case of posteriax and of the others, one for each round."""
    bench, others = RACES[name]
    with Worker([make_environment(), str(WORKER), *others]) as worker:
        return interleave(bench.cases() | {other: partial(worker.seconds, other) for other in others}, rounds)


def make_environment() -> str:
    """The Python of the second environment, which is created if necessary."""
    python = ENVIRONMENT / "bin" / "python"
    done = ENVIRONMENT / ".done"
    if not done.exists() or done.read_text() != "\n".join(PACKAGES):
        print(f"installing {', '.join(PACKAGES)} into {ENVIRONMENT}", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(ENVIRONMENT)], check=True)
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*install, PACKAGES[0]], check=True)  # first, so that no other build of it is chosen
        subprocess.run([*install, *PACKAGES], check=True)
        done.write_text("\n".join(PACKAGES))
    return str(python)


def main() -> None:
    parser = argparse.ArgumentParser(description="posteriax beside other libraries on the same work.")
    parser.add_argument("race", choices=RACES)
    parser.add_argument("--rounds", type=int, default=15, help="how often each case is timed, all in turn")
    asked = parser.parse_args()
    use_all_cores()
    bench, _ = RACES[asked.race]
    Console().print(bench.table(race(asked.race, asked.rounds)))


if __name__ == "__main__":
    main()
