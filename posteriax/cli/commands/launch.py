"""``posteriax launch``."""

import typer

from posteriax.cli.environment import one_line_errors


def command(
    command: list[str] = typer.Argument(help="What every process runs, after --: python train.py ..."),
    processes: int = typer.Option(2, min=1, help="How many processes."),
    port: int | None = typer.Option(None, help="The port of process 0 on loopback; by default a free one."),
    pin: bool = typer.Option(True, help="Give each process its own share of the cores."),
) -> None:
    """Run a script in several processes on this machine; it calls px.distributed.initialize() first."""
    with one_line_errors():
        from posteriax.distributed.launcher import launch

        raise SystemExit(launch(command, processes, port=port, pin=pin))
