"""The harness of simulation-based calibration: it must pass exact posteriors, and fail biased and narrow ones."""

import numpy as np
import pytest
import sbc

REPLICATIONS, DRAWS, PRIOR, NOISE = 200, 99, 1.0, 0.5


def conjugate(seed: int, shift: float = 0.0, widen: float = 1.0) -> np.ndarray:
    """Ranks of a normal mean under its exact posterior, or one shifted (in standard deviations) and widened."""
    rng = np.random.default_rng(seed)
    true = PRIOR * rng.normal(size=(REPLICATIONS, 3))
    y = true + NOISE * rng.normal(size=true.shape)
    variance = 1 / (1 / PRIOR**2 + 1 / NOISE**2)
    mean = variance * y / NOISE**2
    noise = rng.normal(size=(REPLICATIONS, DRAWS, 3))
    return sbc.ranks(true, mean[:, None] + np.sqrt(variance) * (shift + widen * noise))


def test_exact_posteriors_fail_as_often_as_the_level_says():
    p_values = np.concatenate([sbc.uniformity(conjugate(seed), DRAWS) for seed in range(200)])
    rejected = np.mean(p_values < 0.05)
    assert abs(rejected - 0.05) < 4 * np.sqrt(0.05 * 0.95 / len(p_values))


def test_ranks_count_the_draws_below():
    assert sbc.ranks(np.array([2.5]), np.array([[1.0, 2.0, 3.0]])).tolist() == [2]


@pytest.mark.parametrize("wrong", [{"shift": 0.5}, {"widen": 0.6}, {"widen": 1.7}], ids=str)
def test_wrong_posteriors_are_found(wrong):
    with pytest.raises(AssertionError, match="not uniform"):
        sbc.assert_uniform(conjugate(0, **wrong), DRAWS, level=0.01)
