"""scikit-learn estimators: any posterior behind `fit` and `predict`.

Columns are standardised, identical rows are merged into one that counts as several, and a posterior is fitted until it
has converged. Merging does not change the posterior, and makes weights and repetitions the same, bit for bit.
"""

import copy
import os
import warnings
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import jax
import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.exceptions import ConvergenceWarning, DataConversionWarning
from sklearn.utils import check_random_state, compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from posteriax import priors as p
from posteriax._internal.leaf_paths import describe_leaves
from posteriax.diagnostics.diagnosis import Diagnosis
from posteriax.evaluation.comparison import RunEnd, Status
from posteriax.evaluation.distil import distil
from posteriax.evaluation.early_stopping import EarlyStopping
from posteriax.evaluation.robustness.conformal import Conformal, conformal
from posteriax.likelihoods.beta import Beta
from posteriax.likelihoods.classes import Categorical
from posteriax.likelihoods.likelihood import Likelihood
from posteriax.likelihoods.negative_binomial import NegativeBinomial
from posteriax.likelihoods.normal import Normal
from posteriax.likelihoods.numbers import InUnits, TargetUnits
from posteriax.likelihoods.ordinal import Ordinal
from posteriax.likelihoods.poisson import Poisson
from posteriax.likelihoods.predictive import Predictive
from posteriax.likelihoods.student_t import StudentT
from posteriax.likelihoods.zero_inflated import ZeroInflatedPoisson
from posteriax.networks.network import Network
from posteriax.networks.network import network as as_network
from posteriax.posterior.distilled import DistilledPosterior
from posteriax.posterior.export.exported import ExportedPosterior
from posteriax.posterior.export.exporting import Export, Format
from posteriax.posterior.file import read_bytes, to_bytes
from posteriax.posterior.posterior import Posterior
from posteriax.priors.prior import Prior
from posteriax.problem import Problem
from posteriax.tabular.held_out_choice import (
    Choice,
    Perceptron,
    choose,
    fit_ensemble,
    networks_for,
)
from posteriax.tabular.networks import hidden_sizes, make_mlp
from posteriax.tabular.recipes import Circumstances, MethodOrName, recipe_of
from posteriax.tabular.until_converged import MethodFailed, fit_until_converged, points_to_compare, seconds_of

FEWEST = 2
CHECK_EVERY = 50  # steps, for early stopping: an epoch of few rows is a single step
AUTO, WITHOUT_CHOICE = "auto", "ensemble"  # the default method, and what it is if nothing is to be chosen
ENOUGH_TO_PREDICT_NOISE = 300  # rows, for noise that depends on the inputs to be a candidate
NOISES = (AUTO, "constant", "predicted")
STANDARDISED = {"normal": Normal(scale="learned"), "student-t": StudentT(df="learned", scale="learned")}
PREDICTING_NOISE: dict[str, Likelihood] = {
    "normal": Normal(scale="predicted"),
    "student-t": StudentT(df="learned", scale="predicted"),
}
LIKELIHOODS: dict[str, Likelihood] = {
    **STANDARDISED,
    "poisson": Poisson(),
    "negative-binomial": NegativeBinomial(),
    "zero-inflated": ZeroInflatedPoisson(),
    "beta": Beta(),
}

Seed = int | np.random.RandomState | None


class BayesianEstimator(BaseEstimator):
    """What classifiers and regressors have in common: preparing rows, fitting, keeping the posterior through pickle."""

    _mode: RunEnd | None = None  # see `start_at`
    _chosen: Perceptron | None = None

    # parameters are those of the subclasses, which scikit-learn reads off their __init__
    method: MethodOrName
    net: object | None
    hidden_layer_sizes: int | Sequence[int] | None
    activation: str
    prior: Prior | Mapping[str, Prior] | str | None
    length: Mapping[str, int] | None
    budget: float | str | None
    n_draws: int
    standardize: bool
    early_stopping: bool
    validation_fraction: float
    calibration_fraction: float
    warm_start: bool
    random_state: Seed
    verbose: bool

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Infer the posterior.

        Args:
            X: rows by columns; finite numbers.
            y: targets.
            sample_weight: how many examples each row counts as.
        """
        if not (self.length is None or isinstance(self.length, Mapping)):
            raise TypeError(f'length must be a dictionary such as {{"steps": 2000}}, got {self.length!r}')
        seconds = seconds_of(self.budget) if isinstance(self.budget, str) else self.budget
        self._chosen = None
        rows, labels = self._validated(X, y)
        weight = _check_sample_weight(sample_weight, rows, dtype=np.float64, ensure_non_negative=True)
        if (weight > 0).sum() < FEWEST:
            raise ValueError(f"at least {FEWEST} rows must have a positive sample_weight")
        rows, labels, weight = rows[weight > 0], labels[weight > 0], weight[weight > 0]
        targets = self._encode(labels, weight)
        weight = weight * self._class_weights(labels, weight)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        held = self._held_out(len(rows), seed)
        x, t, w = merge_rows(self._prepare(rows[~held], weight[~held]), targets[~held], weight[~held])
        self._rows = len(x)
        data = (x, t) if (w == 1).all() else (x, t, w)
        choice = self._choice(data, seed, seconds)
        outcome = self._inferred(data, seed, seconds, choice)
        if outcome.posterior is None:
            raise MethodFailed(self.method, outcome)
        self.posterior_ = self._in_target_units(outcome.posterior)
        self._ended = replace(outcome, posterior=None)  # pickle stores `posterior_` once
        self._looked_at = points_to_compare(x)
        self._calibration: tuple[np.ndarray, np.ndarray] | None = None
        if held.any():
            self._calibration = self._standardised(rows[held]), labels[held]
        self._warn_unless_converged()
        return self

    def _choice(self, data: tuple[np.ndarray, ...], seed: int, seconds: float | None) -> Choice | None:
        """The prior's scale and the noise by the log score of held-out rows; None unless they are to be chosen."""
        given = self.prior is not None or self.net is not None or self.warm_start
        if given or self.length is not None or self.early_stopping:
            return None
        if not is_automatic(self.method):
            recipe_of(self.method)  # an unknown name is an error at once
        rows, inputs = data[0].shape
        likelihoods = self._candidates(rows)
        if not likelihoods:
            return None
        networks = networks_for(rows)
        if self.hidden_layer_sizes is not None or self.activation != "tanh":
            hidden = hidden_sizes(rows) if self.hidden_layer_sizes is None else self.hidden_layer_sizes
            networks = [((hidden,) if isinstance(hidden, int) else tuple(hidden), self.activation)]
        (likelihood, outputs), *others = likelihoods
        choice = choose(
            [Perceptron(inputs, sizes, outputs, activation, likelihood) for sizes, activation in networks],
            data,
            seed=seed,
            others=others,
            seconds=None if seconds is None else seconds / 3,
        )
        self._chosen = choice.perceptron
        return choice

    def _inferred(
        self, data: tuple[np.ndarray, ...], seed: int, seconds: float | None, choice: Choice | None
    ) -> RunEnd:
        """What the method made of prepared data."""
        automatic = is_automatic(self.method)
        if automatic and choice is not None:
            return ensemble_end(fit_ensemble(choice, data, seed=seed, seconds=seconds))
        x = data[0]
        return fit_until_converged(
            self._problem(data, seed, choice),
            data,
            WITHOUT_CHOICE if automatic else self.method,
            key=seed,
            seconds=seconds,
            images=x.ndim > 2,
            mode=self._mode,
            length=self.length,
            stop=self._early_stopping(len(x)) if self.early_stopping else None,
            progress=bool(self.verbose),
        )

    def start_at(self, mode: RunEnd) -> Self:
        """Start methods that begin at the most probable weights at these, of the same rows, without a search."""
        self._mode = mode
        return self

    @property
    def diagnosis_(self) -> Diagnosis:
        """Whether the run has converged: a table and a verdict to print."""
        check_is_fitted(self)
        return self.posterior_.diagnose(self._looked_at)

    @property
    def outcome_(self) -> RunEnd:
        """How the run ended ("converged", "stopped at the budget" or "not converged"), what was tried, and how long
        it took."""
        check_is_fitted(self)
        return replace(self._ended, posterior=self.posterior_)

    @abstractmethod
    def _validated(self, X: ArrayLike, y: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        """Checked rows and targets."""

    @abstractmethod
    def _encode(self, y: np.ndarray, weight: np.ndarray) -> np.ndarray:
        """Targets as the network is trained on them."""

    @abstractmethod
    def _as_targets(self, y: np.ndarray) -> np.ndarray:
        """Targets as predictions are scored against them."""

    @abstractmethod
    def _class_weights(self, y: np.ndarray, weight: np.ndarray) -> np.ndarray:
        """What each row's weight is multiplied by."""

    @abstractmethod
    def _likelihood(self) -> Likelihood:
        """What the network's outputs say about encoded targets."""

    @abstractmethod
    def _candidates(self, rows: int) -> list[tuple[Likelihood, int]]:
        """Likelihoods to choose from, and how many outputs they need; none if the likelihood is the user's own."""

    @property
    @abstractmethod
    def _outputs(self) -> int:
        """How many outputs the network has."""

    def _in_target_units(self, posterior: Posterior) -> Posterior:
        return posterior

    @property
    def _allow_nd(self) -> bool:
        """Whether an example may have more than one axis."""
        return self.net is not None

    def _network(self, inputs: int, rows: int, seed: int) -> object:
        if self.net is not None:
            return self.net
        if self._chosen is not None:
            hidden, activation = self._chosen.hidden, self._chosen.activation
            return make_mlp(inputs, self._outputs, hidden, activation, rows, seed)
        return make_mlp(inputs, self._outputs, self.hidden_layer_sizes, self.activation, rows, seed)

    def _predictive(self, X: ArrayLike) -> Predictive:
        check_is_fitted(self)
        rows = validate_data(self, X, dtype=np.float64, reset=False, allow_nd=self._allow_nd)
        if isinstance(self.posterior_, ExportedPosterior):  # which standardises by itself
            return self.posterior_.predict(rows.astype(np.float32), self.n_draws)
        return self.posterior_.predict(self._standardised(rows), self.n_draws, key=0)

    def export(self, path: str | os.PathLike[str], format: Format | None = None, **settings: Any) -> Export:
        """Write what the estimator predicts, from columns as they are, to a file that needs no posteriax.

        Args:
            path, format: as for :meth:`px.posterior.Posterior.export`.
            settings: the same: `quantiles`, `results`; `draws` are by default `n_draws`.

        Classes are in the order of `classes_`.
        """
        check_is_fitted(self)
        posterior, offset, scale = self.posterior_, self._offset, self._scale
        standardised = as_network(posterior.problem.network, inputs=lambda x: (x - offset.astype(np.float32)) / scale)
        in_units = replace(posterior, problem=replace(posterior.problem, network=standardised))
        example = (self._looked_at * scale + offset).astype(np.float32)
        return in_units.export(path, example, format, **{"draws": self.n_draws, **settings})

    def distilled(self, X: ArrayLike, **settings: Any) -> Self:
        """A copy whose `posterior_` is a single network that predicts what the whole posterior predicts.

        Args:
            X: rows to learn from, without targets: those of the training set, and others.
            settings: as for :func:`px.distil`, except `held_out`, which is a tenth of the rows.
        """
        check_is_fitted(self)
        rows = self._standardised(validate_data(self, X, dtype=np.float64, reset=False, allow_nd=self._allow_nd))
        return self.with_posterior(distil(self.posterior_, rows, draws=self.n_draws, **settings))

    def with_posterior(self, posterior: Any) -> Self:
        """A copy that predicts with another posterior: a distilled one, or one that :meth:`export` wrote.

        Args:
            posterior: of the same columns and the same target; ``px.load("model.stablehlo")``.
        """
        check_is_fitted(self)
        other = copy.copy(self)
        other.posterior_ = posterior
        return other

    def _conformal(self, level: float) -> Conformal | None:
        if self._calibration is None:
            return None
        x, y = self._calibration
        return conformal(self.posterior_.predict(x, self.n_draws, key=0), self._as_targets(y), level)

    def _prepare(self, X: np.ndarray, weight: np.ndarray) -> np.ndarray:
        """Standardised rows, by moments that count rows by their weight."""
        self._offset, self._scale = np.zeros(X.shape[1:]), np.ones(X.shape[1:])
        if self.standardize:
            with np.errstate(over="ignore", invalid="ignore"):  # checked below
                self._offset = np.average(X, axis=0, weights=weight)
                spread = np.sqrt(np.average(np.square(X - self._offset), axis=0, weights=weight))
            if not np.isfinite(spread).all():
                raise ValueError(f"X has values up to {np.abs(X).max():.3g}, too large to standardise: rescale them")
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
        return EarlyStopping(fraction=self.validation_fraction, every=max(1.0, CHECK_EVERY / per_epoch))

    def _problem(self, data: tuple[np.ndarray, ...], seed: int, choice: Choice | None) -> Problem:
        x = data[0]
        network = as_network(self._network(x.shape[1], len(x), seed), example=x[:2])
        if self.warm_start and hasattr(self, "posterior_"):
            network = _starting_at(network, self.posterior_)
        tuned = isinstance(self.prior, str) and self.prior == "tuned"
        prior: Any = p.HeNormal() if self.prior is None or tuned else self.prior
        if choice is not None:
            prior = p.HeNormal(gain=2.0 * choice.factor**2, bias_scale=choice.factor)
        problem = Problem(network, self._likelihood(), prior=prior)
        return p.tune(problem, data, noise="learned", key=seed) if tuned else problem

    def _warn_unless_converged(self) -> None:
        if self._ended.status == "converged":
            return
        diagnosis = self.diagnosis_
        verdict = "the search for the most probable weights has not converged"  # around which the posterior may be fine
        if not diagnosis.converged:  # nor if it cannot be told
            verdict = diagnosis.verdict.splitlines()[0]
        warnings.warn(verdict, ConvergenceWarning, stacklevel=3)

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        posterior = state.get("posterior_")
        return state | {"posterior_": to_bytes(posterior)} if isinstance(posterior, Posterior) else state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        stored = self.__dict__.get("posterior_")
        if isinstance(stored, bytes):  # of the estimator's own network, which it can build again
            self.posterior_ = read_bytes(stored, self._network(self.n_features_in_, self._rows, 0))


class BayesianMLPClassifier(ClassifierMixin, BayesianEstimator):
    """A Bayesian network for classification: a multilayer perceptron, or `net`.

    Args:
        method: how to infer: "auto", an ensemble whose prior is chosen by the log score of held-out rows; "map",
            "ensemble", "laplace", "mean-field", "k-tied", "rank-1", "swag", "hmc", "nuts", "mclmc" or "sghmc"; or a
            method such as ``px.VI(q.KTied(2))``.
        net: a network of your own in place of the perceptron, as :func:`px.network` takes it: from one example, which
            may have several axes, to a logit for each class.
        hidden_layer_sizes: units of each hidden layer; by default (128,), or (64, 64) from 2,000 rows on, and from 500
            rows on the one of three networks that has the best log score of held-out rows, as for `prior`.
        activation: "tanh", "relu", "silu", "gelu", "logistic" or "identity".
        likelihood: "categorical", or "ordinal" for classes with an order, that of `classes_`: a single output and cut
            points (:class:`px.likelihoods.Ordinal`).
        prior: of the weights; by default that of He, N(0, 2 / fan-in) and N(0, 1) for biases, with scales multiplied by
            the power of two from 1/8 to 16 that has the best log score of held-out rows (1 with `net`, `length`,
            `early_stopping` or `warm_start`). "tuned" chooses the scale of each layer by the marginal likelihood
            (:func:`posteriax.priors.tune`), which takes some seconds.
        length: of the run, as ``px.fit`` takes it: ``{"steps": 2000}``; by default until it has converged. For
            "laplace", of the search for the mode.
        budget: when it ends in any case: seconds, or "90s", "10m", "1h"; None for no limit. With one, results depend on
            the machine.
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
        method: MethodOrName = "auto",
        *,
        net: object | None = None,
        hidden_layer_sizes: int | Sequence[int] | None = None,
        activation: str = "tanh",
        likelihood: str = "categorical",
        prior: Prior | Mapping[str, Prior] | str | None = None,
        length: Mapping[str, int] | None = None,
        budget: float | str | None = None,
        n_draws: int = 100,
        standardize: bool = True,
        class_weight: Mapping[Any, float] | str | None = None,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        calibration_fraction: float = 0.0,
        warm_start: bool = False,
        random_state: Seed = None,
        verbose: bool = False,
    ):
        self.method = method
        self.net = net
        self.hidden_layer_sizes = hidden_layer_sizes
        self.activation = activation
        self.likelihood = likelihood
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

    def predict(self, X: ArrayLike) -> np.ndarray:
        """The most probable class of each row."""
        predictive = self._predictive(X)  # first, so that an estimator that is not fitted says so
        return self.classes_[predictive.point()]

    def predict_proba(self, X: ArrayLike) -> np.ndarray:
        """The probability of each class, in the order of `classes_`."""
        probs = np.asarray(self._predictive(X).mean, np.float64)
        return probs / probs.sum(axis=1, keepdims=True)

    def predict_log_proba(self, X: ArrayLike) -> np.ndarray:
        """The logarithm of these probabilities."""
        return np.log(np.maximum(self.predict_proba(X), np.finfo(np.float64).tiny))

    def predict_set(self, X: ArrayLike, level: float = 0.9) -> np.ndarray:
        """Which classes belong to a set that holds the true one with probability `level`, (rows, classes).

        Needs ``calibration_fraction``: the share of the training rows that is held out for this.
        """
        predictive = self._predictive(X)  # first, so that an estimator that is not fitted says so
        conformal_sets = self._conformal(level)
        if conformal_sets is None:
            raise ValueError("predict_set needs rows held out from training: set calibration_fraction, such as 0.2")
        return conformal_sets.sets(predictive)

    def _validated(self, X: ArrayLike, y: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        rows, labels = validate_data(self, X, y, dtype=np.float64, ensure_min_samples=FEWEST, allow_nd=self._allow_nd)
        check_classification_targets(labels)
        return rows, labels

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
        if self.likelihood not in ("categorical", "ordinal"):
            raise ValueError(f"likelihood must be 'categorical' or 'ordinal', got {self.likelihood!r}")
        is_ordinal = self.likelihood == "ordinal" and len(self.classes_) > 2
        return Ordinal(len(self.classes_)) if is_ordinal else Categorical()

    def _candidates(self, rows: int) -> list[tuple[Likelihood, int]]:
        return [(self._likelihood(), self._outputs)]

    @property
    def _outputs(self) -> int:
        return 1 if isinstance(self._likelihood(), Ordinal) else len(self.classes_)


class BayesianMLPRegressor(RegressorMixin, BayesianEstimator):
    """A Bayesian network for regression: a multilayer perceptron, or `net`; of one target, or of several at once.

    Args:
        method: how to infer: "auto", an ensemble whose prior and noise are chosen by the log score of held-out rows;
            "map", "ensemble", "laplace", "mean-field", "k-tied", "rank-1", "swag", "hmc", "nuts", "mclmc" or "sghmc";
            or a method such as ``px.VI(q.KTied(2))``.
        net: a network of your own in place of the perceptron, as :func:`px.network` takes it: from one example, which
            may have several axes, to one standardised target.
        hidden_layer_sizes: units of each hidden layer; by default (128,), or (64, 64) from 2,000 rows on, and from 500
            rows on the one of three networks that has the best log score of held-out rows, as for `prior`.
        activation: "tanh", "relu", "silu", "gelu", "logistic" or "identity".
        likelihood: "normal" (Gaussian noise), "student-t" (robust to outliers), "poisson", "negative-binomial" or
            "zero-inflated" (counts), "beta" (fractions between 0 and 1); or a likelihood such as ``px.Normal(0.1)``, in
            the target's own units.
        noise: "constant"; "predicted", a second output of the network; or "auto", the one with the better log score of
            held-out rows, where the prior is chosen like this, and constant below 300 rows. Constant noise is the same
            for all of several targets, in units of their standard deviations.
        prior: of the weights; by default that of He, N(0, 2 / fan-in) and N(0, 1) for biases, with scales multiplied by
            the power of two from 1/8 to 16 that has the best log score of held-out rows (1 with `net`, `length`,
            `early_stopping` or `warm_start`). "tuned" chooses the scale of each layer by the marginal likelihood
            (:func:`posteriax.priors.tune`), which takes some seconds.
        length: of the run, as ``px.fit`` takes it: ``{"steps": 2000}``; by default until it has converged. For
            "laplace", of the search for the mode.
        budget: when it ends in any case: seconds, or "90s", "10m", "1h"; None for no limit. With one, results depend on
            the machine.
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
        method: MethodOrName = "auto",
        *,
        net: object | None = None,
        hidden_layer_sizes: int | Sequence[int] | None = None,
        activation: str = "tanh",
        likelihood: str | Likelihood = "normal",
        noise: str = "auto",
        prior: Prior | Mapping[str, Prior] | str | None = None,
        length: Mapping[str, int] | None = None,
        budget: float | str | None = None,
        n_draws: int = 100,
        standardize: bool = True,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        calibration_fraction: float = 0.0,
        warm_start: bool = False,
        random_state: Seed = None,
        verbose: bool = False,
    ):
        self.method = method
        self.net = net
        self.hidden_layer_sizes = hidden_layer_sizes
        self.activation = activation
        self.likelihood = likelihood
        self.noise = noise
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

    def predict(self, X: ArrayLike, return_std: bool = False) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """The mean of each row's target, and with `return_std` its standard deviation, noise included.

        (rows,), or (rows, targets) if there are several. So are the results of other methods: their last axis but that
        of quantiles or draws is one of targets, if there are several.
        """
        predictive = self._predictive(X)
        mean = self._by_target(predictive.mean)
        return (mean, self._by_target(predictive.std)) if return_std else mean

    def predict_interval(self, X: ArrayLike, level: float = 0.9) -> np.ndarray:
        """An interval for each target, (rows, 2), that holds it with probability `level`.

        With ``calibration_fraction`` this is a conformal interval: of new rows like those of the training set, a share
        of `level` lies inside whether or not the posterior is right.
        """
        predictive = self._predictive(X)
        widened = self._conformal(level)
        low, high = predictive.interval(level) if widened is None else widened.interval(predictive)
        return np.stack([self._by_target(low), self._by_target(high)], axis=-1)

    def predict_quantiles(self, X: ArrayLike, quantiles: ArrayLike = (0.05, 0.5, 0.95)) -> np.ndarray:
        """Quantiles of each target, (rows, quantiles)."""
        found = self._predictive(X).quantile(np.asarray(quantiles, float))
        return np.stack([self._by_target(values) for values in found], axis=-1)

    def sample_y(self, X: ArrayLike, n_samples: int = 1, random_state: Seed = 0) -> np.ndarray:
        """Draws of each target, (rows, n_samples): column by column, one draw of the weights and new noise."""
        predictive: Any = self._predictive(X)
        random, likelihood = check_random_state(random_state), predictive.likelihood
        chosen = random.randint(len(predictive.outputs), size=n_samples)
        keys = jax.random.split(jax.random.key(random.randint(2**31 - 1)), n_samples)
        outputs, latents = jax.tree.map(lambda leaf: np.asarray(leaf)[chosen], (predictive.outputs, predictive.latents))
        drawn = jax.vmap(lambda key, o, z: likelihood.distribution(z, o).sample(key))(keys, outputs, latents)
        return np.stack([self._by_target(values) for values in likelihood.units.restore(drawn)], axis=-1)

    def _by_target(self, values: ArrayLike) -> np.ndarray:
        """Values (rows, targets), without the axis of targets if there is one target."""
        values = np.asarray(values, np.float64)
        return values if self._targets > 1 else values[:, 0]

    def _validated(self, X: ArrayLike, y: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        rows, numbers = validate_data(
            self,
            X,
            y,
            dtype=np.float64,
            ensure_min_samples=FEWEST,
            allow_nd=self._allow_nd,
            y_numeric=True,
            multi_output=True,
        )
        numbers = np.asarray(numbers, np.float64)
        if numbers.ndim > 2:
            raise ValueError(f"y must have one column for each target, got shape {numbers.shape}")
        if numbers.ndim == 2 and numbers.shape[1] == 1:
            warnings.warn(
                "A column-vector y was passed when a 1d array was expected: it is one target, (rows,)",
                DataConversionWarning,
                stacklevel=4,
            )
            numbers = numbers[:, 0]
        self._targets = 1 if numbers.ndim == 1 else numbers.shape[1]
        return rows, numbers

    def _encode(self, y: np.ndarray, weight: np.ndarray) -> np.ndarray:
        self._units = TargetUnits()
        if not isinstance(self.likelihood, str) or self.likelihood not in STANDARDISED:
            return y.astype(np.float32)  # as it is
        offset = np.average(y, weights=weight, axis=0)
        spread = np.sqrt(np.average(np.square(y - offset), weights=weight, axis=0))
        spread = np.where(spread > 0, spread, 1.0)
        self._units = TargetUnits(*(a.tolist() if y.ndim == 1 else tuple(a.tolist()) for a in (offset, spread)))
        return self._units.standardise(y).astype(np.float32)

    def _as_targets(self, y: np.ndarray) -> np.ndarray:
        return y

    def _class_weights(self, y: np.ndarray, weight: np.ndarray) -> np.ndarray:
        return np.ones(len(y))

    def _likelihood(self) -> Likelihood:
        if isinstance(self.likelihood, Likelihood):
            return self.likelihood
        if self._chosen is not None:
            return self._chosen.likelihood
        self._check_likelihood()
        return LIKELIHOODS[self.likelihood] if self.noise != "predicted" else PREDICTING_NOISE[self.likelihood]

    def _check_likelihood(self) -> None:
        if self.likelihood not in LIKELIHOODS:
            known = ", ".join(map(repr, LIKELIHOODS))
            raise ValueError(f"likelihood must be one of {known}, or such as px.Normal(0.1), got {self.likelihood!r}")
        if self.noise not in NOISES:
            raise ValueError(f"noise must be one of {', '.join(map(repr, NOISES))}, got {self.noise!r}")
        if self.noise == "predicted" and self.likelihood not in PREDICTING_NOISE:
            raise ValueError(f'noise="predicted" is for likelihood "normal" or "student-t", not {self.likelihood!r}')

    def _candidates(self, rows: int) -> list[tuple[Likelihood, int]]:
        if isinstance(self.likelihood, Likelihood):
            return []
        self._check_likelihood()
        usual = LIKELIHOODS[self.likelihood]
        constant: list[tuple[Likelihood, int]] = [(usual, self._targets * usual.outputs_per_target)]
        predicted: list[tuple[Likelihood, int]] = []
        if self.likelihood in PREDICTING_NOISE:
            predicted = [(PREDICTING_NOISE[self.likelihood], 2 * self._targets)]
        if self.noise == AUTO:
            return constant + (predicted if rows >= ENOUGH_TO_PREDICT_NOISE else [])
        return predicted if self.noise == "predicted" else constant

    def _in_target_units(self, posterior: Posterior) -> Posterior:
        return in_target_units(posterior, self._units)

    @property
    def _outputs(self) -> int:
        return self._targets * self._likelihood().outputs_per_target

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


def ensemble_end(posterior: Posterior) -> RunEnd:
    """How the training of a chosen ensemble ended."""
    status: Status = "converged" if posterior.trace["converged"][0] else "stopped at the budget"
    return RunEnd(status, posterior.trace.notes, posterior.trace.seconds, posterior)


def is_automatic(method: MethodOrName) -> bool:
    return isinstance(method, str) and method == AUTO


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


def in_target_units(posterior: Posterior, units: TargetUnits) -> Posterior:
    """The posterior of a network that was trained on standardised targets, with predictions in the target's units.

    y = offset + scale f(x, w) + scale sigma xi        xi: standard normal
    """
    if units.are_standard or isinstance(posterior, DistilledPosterior):  # which is in the units of its teacher
        return posterior
    standard: Any = posterior.problem.likelihood
    likelihood = InUnits(standard, units.offset, units.scale)
    return replace(posterior, problem=replace(posterior.problem, likelihood=likelihood))
