"""Masses that know correlations, against Gaussians whose covariance is known."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import sqrtm
from scipy.stats import ortho_group

import posteriax as px
from posteriax import priors as p
from posteriax.methods.sampling.masses import LearnedMasses, geometric_mean_with_inverse, learned_masses


def correlated_gaussian(size, condition, seed=0):
    """A linear regression whose posterior has this many weights and this condition number, and its covariance."""
    precisions, axes = np.geomspace(1.0, condition, size), ortho_group.rvs(size, random_state=seed)
    x = (np.sqrt(precisions)[:, None] * axes.T).astype(np.float32)
    problem = px.Problem((lambda w, x: x @ w, np.zeros((size, 1), np.float32)), px.Normal(1.0), prior=p.Normal(1000.0))
    return problem, (x, np.zeros(size, np.float32)), (axes / precisions) @ axes.T


def inverse_matrix(masses):
    sigma, directions, values = map(np.asarray, masses.inverse)
    return sigma[:, None] * (np.eye(len(sigma)) + (directions * (values - 1)) @ directions.T) * sigma


def learned_from(masses: LearnedMasses, draws, gradients, variances):
    """The masses after these states, in one program; the last of them is the last of the schedule."""

    def add(state, given):
        return masses.learn(state, *given), None

    given = jnp.arange(len(draws)), jnp.asarray(draws, jnp.float32), jnp.asarray(gradients, jnp.float32)
    return jax.jit(lambda s: jax.lax.scan(add, s, given)[0])(masses.start(jnp.asarray(variances, jnp.float32)))


def after_states(masses: LearnedMasses, covariance, states, seed=0):
    """The masses after independent draws from a Gaussian."""
    draws = np.random.default_rng(seed).multivariate_normal(np.zeros(len(covariance)), covariance, size=states)
    return learned_from(masses, draws, -draws @ np.linalg.inv(covariance), np.ones(len(covariance)))


def test_the_geometric_mean_is_that_of_scipy():
    rng = np.random.default_rng(0)
    roots = rng.normal(size=(2, 6, 6))
    c, g = roots @ roots.transpose(0, 2, 1) + np.eye(6)
    g_root = np.real(sqrtm(g))
    inside = np.real(sqrtm(g_root @ c @ g_root))
    expected = np.linalg.solve(g_root, np.linalg.solve(g_root, inside).T)
    found = geometric_mean_with_inverse(jnp.asarray(c, jnp.float32), jnp.asarray(g, jnp.float32))
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)  # float32, condition about 100
    np.testing.assert_allclose(found @ g @ found, c, rtol=1e-3, atol=1e-3)


def test_dense_masses_become_the_covariance_of_a_gaussian():
    """A Gaussian's draws and gradients have the same sampling error, so more states than weights give the covariance.
    What is left is the shrinkage by 0.2 of 200 states: in units of the scales the narrowest variance is about 1 / 30,
    of which 0.001 is 3 %, and the rounding of float32."""
    covariance = correlated_gaussian(8, 1e3)[2]
    masses = LearnedMasses(rank=8, states=200, updates=(400,))
    found = inverse_matrix(after_states(masses, covariance, 400))
    relative = np.linalg.eigvals(np.linalg.solve(covariance, found)).real  # all 1 if they are equal
    np.testing.assert_allclose(relative, 1.0, atol=0.1)


def test_low_rank_masses_find_the_directions_that_matter():
    """Three directions of 100 are a thousand times wider or narrower than the others, and 80 states do not span all:
    the condition falls from 5 x 10^5 in units of the scales to about that of shrinking three variances by 2.8 / 83."""
    axes, variances = ortho_group.rvs(100, random_state=0), np.ones(100)
    variances[:3] = 1e3, 1e-3, 1e3
    covariance = (axes * variances) @ axes.T
    scales = np.sqrt(np.diag(covariance) / np.diag(np.linalg.inv(covariance)))
    found = inverse_matrix(after_states(LearnedMasses(rank=8, states=80, updates=(160,)), covariance, 160))
    alone, together = (np.linalg.eigvals(np.linalg.solve(m, covariance)).real for m in (np.diag(scales), found))
    assert alone.max() / alone.min() > 1e5
    assert together.max() / together.min() < 200
    assert together.min() > 0.05  # in no direction are the masses far off
    assert together.max() < 20


def test_early_states_do_not_count():
    """Ten times as wide at first: the estimate uses the later half."""
    covariance = correlated_gaussian(5, 100.0)[2]
    masses = LearnedMasses(rank=5, states=30, updates=(60,))
    rng = np.random.default_rng(0)
    draws = rng.multivariate_normal(np.zeros(5), covariance, size=60)
    gradients = -rng.multivariate_normal(np.zeros(5), np.linalg.inv(covariance), size=60)
    one, other = (
        learned_from(masses, factor * draws, factor * gradients, np.ones(5)).inverse.lam
        for factor in (np.where(np.arange(60) < 30, scale, 1.0)[:, None] for scale in (10.0, 30.0))
    )
    np.testing.assert_array_equal(one, other)
    assert not np.array_equal(one, np.ones(5))  # of this many states, something was learned


def test_states_without_any_spread_leave_the_masses_as_they_were():
    masses = LearnedMasses(rank=3, states=10, updates=(20,))
    state = learned_from(masses, np.ones((20, 3)), np.ones((20, 3)), [1.0, 4.0, 9.0])
    np.testing.assert_allclose(inverse_matrix(state), np.diag([1.0, 4.0, 9.0]))


def test_the_default_is_dense_for_as_many_weights_as_pay():
    small, large = (px.Problem((lambda w, x: x @ w, np.zeros((n, 1), np.float32)), px.Normal(1.0)) for n in (50, 2500))
    assert learned_masses(None, small, 200).rank == 50
    assert learned_masses(None, large, 200).rank == 0
    assert learned_masses("low-rank", large, 200).rank == 32
    assert learned_masses("dense", large, 200).rank == 170  # two directions for each of 85 states
    assert learned_masses("prior", small, 200) is None
    assert not learned_masses("dense", small, 20).updates  # too short: a mass each
    assert learned_masses("dense", large, 10**6).states <= 2**25 // 2500


@pytest.mark.parametrize("sampler", [px.HMC, px.NUTS, px.AdjustedMCLMC, px.MCLMC])
def test_bad_masses_are_refused(sampler):
    with pytest.raises(ValueError, match="masses must be one of adapted, low-rank, dense, prior, got 'full'"):
        sampler(masses="full")
    if sampler is not px.HMC:
        with pytest.raises(ValueError, match='use masses="prior" with it'):
            sampler(masses="dense", step_size=0.1)


def test_correlated_weights_cost_no_more_than_independent_ones():
    """30 weights, condition 10^4: with a mass each a trajectory is as long as the square root of it over pi or so."""
    problem, data, covariance = correlated_gaussian(30, 1e4)
    leapfrogs, draws = {}, {}
    for masses in ("adapted", "dense"):
        posterior = px.fit(problem, data, px.HMC(masses=masses), draws=400, chains=2, key=0)
        leapfrogs[masses] = posterior.trace["leapfrogs"][:, 200:].mean()
        draws[masses] = np.asarray(posterior.draws.network, np.float64).reshape(-1, 30)
    assert leapfrogs["dense"] < 10
    assert leapfrogs["adapted"] > 5 * leapfrogs["dense"]
    # 800 draws, nearly independent: each variance along a principal axis has a standard error of sqrt(2 / 800) = 0.05
    values, axes = np.linalg.eigh(covariance)
    along = np.square(draws["dense"] @ axes).mean(axis=0) / values
    np.testing.assert_allclose(along, 1.0, atol=5 * 0.05)
