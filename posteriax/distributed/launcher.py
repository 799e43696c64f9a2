"""Several processes of one command on this machine, for ``posteriax launch``.

They find each other by environment variables, which :func:`px.distributed.initialize` reads. The launcher shows what
each prints, passes signals on, and if one fails, ends the others.
"""

import io
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from types import FrameType
from typing import IO, TextIO

from posteriax.distributed.processes import COORDINATOR, PROCESS, PROCESSES, check_port

SECONDS_AFTER_FAILURE = 10.0  # how long the other processes may take to end before they are killed
PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
POLL_SECONDS = 0.05


def launch(
    command: Sequence[str], processes: int, *, port: int | None = None, pin: bool = True, quiet: bool = False
) -> int:
    """Run a command in several processes and wait for them. The exit code: 0 if all succeed.

    Args:
        command: program and arguments, the same in all processes.
        processes: how many.
        port: where process 0 listens on the loopback interface; by default a free one.
        pin: give each process its own share of the cores, if there are as many.
        quiet: do not show what processes write to standard output.
    """
    host = "127.0.0.1"
    if port is None:
        port = _free_port(host)
    else:
        check_port(host, port)
    shares = _shares_of_cores(processes) if pin else None
    started: list[subprocess.Popen[str]] = []
    with _passing_signals_on(started):
        for number in range(processes):
            joining = {COORDINATOR: f"{host}:{port}", PROCESSES: str(processes), PROCESS: str(number)}
            devices = {"JAX_NUM_CPU_DEVICES": os.environ.get("JAX_NUM_CPU_DEVICES", "1"), "PYTHONUNBUFFERED": "1"}
            process = subprocess.Popen(
                command,
                env={**os.environ, **devices, **joining},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                start_new_session=True,  # a Ctrl-C of the terminal reaches it once, through this process
            )
            started.append(process)
            if shares is not None:
                os.sched_setaffinity(process.pid, shares[number])
        out = io.StringIO() if quiet else sys.stdout
        printing = [_print_lines(number, process, out) for number, process in enumerate(started)]
        failed = _wait(started)
    for thread in [thread for pair in printing for thread in pair]:
        thread.join(timeout=1.0)  # a grandchild may hold the pipe open
    if failed is None:
        return 0
    return failed if failed > 0 else 128 - failed  # for signals, as in a shell


def _wait(started: list[subprocess.Popen[str]]) -> int | None:
    """Wait for all; if one fails, end the others. The exit code of the first that failed, or None."""
    first: int | None = None
    deadline = None
    while None in [process.poll() for process in started]:
        ended = [(i, process.returncode) for i, process in enumerate(started) if process.returncode]
        if ended and deadline is None:
            number, first = ended[0]
            others = [i for i, process in enumerate(started) if process.poll() is None]
            ending = f"; process {', '.join(map(str, others))} will end within {SECONDS_AFTER_FAILURE:g} s"
            _announce(f"process {number} {_describe_exit(first)}{ending if others else ''}")
            deadline = time.monotonic() + SECONDS_AFTER_FAILURE
        if deadline is not None and time.monotonic() > deadline:
            for process in started:
                if process.poll() is None:
                    process.kill()
            deadline = time.monotonic() + SECONDS_AFTER_FAILURE
        time.sleep(POLL_SECONDS)
    for number, process in enumerate(started):
        if process.returncode and first is None:
            first = process.returncode
            _announce(f"process {number} {_describe_exit(first)}")
    return first


def _describe_exit(code: int) -> str:
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"failed with exit code {code}"


def _announce(text: str) -> None:
    print(f"posteriax launch: {text}", file=sys.stderr, flush=True)


def _print_lines(number: int, process: subprocess.Popen[str], out: TextIO) -> tuple[threading.Thread, threading.Thread]:
    """Print what a process writes, line by line, with its number."""

    def copy(source: IO[str], target: TextIO) -> None:
        for line in source:
            target.write(f"[{number}] {line}" if line.endswith("\n") else f"[{number}] {line}\n")
            target.flush()

    def start(source: IO[str] | None, target: TextIO) -> threading.Thread:
        thread = threading.Thread(target=copy, args=(source, target), daemon=True)
        thread.start()
        return thread

    return start(process.stdout, out), start(process.stderr, sys.stderr)


@contextmanager
def _passing_signals_on(started: list[subprocess.Popen[str]]) -> Iterator[None]:
    def pass_on(number: int, frame: FrameType | None) -> None:
        for process in started:
            if process.poll() is None:
                process.send_signal(number)

    previous = {number: signal.signal(number, pass_on) for number in PASSED_ON}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        for process in started:  # only after an error of the launcher itself
            if process.poll() is None:
                process.kill()


def _free_port(host: str) -> int:
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def _shares_of_cores(processes: int) -> list[set[int]] | None:
    """The cores of each process; None if there are fewer cores than processes, or the system cannot pin."""
    if not hasattr(os, "sched_getaffinity"):
        return None
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < processes:
        return None
    bounds = [len(cores) * i // processes for i in range(processes + 1)]
    return [set(cores[a:b]) for a, b in pairwise(bounds)]
