"""``python -m benchmarks``: lists the benchmarks; ``python -m benchmarks NAME`` runs one.

A benchmark is a module of this folder with ``report(rounds)``, which returns tables. Those with other options are
declared in `make_parser`.
"""

import argparse
import os
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path

from rich.table import Table

from posteriax.cli import environment

BENCHMARKS = {
    "step": "A step of mean-field VI relative to a deterministic one: MLP 784-400-400-10, batch 1024, Adam.",
    "families": "A step of every family relative to a deterministic one, its memory and its parameters: the same MLP.",
    "networks": "MAP, mean-field, k-tied, rank-1 and SWAG on the papers' networks: time, memory, parameters.",
    "leapfrog": "An HMC leapfrog step relative to a hand-written loop, and two chains on two cores.",
    "sampling": "HMC, NUTS and MCLMC beside BlackJAX's and NumPyro's: gradients and effective draws per second.",
    "gradients": "A step of mean-field VI that records the signal and noise of gradients, over one that does not.",
    "estimators": "Variance of minibatch gradients under each estimator of mean-field VI, and what they cost.",
    "start": "Importing posteriax, and the README's first training step, each in a new process.",
    "tuning": "The tuning for XLA's CPU compiler: with and without each item.",
    "memory": "Peak memory of predictions with many draws, and of a long run of HMC; measured once.",
    "scaling": "One and two devices and processes, collectives, and what they imply for 8, 64 and 512 devices.",
    "sharding": "Mean-field ResNet-18 and rank-1 WRN-28-10 on two devices: memory, with parameters copied or split.",
    "compilers": "The same steps and leapfrogs with several installations of JAX, in turn.",
    "other_libraries": "The same work beside PyTorch, bayesian-torch, torchbnn, blitz, Pyro and TyXe.",
    "torch_networks": "PyTorch modules: their outputs here and in PyTorch, and a step over PyTorch's own.",
    "nuts_beside_numpyro": "Effective draws per gradient and per second beside NumPyro's NUTS, problem by problem.",
    "uci_sampling": "R-hat and effective draws of chains on UCI regressions, in the same time, beside NumPyro's NUTS.",
    "laplace_beside_laplace_torch": "The numbers of px.Laplace beside laplace-torch's; no times.",
}
ROUNDS = {
    "networks": 5,
    "torch_networks": 5,
    "estimators": 1,
    "start": 5,
    "scaling": 3,
    "sharding": 3,
}  # by default; 15 for the others


def main(arguments: Sequence[str] | None = None) -> None:
    chosen = make_parser().parse_args(arguments)
    if chosen.name is None:
        for name, text in BENCHMARKS.items():
            print(f"{name:<29} {text}")
        return
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # as the command line does, for programs from the cache
    environment.use_all_cores()
    environment.use_compilation_cache()
    options = {name: value for name, value in vars(chosen).items() if name != "name"}
    report: Callable[..., list[Table]] = import_module(f"benchmarks.{chosen.name}").report
    environment.console().print(*report(**options), sep="\n")


def make_parser() -> argparse.ArgumentParser:
    """The benchmarks, with the options of each."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Relative speeds, with all cases timed in turn in one run."
    )
    subparsers = parser.add_subparsers(dest="name", metavar="NAME", help="a benchmark; without one, list them")
    added = {name: subparsers.add_parser(name, help=text, description=text) for name, text in BENCHMARKS.items()}
    for name, benchmark in added.items():
        if name not in ("nuts_beside_numpyro", "laplace_beside_laplace_torch", "uci_sampling"):
            rounds = ROUNDS.get(name, 15)
            help = f"how often each case is timed, all in turn; by default {rounds}"
            benchmark.add_argument("--rounds", type=_positive, default=rounds, help=help)
    for name in ("networks", "estimators", "torch_networks"):
        added[name].add_argument(
            "--network", action="append", dest="names", default=[], help="one of them by name, repeatable; default: all"
        )
    added["compilers"].add_argument(
        "--python", action="append", dest="interpreters", required=True, help="an interpreter with JAX; repeatable"
    )
    added["compilers"].add_argument(
        "--cpu-time", action="store_true", help="measure CPU time of all threads, for a busy machine"
    )
    added["scaling"].add_argument("--out", type=Path, help="a JSON file for what was measured")
    added["scaling"].add_argument(
        "--page", type=Path, help="a Markdown page whose measured part is replaced, such as docs/scaling.md"
    )
    added["other_libraries"].add_argument("race", choices=("step", "resnet20", "lenet", "leapfrog"))
    added["nuts_beside_numpyro"].add_argument("names", nargs="*", help="problems by name; by default all")
    uci = added["uci_sampling"]
    uci.add_argument("--set", action="append", dest="sets", default=[], help="one by name, repeatable; default: all")
    uci.add_argument("--sampler", action="append", dest="samplers", default=[], help="one by name; default: all")
    uci.add_argument("--seconds", type=float, default=120.0, help="for each run, everything included; default 120")
    return parser


def _positive(text: str) -> int:
    count = int(text)
    if count < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {count}")
    return count


if __name__ == "__main__":
    main()
