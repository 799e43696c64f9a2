"""``posteriax demo``."""

from pathlib import Path

import typer


def command(
    out: Path = typer.Option(Path("posteriax-demo"), help="The folder for figures."),
    seed: int = typer.Option(0, help="Of the data, the networks and all methods."),
) -> None:
    """Four posteriors of one network, on two moons and on images, and how far each is from HMC."""
    from posteriax.cli.demo import run_demo

    run_demo(out, seed)
