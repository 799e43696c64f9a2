"""Every method on problems whose posterior is known. Add a method: one line in METHODS."""

from dataclasses import dataclass
from typing import Any

import known
import numpy as np
import optax
import pytest
from blackjax.diagnostics import effective_sample_size

import posteriax as px
from posteriax import families as q


@dataclass(frozen=True)
class Case:
    method: Any
    length: dict[str, Any]
    recovers: str  # "mean", "mean-field" or "all": how much of the posterior the method claims to know


def adam(steps: int) -> optax.GradientTransformation:
    return optax.adam(optax.cosine_decay_schedule(3e-2, steps))


METHODS = {
    "MAP": Case(px.MAP(adam(6000)), {"steps": 6000}, "mean"),
    "VI": Case(px.VI(q.Normal(), optimizer=adam(100_000)), {"steps": 100_000}, "mean-field"),
    "HMC": Case(px.HMC(), {"draws": 2000}, "all"),
    "HMC chains": Case(px.HMC(), {"draws": 1000, "chains": 2}, "all"),
    "Ensemble of VI": Case(
        px.Ensemble(px.VI(q.Normal(), optimizer=adam(100_000)), 2), {"steps": 100_000}, "mean-field"
    ),
    "Ensemble of MAP": Case(px.Ensemble(px.MAP(adam(6000)), 2, starts="prior"), {"steps": 6000}, "mean"),
}


ENSEMBLES = ("HMC chains", "Ensemble of VI", "Ensemble of MAP")
CASES = [
    # ensembles run the same steps as their method: one problem suffices for every day
    pytest.param(n, p, marks=pytest.mark.slow if n in ENSEMBLES and p == "correlated Gaussian" else [])
    for n in METHODS
    for p in known.PROBLEMS
]


@pytest.mark.parametrize(("name", "problem"), CASES)
def test_recovers_the_known_posterior(name, problem):
    check_recovery(METHODS[name], known.PROBLEMS[problem]())


@pytest.mark.parametrize("name", ["VI", "HMC", "MAP"])
def test_a_temperature_scales_the_whole_posterior(name):
    check_recovery(METHODS[name], known.linear_regression(temperature=0.3))


def check_recovery(case: Case, exact: known.Known) -> None:
    posterior = px.fit(exact.problem, exact.data, case.method, key=0, **case.length)
    scale = np.sqrt(np.diag(exact.covariance))
    if case.recovers == "mean":
        np.testing.assert_allclose(posterior.mean["w"][:, 0], exact.mean, atol=0.01 * scale.min())
    elif case.recovers == "mean-field":
        # the noise of single draws, which a step size that ends at 0 averages away, is the only error
        np.testing.assert_allclose(posterior.mean["w"][:, 0], exact.mean, atol=0.05 * scale.min())
        log_scale = np.asarray(posterior.variational["w"]["log_scale"])[..., 0]
        for member in log_scale:
            np.testing.assert_allclose(np.exp(2 * member), exact.mean_field_variance, rtol=0.03)
    else:
        check_draws(np.asarray(posterior.draws.network["w"])[..., 0], exact)


def check_draws(draws: np.ndarray, exact: known.Known) -> None:
    """(chains, draws, D): the mean within 3 Monte-Carlo standard errors, the covariance within 10 %."""
    scale = np.sqrt(np.diag(exact.covariance))
    error = scale / np.sqrt(np.asarray(effective_sample_size(draws)))
    flat = draws.reshape(-1, draws.shape[-1])
    assert np.all(np.abs(flat.mean(axis=0) - exact.mean) < 3 * error)
    difference = np.cov(flat.T) - exact.covariance
    assert np.linalg.norm(difference) < 0.1 * np.linalg.norm(exact.covariance)
