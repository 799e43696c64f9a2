"""Regressions in the manner of posteriordb's, with raw columns and wide priors, and their exact posterior moments.

The data are made up here, with the sizes, units and correlations of the well-known sets that the problems are named
after. The moments are computed in float64 from the same float32 numbers that the methods see:

    given sigma      the weights are Gaussian, precision P = X'X / sigma^2 + S^-1, mean m = P^-1 X'y / sigma^2
    over log sigma   p(log sigma | y) is a density in one dimension, integrated on a grid of 4,001 points

and for the logistic regression by Gauss-Hermite quadrature around the mode, 48 nodes to a dimension.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import posteriax as px
from posteriax import priors as p


@dataclass(frozen=True)
class Regression:
    """A problem, its data, and the exact mean and standard deviation of every latent variable."""

    problem: px.Problem
    data: tuple[np.ndarray, np.ndarray]
    names: tuple[str, ...]
    mean: np.ndarray
    sd: np.ndarray

    def columns(self, posterior: Any) -> np.ndarray:
        """(chains, draws, latent variables): the draws in the order of `names`."""
        network, own = posterior.draws
        parts = [np.asarray(network["w"])[..., 0], *(np.asarray(leaf)[..., None] for leaf in own.values())]
        return np.concatenate(parts, axis=-1).astype(np.float64)


def linear(names: str, x: np.ndarray, y: np.ndarray, prior_scale: float) -> Regression:
    """Linear regression with learned noise, log sigma ~ N(log s_y, 3^2), s_y the targets' standard deviation."""
    x, y = x.astype(np.float32), y.astype(np.float32)
    problem = px.Problem(network(x.shape[1]), px.Normal("learned"), p.Normal(prior_scale))
    mean, sd = linear_moments(x.astype(np.float64), y.astype(np.float64), prior_scale)
    return Regression(problem, (x, y), (*names.split(), "log_scale"), mean, sd)


def network(size: int) -> Any:
    return lambda params, x: x @ params["w"], {"w": np.zeros((size, 1), np.float32)}


def linear_moments(x: np.ndarray, y: np.ndarray, prior_scale: float) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of all weights and of log sigma."""
    unit = np.linalg.norm(x, axis=0)  # columns of length 1: X'X then is as well conditioned as can be
    x = x / unit
    inner, cross, square = x.T @ x, x.T @ y, y @ y
    prior_precision = np.diag(1.0 / (unit * prior_scale) ** 2)
    residual = np.sqrt(np.mean((y - x @ np.linalg.lstsq(x, y, rcond=None)[0]) ** 2))
    grid = np.log(residual) + np.linspace(-12.0, 12.0, 4001) / np.sqrt(2 * len(y))
    log_density, means, variances = [], [], []
    for log_sigma in grid:
        sigma2 = np.exp(2 * log_sigma)
        precision = inner / sigma2 + prior_precision
        covariance = np.linalg.inv(precision)
        mean = covariance @ cross / sigma2
        fit = -0.5 * (square / sigma2 - mean @ precision @ mean) - len(y) * log_sigma
        log_prior = -0.5 * ((log_sigma - np.log(y.std())) / 3.0) ** 2
        log_density.append(fit - 0.5 * np.linalg.slogdet(precision)[1] + log_prior)
        means.append(mean)
        variances.append(np.diag(covariance))
    weight = np.exp(np.array(log_density) - np.max(log_density))
    weight /= weight.sum()
    mean = weight @ np.array(means)
    variance = weight @ (np.array(variances) + (np.array(means) - mean) ** 2)
    mean_log, second = weight @ grid, weight @ grid**2
    return np.append(mean / unit, mean_log), np.append(np.sqrt(variance) / unit, np.sqrt(second - mean_log**2))


def logistic_moments(x: np.ndarray, y: np.ndarray, prior_scale: float) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of the weights of a logistic regression."""
    unit = x.std(axis=0) + np.abs(x.mean(axis=0))
    x, precision = x / unit, 1.0 / (unit * prior_scale) ** 2
    sign = 2.0 * y - 1.0
    w = np.zeros(x.shape[1])
    for _ in range(50):  # Newton's steps to the mode
        chance = 1 / (1 + np.exp(-x @ w))
        hessian = (x * (chance * (1 - chance))[:, None]).T @ x + np.diag(precision)
        w = w + np.linalg.solve(hessian, x.T @ (y - chance) - precision * w)
    nodes, weights = np.polynomial.hermite_e.hermegauss(48)
    points = np.stack(np.meshgrid(*[nodes] * len(w), indexing="ij"), axis=-1).reshape(-1, len(w))
    base = np.stack(np.meshgrid(*[np.log(weights)] * len(w), indexing="ij"), axis=-1).sum(-1).reshape(-1)
    at = w + points @ np.linalg.inv(np.linalg.cholesky(hessian))
    log_joint = np.concatenate([-np.logaddexp(0, -part @ (x * sign[:, None]).T).sum(1) for part in np.split(at, 48)])
    log_weight = log_joint - 0.5 * (at**2) @ precision + base + 0.5 * (points**2).sum(1)
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()
    mean = weight @ at
    return mean / unit, np.sqrt(weight @ (at - mean) ** 2) / unit


def sblri() -> Regression:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(100, 5))
    return linear("x1 x2 x3 x4 x5", x, x @ rng.normal(size=5) + rng.normal(size=100), 10.0)


def autoregression() -> Regression:
    """Five lags of a series of 200."""
    rng = np.random.default_rng(2)
    series = list(rng.normal(size=5))
    for _ in range(195):
        series.append(float(0.1 + np.dot([0.3, 0.2, 0.1, -0.1, 0.2], series[:-6:-1]) + 0.4 * rng.normal()))
    values = np.array(series)
    lags = np.stack([np.ones(195), *(values[5 - k : -k] for k in range(1, 6))], axis=1)
    return linear("intercept lag1 lag2 lag3 lag4 lag5", lags, values[5:], 10.0)


def kidscore(columns: str) -> Callable[[], Regression]:
    """A child's score by the mother's IQ, in points, and whether she finished high school."""

    def make() -> Regression:
        rng = np.random.default_rng(3)
        hs = (rng.random(434) < 0.79).astype(float)
        iq = 92.0 + 10.0 * hs + 14.0 * rng.normal(size=434)
        score = 25.0 + 6.0 * hs + 0.56 * iq + 18.0 * rng.normal(size=434)
        every = {"1": np.ones(434), "hs": hs, "iq": iq, "hs*iq": hs * iq}
        every |= {"z_iq": (iq - iq.mean()) / iq.std(), "z_hs": hs - hs.mean()}
        every["z_hs*z_iq"] = every["z_hs"] * every["z_iq"]
        return linear(columns, np.stack([every[name] for name in columns.split()], axis=1), score, 1000.0)

    return make


def election() -> Regression:
    """Party of 700 voters by ideology, age groups, income, education, race and sex: dummies and small scales."""
    rng = np.random.default_rng(4)
    group = rng.integers(0, 4, 700)
    dummies = np.stack([group == g for g in (1, 2, 3)], axis=1).astype(float)
    ideology, income, education = rng.integers(1, 8, 700), rng.integers(1, 6, 700), rng.integers(1, 5, 700)
    race, sex = rng.random(700) < 0.1, rng.random(700) < 0.5
    x = np.column_stack([np.ones(700), ideology, race, dummies, education, sex, income]).astype(float)
    y = x @ np.array([1.8, 0.48, -1.1, -0.2, -0.05, 0.4, 0.3, 0.0, 0.16]) + 1.9 * rng.normal(size=700)
    return linear("intercept ideology race age2 age3 age4 education sex income", x, y, 100.0)


def earnings() -> Regression:
    """Log earnings by height in inches, sex, and their product: two pairs of almost collinear columns."""
    rng = np.random.default_rng(5)
    male = (rng.random(1192) < 0.43).astype(float)
    height = 64.5 + 5.5 * male + 2.6 * rng.normal(size=1192)
    x = np.stack([np.ones(1192), height, male, height * male], axis=1)
    y = 8.3 + 0.017 * height - 0.08 * male + 0.0074 * height * male + 0.88 * rng.normal(size=1192)
    return linear("intercept height male height*male", x, y, 100.0)


def mesquite() -> Regression:
    """Log weight of 46 bushes by six logs of their sizes, which measure nearly the same."""
    rng = np.random.default_rng(6)
    size = rng.normal(size=(46, 1))
    logs = 0.9 * size + 0.35 * rng.normal(size=(46, 5)) + np.array([0.8, 0.5, 0.4, 0.2, 0.3])
    x = np.column_stack([np.ones(46), logs, rng.random(46) < 0.55]).astype(float)
    y = x @ np.array([5.3, 0.4, 1.2, 0.4, 0.4, 0.1, -0.6]) + 0.33 * rng.normal(size=46)
    return linear("intercept diam1 diam2 height canopy density group", x, y, 100.0)


def mesquite_in_grams() -> Regression:
    """Weight of 46 bushes in grams by their sizes in metres: a noise of some 270, in the target's own units."""
    rng = np.random.default_rng(6)
    sizes = np.exp(0.4 * rng.normal(size=(46, 1)) + 0.25 * rng.normal(size=(46, 5)))
    x = np.column_stack([np.ones(46), sizes, rng.random(46) < 0.55]).astype(float)
    y = x @ np.array([-700.0, 190.0, 370.0, 350.0, -100.0, 130.0, -360.0]) + 270.0 * rng.normal(size=46)
    return linear("intercept diam1 diam2 height canopy density group", x, y, 10_000.0)


def uneven() -> Regression:
    """Columns from 1e-3 to 1e3, and so weights from 1e3 to 1e-3, under one prior."""
    rng = np.random.default_rng(7)
    units = 10.0 ** np.linspace(-3, 3, 7)
    x = rng.normal(size=(200, 7)) * units
    y = (x / units) @ rng.normal(size=7) + 0.5 * rng.normal(size=200)
    return linear("w1 w2 w3 w4 w5 w6 w7", x, y, 1e4)


def logistic() -> Regression:
    """Yes or no by age in years and a dose in grams."""
    rng = np.random.default_rng(8)
    age, dose = 50 + 12 * rng.normal(size=250), 0.02 + 0.006 * rng.normal(size=250)
    x = np.stack([np.ones(250), age, dose], axis=1).astype(np.float32)
    y = (rng.random(250) < 1 / (1 + np.exp(-(x @ np.array([-5.0, 0.06, 110.0]))))).astype(np.int32)
    mean, sd = logistic_moments(x.astype(np.float64), y.astype(np.float64), 300.0)
    problem = px.Problem(network(3), px.Bernoulli(), p.Normal(300.0))
    return Regression(problem, (x, y), ("intercept", "age", "dose"), mean, sd)


def gaussian() -> Regression:
    """Ten correlated latents with standard deviations from 1e-3 to 1e3: a linear regression with known noise."""
    rng = np.random.default_rng(9)
    scales = 10.0 ** np.linspace(-3, 3, 10)
    near = 0.8 ** np.abs(np.subtract.outer(np.arange(10), np.arange(10)))
    wanted, prior_scale = near * np.outer(scales, scales), 1e5
    root = np.linalg.cholesky(np.linalg.inv(wanted) - np.eye(10) / prior_scale**2).T.astype(np.float32)
    y = (root @ (scales * rng.normal(size=10))).astype(np.float32)
    exact = root.astype(np.float64)
    units = scales[:, None] * exact.T
    covariance = np.linalg.inv(units @ units.T + np.diag((scales / prior_scale) ** 2))
    mean = scales * (covariance @ units @ y.astype(np.float64))
    problem = px.Problem(network(10), px.Normal(1.0), p.Normal(prior_scale))
    names = tuple(f"w{i}" for i in range(10))
    return Regression(problem, (root, y), names, mean, scales * np.sqrt(np.diag(covariance)))


REGRESSIONS: dict[str, Callable[[], Regression]] = {
    "sblri": sblri,
    "arK": autoregression,
    "kidscore hs": kidscore("1 hs"),
    "kidscore iq": kidscore("1 iq"),
    "kidscore hs iq": kidscore("1 hs iq"),
    "kidscore interaction": kidscore("1 hs iq hs*iq"),
    "kidscore standardised": kidscore("1 z_hs z_iq z_hs*z_iq"),
    "election": election,
    "earnings": earnings,
    "mesquite": mesquite,
    "mesquite in grams": mesquite_in_grams,
    "uneven columns": uneven,
    "logistic": logistic,
    "uneven Gaussian": gaussian,
}
