"""``posteriax compare``."""

from pathlib import Path
from time import monotonic

import typer

from posteriax.cli.environment import console, one_line_errors
from posteriax.tabular.recipes import DEFAULT_METHODS, OTHER_METHODS


def command(
    data: Path = typer.Argument(
        help="A table (CSV, TSV, Parquet, Excel; gzipped or not), or an NPZ file with arrays x and y: (N, columns) or "
        "images (N, h, w[, c])."
    ),
    target: str | None = typer.Option(
        None, help="The column to predict, or several of numbers: height,age. Not for arrays, whose target is y."
    ),
    methods: str = typer.Option(
        ",".join(DEFAULT_METHODS), help=f"Methods, separated by commas. Also available: {', '.join(OTHER_METHODS)}."
    ),
    out: Path = typer.Option(Path("report.html"), help="The report to write."),
    posteriors: Path | None = typer.Option(None, help="The folder for posteriors; by default next to the report."),
    task: str | None = typer.Option(
        None,
        help="classification, ordinal, regression, counts, overdispersed-counts, zero-inflated-counts, fractions or "
        "times; by default classification, regression or counts, inferred.",
    ),
    event: str | None = typer.Option(
        None, help="The target is a time until an event, and this column says whether it was observed: 1 or 0."
    ),
    drop: list[str] = typer.Option([], help="A column to leave out; repeatable."),
    keep: list[str] = typer.Option([], help="A column to use even if it looks like an ID; repeatable."),
    categories: list[str] = typer.Option([], help="A column of numbers to treat as categories; repeatable."),
    test_fraction: float = typer.Option(0.2, help="The fraction of rows held out for testing."),
    folds: int | None = typer.Option(None, help="Test every row once, in this many folds; by default if rows are few."),
    group: str | None = typer.Option(None, help="A column: rows with the same value are never in training and test."),
    time: str | None = typer.Option(None, help="A column: the test rows are the latest."),
    test: Path | None = typer.Option(None, help="A file with the test rows, with the same columns."),
    budget: str = typer.Option("5m", help="The time for everything: 90s, 5m, 1h."),
    prior: str = typer.Option("tuned", help="tuned, he, or the standard deviation of all weights, such as 0.5."),
    baselines: bool = typer.Option(True, help="Also fit models of other kinds, such as gradient boosting."),
    seed: int = typer.Option(0, help="The random seed of the split, the network and all methods."),
    quick: bool = typer.Option(False, "--quick", help="A fifth of the time, and no tuning, for a first look."),
) -> None:
    """Which posterior predicts your data best? Fits all methods, prints their scores and writes a report."""
    began = monotonic()
    with one_line_errors():
        from posteriax.tabular.compare_file import CompareSettings, budget_seconds, compare_file

        settings = CompareSettings(
            target=target,
            methods=methods.split(","),
            task=task,  # type: ignore[arg-type]
            event=event,
            drop=drop,
            keep=keep,
            categories=categories,
            test_fraction=test_fraction,
            folds=folds,
            group=group,
            time=time,
            test=test,
            budget=budget_seconds(budget),
            prior=prior,
            baselines=baselines,
            seed=seed,
            quick=quick,
        )
        folder = posteriors or out.with_name(f"{out.stem}_posteriors")
        compare_file(data, out, folder, settings, console(piped_width=180), began)
