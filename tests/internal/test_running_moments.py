"""Running moments against NumPy's, in blocks of any size, also where the mean is far larger than the spread."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posteriax._internal.running_moments import add_value, mean_and_covariance, mean_and_variance


def in_blocks(rows, *sizes):
    ends = np.cumsum(sizes)
    assert ends[-1] == len(rows)
    return np.split(rows, ends[:-1])


@pytest.mark.parametrize("sizes", [(50,), (1, 49), (7, 20, 23), (1,) * 50], ids=str)
@pytest.mark.parametrize("offset", [0.0, 1e8])
def test_moments_in_blocks_are_those_of_all_rows(sizes, offset):
    rows = np.random.default_rng(0).normal(size=(50, 2, 3)) + offset
    mean, variance = mean_and_variance(in_blocks(rows, *sizes))
    np.testing.assert_allclose(mean, rows.mean(axis=0), rtol=1e-12, atol=1e-12)
    # at an offset of 1e8 a double holds the rows to 1e-8, but not their squares: sums of those would keep no digit
    np.testing.assert_allclose(variance, rows.var(axis=0), rtol=1e-6)
    mean, covariance = mean_and_covariance(in_blocks(rows, *sizes))
    assert mean.shape == (2, 3)
    np.testing.assert_allclose(covariance, np.cov(rows.reshape(50, -1).T), rtol=1e-6, atol=1e-7)


def test_what_never_changes_has_no_variance_at_all():
    """A mean of equal numbers may be off by a rounding; p.EmpCov needs the zero of a dead pixel to be one."""
    rows = np.full((1000, 2), 0.1, np.float32)
    rows[:, 1] = np.arange(1000)
    assert mean_and_variance(in_blocks(rows, 300, 700))[1][0] == 0.0
    assert mean_and_covariance(in_blocks(rows, 300, 700))[1][0].tolist() == [0.0, 0.0]


def one_by_one(rows, shares):
    tree = {"w": jnp.zeros(rows.shape[1:], rows.dtype)}
    start = (tree, tree)
    steps = (jnp.asarray(rows), jnp.asarray(shares, jnp.float32))
    step = lambda moments, given: (add_value(*moments, {"w": given[0]}, given[1]), None)  # noqa: E731
    (mean, variance), _ = jax.jit(lambda: jax.lax.scan(step, start, steps))()
    return np.asarray(mean["w"]), np.asarray(variance["w"])


@pytest.mark.parametrize("power", [0, 3])
def test_values_one_by_one_have_the_weighted_moments_of_all(power):
    """The t-th of n counts as t (t + 1) ... (t + power - 1): its share among the first t is (power + 1) / (t + power).

    In float32 at 1000 with a spread of 0.1, whose squares single precision cannot tell apart.
    """
    rows = (1000 + 0.1 * np.random.default_rng(0).normal(size=(200, 5))).astype(np.float32)
    t = np.arange(1, 201)
    weights = np.prod([t + i for i in range(power)], axis=0) * np.ones(200)
    mean, variance = one_by_one(rows, (power + 1) / (t + power))
    exact = np.average(rows.astype(np.float64), weights=weights, axis=0)
    of_squares = np.average(np.square(rows - exact), weights=weights, axis=0)
    np.testing.assert_allclose(mean, exact, atol=2e-4)  # float32's spacing at 1000 is 6e-5
    np.testing.assert_allclose(variance, of_squares, rtol=0.01)


def test_values_that_never_change_have_no_variance():
    rows = np.full((50, 2), 0.1, np.float32)
    mean, variance = one_by_one(rows, 1 / np.arange(1, 51))
    assert mean.tolist() == rows[0].tolist() and variance.tolist() == [0.0, 0.0]


def test_blocks_are_left_as_they_were():
    rows = np.random.default_rng(1).normal(size=(6, 2))
    given = rows.copy()
    mean_and_covariance([rows])
    mean_and_variance([rows])
    np.testing.assert_array_equal(rows, given)


def test_one_row_has_no_covariance():
    with pytest.raises(ValueError, match="at least two draws"):
        mean_and_covariance([np.ones((1, 3))])
