"""Samplers with default settings on regressions with raw columns, wide priors and known moments."""

import numpy as np
import pytest
import regressions
from scipy.stats import norm

import posteriax as px
from posteriax.diagnostics import ess_mean, rhat

SAMPLERS = {"HMC": px.HMC(), "NUTS": px.NUTS(), "MCLMC": px.MCLMC(), "AdjustedMCLMC": px.AdjustedMCLMC()}
EVERY_DAY = {("HMC", "mesquite in grams"), ("NUTS", "uneven columns")}
CASES = [
    pytest.param(sampler, name, marks=() if (sampler, name) in EVERY_DAY else pytest.mark.slow)
    for sampler in SAMPLERS
    for name in regressions.REGRESSIONS
]


@pytest.mark.parametrize(("sampler", "name"), CASES)
def test_default_settings_recover_mean_and_standard_deviation(sampler, name):
    """The means within as many standard errors as one run in a thousand exceeds; sds within 5 %, or 3 errors."""
    exact = regressions.REGRESSIONS[name]()
    posterior = px.fit(exact.problem, exact.data, SAMPLERS[sampler], draws=1000, chains=4, key=0)
    draws = exact.columns(posterior)
    assert rhat(draws).max() < 1.03
    effective, flat = ess_mean(draws), draws.reshape(-1, draws.shape[-1])
    assert effective.min() > 200
    error = np.abs(flat.mean(axis=0) - exact.mean) / (flat.std(axis=0) / np.sqrt(effective))
    assert error.max() < norm.isf(1e-3 / (2 * len(error)))
    of_squares = ess_mean((draws - exact.mean) ** 2)
    assert np.all(np.abs(flat.std(axis=0) / exact.sd - 1) < np.maximum(0.05, 3 / np.sqrt(2 * of_squares)))
