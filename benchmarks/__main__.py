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

from benchmarks.page import write_tables
from posteriax.cli import environment

BENCHMARKS = {
    "step": "A step of mean-field VI relative to a deterministic one: MLP 784-400-400-10, batch 1024, Adam.",
    "families": "A step of every family relative to a deterministic one, its memory and its parameters: the same MLP.",
    "networks": "MAP, mean-field, k-tied, rank-1 and SWAG on the papers' networks: time, memory, parameters.",
    "leapfrog": "An HMC leapfrog step relative to a hand-written loop, and two chains on two cores.",
    "sampling": "HMC, NUTS and MCLMC beside BlackJAX's and NumPyro's: gradients and effective draws per second.",
    "growth": "How steps, leapfrogs and predictions grow with rows, weights, draws and chains.",
    "gradients": "A step of mean-field VI that records the signal and noise of gradients, over one that does not.",
    "estimators": "Variance of minibatch gradients under each estimator of mean-field VI, and what they cost.",
    "start": "Importing posteriax, and the README's first training step, each in a new process.",
    "tuning": "The tuning for XLA's CPU compiler: with and without each item.",
    "memory": "Peak memory of predictions with many draws, and of a long run of HMC; measured once.",
    "scaling": "One and two devices and processes, collectives, and what they imply for 8, 64 and 512 devices.",
    "sharding": "Mean-field ResNet-18 and rank-1 WRN-28-10 on two devices: memory, with parameters copied or split.",
    "compilers": "The same steps and leapfrogs with several installations of JAX, in turn.",
    "history": "Ratios to hand-written JAX by commit of this repository, in turn; writes docs/benchmark_history.md.",
    "other_libraries": "The same work beside PyTorch, bayesian-torch, torchbnn, blitz, Pyro and TyXe.",
    "torch_networks": "PyTorch modules: their outputs here and in PyTorch, and a step over PyTorch's own.",
    "nuts_beside_numpyro": "Effective draws per gradient and per second beside NumPyro's NUTS, problem by problem.",
    "uci_sampling": "R-hat and effective draws of chains on UCI regressions, in the same time, beside NumPyro's NUTS.",
    "distil": "A posterior, one network distilled from it, and one trained alone: scores, distances, time.",
    "export": "Exported models where there is no posteriax: size, time to load and to predict, differences.",
    "tables": "Predictive distributions of tables by `posteriax compare`, beside published ones; stores JSON.",
    "laplace_beside_laplace_torch": "The numbers of px.Laplace beside laplace-torch's; no times.",
}
FIVE = ("networks", "torch_networks", "growth", "start", "distil", "export")
# how often each case is timed by default; 15 for the others
ROUNDS = dict.fromkeys(FIVE, 5) | {"estimators": 1, "scaling": 3, "sharding": 3}


def main(arguments: Sequence[str] | None = None) -> None:
    chosen = make_parser().parse_args(arguments)
    if chosen.name is None:
        for name, text in BENCHMARKS.items():
            print(f"{name:<29} {text}")
        return
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # as the command line does, for programs from the cache
    environment.use_all_cores()
    environment.use_compilation_cache()
    options = {name: value for name, value in vars(chosen).items() if name not in ("name", "page")}
    if chosen.name == "export":
        formats = ("stablehlo", "onnx", "numpy")
        options["interpreters"] = {format: path for format in formats if (path := options.pop(format))}
    report: Callable[..., list[Table]] = import_module(f"benchmarks.{chosen.name}").report
    tables = report(**options)
    environment.console().print(*tables, sep="\n")
    if chosen.page is not None:
        write_tables(chosen.page, f"{chosen.name} {chosen.race}" if "race" in chosen else chosen.name, tables)


def make_parser() -> argparse.ArgumentParser:
    """The benchmarks, with the options of each."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Relative speeds, with all cases timed in turn in one run."
    )
    subparsers = parser.add_subparsers(dest="name", metavar="NAME", help="a benchmark; without one, list them")
    added = {name: subparsers.add_parser(name, help=text, description=text) for name, text in BENCHMARKS.items()}
    for name, benchmark in added.items():
        benchmark.add_argument("--page", type=Path, help="a page whose tables of this benchmark are replaced")
        if name not in ("nuts_beside_numpyro", "laplace_beside_laplace_torch", "uci_sampling", "tables"):
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
    added["history"].add_argument("commits", nargs="*", help="commits to measure; without any, only write the page")
    added["scaling"].add_argument("--out", type=Path, help="a JSON file for what was measured")
    added["other_libraries"].add_argument("race", choices=("step", "resnet20", "lenet", "leapfrog"))
    added["nuts_beside_numpyro"].add_argument("names", nargs="*", help="problems by name; by default all")
    added["distil"].add_argument(
        "--set", action="append", dest="sets", default=[], help="moons, concrete or fashion, repeatable; default: all"
    )
    for format in ("stablehlo", "onnx", "numpy"):
        option = "--jax" if format == "stablehlo" else f"--{format}"
        added["export"].add_argument(option, dest=format, help=f"an interpreter that runs {format} files")
    uci = added["uci_sampling"]
    uci.add_argument("--set", action="append", dest="sets", default=[], help="one by name, repeatable; default: all")
    uci.add_argument("--sampler", action="append", dest="samplers", default=[], help="one by name; default: all")
    uci.add_argument("--seconds", type=float, default=120.0, help="for each run, everything included; default 120")
    tables = added["tables"]
    tables.add_argument("--set", action="append", dest="sets", default=[], help="one by name, repeatable; default: all")
    tables.add_argument("--seed", action="append", dest="seeds", type=int, default=[], help="repeatable; default: all")
    tables.add_argument(
        "--split", action="append", dest="splits", type=int, default=[], help="repeatable; default: all"
    )
    tables.add_argument("--budget", help="of posteriax compare; by default 5m, 15m for bikesharing, 60s for UCI sets")
    tables.add_argument("--methods", default="", help="of posteriax compare; by default all of its own")
    tables.add_argument("--estimators", action="store_true", help="the default estimators beside scikit-learn's models")
    tables.add_argument("--out", type=Path, default=Path("docs/results/tables"), help="the folder of the JSON files")
    tables.add_argument("--stored", action="store_true", help="run nothing, show what is stored")
    return parser


def _positive(text: str) -> int:
    count = int(text)
    if count < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {count}")
    return count


if __name__ == "__main__":
    main()
