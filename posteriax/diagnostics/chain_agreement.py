"""How well chains agree on their weights and predictions, and which chains agree with which.

Chains are compared by many columns, a bounded part at a time: the weights of each leaf, or predictions at test points.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial, reduce
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import PyTree
from scipy.special import chdtri

from posteriax._internal.memory import BLOCK_BYTES, PREDICTION_BYTES, fitting
from posteriax.diagnostics.chains import RHAT_BAD, RHAT_CHANCE, RHAT_MIXED, ess_bulk, ess_tail, rhat
from posteriax.posterior.draws import DrawsPosterior, StoredDraws
from posteriax.posterior.posterior import Posterior

# two chains whose means lie further apart than this, in standard deviations within chains, have an R-hat above RHAT_BAD
FAR = np.sqrt(2 * (RHAT_BAD**2 - 1))
COLUMNS_PER_CHAIN = 200  # for the effective draws of single chains
LOOKED_AT = 2000  # weights of a leaf, or test points; of more, a seeded sample


class Columns(NamedTuple):
    """Statistics of every column; the last axis of `means` and `variances` is columns too."""

    rhat: np.ndarray  # nan for one chain, and for constant columns
    ess: np.ndarray
    tail_ess: np.ndarray
    means: np.ndarray  # (chains, columns)
    variances: np.ndarray  # (chains, columns)
    ess_within: np.ndarray  # effective draws within each chain, (chains, at most COLUMNS_PER_CHAIN columns)
    ess_within_folded: np.ndarray  # the same for distances from the median, which R-hat also compares

    def join(self, other: "Columns") -> "Columns":
        return Columns(*(np.concatenate(both, axis=-1) for both in zip(self, other, strict=True)))


@dataclass(frozen=True)
class ChainAgreement:
    """How well the chains agree on the weights of one leaf, or on predictions.

    Args:
        name: the leaf's path, or "predictions".
        size: number of weights, or of test points.
        looked_at: how many of them were examined; a seeded sample if there are many.
        worst_rhat, median_rhat: over all columns, which for a test point are its classes. nan for one chain.
        above_good, above_bad: the share of weights (or test points) with an R-hat above 1.01, above 1.1.
        smallest_ess, median_ess: effective draws (bulk).
        smallest_tail_ess: effective draws for the 5 % and 95 % quantiles.
        worst: the weight or test point with the largest R-hat (for one chain, the fewest effective draws), such as
            ``layers/0/weight[3, 1]``.

    >>> draws = np.random.default_rng(0).normal(size=(4, 500, 10))
    >>> summarize_columns("weight", 10, compare_chains(draws)).above_bad
    0.0
    """

    name: str
    size: int
    looked_at: int
    worst_rhat: float
    median_rhat: float
    above_good: float
    above_bad: float
    smallest_ess: float
    median_ess: float
    smallest_tail_ess: float
    worst: str = ""


class Compared(NamedTuple):
    """What chains were compared by, weights or predictions: a summary of each leaf or of all points, and columns."""

    summaries: list[ChainAgreement]
    columns: Columns

    @property
    def chains(self) -> int:
        return len(self.columns.means)


def compare_chains(draws: np.ndarray) -> Columns:
    """The statistics of all columns of `draws`, (chains, draws, columns)."""
    chains, _, count = draws.shape
    columns = np.unique(np.linspace(0, count - 1, min(count, COLUMNS_PER_CHAIN)).astype(int))
    folded = np.abs(draws[..., columns] - np.median(draws[..., columns], axis=(0, 1)))
    return Columns(
        rhat=rhat(draws) if chains > 1 else np.full(count, np.nan),
        ess=ess_bulk(draws),
        tail_ess=ess_tail(draws),
        means=draws.mean(axis=1, dtype=np.float64),
        # exactly zero for equal numbers
        variances=np.where(np.ptp(draws, axis=1) == 0, 0.0, draws.var(axis=1, dtype=np.float64)),
        ess_within=np.stack([ess_bulk(draws[chain : chain + 1, :, columns]) for chain in range(chains)]),
        ess_within_folded=np.stack([ess_bulk(folded[chain : chain + 1]) for chain in range(chains)]),
    )


def summarize_columns(
    name: str, size: int, columns: Columns, per_entry: int = 1, name_entry: Callable[[int], str] = str
) -> ChainAgreement:
    """Summarise columns; each weight or test point has `per_entry` adjacent ones, and `name_entry` names it."""
    entry_rhat = np.fmax.reduce(columns.rhat.reshape(-1, per_entry), axis=1)
    known = columns.rhat[~np.isnan(columns.rhat)]
    entry_ess = columns.ess.reshape(-1, per_entry).min(axis=1)
    worst = int(np.nanargmax(entry_rhat) if known.size else np.argmin(entry_ess))
    return ChainAgreement(
        name=name,
        size=size,
        looked_at=len(entry_rhat),
        worst_rhat=float(known.max()) if known.size else np.nan,
        median_rhat=float(np.median(known)) if known.size else np.nan,
        above_good=float((entry_rhat > RHAT_MIXED).mean()),
        above_bad=float((entry_rhat > RHAT_BAD).mean()),
        smallest_ess=float(columns.ess.min()),
        median_ess=float(np.median(columns.ess)),
        smallest_tail_ess=float(columns.tail_ess.min()),
        worst=name_entry(worst),
    )


def rhat_by_chance(columns: Columns) -> float:
    """Roughly the largest R-hat over this many columns that mixed chains exceed in one run of a hundred.

    For M half chains with n effective draws each, (M - 1) (n - 1) (B / n) / W is about chi-squared with M - 1 degrees
    of freedom. Effective draws are counted within chains, since chains that have not mixed have none between them.
    With fewer than about twenty they are overestimated, and the result is too small. R-hat is the larger of those of
    the values and of their distances from the median, which may have far fewer effective draws: HMC's draws of a
    Gaussian alternate around its mean, but their distances from it do not.
    """
    halves = 2 * len(columns.ess_within)
    # of slow columns, which have the largest R-hat
    effective = min(np.quantile(ess.mean(axis=0), 0.25) / 2 for ess in (columns.ess_within, columns.ess_within_folded))
    extreme = chdtri(halves - 1, 0.01 / (2 * columns.rhat.size)) / (halves - 1)  # twice: bulk and folded
    return float(np.sqrt(1.0 + extreme / max(effective - 1.0, 1.0)))


def rhat_limit(columns: Columns) -> float:
    """The largest R-hat at which chains count as mixed: 1.01, or what chance gives over this many columns, up to 1.05.

    1.01 is the limit of Vehtari et al. 2021 for one quantity. The largest of many R-hats exceeds it by chance: for four
    chains of 100 independent draws, the largest of 40 R-hats is 1.018 on average.

    >>> columns = compare_chains(np.random.default_rng(0).normal(size=(4, 100, 40)))
    >>> bool(RHAT_MIXED < columns.rhat.max() < rhat_limit(columns) < RHAT_CHANCE)
    True
    """
    return float(np.clip(rhat_by_chance(columns), RHAT_MIXED, RHAT_CHANCE))


def groups_of_chains(columns: Columns) -> tuple[tuple[int, ...], ...]:
    """Groups of chains that have mixed, by index, largest group first.

    Two chains are in one group if, over the columns with a bad R-hat, the mean squared difference of their means in
    units of the variance within chains is at most FAR^2 plus twice what chance gives; groups are connected components.

    >>> draws = np.random.default_rng(0).normal(size=(4, 500, 10))
    >>> draws[2] += 5.0
    >>> groups_of_chains(compare_chains(draws))
    ((0, 1, 3), (2,))
    """
    from scipy.sparse.csgraph import connected_components  # slow to import and rarely needed

    bad = columns.rhat > RHAT_BAD
    if not bad.any():
        return (tuple(range(len(columns.means))),)
    means, within = columns.means[:, bad], columns.variances[:, bad].mean(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        squares = np.square(means[:, None] - means[None]) / within
    # if no chain moves, any difference is infinite
    distances = np.nan_to_num(squares, nan=0.0, posinf=1e6).mean(axis=-1)
    by_chance = 2.0 / np.median(columns.ess_within)
    _, labels = connected_components(distances <= FAR**2 + 2 * by_chance, directed=False)
    groups = [tuple(int(c) for c in np.flatnonzero(labels == label)) for label in np.unique(labels)]
    return tuple(sorted(groups, key=lambda group: (-len(group), group)))


def compare_chains_of_weights(posterior: DrawsPosterior, draws: int) -> Compared:
    """Compare chains leaf by leaf, using `draws` evenly spaced draws per chain."""
    leaves, parts = [], []
    for name, leaf in zip(posterior.problem.leaf_names, jax.tree.leaves(posterior.draws), strict=True):
        size = int(np.prod(leaf.shape[2:], dtype=np.int64))
        if size:
            entries = sample_indices(size)
            parts.append(compare_chains(_leaf_columns(leaf, entries, draws)))
            leaves.append(
                summarize_columns(name, size, parts[-1], 1, partial(_weight_name, name, leaf.shape[2:], entries))
            )
    return Compared(leaves, reduce(Columns.join, parts))


def compare_chains_of_predictions(posterior: Posterior, x: PyTree, chains: int, draws: int) -> Compared:
    """Compare chains by their predictions at x, using `draws` evenly spaced draws per chain."""
    count = jax.tree.leaves(x)[0].shape[0]
    points = sample_indices(count)
    # a posterior gives all draws of a chain before those of the next
    blocks = (values.reshape(chains, draws, -1) for values in _predictions(posterior, x, points, chains * draws))
    columns = reduce(Columns.join, map(compare_chains, blocks))
    per_point = columns.rhat.size // len(points)
    summary = summarize_columns("predictions", count, columns, per_point, lambda i: f"test point {points[i]}")
    return Compared([summary], columns)


def worst_rhat_of_predictions(posterior: Posterior, x: PyTree, chains: int, draws: int) -> float:
    """The largest R-hat over predictions, using `draws` evenly spaced draws per chain; NaN if they are constant."""
    points = sample_indices(jax.tree.leaves(x)[0].shape[0])
    parts = [rhat(values.reshape(chains, draws, -1)) for values in _predictions(posterior, x, points, chains * draws)]
    return float(np.fmax.reduce(np.concatenate(parts)))


def sample_indices(count: int, most: int | None = None) -> np.ndarray:
    """The indices to examine: all, or a seeded sample of `most`."""
    most = LOOKED_AT if most is None else most
    if count <= most:
        return np.arange(count)
    return np.sort(np.random.default_rng(0).choice(count, most, replace=False))


def _weight_name(leaf: str, shape: tuple[int, ...], entries: np.ndarray, entry: int) -> str:
    """``layers/0/weight[3, 1]``; a leaf of one weight is named by its path alone."""
    index = np.unravel_index(entries[entry], shape)
    return f"{leaf}[{', '.join(map(str, index))}]" if shape else leaf


def _leaf_columns(leaf: jax.Array | np.ndarray | StoredDraws, entries: np.ndarray, draws: int) -> np.ndarray:
    """The chosen entries of a leaf in evenly spaced draws, (chains, draws, entries)."""
    leaf = np.asarray(leaf) if isinstance(leaf, jax.Array) else leaf
    chains, draws_per_chain = leaf.shape[:2]
    chosen = np.arange(draws) * draws_per_chain // draws
    columns = np.empty((chains, draws, len(entries)))
    bytes_per_draw = chains * int(np.prod(leaf.shape[2:], dtype=np.int64)) * leaf.dtype.itemsize
    step = fitting(BLOCK_BYTES, bytes_per_draw)
    for first in range(0, draws, step):
        block = chosen[first : first + step]
        read = np.asarray(leaf[np.arange(chains)[:, None], block[None]])
        columns[:, first : first + step] = read.reshape(chains, len(block), -1)[:, :, entries]
    return columns


def _predictions(posterior: Posterior, x: PyTree, points: np.ndarray, total: int) -> Iterator[np.ndarray]:
    """What `total` draws predict at the chosen test points, a block of points at a time: (total, points, outputs)."""
    if posterior.problem.couples_examples(x):
        yield posterior.predict(x, total).per_draw()[:, points]  # such a network must see its examples together
        return
    shape = posterior.problem.output_spec(x).shape[1:]
    size = fitting(PREDICTION_BYTES, 4 * total * int(np.prod(shape, dtype=np.int64)))
    for first in range(0, len(points), size):
        block = points[first : first + size]
        yield posterior.predict(jax.tree.map(lambda a, block=block: a[block], x), total).per_draw()
