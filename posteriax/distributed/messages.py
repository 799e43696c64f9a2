"""What processes tell each other beside their arrays: settings, decisions, and errors.

Messages are short texts in the store of JAX's coordination service. Process 0 collects one from every process, and
publishes them all together.
"""

import contextlib
import json
import sys
import time
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any

import jax

from posteriax.distributed.starting import HEARTBEAT_SECONDS, is_first, several

SLOW_SECONDS = 30.0  # after which process 0 reports what it is waiting for
_round = count()
_FOLDER = "posteriax"


class ProcessError(RuntimeError):
    """Another process of the run has failed, died, or disagrees with this one. The message names it."""


def exchange(message: Any, about: str = "") -> list[Any]:
    """The messages of all processes, in order; every process must call it equally often. Messages are JSON values.

    Args:
        message: of this process.
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
    """All processes do what is inside, and if one fails, all do: the others with an error that quotes it."""
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
    failed = [(i, said) for i, said in enumerate(exchange(None, about)) if said is not None]
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
    """The processes that no longer answer, in words."""
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


def _wait_for(client: Any, key: str, process: int, about: str) -> str:
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


def _client() -> Any:
    from jax._src import distributed  # no public name for the store of the coordination service

    return distributed.global_state.client


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 40 else text[:37] + "..."
