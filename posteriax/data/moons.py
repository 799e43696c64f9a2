"""Two moons: two interleaved half circles, the simplest data on which predictive uncertainty is easy to see."""

import numpy as np

Split = tuple[np.ndarray, np.ndarray]


def two_moons(train: int = 500, test: int = 500, noise: float = 0.2, seed: int = 0) -> tuple[Split, Split]:
    """Points (N, 2) of two interleaved half circles with Gaussian noise, and their labels 0 and 1.

    Args:
        train, test: number of points.
        noise: standard deviation of the noise; the circles have radius 1.
        seed: for NumPy's generator.

    Returns:
        ``(x, y), (x_test, y_test)``.

    >>> (x, y), (x_test, y_test) = two_moons(train=100, test=50)
    >>> x.shape, y.shape, x_test.shape
    ((100, 2), (100,), (50, 2))
    """
    rng = np.random.default_rng(seed)
    n = train + test
    y = rng.permutation(np.arange(n) % 2).astype(np.int32)
    angle = rng.uniform(0.0, np.pi, n)
    upper = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    lower = np.stack([1.0 - np.cos(angle), 0.5 - np.sin(angle)], axis=1)
    x = np.where(y[:, None] == 0, upper, lower) - np.array([0.5, 0.25])
    x = (x + rng.normal(0.0, noise, x.shape)).astype(np.float32)
    return (x[:train], y[:train]), (x[train:], y[train:])
