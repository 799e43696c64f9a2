"""Batch statistics: measuring what batch normalisation normalises by, and normalising by what was measured.

A network with batch normalisation has, beside its params, the mean and variance of each such layer's inputs. In
training they are those of the batch at hand; for predictions they should be those of the training data, under the very
weights that predict. Frameworks keep a moving average along the training run instead, which fits no single draw.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

Params = Any
Statistics = Any  # a pytree of arrays, the means and variances of every normalisation layer


class BatchStatistics(NamedTuple):
    """What a network with batch normalisation can do beside being applied.

    Args:
        stored: the statistics that the network came with.
        measure: ``measure(params, x)``: the statistics of a batch.
        apply: ``apply(params, statistics, x)``: the outputs, normalised by these.
    """

    stored: Statistics
    measure: Callable[[Params, Any], Statistics]
    apply: Callable[[Params, Statistics, Any], Any]
