"""``posteriax doctor``."""

import typer


def command(
    unguarded: bool = typer.Option(
        False, "--unguarded", help="Check only what JAX compiles by itself, without posteriax's guard."
    ),
) -> None:
    """Does this installation compute correctly? Small compiled programs against float64 NumPy."""
    from posteriax.cli.doctor.examination import run_doctor

    raise typer.Exit(run_doctor(unguarded))
