"""Draws of chains as columns: checked, processed in blocks, split in halves and rank-normalised.

A column is one quantity (a weight, a probability) in every draw of every chain. Statistics are functions of blocks of
columns, (columns, chains, draws) in float64, so that their memory does not grow with the model.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import ndtri

BLOCK_VALUES = 2**19  # 4 MB in float64; ranks and Fourier transforms need a few copies
FEWEST_DRAWS = 4


def by_columns(statistic: Callable[[np.ndarray], np.ndarray], draws: Any, *, chains: int = 1) -> np.ndarray:
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
