"""``python -m benchmarks``: the cost of posteriax on this machine."""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import typer

from posteriax.cli.environment import console

# one module of benchmarks each
BENCHMARKS = {
    "step": "A step of mean-field VI relative to a deterministic one: MLP 784-400-400-10, batch 1024, Adam.",
    "families": "A step of every family relative to a deterministic one, its memory and its parameters: the same MLP.",
    "leapfrog": "An HMC leapfrog step relative to a hand-written loop, and two chains on two cores.",
    "sampling": "HMC, NUTS and MCLMC beside BlackJAX's and NumPyro's: gradients and effective draws per second.",
    "gradients": "A step of mean-field VI that records the signal and noise of gradients, over one that does not.",
    "start": "Importing posteriax, and the README's first training step, each in a new process.",
    "tuning": "The tuning for XLA's CPU compiler: with and without each item.",
    "sharding": "Mean-field ResNet-18 and rank-1 WRN-28-10 on two devices: memory, with parameters copied or split.",
    "memory": "Peak memory of predictions with many draws, and of a long run of HMC; measured once.",
}
FEWER_ROUNDS = {"start": 5, "sharding": 3}


def commands() -> typer.Typer:
    """The benchmarks, one command each."""
    bench = typer.Typer(help="Relative speeds, with all cases timed in turn in one run.", no_args_is_help=True)
    for name, text in BENCHMARKS.items():
        bench.command(name, help=text)(_command(name))
    bench.command()(networks)
    bench.command()(compilers)
    bench.command()(scaling)
    return bench


def _rounds(default: int) -> int:
    return typer.Option(default, min=1, help="How often each case is timed, all in turn.")


def _command(name: str) -> Callable[..., None]:
    def run(rounds: int = _rounds(FEWER_ROUNDS.get(name, 15))) -> None:
        console().print(*import_module(f"benchmarks.{name}").report(rounds), sep="\n")

    return run


def networks(
    network: list[str] = typer.Option([], help="One of them by name, repeatable; by default all."),
    rounds: int = _rounds(5),
) -> None:
    """MAP, mean-field, k-tied, rank-1 and SWAG on the papers' networks: compilation, step, memory, parameters."""
    from benchmarks.networks import NETWORKS, report

    for name in network:
        if name not in NETWORKS:
            raise typer.BadParameter(f"no network {name!r}; there are {', '.join(NETWORKS)}", param_hint="--network")
    for table in report(network, rounds):
        console().print(table)


def compilers(
    python: list[str] = typer.Option(help="A Python interpreter with JAX and posteriax; repeatable."),
    rounds: int = _rounds(15),
    cpu_time: bool = typer.Option(False, "--cpu-time", help="Measure CPU time of all threads, for a busy machine."),
) -> None:
    """The same steps and leapfrogs with several installations of JAX, in turn."""
    from benchmarks.compilers import run_compilers, tables

    console().print(*tables(run_compilers(python, rounds, cpu_time)), sep="\n")


def scaling(
    rounds: int = _rounds(3),
    out: Path | None = typer.Option(None, help="A JSON file for what was measured."),
    page: Path | None = typer.Option(None, help="A Markdown page whose measured part is replaced, as docs/scaling.md."),
) -> None:
    """One and two devices and processes: throughput, collectives, and what they imply for 8, 64 and 512 devices."""
    from benchmarks.scaling import measure, tables, write

    measured = measure(rounds)
    write(measured, out, page)
    console().print(*tables(measured), sep="\n")
