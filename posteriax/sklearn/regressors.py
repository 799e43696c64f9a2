"""Regressors."""

from dataclasses import replace
from typing import Any

import jax
import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import validate_data

from posteriax.posterior import Posterior
from posteriax.problem import InUnits, Likelihood, Normal, Poisson, StudentT
from posteriax.sklearn.estimator import FEWEST, BayesianEstimator
from posteriax.sklearn.networks import make_mlp

STANDARDISED = {"normal": Normal(scale="learned"), "student-t": StudentT(df="learned", scale="learned")}
LIKELIHOODS: dict[str, Likelihood] = {**STANDARDISED, "poisson": Poisson()}


class _Regressor(RegressorMixin, BayesianEstimator):
    likelihood: Any

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """The mean of each row's target, and with `return_std` its standard deviation, noise included."""
        predictive = self._predictive(X)
        mean = np.asarray(predictive.mean, np.float64)[:, 0]
        return (mean, np.asarray(predictive.std, np.float64)[:, 0]) if return_std else mean

    def predict_interval(self, X: Any, level: float = 0.9) -> np.ndarray:
        """An interval for each target, (rows, 2), that holds it with probability `level`.

        With ``calibration_fraction`` this is a conformal interval: of new rows like those of the training set, a share
        of `level` lies inside whether or not the posterior is right.
        """
        predictive = self._predictive(X)
        found = self._conformal(level)
        low, high = predictive.interval(level) if found is None else found.interval(predictive)
        return np.column_stack([np.asarray(low, np.float64)[:, 0], np.asarray(high, np.float64)[:, 0]])

    def predict_quantiles(self, X: Any, quantiles: Any = (0.05, 0.5, 0.95)) -> np.ndarray:
        """Quantiles of each target, (rows, quantiles)."""
        return np.asarray(self._predictive(X).quantile(np.asarray(quantiles, float)), np.float64)[:, :, 0].T

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> np.ndarray:
        """Draws of each target, (rows, n_samples): column by column, one draw of the weights and new noise."""
        predictive: Any = self._predictive(X)
        random, own = check_random_state(random_state), predictive.likelihood
        chosen = random.randint(len(predictive.outputs), size=n_samples)
        keys = jax.random.split(jax.random.key(random.randint(2**31 - 1)), n_samples)
        outputs, latents = jax.tree.map(lambda leaf: np.asarray(leaf)[chosen], (predictive.outputs, predictive.latents))
        drawn = jax.vmap(lambda key, o, z: own.distribution(z, o).sample(key))(keys, outputs, latents)
        return np.asarray(own.units.restore(drawn), np.float64)[:, :, 0].T

    def _validated(self, X: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
        X, y = validate_data(
            self, X, y, dtype=np.float64, ensure_min_samples=FEWEST, allow_nd=self._allow_nd, y_numeric=True
        )
        return X, np.asarray(y, np.float64)

    def _encode(self, y: np.ndarray, weight: np.ndarray) -> np.ndarray:
        self._y_offset, self._y_scale = 0.0, 1.0
        if not isinstance(self.likelihood, str) or self.likelihood not in STANDARDISED:
            return y.astype(np.float32)  # in its own units
        self._y_offset = float(np.average(y, weights=weight))
        spread = float(np.sqrt(np.average(np.square(y - self._y_offset), weights=weight)))
        self._y_scale = spread if spread > 0 else 1.0
        return ((y - self._y_offset) / self._y_scale).astype(np.float32)

    def _as_targets(self, y: np.ndarray) -> np.ndarray:
        return y

    def _class_weights(self, y: np.ndarray, weight: np.ndarray) -> np.ndarray:
        return np.ones(len(y))

    def _likelihood(self) -> Likelihood:
        if isinstance(self.likelihood, Likelihood):
            return self.likelihood
        if self.likelihood not in LIKELIHOODS:
            known = ", ".join(map(repr, LIKELIHOODS))
            raise ValueError(f"likelihood must be one of {known}, or such as px.Normal(0.1), got {self.likelihood!r}")
        return LIKELIHOODS[self.likelihood]

    def _in_units(self, posterior: Posterior) -> Posterior:
        standard: Any = posterior.problem.likelihood
        if (self._y_offset, self._y_scale) == (0.0, 1.0):
            return posterior
        return with_likelihood(posterior, InUnits(standard, self._y_offset, self._y_scale))


class BayesianMLPRegressor(_Regressor):
    """A Bayesian multilayer perceptron for regression.

    Args:
        method: how to infer: "map", "ensemble", "laplace", "mean-field", "k-tied", "rank-1", "swag", "hmc", "nuts",
            "mclmc" or "sghmc", or a method such as ``px.VI(q.KTied(2))``.
        hidden_layer_sizes: units of each hidden layer; by default (128,), or (64, 64) from 2,000 rows on.
        activation: "tanh", "relu", "silu", "gelu", "logistic" or "identity".
        likelihood: "normal" (Gaussian noise of a learned size), "student-t" (robust to outliers) or "poisson" (counts);
            or a likelihood such as ``px.Normal(0.1)``, in the target's own units.
        prior: of the weights; by default N(0, 2 / fan-in), and N(0, 1) for biases. "tuned" chooses the scale of each
            layer by the marginal likelihood (:func:`posteriax.priors.tune`), which takes some seconds.
        length: of the run, as ``px.fit`` takes it: ``{"steps": 2000}``; by default until it has converged.
        budget: seconds after which it ends in any case; None for no limit. With one, results depend on the machine.
        n_draws: draws of the weights that predictions are averaged over.
        standardize: whether columns are standardised first; targets always are.
        early_stopping: whether to stop when the log score of held-out rows no longer improves.
        validation_fraction: the share of the rows that is held out for this.
        calibration_fraction: the share held out to make ``predict_interval`` conformal.
        warm_start: whether a second `fit` starts at the weights of the first.
        random_state: seed.
        verbose: whether to show progress.

    Attributes:
        posterior_: the fitted posterior, of the standardised columns, in the target's units.
        diagnosis_: whether it has converged.
        outcome_: how the run ended, what was tried, and how long it took.

    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = BayesianMLPRegressor("map", length={"steps": 200}, random_state=0).fit(X, y)
    >>> mean, std = model.predict(X[:3], return_std=True)
    >>> mean.shape, std.shape, model.predict_interval(X[:3], 0.8).shape
    ((3,), (3,), (3, 2))
    """

    def __init__(
        self,
        method: Any = "mean-field",
        *,
        hidden_layer_sizes: Any = None,
        activation: str = "tanh",
        likelihood: Any = "normal",
        prior: Any = None,
        length: Any = None,
        budget: float | None = None,
        n_draws: int = 100,
        standardize: bool = True,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        calibration_fraction: float = 0.0,
        warm_start: bool = False,
        random_state: Any = None,
        verbose: bool = False,
    ):
        self.method = method
        self.hidden_layer_sizes = hidden_layer_sizes
        self.activation = activation
        self.likelihood = likelihood
        self.prior = prior
        self.length = length
        self.budget = budget
        self.n_draws = n_draws
        self.standardize = standardize
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.calibration_fraction = calibration_fraction
        self.warm_start = warm_start
        self.random_state = random_state
        self.verbose = verbose

    def _network(self, inputs: int, rows: int, seed: int) -> Any:
        return make_mlp(inputs, 1, self.hidden_layer_sizes, self.activation, rows, seed)


class BayesianNetRegressor(_Regressor):
    """Any JAX network as a regressor: it takes one example and gives one standardised target.

    Args:
        net: the network, as :func:`px.network` takes it.
        method, likelihood, prior, length, budget, n_draws, standardize, early_stopping, validation_fraction,
            calibration_fraction, warm_start, random_state, verbose: as in :class:`BayesianMLPRegressor`.
    """

    _allow_nd = True

    def __init__(
        self,
        net: Any,
        method: Any = "mean-field",
        *,
        likelihood: Any = "normal",
        prior: Any = None,
        length: Any = None,
        budget: float | None = None,
        n_draws: int = 100,
        standardize: bool = True,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        calibration_fraction: float = 0.0,
        warm_start: bool = False,
        random_state: Any = None,
        verbose: bool = False,
    ):
        self.net = net
        self.method = method
        self.likelihood = likelihood
        self.prior = prior
        self.length = length
        self.budget = budget
        self.n_draws = n_draws
        self.standardize = standardize
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.calibration_fraction = calibration_fraction
        self.warm_start = warm_start
        self.random_state = random_state
        self.verbose = verbose

    def _network(self, inputs: int, rows: int, seed: int) -> Any:
        return self.net


def with_likelihood(posterior: Posterior, likelihood: Likelihood) -> Posterior:
    """The same posterior of the weights, with targets in other units."""
    return replace(posterior, problem=replace(posterior.problem, likelihood=likelihood))
