"""The command line: ``posteriax demo``, ``compare``, ``predict``, ``doctor``, ``launch``, ``bench``, ``study``."""

import os
import sys
from typing import Any

from posteriax.__about__ import __version__


def main() -> None:
    """Run the command line, or say what it needs."""
    # Commands cache compiled programs, and on some machines XLA logs two long lines about machine features for each one
    # that it loads. XLA reads this level when JAX is imported, which nothing above has done.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    try:
        app = make_app()
    except ModuleNotFoundError as error:
        sys.exit(f"the command line needs {error.name}: pip install 'posteriax[cli]'")
    app()


def make_app() -> Any:
    """All commands, one file each in ``commands/``; what is slow to import is imported by the command that needs it."""
    import typer

    from posteriax.cli.commands import compare, demo, doctor, launch, predict, study

    app = typer.Typer(help="Bayesian neural networks for JAX.", no_args_is_help=True, add_completion=False)

    @app.callback()
    def start(
        version: bool = typer.Option(
            False, "--version", help="Print the version.", callback=print_version, is_eager=True
        ),
    ) -> None:
        """Bayesian neural networks for JAX."""
        prepare_jax()

    for module in (demo, compare, predict, doctor, launch):
        app.command(module.__name__.rpartition(".")[2])(module.command)
    app.add_typer(study.commands(), name="study")
    return app


def print_version(asked: bool) -> None:
    """Print the version and stop, if asked."""
    if asked:
        print(f"posteriax {__version__}")
        raise SystemExit(0)


def prepare_jax() -> None:
    """Cores and the compilation cache, before a command runs."""
    from posteriax.cli import environment

    environment.use_all_cores()
    environment.use_compilation_cache()
