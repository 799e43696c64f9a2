"""Problems whose posterior is known in closed form, and the one table of all methods that are run on them.

A linear network with Gaussian noise and a Gaussian prior has the posterior N(mean, covariance) with

    precision = X'X / sigma^2 + I / s^2,   mean = precision^-1 X'y / sigma^2,   covariance = T precision^-1

and with weights W of the examples, X'WX and X'Wy in place of X'X and X'y.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import optax

import posteriax as px
from posteriax import families as q
from posteriax import priors as p
from posteriax.diagnostics import ess_mean, rhat


@dataclass(frozen=True)
class Known:
    """A problem, its data, and its exact posterior."""

    problem: px.Problem
    data: tuple[np.ndarray, ...]
    mean: np.ndarray
    covariance: np.ndarray

    @property
    def mean_field_variance(self) -> np.ndarray:
        """The variances of the factorised Gaussian closest in KL(q || posterior): 1 / diag(precision)."""
        return 1.0 / np.diag(np.linalg.inv(self.covariance))

    @property
    def scales(self) -> np.ndarray:
        return np.sqrt(np.diag(self.covariance))

    @property
    def small_step(self) -> float:
        """The step of Langevin dynamics whose discretisation adds 2 % to the narrowest variance."""
        return 0.04 * float(np.linalg.eigvalsh(self.covariance).min())


def linear(
    x: np.ndarray,
    y: np.ndarray,
    noise: float,
    prior_scale: float,
    temperature: float,
    weight: np.ndarray | None = None,
) -> Known:
    dimension = x.shape[1]
    net = (lambda params, inputs: inputs @ params["w"], {"w": np.zeros((dimension, 1), np.float32)})
    problem = px.Problem(net, px.Normal(scale=noise), p.Normal(scale=prior_scale), temperature)
    counted = x if weight is None else weight[:, None] * x
    precision = x.T @ counted / noise**2 + np.eye(dimension) / prior_scale**2
    covariance = np.linalg.inv(precision)
    mean = covariance @ counted.T @ y / noise**2
    data = tuple(a.astype(np.float32) for a in (x, y, weight) if a is not None)
    return Known(problem, data, mean, temperature * covariance)


def linear_regression(seed: int = 0, temperature: float = 1.0) -> Known:
    """Thirty noisy points on a plane in four dimensions, two of the inputs correlated."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(30, 4))
    x[:, 1] = 0.7 * x[:, 0] + 0.7 * x[:, 1]
    y = x @ np.array([1.0, -0.5, 0.3, 0.0]) + 0.5 * rng.normal(size=30)
    return linear(x, y, noise=0.5, prior_scale=1.0, temperature=temperature)


def weighted_regression(seed: int = 1) -> Known:
    """Forty noisy points on a plane in three dimensions, which count as 0 to 4 examples each."""
    rng = np.random.default_rng(seed)
    x, weight = rng.normal(size=(40, 3)), rng.uniform(0.0, 4.0, size=40)
    weight[:5] = 0.0
    y = x @ np.array([1.0, -0.5, 0.3]) + 0.5 * rng.normal(size=40)
    return linear(x, y, noise=0.5, prior_scale=1.0, temperature=1.0, weight=weight)


def correlated_gaussian(correlation: float = 0.9, temperature: float = 1.0) -> Known:
    """A posterior with mean (1, -1) and standard deviations 0.3 and 0.5, as correlated as asked for.

    The inputs are a square root of the precision that the prior leaves over.
    """
    scales = np.array([0.3, 0.5])
    covariance = np.outer(scales, scales) * np.array([[1.0, correlation], [correlation, 1.0]])
    mean, prior_scale = np.array([1.0, -1.0]), 2.0
    root = np.linalg.cholesky(np.linalg.inv(covariance) - np.eye(2) / prior_scale**2).T
    y = np.linalg.solve(root.T, np.linalg.inv(covariance) @ mean)
    return linear(root, y, noise=1.0, prior_scale=prior_scale, temperature=temperature)


PROBLEMS = {"linear regression": linear_regression, "correlated Gaussian": correlated_gaussian}


@dataclass(frozen=True)
class Case:
    """A method, how long it runs, and how much of the posterior it claims to know.

    Args:
        method: of a problem, because step sizes depend on it.
        length: of the run in the default suite.
        recovers: "mean", "mean-field", "Gaussian" (mean and covariance of a variational posterior) or "draws".
        thorough: the length of the run in the slow suite, if it is another.
    """

    method: Callable[[Known], Any]
    length: dict[str, Any]
    recovers: str
    thorough: dict[str, Any] = field(default_factory=dict)


def _adam(steps: int) -> optax.GradientTransformation:
    return optax.adam(optax.cosine_decay_schedule(3e-2, steps))


def _vi(family: Any) -> Callable[[Known], Any]:
    # from the network's own weights: the default would start linear models at the answer
    return lambda exact: px.VI(family, start="network")


def _langevin(draws: int, **more: Any) -> dict[str, Any]:
    return {"draws": draws, "chains": 4, "batch_size": 30, **more}


# to add a method: one line. Families have a table of their own, in families/test_known_optima.py
METHODS = {
    "MAP": Case(lambda exact: px.MAP(_adam(6000)), {"steps": 6000}, "mean"),
    "SWAG": Case(
        # without the noise of minibatches it ends where MAP does; what its spread is of is checked in test_swag.py
        lambda exact: px.SWAG(learning_rate=0.02, start_learning_rate=0.05),
        {"epochs": 3000, "batch_size": 30},
        "mean",
    ),
    "Laplace": Case(lambda exact: px.Laplace(structure="full", predictive="draws"), {"epochs": 1}, "Gaussian"),
    "Laplace, low-rank": Case(
        lambda exact: px.Laplace(structure="low-rank", predictive="draws"), {"epochs": 1}, "Gaussian"
    ),
    "VI, mean-field": Case(_vi(q.Normal()), {"steps": 100_000}, "mean-field"),
    "VI, k-tied": Case(_vi(q.KTied(1)), {"steps": 100_000}, "mean-field"),
    "VI, matrix normal": Case(_vi(q.MatrixNormal()), {"steps": 100_000}, "Gaussian"),
    "VI, full covariance": Case(_vi(q.FullCovariance()), {"steps": 5000}, "Gaussian"),
    "HMC": Case(lambda exact: px.HMC(warmup=300), {"draws": 500, "chains": 4}, "draws", {"draws": 2000, "chains": 4}),
    "NUTS": Case(lambda exact: px.NUTS(warmup=300), {"draws": 500, "chains": 4}, "draws", {"draws": 2000, "chains": 4}),
    "MCLMC": Case(
        lambda exact: px.MCLMC(warmup=2000, thin=10), {"draws": 500, "chains": 4}, "draws", {"draws": 2000, "chains": 4}
    ),
    "AdjustedMCLMC": Case(
        lambda exact: px.AdjustedMCLMC(warmup=300),
        {"draws": 500, "chains": 4},
        "draws",
        {"draws": 2000, "chains": 4},
    ),
    "HMC, low-rank masses": Case(
        lambda exact: px.HMC(warmup=300, masses="low-rank"),
        {"draws": 500, "chains": 4},
        "draws",
        {"draws": 2000, "chains": 4},
    ),
    "NUTS, a mass each": Case(
        lambda exact: px.NUTS(warmup=300, masses="adapted"),
        {"draws": 500, "chains": 4},
        "draws",
        {"draws": 2000, "chains": 4},
    ),
    "SGLD": Case(
        lambda exact: px.SGLD(exact.small_step, warmup_epochs=3000, epochs_per_draw=200),
        _langevin(400),
        "draws",
        _langevin(3000),
    ),
    "SGHMC": Case(
        lambda exact: px.SGHMC(exact.small_step, warmup_epochs=1000, epochs_per_draw=40),
        _langevin(400),
        "draws",
        _langevin(2000),
    ),
    "cyclical SGHMC": Case(
        lambda exact: px.SGHMC(exact.small_step, cyclical=True, warmup_epochs=1000, epochs_per_draw=80),
        _langevin(400),
        "draws",
        _langevin(2000),
    ),
    "preconditioned SGHMC": Case(
        lambda exact: px.SGHMC(
            exact.small_step**0.5 / 6, preconditioner="rmsprop", warmup_epochs=1000, epochs_per_draw=40
        ),
        _langevin(400),
        "draws",
        _langevin(2000),
    ),
    "Ensemble of MAP": Case(lambda exact: px.Ensemble(px.MAP(_adam(6000)), 2, starts="prior"), {"steps": 6000}, "mean"),
    "Ensemble of VI": Case(
        lambda exact: px.Ensemble(px.VI(q.Normal(), start="network"), 2), {"steps": 100_000}, "mean-field"
    ),
}


def check_recovery(case: Case, exact: Known, *, thorough: bool = False) -> None:
    """Fit, and compare what the method claims to know with the truth."""
    length = (thorough and case.thorough) or case.length
    posterior = px.fit(exact.problem, exact.data, case.method(exact), key=0, **length)
    if case.recovers == "draws":
        check_draws(np.asarray(posterior.draws.network["w"])[..., 0], exact)
    elif case.recovers == "mean":
        members = np.asarray(posterior.sample(0, posterior.support or 1)["w"])[..., 0]
        if posterior.support is None:  # SWAG
            members = np.asarray(posterior.mean["w"])[None, :, 0]
        np.testing.assert_allclose(members, np.broadcast_to(exact.mean, members.shape), atol=0.01 * exact.scales.min())
    else:
        # the noise of single draws, which a step size that ends at 0 averages away, is the only error
        np.testing.assert_allclose(posterior.mean["w"][:, 0], exact.mean, atol=0.05 * exact.scales.min())
        family = posterior.families["w"]
        for member in range(posterior.members):
            own = {name: value[member] for name, value in posterior.variational["w"].items()}
            if case.recovers == "mean-field":
                variance = np.asarray(family.variance(own))[:, 0]
                np.testing.assert_allclose(variance, exact.mean_field_variance, rtol=0.03)
            else:
                error = (family.covariance(own) - exact.covariance) / np.outer(exact.scales, exact.scales)
                assert np.abs(error).max() < 0.03


def check_draws(draws: np.ndarray, exact: Known) -> None:
    """(chains, draws, D): mixed, and mean and covariance as far from the truth as their standard errors allow.

    Covariances in units of the scales have standard errors of at most sqrt(2 / ESS); 4 of them, for some ten entries,
    and the 2 % that discretised dynamics may be off.
    """
    assert rhat(draws).max() < 1.02
    flat, effective = draws.reshape(-1, draws.shape[-1]), ess_mean(draws)
    assert effective.min() > 500
    assert np.all(np.abs(flat.mean(axis=0) - exact.mean) < 4 * exact.scales / np.sqrt(effective))
    error = (np.cov(flat.T) - exact.covariance) / np.outer(exact.scales, exact.scales)
    assert np.abs(error).max() < 4 * np.sqrt(2 / effective.min()) + 0.02
