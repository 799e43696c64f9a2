"""The cost of mean-field against closed forms, its null, and its mode."""

import equinox as eqx
import jax
import numpy as np
import pytest
from by_hand import drawn, variational
from scipy.linalg import sqrtm

import posteriax as px
from posteriax.analysis.mean_field_cost import expected_null, interval, kl_cost, w_cost, wasserstein, without_dependence


def gaussian_wasserstein(mean_1, cov_1, mean_2, cov_2):
    """W2^2 = |m1 - m2|^2 + tr(C1 + C2 - 2 (C1^(1/2) C2 C1^(1/2))^(1/2))"""
    root = sqrtm(cov_1)
    cross = sqrtm(root @ cov_2 @ root)
    return float(np.sqrt(np.square(mean_1 - mean_2).sum() + np.trace(cov_1 + cov_2 - 2 * np.real(cross))))


def correlated(n, d, rng, share=0.6):
    """Gaussian draws whose weights all correlate alike, and their correlation matrix."""
    correlation = np.full((d, d), share) + (1 - share) * np.eye(d)
    return rng.normal(size=(n, d)) @ np.linalg.cholesky(correlation).T, correlation


def test_e_kl_is_that_of_the_correlation_matrix_whatever_the_scales():
    rng = np.random.default_rng(0)
    draws, _ = correlated(500, 6, rng)
    expected = -0.5 * np.linalg.slogdet(np.corrcoef(draws, rowvar=False))[1]
    assert kl_cost(draws * np.geomspace(1e-3, 1e3, 6) + 5.0) == pytest.approx(expected)
    full, diagonal = np.cov(draws, rowvar=False), np.diag(draws.var(axis=0, ddof=1))
    trace = np.trace(np.linalg.solve(diagonal, full))
    between = 0.5 * (trace - 6 + np.linalg.slogdet(diagonal)[1] - np.linalg.slogdet(full)[1])  # KL of two Gaussians
    assert kl_cost(draws) == pytest.approx(between)


@pytest.mark.parametrize("null", ["shift", "permute"])
def test_the_null_is_the_formulas_for_independent_gaussians(null):
    rng = np.random.default_rng(0)
    draws = rng.normal(size=(2000, 200))
    cost = px.analysis.mean_field_cost(draws, points=50, null=null, most_components=1)
    assert cost.expected_null[0] == expected_null(200, 2000) == pytest.approx(5.15, abs=0.01)
    assert cost.kl_null[0] == pytest.approx(expected_null(200, 2000), rel=0.1)
    assert cost.kl[0] == pytest.approx(expected_null(200, 2000), rel=0.1)
    # the difference of two values that each have a standard deviation of about sqrt(d (d - 1)) / (2 n)
    assert abs(cost.kl_excess.mean) < 5 * np.sqrt(2) * np.sqrt(200 * 199) / (2 * 2000)


def test_the_excess_is_the_truth():
    rng = np.random.default_rng(1)
    restarts = np.stack([correlated(1000, 30, rng, share=0.3)[0] for _ in range(4)])
    _, correlation = correlated(10, 30, rng, share=0.3)
    truth = -0.5 * np.linalg.slogdet(correlation)[1]
    cost = px.analysis.mean_field_cost(restarts, points=100, most_components=1)
    error = np.std(cost.kl - cost.kl_null, ddof=1) / 2
    assert abs(cost.kl_excess.mean - truth) < 4 * error + 0.02 * truth
    np.testing.assert_allclose(cost.kl_null, expected_null(30, 1000), rtol=0.4)  # each varies by some 12 %
    assert cost.kl_excess.low < cost.kl_excess.mean < cost.kl_excess.high


def test_shifting_keeps_the_autocorrelation_that_permuting_loses():
    rng = np.random.default_rng(0)
    chain = np.zeros((1000, 20))
    for i in range(1, 1000):
        chain[i] = 0.95 * chain[i - 1] + rng.normal(size=20)
    honest = kl_cost(chain)  # all of it is noise
    shifted, permuted = (kl_cost(without_dependence(chain, null, rng)) for null in ("shift", "permute"))
    assert permuted < honest / 4
    assert honest / 2 < shifted < honest * 2
    np.testing.assert_allclose(np.sort(without_dependence(chain, "shift", rng), axis=0), np.sort(chain, axis=0))


@pytest.mark.slow
def test_assignment_is_exact_and_close_to_the_gaussian_formula():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(6, 2)), rng.normal(size=(6, 2))
    from itertools import permutations

    best = min(np.square(a - b[list(order)]).sum(axis=1).mean() for order in permutations(range(6)))
    assert wasserstein(a, b) == pytest.approx(np.sqrt(best))
    first, second = rng.normal(size=(1500, 1)), 2 + 3 * rng.normal(size=(1500, 1))
    exact = gaussian_wasserstein(np.zeros(1), np.eye(1), np.full(1, 2.0), 9 * np.eye(1))
    assert exact == pytest.approx(np.sqrt(4 + 4))
    assert wasserstein(first, second) == pytest.approx(exact, rel=0.05)


@pytest.mark.slow
def test_e_w_is_that_of_the_gaussians():
    rng = np.random.default_rng(0)
    draws, correlation = correlated(1500, 2, rng, share=0.9)
    noise, chosen = rng.standard_normal((1500, 2)), np.arange(1500)
    zero = np.zeros(2)
    exact = gaussian_wasserstein(zero, correlation, zero, np.eye(2))
    # the distance of 1,500 points to as many others of the same distribution is not 0; it is in both terms
    assert w_cost(draws, noise, chosen) == pytest.approx(exact, abs=0.12)
    apart = without_dependence(draws, "permute", rng)
    assert abs(w_cost(apart, noise, chosen)) < 0.05


def test_the_heaviest_mode_is_found_among_several():
    rng = np.random.default_rng(0)
    centres = 8 * rng.normal(size=(3, 40))
    labels = rng.choice(3, size=900, p=[0.2, 0.5, 0.3])
    draws = centres[labels] + rng.normal(size=(900, 40))
    mode = px.analysis.dominant_mode(draws)
    assert mode.components == 3 and mode.bic.argmin() == 2
    np.testing.assert_array_equal(mode.members, np.flatnonzero(labels == 1))
    cost = px.analysis.mean_field_cost(draws, points=100)
    assert cost.draws[0] == (labels == 1).sum()
    # within the mode weights are independent; across modes they are not
    assert cost.kl[0] < 1.3 * cost.expected_null[0] < kl_cost(draws)


@pytest.mark.slow
def test_the_chains_of_a_sampler_are_restarts_and_a_million_weights_serve():
    rng = np.random.default_rng(0)
    net = eqx.nn.Linear(1000, 1000, use_bias=False, key=jax.random.key(0))
    weights = rng.normal(size=(1, 5, 1000, 1000)).astype(np.float32)
    params = eqx.tree_at(lambda linear: linear.weight, net, weights)
    cost = px.analysis.mean_field_cost(drawn(net, params), points=5)
    assert cost.weights == 1_000_000 and np.isinf(cost.kl[0]) and np.isfinite(cost.w[0])
    with pytest.raises(ValueError, match=r"20,000 x 20,000 matrix of 3 GB .limit 2 GB."):
        kl_cost(np.broadcast_to(np.zeros((20_001, 1)), (20_001, 20_000)))
    small = eqx.nn.Linear(2, 1, key=jax.random.key(0))
    chains = eqx.tree_at(
        lambda n: (n.weight, n.bias), small, (rng.normal(size=(3, 100, 1, 2)), rng.normal(size=(3, 100, 1)))
    )
    cost = px.analysis.mean_field_cost(drawn(small, chains, px.Normal(1.0)), points=50)
    assert cost.kl.shape == (3,) and cost.weights == 3
    text = str(cost)
    assert "3 weights, 3 restarts" in text and "95 %" in text and "null" in text


def test_intervals_are_students():
    from scipy import stats

    values = np.array([1.0, 2.0, 4.0, 3.5])
    low, high = stats.t.interval(0.95, 3, values.mean(), stats.sem(values))
    assert interval(values) == pytest.approx((values.mean(), low, high))
    assert np.isnan(interval(values[:1]).low)


def test_what_cannot_be_measured_is_said():
    with pytest.raises(TypeError, match="needs draws"):
        px.analysis.mean_field_cost(variational(eqx.nn.Linear(2, 2, key=jax.random.key(0))))
    with pytest.raises(ValueError, match="restarts, n, d"):
        px.analysis.mean_field_cost(np.ones((2, 5)))
    with pytest.raises(ValueError, match="non-finite"):
        px.analysis.mean_field_cost(np.full((10, 3), np.nan))
    with pytest.raises(ValueError, match='"shift" or "permute"'):
        px.analysis.mean_field_cost(np.ones((10, 3)), null="none")
    with pytest.raises(ValueError, match="all draws are identical"):
        px.analysis.mean_field_cost(np.ones((10, 3)))
