"""The processes of a run: joining them, and the messages that they exchange besides their arrays.

Messages (settings, decisions, errors) are short texts in the store of JAX's coordination service. Process 0 collects
one from every process, and publishes them all together.
"""

import contextlib
import errno
import json
import os
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any, NamedTuple

import jax

COORDINATOR, PROCESSES, PROCESS = "POSTERIAX_COORDINATOR", "POSTERIAX_PROCESSES", "POSTERIAX_PROCESS"
HEARTBEAT_SECONDS = 20  # without a sign of life, after which JAX assumes that a process has died
SECONDS_TO_STOP = 30  # from the death of one process to the end of the last of the others
SLOW_SECONDS = 30.0  # after which a process reports what it is waiting for

Message = Any  # a JSON value
Store = Any  # the client of JAX's coordination service, which has no public type
_round = count()
_FOLDER = "posteriax"


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


class ProcessError(RuntimeError):
    """Another process of the run has failed, died, or disagrees with this one. The message names it."""


def exchange(message: Message, about: str = "") -> list[Message]:
    """The messages of all processes, in order. A collective: every process must call it.

    Args:
        message: this process's, a JSON value.
        about: what the processes are doing, for the report of a slow one.
    """
    if not several():
        return [message]
    client, me, number = _client(), jax.process_index(), next(_round)
    everyone = f"{_FOLDER}/{number}/all"
    with losing_processes():
        if not is_first():
            client.key_value_set(f"{_FOLDER}/{number}/{me}", json.dumps(message))
            return list(json.loads(_wait_for(client, everyone, 0, about)))
        texts = [json.dumps(message)]
        for other in range(1, jax.process_count()):
            texts.append(_wait_for(client, f"{_FOLDER}/{number}/{other}", other, about))
        client.key_value_set(everyone, f"[{', '.join(texts)}]")
        if number >= 2:  # all have read it, since they have all sent the next one
            client.key_value_delete(f"{_FOLDER}/{number - 2}")
        return [json.loads(text) for text in texts]


@contextlib.contextmanager
def together(about: str) -> Iterator[None]:
    """A context for all processes: if it fails in one, it fails in all, with an error that quotes the first."""
    if not several():
        yield
        return
    try:
        yield
    except ProcessError:
        raise  # the others have been told, or are dead
    except Exception as error:
        exchange(f"{type(error).__name__}: {error}", about)
        raise
    failed = [(process, error) for process, error in enumerate(exchange(None, about)) if error is not None]
    if failed:
        raise ProcessError(f"process {failed[0][0]} failed when {about}: {failed[0][1]}")


def check_same(facts: Mapping[str, str], about: str) -> None:
    """Raise in every process if the processes differ in one of these facts."""
    everyone = exchange(dict(facts), about)
    for other, theirs in enumerate(everyone):
        first = everyone[0]
        different = [name for name in sorted(first.keys() | theirs.keys()) if first.get(name) != theirs.get(name)]
        if different:
            listed = "; ".join(
                f"{name} is {_short(first.get(name))} in process 0, {_short(theirs.get(name))} in process {other}"
                for name in different
            )
            raise ProcessError(f"the processes disagree: {listed}. All must make the same call with the same data.")


@contextlib.contextmanager
def losing_processes() -> Iterator[None]:
    """Turn an error of JAX's connection to other processes into one that names those that have died."""
    try:
        yield
    except ProcessError:
        raise
    except (ValueError, RuntimeError) as error:
        if not several() or not any(word in str(error) for word in ("Gloo", "UNAVAILABLE", "CANCELLED", "INTERNAL")):
            raise
        raise ProcessError(
            f"process {jax.process_index()} has lost {_dead()}, which died or cannot be reached. All processes must be "
            f"started again; with checkpoint=DIR the run resumes from its last checkpoint."
        ) from error


def _dead() -> str:
    """The processes that no longer answer, for an error message."""
    others = [i for i in range(jax.process_count()) if i != jax.process_index()]
    if len(others) == 1:
        return f"process {others[0]}"
    end = time.monotonic() + HEARTBEAT_SECONDS + 5  # by then the coordinator has noticed
    with contextlib.suppress(Exception):
        while time.monotonic() < end:
            alive = _client().get_live_nodes([*others, jax.process_index()])
            if dead := [i for i in others if i not in alive]:
                return ("process " if len(dead) == 1 else "processes ") + ", ".join(map(str, dead))
            time.sleep(1.0)
    return "another process"


def _wait_for(client: Store, key: str, process: int, about: str) -> str:
    began, reported = time.monotonic(), False
    while True:
        try:
            return str(client.blocking_key_value_get(key, round(1000 * SLOW_SECONDS)))
        except Exception as error:
            if "DEADLINE_EXCEEDED" not in str(error):
                raise
        waited = time.monotonic() - began
        if not reported or waited > 10 * SLOW_SECONDS:
            reported, began = True, time.monotonic()
            print(
                f"posteriax: process {jax.process_index()} has been waiting {waited:.0f} s for process {process}"
                f"{' when ' + about if about else ''}; it is alive, but slow or stopped",
                file=sys.stderr,
                flush=True,
            )


def _client() -> Store:
    from jax._src import distributed  # no public name for the store of the coordination service

    return distributed.global_state.client


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 40 else text[:37] + "..."
