"""The L2-Wasserstein distance between two sets of equally many points."""

import numpy as np


def wasserstein(first: np.ndarray, second: np.ndarray) -> float:
    """W2 of two empirical distributions with equally many points, by exact assignment.

        W2^2 = min over permutations s of mean_i |a_i - b_s(i)|^2

    Args:
        first: (n, d).
        second: (n, d).

    >>> points = np.array([[0.0], [1.0], [5.0]])
    >>> wasserstein(points, points[::-1] + 2.0)
    2.0
    """
    from scipy.optimize import linear_sum_assignment
    from scipy.spatial.distance import cdist

    if first.shape != second.shape or first.ndim != 2:
        raise ValueError(f"W2 needs two arrays of the same shape (n, d), got {first.shape} and {second.shape}")
    costs = cdist(first, second, "sqeuclidean")
    rows, columns = linear_sum_assignment(costs)
    return float(np.sqrt(costs[rows, columns].mean()))
