"""Have chains mixed, and how many draws are they worth? R-hat and effective draws.

    R-hat^2 = ((n - 1) / n W + B / n) / W      W: mean variance within chains; B / n: variance of the chains' means
    ESS = M n / tau,  tau = 1 + 2 sum_t rho_t  rho_t: the correlation of draws t steps apart, over all M chains

R-hat is 1 if all chains sample the same distribution. :func:`rhat` is the rank-normalised split form of Vehtari et al.
2021, :func:`rhat_between` the plain form of Brooks and Gelman 1998. Effective draws are the number of independent draws
with the same information; disagreement between chains counts as correlation, the sum is truncated by Geyer's initial
monotone sequence (Geyer 1992; Vehtari et al. 2021), and each chain is split in halves first.

A column is one quantity (a weight, a probability) in every draw of every chain. Statistics are functions of blocks of
columns, (columns, chains, draws) in float64, so that their memory does not grow with the model.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

# What an R-hat says, everywhere in the package. Chains have converged if the largest is at most RHAT_MIXED, or what
# chance alone gives over as many quantities but never more than RHAT_CHANCE (`chain_agreement.rhat_limit`), and every
# quantity has EFFECTIVE_PER_CHAIN effective draws per chain.
RHAT_MIXED = 1.01  # the chains agree (Vehtari et al. 2021)
RHAT_CHANCE = 1.05  # the largest value that is put down to chance; the limit for a reference
RHAT_BAD = 1.1  # above, they clearly do not agree; between, more draws would tell
EFFECTIVE_PER_CHAIN = 100  # below, R-hat itself is too noisy (Vehtari et al. 2021)

BLOCK_VALUES = 2**19  # 4 MB in float64; ranks and Fourier transforms need a few copies
FEWEST_DRAWS = 4  # of each chain, to compute anything

TAILS = (0.05, 0.95)


def rhat(draws: ArrayLike) -> np.ndarray:
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


def rhat_between(draws: ArrayLike) -> np.ndarray:
    """R-hat from means and variances alone, without splitting, ranks or the square root.

    R = (M + 1) / M (W + B / n) / W - (n - 1) / (M n),   W of biased variances

    Args:
        draws: (chains, draws, ...), M chains of n draws.

    >>> chains = np.random.default_rng(0).normal(size=(4, 500))
    >>> rhat_between(chains).round(2).item()
    1.0
    """
    return by_columns(_plain_rhat, draws, chains=2)


def ess_bulk(draws: ArrayLike) -> np.ndarray:
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


def ess_tail(draws: ArrayLike) -> np.ndarray:
    """Effective draws for the 5 % and 95 % quantiles of each column, whichever is smaller.

    Args:
        draws: (chains, draws, ...), at least four draws.

    >>> chains = np.random.default_rng(0).normal(size=(4, 500))
    >>> bool(1200 < ess_tail(chains) < 2500)
    True
    """
    return by_columns(_tail, draws)


def ess_mean(draws: ArrayLike) -> np.ndarray:
    """Effective draws for the mean of each column, from the values themselves, which must have a finite variance.

    Args:
        draws: (chains, draws, ...), at least four draws.

    >>> chains = np.random.default_rng(0).normal(size=(4, 500))
    >>> bool(1500 < ess_mean(chains) < 2500)
    True
    """
    return by_columns(lambda block: _effective(split(block)), draws)


def mcse_mean(draws: ArrayLike) -> np.ndarray:
    """The Monte-Carlo standard error of the mean of each column: sd / sqrt(ESS).

    Args:
        draws: (chains, draws, ...), at least four draws.

    >>> chains = np.random.default_rng(0).normal(size=(4, 500))
    >>> mcse_mean(chains).round(2).item()  # 1 / sqrt(2000)
    0.02
    """
    return by_columns(lambda block: block.std(axis=(1, 2), ddof=1) / np.sqrt(_effective(split(block))), draws)


def by_columns(statistic: Callable[[np.ndarray], np.ndarray], draws: ArrayLike, *, chains: int = 1) -> np.ndarray:
    """A statistic of every column of `draws`, (chains, draws, ...), in the shape of its trailing axes.

    Args:
        statistic: maps a block (columns, chains, draws) to one number per column.
        draws: an array.
        chains: minimum number of chains.
    """
    draws = np.asarray(draws)
    _check(draws, chains)
    columns = draws.reshape(*draws.shape[:2], -1)
    size = max(1, BLOCK_VALUES // (draws.shape[0] * draws.shape[1]))
    values = np.empty(columns.shape[2])
    for first in range(0, len(values), size):
        block = np.moveaxis(columns[:, :, first : first + size], 2, 0).astype(np.float64, order="C")
        if not np.isfinite(block).all():
            column, chain, draw = np.argwhere(~np.isfinite(block))[0]
            entry = tuple(int(i) for i in np.unravel_index(first + column, draws.shape[2:])) if draws.ndim > 2 else ()
            raise ValueError(f"draws has a non-finite value: draw {draw} of chain {chain}, entry {entry}")
        values[first : first + size] = statistic(block)
    return values.reshape(draws.shape[2:])[()]


def split(block: np.ndarray) -> np.ndarray:
    """Split each chain into its first and second half, (columns, 2 chains, draws // 2), dropping an odd middle draw.

    A chain that drifts then disagrees with itself.
    """
    half = block.shape[2] // 2
    return np.concatenate([block[:, :, :half], block[:, :, -half:]], axis=1)


def rank_normal(block: np.ndarray) -> np.ndarray:
    """Replace each value by the normal quantile of its rank in its column, which is robust to heavy tails.

    z = Phi^-1((rank - 3/8) / (S + 1/4)), with mean ranks for ties
    """
    from scipy.stats import rankdata  # slow to import

    ranks = rankdata(block.reshape(len(block), -1), axis=1)
    return ndtri((ranks - 0.375) / (ranks.shape[1] + 0.25)).reshape(block.shape)


def _check(draws: np.ndarray, chains: int) -> None:
    if draws.ndim < 2:
        raise ValueError(f"draws must be an array (chains, draws, ...), got shape {draws.shape}")
    if draws.shape[0] < chains:
        raise ValueError(
            f"draws has {draws.shape[0]} chain, but mixing takes at least two to check: run several, chains=4."
        )
    if draws.shape[1] < FEWEST_DRAWS:
        raise ValueError(
            f"draws has {draws.shape[1]} draws per chain, but at least {FEWEST_DRAWS} are needed: raise draws="
        )


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


def _tail(block: np.ndarray) -> np.ndarray:
    low, high = (block <= _quantile(block, level)[:, None, None] for level in TAILS)
    return np.minimum(_effective(split(low).astype(float)), _effective(split(high).astype(float)))


def _quantile(block: np.ndarray, level: float) -> np.ndarray:
    """The quantile of each column, interpolated linearly, and exact where it coincides with an order statistic."""
    flat = block.reshape(len(block), -1)
    rank = flat.shape[1] * level + (1.0 - level) - 1.0
    lower = min(int(rank), flat.shape[1] - 2)
    part = np.partition(flat, (lower, lower + 1), axis=1)
    share = rank - lower
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
    is_constant = np.ptp(block, axis=(1, 2)) <= 1e-15 * np.abs(block).max(axis=(1, 2))  # but for rounding
    return np.where(is_constant, most, ess)


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
