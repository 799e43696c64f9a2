"""The command line: ``posteriax demo``, ``compare``, ``predict``, ``distil``, ``export``, ``study`` and others."""

import argparse
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from posteriax.__about__ import __version__

if TYPE_CHECKING:
    import typer


def main() -> None:
    """Run the command line, or say what it needs."""
    # Commands cache compiled programs, and on some machines XLA logs two long lines about machine features for each one
    # that it loads. XLA reads this level when JAX is imported, which nothing above has done.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    try:
        app = make_app()
    except ModuleNotFoundError as error:
        if sys.argv[1:2] == ["doctor"]:
            sys.exit(doctor_without_typer(sys.argv[2:]))
        sys.exit(f"the command line needs {error.name}: pip install 'posteriax[cli]'")
    app()


def doctor_without_typer(arguments: Sequence[str]) -> int:
    """``posteriax doctor`` where only the core is installed; returns the exit code."""
    from posteriax.cli.doctor import run_doctor

    parser = argparse.ArgumentParser(prog="posteriax doctor", description="Does this installation compute correctly?")
    parser.add_argument("--unguarded", action="store_true", help="check only what JAX compiles by itself")
    options = parser.parse_args(arguments)
    prepare_jax()
    return run_doctor(options.unguarded)


def make_app() -> "typer.Typer":
    """All commands, one file each in ``commands/``; what is slow to import is imported by the command that needs it."""
    import typer

    from posteriax.cli.commands import compare, demo, distil, doctor, export, launch, predict, study

    app = typer.Typer(help="Bayesian neural networks for JAX.", no_args_is_help=True, add_completion=False)

    @app.callback()
    def start(
        version: bool = typer.Option(
            False, "--version", help="Print the version.", callback=print_version, is_eager=True
        ),
    ) -> None:
        """Bayesian neural networks for JAX."""
        prepare_jax()

    for module in (demo, compare, predict, distil, export, doctor, launch):
        app.command(module.__name__.rpartition(".")[2])(module.command)
    app.add_typer(study.commands(), name="study")
    return app


def print_version(requested: bool) -> None:
    """Print the version and stop, if requested."""
    if requested:
        print(f"posteriax {__version__}")
        raise SystemExit(0)


def prepare_jax() -> None:
    """Cores and the compilation cache, before a command runs."""
    from posteriax.cli import environment

    environment.use_all_cores()
    environment.use_compilation_cache()
