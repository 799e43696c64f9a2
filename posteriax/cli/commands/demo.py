"""``posteriax demo``."""

from pathlib import Path

import typer


def command(
    out: Path = typer.Option(Path("posteriax-demo"), help="The folder for figures."),
    seed: int = typer.Option(0, help="The random seed of the data, the networks and all methods."),
) -> None:
    """Fit four posteriors of one network to two moons and to images, and compare them with HMC."""
    from posteriax.cli.demo import run_demo

    run_demo(out, seed)
