"""Classes one by one: which are confused, and how well each one's probability ranks the examples."""

from typing import NamedTuple

import numpy as np

from posteriax.metrics import auroc, average_precision

MOST_CLASSES = 20  # to rank; with more, only the confusion matrix is made


class ClassRanking(NamedTuple):
    """By class, how well its probability tells its examples from the others; NaN if all or none are of the class."""

    auroc: np.ndarray
    average_precision: np.ndarray


def class_ranking(probs: np.ndarray, labels: np.ndarray) -> ClassRanking:
    """Each class against the rest.

    Args:
        probs: (N, C).
        labels: (N,).

    >>> class_ranking(np.array([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7]]), np.array([0, 1, 1])).auroc.tolist()
    [1.0, 1.0]
    """
    classes = probs.shape[-1]
    found = np.full((2, classes), np.nan)
    for c in range(classes if classes <= MOST_CLASSES else 0):
        is_class = labels == c
        if is_class.any() and not is_class.all():
            found[:, c] = auroc(probs[:, c], is_class), average_precision(probs[:, c], is_class)
    return ClassRanking(*found)


def confusion_matrix(true: np.ndarray, predicted: np.ndarray, classes: int) -> np.ndarray:
    """How many examples of each class (rows) were predicted as each class (columns), (C, C).

    >>> confusion_matrix(np.array([0, 0, 1]), np.array([0, 1, 1]), classes=2).tolist()
    [[1, 1], [0, 1]]
    """
    cells = np.bincount(np.asarray(true, np.int64) * classes + predicted, minlength=classes**2)
    return cells.reshape(classes, classes)
