"""``posteriax bench``: the cost of posteriax on this machine. Comparisons with other libraries are in benchmarks/."""

import typer

from posteriax.cli.environment import console

ROUNDS = typer.Option(15, min=1, help="How often each case is timed, all in turn.")


def commands() -> typer.Typer:
    """The benchmarks, one command each."""
    bench = typer.Typer(help="Relative speeds, with all cases timed in turn in one run.", no_args_is_help=True)
    for run in (step, families, leapfrog, sampling, gradients, start, tuning, compilers, memory):
        bench.command()(run)
    return bench


def step(rounds: int = ROUNDS) -> None:
    """A step of mean-field VI relative to a deterministic one: MLP 784-400-400-10, batch 1024, Adam."""
    from posteriax.cli.bench.step import run_step, table

    console().print(table(run_step(rounds)))


def families(rounds: int = ROUNDS) -> None:
    """A step of every family relative to a deterministic one, its memory and its parameters: the same MLP."""
    from posteriax.cli.bench.families import run_families, table

    console().print(table(*run_families(rounds)))


def leapfrog(rounds: int = ROUNDS) -> None:
    """An HMC leapfrog step relative to a hand-written loop, and two chains on two cores."""
    from posteriax.cli.bench.leapfrog import run_leapfrog, table

    console().print(table(run_leapfrog(rounds)))


def sampling(rounds: int = ROUNDS) -> None:
    """HMC, NUTS and MCLMC beside BlackJAX's and NumPyro's: gradients and effective draws per second."""
    from posteriax.cli.bench.sampling import run_sampling, table

    console().print(table(run_sampling(rounds)))


def gradients(rounds: int = ROUNDS) -> None:
    """A step of mean-field VI that records the signal and noise of gradients, relative to one that does not."""
    from posteriax.cli.bench.gradients import run_gradients, table

    console().print(table(run_gradients(rounds)))


def start(rounds: int = typer.Option(5, min=1, help="Measurements of each.")) -> None:
    """Importing posteriax, and the README's first training step, each in a new process."""
    from posteriax.cli.bench.start import run_start, table

    console().print(table(run_start(rounds)))


def tuning(rounds: int = ROUNDS) -> None:
    """The tuning for XLA's CPU compiler: with and without each item."""
    from posteriax.cli.bench.tuning import run_tuning, tables

    console().print(*tables(run_tuning(rounds)), sep="\n")


def compilers(
    python: list[str] = typer.Option(help="A Python interpreter with JAX and posteriax; repeatable."),
    rounds: int = ROUNDS,
    cpu_time: bool = typer.Option(False, "--cpu-time", help="Measure CPU time of all threads, for a busy machine."),
) -> None:
    """The same steps and leapfrogs with several installations of JAX, in turn."""
    from posteriax.cli.bench.compilers import run_compilers, tables

    console().print(*tables(run_compilers(python, rounds, cpu_time)), sep="\n")


def memory() -> None:
    """Peak memory of predictions with many draws, and of a long run of HMC."""
    from posteriax.cli.bench.memory import run_memory, table

    console().print(table(run_memory()))
