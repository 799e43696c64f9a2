"""The trend of a noisy series: a line through averages of its parts."""

import numpy as np

PARTS = 8


def rise_and_error(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """How much series (members, steps) rise from end to end, and the standard error of that.

    A line is fitted to the averages of eight parts of equal length. Averages of many steps are nearly independent where
    the steps themselves are not. Steps that do not fill a part are left out at the beginning.

    >>> rise, error = rise_and_error(np.linspace(0.0, 1.0, 800)[None])
    >>> rise.round(2).tolist(), error.round(2).tolist()
    ([1.0], [0.0])
    """
    length = values.shape[1] // PARTS
    means = values[:, values.shape[1] - PARTS * length :].reshape(len(values), PARTS, length).mean(axis=2)
    time = (np.arange(PARTS) - (PARTS - 1) / 2) / PARTS
    rise = means @ time / np.sum(time**2)
    residuals = means - means.mean(axis=1, keepdims=True) - rise[:, None] * time
    error = np.sqrt(np.sum(residuals**2, axis=1) / (PARTS - 2) / np.sum(time**2))
    return rise, error


def mean_and_error(values: np.ndarray) -> tuple[float, float]:
    """The mean of a series, and its standard error by the spread of eight parts.

    >>> mean_and_error(np.ones(80))
    (1.0, 0.0)
    """
    means = [part.mean() for part in np.array_split(values, PARTS)]
    return float(np.mean(means)), float(np.std(means, ddof=1) / np.sqrt(PARTS))
