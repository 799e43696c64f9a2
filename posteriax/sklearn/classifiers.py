"""Classifiers."""

from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from posteriax.posterior import Posterior
from posteriax.problem import Categorical, Likelihood
from posteriax.sklearn.estimator import FEWEST, BayesianEstimator
from posteriax.sklearn.networks import make_mlp


class _Classifier(ClassifierMixin, BayesianEstimator):
    class_weight: Any

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of each row."""
        predictive = self._predictive(X)  # first, so that an estimator that is not fitted says so
        return self.classes_[predictive.point()]

    def predict_proba(self, X: Any) -> np.ndarray:
        """The probability of each class, in the order of `classes_`."""
        probs = np.asarray(self._predictive(X).mean, np.float64)
        return probs / probs.sum(axis=1, keepdims=True)

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """The logarithm of these probabilities."""
        return np.log(np.maximum(self.predict_proba(X), np.finfo(np.float64).tiny))

    def predict_set(self, X: Any, level: float = 0.9) -> np.ndarray:
        """Which classes belong to a set that holds the true one with probability `level`, (rows, classes).

        Needs ``calibration_fraction``: the share of the training rows that is held out for this.
        """
        found = self._conformal(level) if hasattr(self, "posterior_") else None
        predictive = self._predictive(X)
        if found is None:
            raise ValueError("predict_set needs rows held out from training: set calibration_fraction, such as 0.2")
        return found.sets(predictive)

    def _validated(self, X: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
        X, y = validate_data(self, X, y, dtype=np.float64, ensure_min_samples=FEWEST, allow_nd=self._allow_nd)
        check_classification_targets(y)
        return X, y

    def _encode(self, y: np.ndarray, weight: np.ndarray) -> np.ndarray:
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"a classifier needs at least two classes, got one class: {self.classes_[0]!r}")
        return labels.astype(np.int32)

    def _as_targets(self, y: np.ndarray) -> np.ndarray:
        return np.searchsorted(self.classes_, y)

    def _class_weights(self, y: np.ndarray, weight: np.ndarray) -> np.ndarray:
        labels = np.searchsorted(self.classes_, y)
        if self.class_weight is None:
            return np.ones(len(y))
        if self.class_weight == "balanced":  # scikit-learn 1.6 counts rows, whatever their weight
            counts = np.bincount(labels, weights=weight)
            return (counts.sum() / (len(counts) * counts))[labels]
        return compute_class_weight(self.class_weight, classes=self.classes_, y=y)[labels]

    def _likelihood(self) -> Likelihood:
        return Categorical()

    def _in_units(self, posterior: Posterior) -> Posterior:
        return posterior


class BayesianMLPClassifier(_Classifier):
    """A Bayesian multilayer perceptron for classification.

    Args:
        method: how to infer: "map", "ensemble", "laplace", "mean-field", "k-tied", "rank-1", "swag", "hmc", "nuts",
            "mclmc" or "sghmc", or a method such as ``px.VI(q.KTied(2))``.
        hidden_layer_sizes: units of each hidden layer; by default (128,), or (64, 64) from 2,000 rows on.
        activation: "tanh", "relu", "silu", "gelu", "logistic" or "identity".
        prior: of the weights; by default N(0, 2 / fan-in), and N(0, 1) for biases. "tuned" chooses the scale of each
            layer by the marginal likelihood (:func:`posteriax.priors.tune`), which takes some seconds.
        length: of the run, as ``px.fit`` takes it: ``{"steps": 2000}``; by default until it has converged.
        budget: seconds after which it ends in any case; None for no limit. With one, results depend on the machine.
        n_draws: draws of the weights that predictions are averaged over.
        standardize: whether columns are standardised first.
        class_weight: a dictionary of weights by class, or "balanced", N / (K n_c) for K classes, where n_c sums the
            `sample_weight` of the rows of a class and N that of all rows. Both multiply `sample_weight`.
        early_stopping: whether to stop when the log score of held-out rows no longer improves.
        validation_fraction: the share of the rows that is held out for this.
        calibration_fraction: the share held out for ``predict_set``.
        warm_start: whether a second `fit` starts at the weights of the first.
        random_state: seed.
        verbose: whether to show progress.

    Attributes:
        posterior_: the fitted posterior, of the standardised columns.
        diagnosis_: whether it has converged.
        outcome_: how the run ended, what was tried, and how long it took.
        classes_: the labels.

    >>> from sklearn.datasets import load_wine
    >>> X, y = load_wine(return_X_y=True)
    >>> model = BayesianMLPClassifier("map", length={"steps": 200}, random_state=0).fit(X, y)
    >>> model.predict_proba(X[:2]).shape
    (2, 3)
    """

    def __init__(
        self,
        method: Any = "mean-field",
        *,
        hidden_layer_sizes: Any = None,
        activation: str = "tanh",
        prior: Any = None,
        length: Any = None,
        budget: float | None = None,
        n_draws: int = 100,
        standardize: bool = True,
        class_weight: Any = None,
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
        self.prior = prior
        self.length = length
        self.budget = budget
        self.n_draws = n_draws
        self.standardize = standardize
        self.class_weight = class_weight
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.calibration_fraction = calibration_fraction
        self.warm_start = warm_start
        self.random_state = random_state
        self.verbose = verbose

    def _network(self, inputs: int, rows: int, seed: int) -> Any:
        return make_mlp(inputs, len(self.classes_), self.hidden_layer_sizes, self.activation, rows, seed)


class BayesianNetClassifier(_Classifier):
    """Any JAX network as a classifier: it takes one example and gives one logit for each class.

    Args:
        net: the network, as :func:`px.network` takes it.
        method, prior, length, budget, n_draws, standardize, class_weight, early_stopping, validation_fraction,
            calibration_fraction, warm_start, random_state, verbose: as in :class:`BayesianMLPClassifier`.
    """

    _allow_nd = True

    def __init__(
        self,
        net: Any,
        method: Any = "mean-field",
        *,
        prior: Any = None,
        length: Any = None,
        budget: float | None = None,
        n_draws: int = 100,
        standardize: bool = True,
        class_weight: Any = None,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        calibration_fraction: float = 0.0,
        warm_start: bool = False,
        random_state: Any = None,
        verbose: bool = False,
    ):
        self.net = net
        self.method = method
        self.prior = prior
        self.length = length
        self.budget = budget
        self.n_draws = n_draws
        self.standardize = standardize
        self.class_weight = class_weight
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.calibration_fraction = calibration_fraction
        self.warm_start = warm_start
        self.random_state = random_state
        self.verbose = verbose

    def _network(self, inputs: int, rows: int, seed: int) -> Any:
        return self.net
