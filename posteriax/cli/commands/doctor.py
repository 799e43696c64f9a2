"""``posteriax doctor``."""

import typer

from posteriax.cli.environment import console


def command(
    unguarded: bool = typer.Option(
        False, "--unguarded", help="Check only what JAX compiles by itself, without posteriax's guard."
    ),
) -> None:
    """Does this installation compute correctly? Small compiled programs against float64 NumPy."""
    from posteriax.cli.doctor import examination
    from posteriax.cli.doctor.report import describe_installation, print_report

    found = examination.examine(unguarded)
    print_report(console(), describe_installation(), found)
    raise typer.Exit(0 if found.correct else 1)
