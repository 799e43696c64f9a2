"""Have the chains mixed? R-hat compares the spread of all draws with the spread within chains.

    R-hat^2 = ((n - 1) / n W + B / n) / W      W: mean variance within chains; B / n: variance of the chains' means

It is 1 if all chains sample the same distribution. :func:`rhat` is the rank-normalised split form of Vehtari et al.
2021, :func:`rhat_between` the plain form of Brooks and Gelman 1998.
"""

from typing import Any

import numpy as np

from posteriax.diagnostics.columns import by_columns, rank_normal, split


def rhat(draws: Any) -> np.ndarray:
    """Rank-normalised split R-hat of each column: the larger of bulk (location) and folded (scale).

    Below 1.01 chains agree; above 1.1 they clearly do not.

    Args:
        draws: (chains, draws, ...), at least two chains and four draws.

    Returns:
        an array in the shape of the trailing axes: nan for a constant column, infinity for one that is constant
        within chains but differs between them.

    >>> chains = np.random.default_rng(0).normal(size=(4, 500, 3))
    >>> chains[0, :, 2] += 3.0  # one chain is elsewhere in the last column
    >>> rhat(chains).round(2)
    array([1.  , 1.  , 1.47])
    """
    return by_columns(_rank_rhat, draws, chains=2)


def rhat_between(draws: Any) -> np.ndarray:
    """R-hat from means and variances alone, without splitting, ranks or the square root.

    R = (M + 1) / M (W + B / n) / W - (n - 1) / (M n),   W of biased variances

    Args:
        draws: (chains, draws, ...), M chains of n draws.

    >>> chains = np.random.default_rng(0).normal(size=(4, 500))
    >>> rhat_between(chains).round(2).item()
    1.0
    """
    return by_columns(_plain_rhat, draws, chains=2)


def _rank_rhat(block: np.ndarray) -> np.ndarray:
    halves = split(block)
    folded = np.abs(halves - np.median(halves, axis=(1, 2), keepdims=True))
    # if all draws are equally far from the median, the folded R-hat is nan and the other counts
    return np.fmax(_rhat(rank_normal(halves)), _rhat(rank_normal(folded)))


def _rhat(block: np.ndarray) -> np.ndarray:
    n = block.shape[2]
    within = block.var(axis=2, ddof=1).mean(axis=1)
    # exactly 0: the mean of equal numbers may be off by rounding, which would leave a tiny variance
    within[(np.ptp(block, axis=2) == 0.0).all(axis=1)] = 0.0
    between = block.mean(axis=2).var(axis=1, ddof=1)
    between[np.ptp(block, axis=(1, 2)) == 0.0] = 0.0
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.sqrt((n - 1) / n + between / within)


def _plain_rhat(block: np.ndarray) -> np.ndarray:
    chains, n = block.shape[1:]
    within, between = block.var(axis=2).mean(axis=1), block.mean(axis=2).var(axis=1, ddof=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return (chains + 1) / chains * (within + between) / within - (n - 1) / (chains * n)
