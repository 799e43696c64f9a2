"""The random streams of a run: each member has its own, whatever device it runs on."""

from typing import Any, NamedTuple

import jax


class Streams(NamedTuple):
    """Independent keys of one member: for its start, its steps, and the order of its data."""

    start: jax.Array
    steps: jax.Array
    order: jax.Array


def streams(key: jax.Array, member: Any) -> Streams:
    """The streams of one member of a run, from the run's key."""
    return Streams(*jax.random.split(jax.random.fold_in(key, member), 3))
