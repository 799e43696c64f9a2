"""Simulation-based calibration: are the ranks of true values among posterior draws uniform? (Talts et al. 2018)

    theta ~ p(theta),  y ~ p(y | theta),  theta_1 .. theta_L ~ posterior of y:   rank = #{theta_l < theta} ~ U{0 .. L}

It holds for every parameter if the draws are independent draws of the exact posterior.
"""

import numpy as np
from scipy import stats


def ranks(prior_draws: np.ndarray, posterior_draws: np.ndarray) -> np.ndarray:
    """Where each true value lies among its posterior's draws: ints from 0 to L, of the shape of `prior_draws`.

    Args:
        prior_draws: (replications, ...), the true values.
        posterior_draws: (replications, L, ...), nearly independent: thin the chains of a sampler first.
    """
    below = np.asarray(posterior_draws) < np.expand_dims(np.asarray(prior_draws), 1)
    return below.sum(axis=1)


def uniformity(ranks: np.ndarray, draws: int, bins: int | None = None) -> np.ndarray:
    """p-values of a chi-square test that the ranks of each parameter are uniform on 0 .. draws.

    Args:
        ranks: (replications, ...).
        draws: L, how many draws each rank was taken among.
        bins: by default as many, up to 20, as leave ten ranks expected in each; bins need not be of equal width.
    """
    flat = np.asarray(ranks).reshape(len(ranks), -1)
    bins = min(bins or max(2, min(20, len(flat) // 10)), draws + 1)
    edges = np.linspace(0, draws + 1, bins + 1).round()
    expected = len(flat) * np.diff(edges) / (draws + 1)
    counts = [np.histogram(column, edges - 0.5)[0] for column in flat.T]
    return np.array([stats.chisquare(count, expected).pvalue for count in counts])


def assert_uniform(ranks: np.ndarray, draws: int, level: float) -> None:
    """Fail if any parameter's ranks are not uniform; `level` is the chance that this fails for exact draws.

    Bonferroni over parameters, so that the level holds however they depend on each other.
    """
    p_values = uniformity(ranks, draws)
    least = p_values.min() * len(p_values)
    assert least > level, f"ranks are not uniform: p = {least:.2g} over {len(p_values)} parameters"
