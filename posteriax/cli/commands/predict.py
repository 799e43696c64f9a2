"""``posteriax predict``."""

from pathlib import Path

import typer

from posteriax.cli.environment import one_line_errors


def command(
    posterior: Path = typer.Argument(help="A file that `posteriax compare`, `distil` or `export` wrote."),
    data: Path = typer.Argument(help="New rows: a table with the same columns, or NPZ with x. The target is optional."),
    out: Path | None = typer.Option(None, help="The CSV file to write; by default standard output."),
    id: list[str] = typer.Option([], help="A column to carry over to the predictions; repeatable. IDs are by default."),
) -> None:
    """Predictions with uncertainty for new rows: class probabilities, or mean, std and quantiles."""
    with one_line_errors():
        from posteriax.tabular.predict_file import run_predict

        run_predict(posterior, data, out, id)
