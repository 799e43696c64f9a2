"""Calibration: whether confidence is the fraction of being right.

    ECE = sum_b (n_b / N) |accuracy_b - confidence_b|

over bins of the highest probability. How the bins are cut changes the value, so each function names its rule. Both
put every example in exactly one bin, and neither's number of bins depends on how many examples there are.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from posteriax.metrics.classification import as_classes


def ece_equal_width(probs: Any, y: Any, bins: int = 15) -> jax.Array:
    """Expected calibration error over bins of equal width, ((b-1)/bins, b/bins]; the first also takes 0.

    >>> ece_equal_width([[0.8, 0.2], [0.8, 0.2]], [0, 1]).round(3).item()
    0.3...
    """
    probs, y = as_classes(probs, y)
    confidence = probs.max(axis=-1)
    index = jnp.clip(jnp.ceil(confidence * bins).astype(jnp.int32) - 1, 0, bins - 1)
    return _gap(confidence, probs.argmax(axis=-1) == y, index, bins)


def ece_equal_mass(probs: Any, y: Any, bins: int = 15) -> jax.Array:
    """Expected calibration error over bins between quantiles of the confidence; equal confidences share a bin.

    The b-th edge is the confidence that a fraction b / bins of the examples do not exceed.

    >>> ece_equal_mass([[0.8, 0.2], [0.8, 0.2]], [0, 1]).round(3).item()
    0.3...
    """
    probs, y = as_classes(probs, y)
    confidence = probs.max(axis=-1)
    n = confidence.size
    edges = jnp.sort(confidence)[np.array([-(-b * n // bins) - 1 for b in range(1, bins)], int)]
    return _gap(confidence, probs.argmax(axis=-1) == y, jnp.searchsorted(edges, confidence), bins)


def _gap(confidence: jax.Array, right: jax.Array, index: jax.Array, bins: int) -> jax.Array:
    # |sum of accuracy - sum of confidence| in a bin, over N: the bin's size cancels
    return jnp.abs(jax.ops.segment_sum(right - confidence, index, num_segments=bins)).sum() / confidence.size
