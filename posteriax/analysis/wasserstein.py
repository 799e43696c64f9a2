"""The L2-Wasserstein distance between two sets of equally many points, and between two Gaussians."""

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


def gaussian_wasserstein(mean_1: np.ndarray, cov_1: np.ndarray, mean_2: np.ndarray, cov_2: np.ndarray) -> float:
    """W2 between two Gaussians.

        W2^2 = |m1 - m2|^2 + tr(C1 + C2 - 2 (C1^(1/2) C2 C1^(1/2))^(1/2))

    >>> round(gaussian_wasserstein(np.zeros(2), np.eye(2), np.zeros(2), 4 * np.eye(2)) ** 2, 6)
    2.0
    """
    root = square_root(cov_1)
    cross = square_root(root @ cov_2 @ root)
    squared = np.square(mean_1 - mean_2).sum() + np.trace(cov_1 + cov_2 - 2 * cross)
    return float(np.sqrt(max(squared, 0.0)))


def square_root(covariance: np.ndarray) -> np.ndarray:
    """The symmetric square root of a covariance."""
    values, vectors = np.linalg.eigh(covariance)
    return (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
