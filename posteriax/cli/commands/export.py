"""``posteriax export``."""

from pathlib import Path

import typer

from posteriax.cli.environment import one_line_errors


def command(
    posterior: Path = typer.Argument(help="A file that `posteriax compare` or `distil` saved."),
    to: str = typer.Option("stablehlo", help="stablehlo (for JAX), onnx, or numpy (a folder; tables only)."),
    out: Path | None = typer.Option(None, help="The file or folder to write; by default next to the posterior."),
    draws: int | None = typer.Option(None, help="How many draws are inside; by default all, or 100."),
) -> None:
    """Everything a posterior predicts, as a file that needs no posteriax."""
    with one_line_errors():
        from posteriax.tabular.export_file import run_export

        run_export(posterior, to, out, draws)
