"""What all estimators have in common: preparing rows, fitting a posterior, keeping it through pickle."""

import warnings
from dataclasses import replace
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from posteriax import priors as p
from posteriax._internal.leaf_paths import describe_leaves
from posteriax.automatic import Circumstances, MethodFailed, Outcome, fit_until_converged, points_to_compare
from posteriax.comparison import EarlyStopping, RunEnd, conformal
from posteriax.posterior import Posterior, read_bytes, to_bytes
from posteriax.problem import Network, Predictive, Problem
from posteriax.problem import network as as_network

FEWEST = 2
LOOK_EVERY = 50  # steps, for early stopping: an epoch of few rows is a single step


class BayesianEstimator(BaseEstimator):
    """Columns are standardised, identical rows are merged into one that counts as several, and a posterior is fitted.

    Merging does not change the posterior, and makes weights and repetitions the same, bit for bit.
    """

    _allow_nd = False  # whether an example may have more than one axis
    _mode: Outcome | None = None  # see `start_at`

    # parameters are those of the subclasses, which scikit-learn reads off their __init__
    method: Any
    prior: Any
    length: Any
    budget: float | None
    n_draws: int
    standardize: bool
    early_stopping: bool
    validation_fraction: float
    calibration_fraction: float
    warm_start: bool
    random_state: Any
    verbose: bool

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Infer the posterior.

        Args:
            X: rows by columns; finite numbers.
            y: targets.
            sample_weight: how many examples each row counts as.
        """
        X, y = self._validated(X, y)
        weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        if (weight > 0).sum() < FEWEST:
            raise ValueError(f"at least {FEWEST} rows must have a positive sample_weight")
        X, y, weight = X[weight > 0], y[weight > 0], weight[weight > 0]
        targets = self._encode(y, weight)
        weight = weight * self._class_weights(y, weight)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        held = self._held_out(len(X), seed)
        x, t, w = merge_rows(self._prepare(X[~held], weight[~held]), targets[~held], weight[~held])
        self._rows = len(x)
        data = (x, t) if (w == 1).all() else (x, t, w)
        outcome = fit_until_converged(
            self._problem(data, seed),
            data,
            self.method,
            key=seed,
            seconds=self.budget,
            images=x.ndim > 2,
            mode=self._mode,
            length=self.length,
            stop=self._early_stopping(len(x)) if self.early_stopping else None,
            progress=bool(self.verbose),
        )
        if outcome.posterior is None:
            raise MethodFailed(self.method, outcome)
        self.posterior_ = self._in_units(outcome.posterior)
        self._ended = RunEnd(outcome.status, outcome.details, outcome.seconds)
        self._looked_at = points_to_compare(x)
        self._calibration = None
        if held.any():
            self._calibration = self._standardised(X[held]), y[held]
        self._warn_unless_converged()
        return self

    def start_at(self, mode: Outcome) -> Self:
        """Where methods start that begin at the most probable weights: at these, of the same rows, without a search."""
        self._mode = mode
        return self

    @property
    def diagnosis_(self) -> Any:
        """Whether the run has converged: a table and a verdict to print."""
        check_is_fitted(self)
        return self.posterior_.diagnose(self._looked_at)

    @property
    def outcome_(self) -> Outcome:
        """How the run ended ("converged", "stopped at the budget" or "not converged"), what was tried, and how long
        it took."""
        check_is_fitted(self)
        return Outcome(self._ended.status, self.posterior_, self._ended.details, self._ended.seconds)

    def _predictive(self, X: Any) -> Predictive:
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False, allow_nd=self._allow_nd)
        return self.posterior_.predict(self._standardised(X), self.n_draws, key=0)

    def _conformal(self, level: float) -> Any:
        if self._calibration is None:
            return None
        x, y = self._calibration
        return conformal(self.posterior_.predict(x, self.n_draws, key=0), self._as_targets(y), level)

    def _prepare(self, X: np.ndarray, weight: np.ndarray) -> np.ndarray:
        """Standardised rows, by moments that count rows by their weight."""
        self._offset, self._scale = np.zeros(X.shape[1:]), np.ones(X.shape[1:])
        if self.standardize:
            self._offset = np.average(X, axis=0, weights=weight)
            spread = np.sqrt(np.average(np.square(X - self._offset), axis=0, weights=weight))
            # a constant column stays 0, whatever rounding made of its spread
            large = np.abs(X).max(axis=0)
            self._scale = np.where(spread > 1e-12 * np.where(large > 0, large, 1.0), spread, 1.0)
        return self._standardised(X)

    def _standardised(self, X: np.ndarray) -> np.ndarray:
        return ((X - self._offset) / self._scale).astype(np.float32)

    def _held_out(self, rows: int, seed: int) -> np.ndarray:
        """Which rows are kept for conformal intervals and sets."""
        held = np.zeros(rows, bool)
        if self.calibration_fraction:
            count = round(self.calibration_fraction * rows)
            held[np.random.default_rng(seed).permutation(rows)[:count]] = True
        return held

    def _early_stopping(self, rows: int) -> EarlyStopping:
        per_epoch = Circumstances(rows).steps_per_epoch
        return EarlyStopping(fraction=self.validation_fraction, every=max(1.0, LOOK_EVERY / per_epoch))

    def _problem(self, data: Any, seed: int) -> Problem:
        x = data[0]
        network = as_network(self._network(x.shape[1], len(x), seed), example=x[:2])
        if self.warm_start and hasattr(self, "posterior_"):
            network = _starting_at(network, self.posterior_)
        tuned = isinstance(self.prior, str) and self.prior == "tuned"
        prior = p.HeNormal() if self.prior is None or tuned else self.prior
        problem = Problem(network, self._likelihood(), prior=prior)
        return p.tune(problem, data, noise="learned", key=seed) if tuned else problem

    def _warn_unless_converged(self) -> None:
        diagnosis = self.diagnosis_
        if not diagnosis.converged:  # nor if it cannot be told
            warnings.warn(diagnosis.verdict.splitlines()[0], ConvergenceWarning, stacklevel=3)

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        return state | {"posterior_": to_bytes(state["posterior_"])} if "posterior_" in state else state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        stored = self.__dict__.get("posterior_")
        if isinstance(stored, bytes):  # of the estimator's own network, which it can build again
            self.posterior_ = read_bytes(stored, self._network(self.n_features_in_, self._rows, 0))


def merge_rows(x: np.ndarray, y: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Distinct rows in a fixed order, with the sum of the weights of each.

    >>> x, y, weight = merge_rows(np.array([[2.0], [1.0], [2.0]]), np.array([0, 1, 0]), np.ones(3))
    >>> x.tolist(), y.tolist(), weight.tolist()
    ([[2.0], [1.0]], [0, 1], [2.0, 1.0])
    """
    # adding 0 turns -0 into 0, so that equal rows are equal bytes, which sort much faster than rows of numbers
    joined = np.column_stack([x.reshape(len(x), -1).astype(np.float64), y.reshape(len(y), -1).astype(np.float64)]) + 0.0
    as_bytes = joined.view(np.dtype((np.void, joined.itemsize * joined.shape[1])))[:, 0]
    _, first, inverse = np.unique(as_bytes, return_index=True, return_inverse=True)
    total = np.bincount(inverse.reshape(-1), weights=weight, minlength=len(first))
    return x[first], y[first], total.astype(np.float32)


def _starting_at(network: Network, posterior: Posterior) -> Network:
    mean = posterior.mean
    return replace(network, params=mean) if describe_leaves(mean) == describe_leaves(network.params) else network
