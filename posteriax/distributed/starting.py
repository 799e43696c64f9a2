"""Joining the processes of a run."""

import contextlib
import errno
import os
import socket
from typing import NamedTuple

import jax

COORDINATOR, PROCESSES, PROCESS = "POSTERIAX_COORDINATOR", "POSTERIAX_PROCESSES", "POSTERIAX_PROCESS"
HEARTBEAT_SECONDS = 20  # without a sign of life, after which JAX takes a process for dead
SECONDS_TO_STOP = 30  # from the death of one process to the end of the last of the others


class Processes(NamedTuple):
    """This process among all of them.

    >>> Processes(number=0, total=2)
    Processes(number=0, total=2)
    """

    number: int
    total: int


def initialize(
    coordinator: str | None = None,
    processes: int | None = None,
    process: int | None = None,
    *,
    timeout: int = 300,
) -> Processes:
    """Make this process one of several that share their devices. Call it once, before anything else uses JAX.

    ``jax.devices()`` then lists the devices of all processes, and ``px.fit`` spreads a run over them. Every process
    runs the same script. Without arguments, ``posteriax launch`` says where the processes are, or JAX detects it:
    Slurm, Kubernetes, Open MPI, Cloud TPU. If there is none of these, there is one process, and nothing happens.

    Args:
        coordinator: ``"host:port"`` where process 0 can be reached, on a free port.
        processes: how many there are.
        process: which one this is, from 0.
        timeout: seconds to wait for the others.

    Returns:
        The number of this process, and the total.

    >>> import posteriax as px
    >>> px.distributed.initialize("127.0.0.1:1234", processes=1, process=0)
    Processes(number=0, total=1)
    """
    given = (coordinator, processes, process)
    if any(value is None for value in given) and any(value is not None for value in given):
        raise ValueError(
            f"give coordinator, processes and process, or none of them; got coordinator={coordinator!r}, "
            f"processes={processes!r}, process={process!r}"
        )
    if coordinator is None and COORDINATOR in os.environ:
        coordinator = os.environ[COORDINATOR]
        processes, process = int(os.environ[PROCESSES]), int(os.environ[PROCESS])
    if coordinator is not None:
        assert processes is not None and process is not None
        _check(coordinator, processes, process)
        if processes == 1:
            return Processes(0, 1)
    # on SIGTERM a run writes a checkpoint and ends (posteriax._internal.interruption); JAX's own handler would take it
    jax.config.update("jax_enable_preemption_service", False)
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    _let_threads_finish()
    try:
        jax.distributed.initialize(
            coordinator_address=coordinator,
            num_processes=processes,
            process_id=process,
            initialization_timeout=timeout,
            heartbeat_timeout_seconds=HEARTBEAT_SECONDS,
            shutdown_timeout_seconds=HEARTBEAT_SECONDS,
            coordinator_bind_address=_loopback(coordinator),
            cluster_detection_method=None if coordinator is None else "deactivate",
        )
    except ValueError as error:
        if coordinator is None and "coordinator_address" in str(error):  # nothing was detected
            return Processes(0, 1)
        raise
    except RuntimeError as error:
        if "must be called before" in str(error):
            raise RuntimeError(
                "px.distributed.initialize() comes too late, since JAX has already started: call it before anything "
                "makes or moves an array"
            ) from None
        if coordinator is None:
            raise
        raise ConnectionError(
            f"process {process} of {processes} found no coordinator at {coordinator} within {timeout} s: process 0 has "
            f"failed or has not started, its port is in use, or the address cannot be reached from here"
        ) from error
    return Processes(jax.process_index(), jax.process_count())


def several() -> bool:
    """Whether this process is one of several."""
    return jax.process_count() > 1


def is_first() -> bool:
    """Whether this is the process that shows progress and writes files."""
    return jax.process_index() == 0


def _let_threads_finish() -> None:
    """On Linux, make this process a batch job, and with it the threads that it will start.

    Gloo's receiving thread is woken by every message, and polls as long as the thread that sends holds their lock. If
    it may interrupt the sender, on a busy core it polls for the rest of its time slice: a sum of 64 bytes over two
    processes took 3.9 ms. A thread of a batch job waits for its turn, and the same sum takes 0.12 ms.
    """
    if hasattr(os, "SCHED_BATCH") and os.sched_getscheduler(0) == os.SCHED_OTHER:
        with contextlib.suppress(OSError):  # a sandbox may forbid it: slower, but right
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def _check(coordinator: str, processes: int, process: int) -> None:
    host, _, port = coordinator.rpartition(":")
    if not host or not port.isdigit():
        raise ValueError(f'coordinator must be "host:port", got {coordinator!r}')
    if not 0 <= process < processes:
        raise ValueError(f"process must be 0 to {processes - 1} with processes={processes}, got {process}")
    if process == 0:
        check_port(host, int(port))


def check_port(host: str, port: int) -> None:
    """Raise if another program listens there: JAX's service would share the port with it, and wait in vain."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # closed connections of an earlier run do not count
        try:
            probe.bind((host.strip("[]"), port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise OSError(
                    errno.EADDRINUSE, f"port {port} of {host} is in use: choose another port for the coordinator"
                ) from None
            # the name of another interface, or one that only others can resolve: JAX will find out


def _loopback(coordinator: str | None) -> str | None:
    """Where the coordinator listens: on loopback only if that is its address, else on all interfaces."""
    local = coordinator is not None and coordinator.rpartition(":")[0] in ("127.0.0.1", "localhost")
    return coordinator if local else None
