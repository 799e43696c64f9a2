"""The command line: ``posteriax demo``."""

import os
import sys
from typing import Any


def main() -> None:
    """Run the command line, or say what it needs."""
    try:
        import typer
    except ImportError:
        sys.exit("the command line needs typer: pip install 'posteriax[cli]'")
    app = typer.Typer(help="Bayesian neural networks for JAX.", no_args_is_help=True, add_completion=False)

    @app.callback()
    def _() -> None:
        """Bayesian neural networks for JAX."""

    @app.command()
    def demo(seed: int = typer.Option(0, help="Of data, network and all methods.")) -> None:
        """Four posteriors of one network on two moons, and how far each is from HMC."""
        use_all_cores()
        from posteriax.demo import run_demo

        run_demo(seed)

    app()


def use_all_cores() -> None:
    """Make every core a device of its own, so that chains and members run side by side. Before JAX's backend starts."""
    import jax

    if not os.environ.get("JAX_NUM_CPU_DEVICES"):
        jax.config.update("jax_num_cpu_devices", os.cpu_count() or 1)


def console() -> Any:
    """Where results go: standard output, plain when piped."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else 120)
