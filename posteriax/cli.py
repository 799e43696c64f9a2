"""The command line: ``posteriax demo``, ``posteriax bench``."""

import os
import sys
from pathlib import Path
from typing import Any


def main() -> None:
    """Run the command line, or say what it needs."""
    try:
        app = make_app()
    except ImportError:
        sys.exit("the command line needs typer: pip install 'posteriax[cli]'")
    app()


def make_app() -> Any:
    """The commands. Whatever is heavy is imported by the command that needs it."""
    import typer

    app = typer.Typer(help="Bayesian neural networks for JAX.", no_args_is_help=True, add_completion=False)
    bench = typer.Typer(help="Ratios of speed, measured interleaved in one run.", no_args_is_help=True)
    app.add_typer(bench, name="bench")
    rounds_option = typer.Option(15, min=1, help="How often each case is timed, all in turn.")
    peers_option = typer.Option(False, "--peers", help="Also time other libraries, from a second environment.")

    @app.callback()
    def _() -> None:
        """Bayesian neural networks for JAX."""
        use_all_cores()
        use_compilation_cache()

    @app.command()
    def demo(
        out: Path = typer.Option(Path("posteriax-demo"), help="The folder for figures."),
        seed: int = typer.Option(0, help="Of data, networks and all methods."),
    ) -> None:
        """Four posteriors of one network, on two moons and on images, and how far each is from HMC."""
        from posteriax.demo import run_demo

        run_demo(out, seed)

    @bench.command()
    def step(rounds: int = rounds_option, peers: bool = peers_option) -> None:
        """A step of mean-field VI over a deterministic one: MLP 784-400-400-10, batch 1024, Adam."""
        from posteriax.benchmarks.step import run_step, table

        console().print(table(run_step(rounds, peers)))

    @bench.command()
    def families(rounds: int = rounds_option) -> None:
        """A step of every family over a deterministic one, its memory and its parameters: the same MLP."""
        from posteriax.benchmarks.families import run_families, table

        console().print(table(*run_families(rounds)))

    @bench.command()
    def leapfrog(rounds: int = rounds_option, peers: bool = peers_option) -> None:
        """One HMC leapfrog over a hand-written loop, and two chains on two cores."""
        from posteriax.benchmarks.leapfrog import run_leapfrog, table

        console().print(table(run_leapfrog(rounds, peers)))

    return app


def use_all_cores() -> None:
    """Make every core a device of its own, so that chains and members run side by side. Before JAX's backend starts."""
    import jax

    if not os.environ.get("JAX_NUM_CPU_DEVICES"):
        jax.config.update("jax_num_cpu_devices", os.cpu_count() or 1)


def use_compilation_cache() -> None:
    """Keep compiled programs between commands, so that the second run of a command starts sooner."""
    import jax

    if not os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "posteriax" / "compiled"
        jax.config.update("jax_compilation_cache_dir", str(cache))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)


def console() -> Any:
    """Where results go: standard output, plain when piped."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else 120)
