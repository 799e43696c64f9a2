"""Effective draws: the number of independent draws with the same information.

    ESS = M n / tau,   tau = 1 + 2 sum_t rho_t      rho_t: the correlation of draws t steps apart, over all chains

Disagreement between chains counts as correlation. The sum is truncated by Geyer's initial monotone sequence (Geyer
1992; Vehtari et al. 2021). Each chain is split in halves first.
"""

from typing import Any

import numpy as np

from posteriax.diagnostics.columns import by_columns, rank_normal, split

TAILS = (0.05, 0.95)


def ess_bulk(draws: Any) -> np.ndarray:
    """Effective draws of each column after rank normalisation: for the location of the distribution.

    Args:
        draws: (chains, draws, ...), at least four draws.

    Returns:
        an array in the shape of the trailing axes. For a constant column, the number of draws.

    >>> chains = np.random.default_rng(0).normal(size=(4, 500))
    >>> bool(1500 < ess_bulk(chains) < 2500)
    True
    >>> bool(ess_bulk(np.cumsum(chains, axis=1)) < 20)  # random walks
    True
    """
    return by_columns(lambda block: _effective(rank_normal(split(block))), draws)


def ess_tail(draws: Any) -> np.ndarray:
    """Effective draws for the 5 % and 95 % quantiles of each column, whichever is smaller.

    Args:
        draws: (chains, draws, ...), at least four draws.

    >>> chains = np.random.default_rng(0).normal(size=(4, 500))
    >>> bool(1200 < ess_tail(chains) < 2500)
    True
    """
    return by_columns(_tail, draws)


def ess_mean(draws: Any) -> np.ndarray:
    """Effective draws for the mean of each column, from the values themselves, which must have a finite variance.

    Args:
        draws: (chains, draws, ...), at least four draws.

    >>> chains = np.random.default_rng(0).normal(size=(4, 500))
    >>> bool(1500 < ess_mean(chains) < 2500)
    True
    """
    return by_columns(lambda block: _effective(split(block)), draws)


def mcse_mean(draws: Any) -> np.ndarray:
    """The Monte-Carlo standard error of the mean of each column: sd / sqrt(ESS).

    Args:
        draws: (chains, draws, ...), at least four draws.

    >>> chains = np.random.default_rng(0).normal(size=(4, 500))
    >>> mcse_mean(chains).round(2).item()  # 1 / sqrt(2000)
    0.02
    """
    return by_columns(lambda block: block.std(axis=(1, 2), ddof=1) / np.sqrt(_effective(split(block))), draws)


def _tail(block: np.ndarray) -> np.ndarray:
    low, high = (block <= _quantile(block, level)[:, None, None] for level in TAILS)
    return np.minimum(_effective(split(low).astype(float)), _effective(split(high).astype(float)))


def _quantile(block: np.ndarray, level: float) -> np.ndarray:
    """The quantile of each column, interpolated linearly, and exact where it coincides with an order statistic."""
    flat = block.reshape(len(block), -1)
    place = flat.shape[1] * level + (1.0 - level) - 1.0
    lower = min(int(place), flat.shape[1] - 2)
    part = np.partition(flat, (lower, lower + 1), axis=1)
    share = place - lower
    return (1.0 - share) * part[:, lower] + share * part[:, lower + 1]


def _effective(block: np.ndarray) -> np.ndarray:
    from scipy.fft import irfft, next_fast_len, rfft  # slow to import

    chains, n = block.shape[1:]
    means = block.mean(axis=2)
    spectrum = rfft(block - means[:, :, None], n=next_fast_len(2 * n, real=True), axis=2)
    power = np.square(spectrum.real) + np.square(spectrum.imag)
    covariance = irfft(power.mean(axis=1), n=next_fast_len(2 * n, real=True), axis=1)[:, :n] / n  # mean over chains
    within = covariance[:, :1] * n / (n - 1)
    total = covariance[:, :1] + means.var(axis=1, ddof=1)[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        correlation = 1.0 - (within - covariance) / total
    correlation[:, 0] = 1.0
    most = chains * n
    ess = most / np.maximum(_sum_of_correlations(correlation), 1.0 / np.log10(most))
    return np.where(np.ptp(block, axis=(1, 2)) < 1e-15, most, ess)


def _sum_of_correlations(correlation: np.ndarray) -> np.ndarray:
    """tau of each column, from correlations (columns, lags)."""
    last = max(0, (correlation.shape[1] - 3) // 2)  # pairs of lags (2k, 2k + 1) up to here
    even = correlation[:, 0 : 2 * last + 1 : 2]
    pairs = even + correlation[:, 1 : 2 * last + 2 : 2]
    ended = ~(pairs > 0.0)
    ended[:, last] = True
    end = ended.argmax(axis=1)[:, None]  # the first pair that is not counted
    falling = np.minimum.accumulate(pairs, axis=1)
    counted = np.where(np.arange(last + 1) < end, falling, 0.0).sum(axis=1)
    # the even lag of the last pair counts once, if it is positive
    at_end, pair_at_end = np.take_along_axis(even, end, axis=1)[:, 0], np.take_along_axis(pairs, end, axis=1)[:, 0]
    return -1.0 + 2.0 * counted + np.where((at_end > 0.0) | (pair_at_end >= 0.0), at_end, 0.0)
