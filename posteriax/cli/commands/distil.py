"""``posteriax distil``."""

from pathlib import Path

import typer

from posteriax.cli.environment import one_line_errors


def command(
    posterior: Path = typer.Argument(help="A file that `posteriax compare` saved."),
    data: Path = typer.Argument(help="Rows to learn from, such as those of the training; the target is not used."),
    out: Path | None = typer.Option(None, help="The file to write; by default next to the posterior."),
    held_out: Path | None = typer.Option(
        None, help="Other rows with the target: distances are measured on them, and intervals get a guarantee."
    ),
    seed: int = typer.Option(0, help="The random seed of the training."),
) -> None:
    """One network that predicts what a whole posterior predicts, for `predict` and `export`."""
    with one_line_errors():
        from posteriax.tabular.export_file import run_distil

        run_distil(posterior, data, out, held_out, seed)
