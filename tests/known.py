"""Problems whose posterior is known in closed form. Every method is run on them.

A linear network with Gaussian noise and a Gaussian prior has the posterior N(mean, covariance) with

    precision = X'X / sigma^2 + I / s^2,   mean = precision^-1 X'y / sigma^2,   covariance = T precision^-1
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

import posteriax as px
from posteriax import priors as p


@dataclass(frozen=True)
class Known:
    """A problem, its data, and its exact posterior."""

    problem: px.Problem
    data: tuple[np.ndarray, np.ndarray]
    mean: np.ndarray
    covariance: np.ndarray

    @property
    def mean_field_variance(self) -> np.ndarray:
        """The variances of the factorised Gaussian closest in KL(q || posterior): 1 / diag(precision)."""
        return 1.0 / np.diag(np.linalg.inv(self.covariance))

    def draws(self, posterior: Any, n: int) -> np.ndarray:
        """(n, D) draws of the weights."""
        return np.asarray(posterior.sample(7, n)["w"])[:, :, 0]


def linear(x: np.ndarray, y: np.ndarray, noise: float, prior_scale: float, temperature: float) -> Known:
    dimension = x.shape[1]
    net = (lambda params, inputs: inputs @ params["w"], {"w": np.zeros((dimension, 1), np.float32)})
    problem = px.Problem(net, px.Normal(scale=noise), p.Normal(scale=prior_scale), temperature)
    precision = x.T @ x / noise**2 + np.eye(dimension) / prior_scale**2
    covariance = np.linalg.inv(precision)
    mean = covariance @ x.T @ y / noise**2
    return Known(problem, (x.astype(np.float32), y.astype(np.float32)), mean, temperature * covariance)


def linear_regression(seed: int = 0, temperature: float = 1.0) -> Known:
    """Thirty noisy points on a plane in four dimensions, two of the inputs correlated."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(30, 4))
    x[:, 1] = 0.7 * x[:, 0] + 0.7 * x[:, 1]
    y = x @ np.array([1.0, -0.5, 0.3, 0.0]) + 0.5 * rng.normal(size=30)
    return linear(x, y, noise=0.5, prior_scale=1.0, temperature=temperature)


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
