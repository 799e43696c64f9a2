"""Progress of a run, on standard error; silent if that is not a terminal."""

import sys
from types import TracebackType
from typing import Any


class Progress:
    """A bar with rate, time left and the run's headline number. A context manager.

    Args:
        title: what is running.
        total: number of steps.
        show: True or False; None shows it if standard error is a terminal.
    """

    def __init__(self, title: str, total: int, show: bool | None = None):
        self._bar: Any = None
        if show if show is not None else sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[rate]}"),
                TimeRemainingColumn(),
                TextColumn("{task.fields[headline]}"),
                console=Console(stderr=True),
            )
            self._task = self._bar.add_task(title, total=total, rate="compiling", headline="")

    def update(self, done: int, rate: float, headline: str) -> None:
        if self._bar is not None:
            self._bar.update(
                self._task, completed=done, rate=f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.2g}/s", headline=headline
            )

    def __enter__(self) -> "Progress":
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
