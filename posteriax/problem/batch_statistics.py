"""Batch statistics: measuring the means and variances of batch normalisation, and normalising by given ones.

In training, batch normalisation uses the statistics of the current batch; for predictions they should be those of the
training data under the weights that predict. Frameworks keep a moving average over the training run instead, which is
wrong for any single draw.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

Params = Any
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
    measure: Callable[[Params, Any], Statistics]
    apply: Callable[[Params, Statistics, Any], Any]
    use_stored: str
