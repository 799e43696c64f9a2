"""Ctrl-C and SIGTERM, with which clusters pre-empt jobs: the current chunk is finished, and the work so far is kept."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any


class Interrupted(KeyboardInterrupt):
    """A run was stopped by Ctrl-C or SIGTERM.

    Args:
        message: how far it got and how to resume.
        posterior: the posterior so far; None if a sampler had no draws yet.

    >>> try:
    ...     raise Interrupted("MAP was stopped at step 10 of 100", posterior="what was done")
    ... except Interrupted as stopped:
    ...     stopped.posterior
    'what was done'
    """

    def __init__(self, message: str, posterior: Any = None):
        super().__init__(message)
        self.posterior = posterior


class Stop:
    """A request to stop the run."""

    asked = False


@contextlib.contextmanager
def listen() -> Iterator[Stop]:
    """Turn the first Ctrl-C or SIGTERM into a request to stop; a second one acts at once. Only in the main thread."""
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    previous = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def on_signal(number: int, frame: FrameType | None) -> None:
        stop.asked = True
        signal.signal(number, previous[signal.Signals(number)])

    for number in previous:
        signal.signal(number, on_signal)
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
