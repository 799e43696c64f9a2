"""Batch statistics: measuring the means and variances of batch normalisation, and normalising by given ones.

In training, batch normalisation uses the statistics of the current batch; for predictions they should be those of the
training data under the weights that predict. Frameworks keep a moving average over the training run instead, which is
wrong for any single draw.

What an adapter returns.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax

_Params = Any
Statistics = Any  # a pytree of arrays: the means and variances of all normalisation layers


class BatchStatistics(NamedTuple):
    """Extra functions of a network with batch normalisation.

    Args:
        stored: the statistics stored in the network.
        measure: ``measure(params, x)``: the statistics of a batch.
        apply: ``apply(params, statistics, x)``: the outputs, normalised by `statistics`.
        use_stored: how the user makes the network normalise by its stored statistics, in words.
    """

    stored: Statistics
    measure: Callable[[_Params, Any], Statistics]
    apply: Callable[[_Params, Statistics, Any], Any]
    use_stored: str


Params = Any


class Adapted(NamedTuple):
    """A network of some library as a pure function.

    Args:
        apply: ``apply(params, x, *, key=None) -> outputs``.
        params: its params.
        batched: whether `apply` takes a batch or one example.
        out_axis: the output axis of a weight, by the library's convention.
        batch_statistics: of its batch normalisation, if any; always for batches.
        axis_name: name of the axis of examples, if `apply` takes one example.
    """

    apply: Callable[..., Any]
    params: Params
    batched: bool = True
    out_axis: int = -1
    batch_statistics: BatchStatistics | None = None
    axis_name: Any = "batch"


def over_examples(apply: Callable[..., Any], axis_name: Any = "batch") -> Callable[..., Any]:
    """Apply a network that takes one example to a batch, with a separate key for each example."""

    def apply_batch(params: Params, x: Any, *, key: Any = None) -> Any:
        if key is None:
            return jax.vmap(lambda one: apply(params, one), axis_name=axis_name)(x)
        keys = jax.random.split(key, jax.tree.leaves(x)[0].shape[0])
        return jax.vmap(lambda one, k: apply(params, one, key=k), axis_name=axis_name)(x, keys)

    return apply_batch
