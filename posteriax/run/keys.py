"""The random streams of a run: each member has its own, whatever device it runs on."""

from typing import Any, NamedTuple

import jax

AUGMENT = 0x617567


class Streams(NamedTuple):
    """Independent keys of one member: for its start, its steps, the order of its data, and their augmentation."""

    start: jax.Array
    steps: jax.Array
    order: jax.Array
    augment: jax.Array


def streams(key: jax.Array, member: Any) -> Streams:
    """The streams of one member of a run, from the run's key."""
    own = jax.random.fold_in(key, member)
    # folded in, not split off: the other streams are the same with and without augmentation
    start, steps, order = jax.random.split(own, 3)
    return Streams(start, steps, order, jax.random.fold_in(own, AUGMENT))
