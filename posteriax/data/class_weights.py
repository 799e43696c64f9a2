"""Weights of classes as weights of examples, so that likelihoods need not know about them."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

from posteriax._internal.checks import check_targets


def class_weights(y: ArrayLike, weights: Mapping[int, float] | str = "balanced") -> np.ndarray:
    """The weight of every example, from its class, for ``px.fit(problem, (x, y, weight), ...)``.

    Args:
        y: labels, (N,).
        weights: a weight for each class; or "balanced", ``N / (K n_c)`` for the n_c examples of each of K classes: all
            classes then count the same, and the weights sum to N.

    >>> class_weights([0, 0, 0, 1])
    array([0.6666667, 0.6666667, 0.6666667, 2.       ], dtype=float32)
    >>> class_weights([0, 0, 0, 1], {0: 1, 1: 5})
    array([1., 1., 1., 5.], dtype=float32)
    """
    labels = check_targets(y)
    if labels.ndim != 1 or not len(labels) or labels.dtype.kind not in "biu":
        raise ValueError(f"y must be whole-number labels of shape (N,), got {labels.dtype} of shape {labels.shape}")
    classes, class_of_example, counts = np.unique(labels, return_inverse=True, return_counts=True)
    if isinstance(weights, Mapping):
        missing = [int(label) for label in classes if label not in weights]
        if missing:
            raise ValueError(f"weights has no weight for the class {missing[0]}; y has {len(classes)} classes")
        per_class = np.array([weights[int(label)] for label in classes], np.float64)
    elif weights == "balanced":
        per_class = len(labels) / (len(classes) * counts)
    else:
        raise ValueError(f'weights must be "balanced" or a dictionary by class, got {weights!r}')
    return per_class[class_of_example].astype(np.float32)
