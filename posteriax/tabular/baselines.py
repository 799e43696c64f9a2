"""Baselines: the models that a network has to beat, from scikit-learn, as rows of a comparison.

Classes: the models' own probabilities. A forest's are shares of votes, of which some are 0: with T trees and C classes,

    p_c = (votes for c + 1) / (T + C)

Numbers: N(prediction, s^2), with s the root mean square of errors on rows that the model was not fitted to. Two have a
spread for each row:

    distributional boosting   m(x) by boosting, then v(x) by boosting squared errors e^2 of held-out rows with the gamma
                              deviance: log v + e^2 / v, twice the negative log likelihood of e ~ N(0, v)
    Gaussian process          squared exponential kernel with a length for each column, noise; below 2,000 rows

CatBoost is one more of either kind if it is installed; of numbers, with a mean and a spread for each row.
"""

import importlib
import itertools
import math
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from importlib.util import find_spec
from typing import Any, Literal

import numpy as np

from posteriax._internal.checks import check_choice, check_count, check_data
from posteriax.likelihoods.numbers import TargetUnits
from posteriax.tabular.baseline_files import (
    PlainModel,
    SavableBaseline,
    all_class_probs,
    boosted_mean_and_spread,
    boosted_model,
    catboost_model,
    class_predictive,
    forest_model,
    linear_model,
    number_predictive,
)

CELLS = 5_000_000  # rows times columns that a model is fitted to, at most
FEWEST_ROWS = 2_000  # however many columns there are
FOLDS, MOST_ROWS_TO_FOLD = 5, 5_000  # with more rows, one fifth is held out once
SMALLEST = 1e-9  # probability of a class that a model has seen

BaselineTask = Literal["classification", "regression"]
TREES, ROWS_PER_TREE = 200, 5_000
COLUMNS_PER_SPLIT = 60  # of numbers, at most; else a third, as Breiman (2001) has it
MOST_ROUNDS, ROUNDS_OF_LARGE_DATA, ROUNDS_WITHOUT_FOLDS = 500, 200, 50
LARGE = 2_000_000  # values
TRIAL_ROUNDS = 5  # that are timed
ENOUGH_ROUNDS = 200  # in five folds; if there is time for fewer, one fold decides
WITH_PREDICTIONS = 1.5  # the time of a fold, in units of that of fitting
PENALTIES = np.logspace(-3, 4, 15)
SPREAD_ROUNDS, SPREAD_RATE, SPREAD_LEAF = 300, 0.05, 20  # of boosting variances: slower, since squares are noisy
SMALLEST_VARIANCE = 1e-6  # of the mean of the squared errors: a zero has no gamma deviance
GP_ROWS, GP_ROWS_OF_SCALES = 2_000, 400  # rows at most, and of them those that choose the kernel's scales
GP_COLUMNS, GP_ITERATIONS, FEWEST_GP_ITERATIONS = 50, 60, 10
CATBOOST_VALUES = 4_000_000  # rows times columns times classes: with more, fifty rounds take minutes
CATBOOST_TRIAL_ROUNDS = 20  # its first rounds are slow
CATBOOST_STEPS, CATBOOST_RATES = 20.0, (0.03, 0.3)  # of numbers: rounds times learning rate, and the latter's bounds


def fit_baselines(
    x: Any,
    y: Any,
    task: BaselineTask,
    *,
    classes: int | None = None,
    most_rows: int = 50_000,
    seed: int = 0,
    names: Sequence[str] | None = None,
    seconds: float | None = None,
) -> dict[str, SavableBaseline]:
    """Fit a linear model, a random forest and gradient boosting; for numbers, also boosting that predicts its spread
    and, below 2,000 rows, a Gaussian process; and CatBoost if it is installed. `px.compare` takes them as rows beside
    posteriors.

    Args:
        x: training inputs, (N, ...), finite; whatever follows the first axis is one row of columns.
        y: labels 0 to C - 1, or real numbers in their own units, (N,).
        task: "classification" or "regression".
        classes: the number of classes C; by default as many as there are in `y`.
        most_rows: a random sample of as many rows is used if there are more. With many columns it is smaller: at most
            five million values, so that fitting takes a minute or two on two cores whatever the size of the data.
        seed: of the sample, the folds and the models.
        names: of the models to fit; by default all of them.
        seconds: about how long that may take: gradient boosting and CatBoost have fewer rounds at most, and fewer
            folds, and the Gaussian process fewer steps, if all would take longer. None for no limit. The linear model
            and the forest are fitted in any case.

    Needs scikit-learn: the extra `sklearn` or `cli`.

    >>> import posteriax as px
    >>> train, test = px.data.two_moons()
    >>> baselines = fit_baselines(*train, "classification")
    >>> list(baselines)[:3]
    ['logistic regression', 'random forest', 'gradient boosting']
    >>> px.compare(baselines, test).best["test"]["nll"][-1] != "logistic regression"  # the classes curve
    True
    """
    check_choice("task", task, ("classification", "regression"))
    began = time.monotonic()
    ends = math.inf if seconds is None else began + seconds
    rows = BaselineRows.sampled(x, y, task, classes, check_count("most_rows", most_rows), seed, ends)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of convergence and of small classes, about which a reader can do nothing
        models = MODELS_OF_CLASSES if task == "classification" else MODELS_OF_NUMBERS
        chosen = list(models if names is None else names)
        if names is None:
            chosen = [name for name in chosen if SUITS.get(name, lambda rows: True)(rows)]
        halfway = replace(rows, ends=(began + ends) / 2)  # CatBoost has the other half
        return {
            name: _fitted(models[name], halfway if CATBOOST in chosen and name != CATBOOST else rows) for name in chosen
        }


@dataclass(frozen=True)
class BaselineRows:
    """The rows that all models are fitted to.

    Args:
        x, y: columns in float64, and targets.
        classes: how many there are; 0 for numbers.
        given: the number of rows of which these are a sample.
        seed: of sample, folds and models.
        ends: when the models should be fitted, by `time.monotonic`.

    >>> rows = BaselineRows.sampled(np.zeros((9, 2)), np.arange(9) % 3, "classification", None, 100, seed=0)
    >>> all_class_probs(np.array([[0.5, 0.5]]), labels=np.array([0, 2]), **rows.about_classes).round(3).tolist()
    [[0.458, 0.083, 0.458]]
    """

    x: np.ndarray
    y: np.ndarray
    classes: int
    given: int
    seed: int
    ends: float = math.inf

    @classmethod
    def sampled(
        cls, x: Any, y: Any, task: BaselineTask, classes: int | None, most: int, seed: int, ends: float = math.inf
    ) -> "BaselineRows":
        """At most `most` random rows, fewer if there are many columns, but at least one of every class."""
        x, y = check_data((x, y))
        x, y = flat(x), one_target(y, task)
        count = max(classes or 0, int(y.max()) + 1) if task == "classification" else 0
        most = min(most, max(FEWEST_ROWS, CELLS // (x.shape[1] * max(1, count // 2))))
        if len(x) <= most:
            return cls(x.astype(np.float64), y, count, len(x), seed, ends)
        chosen = np.random.default_rng(seed).choice(len(x), most, replace=False)
        if count:
            chosen = np.union1d(chosen, np.unique(y, return_index=True)[1])
        return cls(x[chosen].astype(np.float64), y[chosen], count, len(x), seed, ends)

    def folds(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Rows to fit and rows to hold out: five folds, or one fifth of many rows; of every class the same share."""
        from sklearn.model_selection import KFold, ShuffleSplit, StratifiedKFold, StratifiedShuffleSplit

        if len(self.x) > MOST_ROWS_TO_FOLD:
            stratified = self.classes and np.bincount(self.y)[np.unique(self.y)].min() > 1
            once = StratifiedShuffleSplit if stratified else ShuffleSplit
            yield from once(1, test_size=1 / FOLDS, random_state=self.seed).split(self.x, self.y)
        elif self.classes:
            most = min(FOLDS, int(np.bincount(self.y).max()))
            yield from StratifiedKFold(most, shuffle=True, random_state=self.seed).split(self.x, self.y)
        else:
            yield from KFold(min(FOLDS, len(self.x)), shuffle=True, random_state=self.seed).split(self.x)

    @cached_property
    def boosted_mean(self) -> "BoostedMean":
        """Fitted once, for both models that need it."""
        return BoostedMean.fit(self)

    def how_held_out(self, folds: int = FOLDS) -> str:
        """In words, if this many of the folds were used."""
        once = folds == 1 or len(self.x) > MOST_ROWS_TO_FOLD
        return "on a fifth of the rows, held out" if once else f"in {FOLDS}-fold validation"

    @property
    def note(self) -> str:
        """A sentence if there were more rows than were used."""
        return f" Fitted to {len(self.x):,} of {self.given:,} rows." if len(self.x) < self.given else ""

    @property
    def about_classes(self) -> dict[str, Any]:
        """How many there are, and the probabilities of one that a model has not seen and of one that it rules out."""
        return {"classes": self.classes, "unseen": 1 / (len(self.x) + self.classes), "smallest": SMALLEST}

    def classifier(
        self,
        probs: Callable[[np.ndarray], np.ndarray],
        labels: np.ndarray,
        description: str,
        as_arrays: Callable[[], PlainModel],
    ) -> SavableBaseline:
        """A baseline, from a model's probabilities of those labels that it has seen."""
        about = self.about_classes
        predictor = lambda x: class_predictive(all_class_probs(probs(flat(x)), labels, **about))  # noqa: E731
        return SavableBaseline(predictor, description, as_arrays=as_arrays, labels=plain(labels), about=about)

    def regressor(
        self,
        mean: Callable[[np.ndarray], np.ndarray],
        spread: float,
        description: str,
        as_arrays: Callable[[], PlainModel],
    ) -> SavableBaseline:
        """A baseline, from a model's predictions and the spread of its errors, in the target's units."""
        offset, scale = float(self.y.mean()), float(self.y.std()) or 1.0
        units = TargetUnits(offset, scale)
        predictor = lambda x: number_predictive(mean(flat(x)), units, spread)  # noqa: E731
        about = {"offset": offset, "scale": scale, "spread": spread}
        return SavableBaseline(predictor, description, as_arrays=as_arrays, about=about)

    def regressor_with_spread(
        self,
        moments: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]],
        description: str,
        as_arrays: Callable[[], PlainModel],
    ) -> SavableBaseline:
        """A baseline, from a model's means and standard deviations, in the target's units."""
        offset, scale = float(self.y.mean()), float(self.y.std()) or 1.0
        units = TargetUnits(offset, scale)

        def predictor(x: np.ndarray) -> Any:
            mean, spread = moments(flat(x).astype(np.float64))
            return number_predictive(mean, units, spread)

        about = {"offset": offset, "scale": scale}
        return SavableBaseline(predictor, description, as_arrays=as_arrays, about=about)


def plain(labels: np.ndarray) -> tuple[int, ...]:
    return tuple(int(label) for label in labels)


def flat(x: Any) -> np.ndarray:
    """Inputs as rows of columns."""
    x = np.asarray(x)
    return x.reshape(len(x), -1)


def one_target(y: np.ndarray, task: BaselineTask) -> np.ndarray:
    """(N,): whole numbers for classes, else float64."""
    if y.size != len(y):
        raise ValueError(f"y must have one target per row, got shape {y.shape}")
    if task == "regression":
        return y.reshape(-1).astype(np.float64)
    if y.dtype.kind not in "iub" or y.min() < 0:
        raise TypeError(f"y must be labels 0, 1, ... of a whole-number dtype for a classification, got {y.dtype}")
    return y.reshape(-1).astype(np.int64)


def _fitted(make: Callable[[BaselineRows], SavableBaseline], rows: BaselineRows) -> SavableBaseline:
    began = time.monotonic()
    baseline = make(rows)
    return replace(baseline, description=baseline.description + rows.note, seconds=time.monotonic() - began)


def _logistic_regression(rows: BaselineRows) -> SavableBaseline:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)).fit(rows.x, rows.y)
    return rows.classifier(
        model.predict_proba,
        model.classes_,
        "Logistic regression on standardised columns; its own probabilities.",
        lambda: linear_model(model, "softmax"),
    )


def _ridge_regression(rows: BaselineRows) -> SavableBaseline:
    from sklearn.linear_model import RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    new_model = lambda: make_pipeline(StandardScaler(), RidgeCV(PENALTIES))  # noqa: E731
    off = [rows.y[held] - new_model().fit(rows.x[fit], rows.y[fit]).predict(rows.x[held]) for fit, held in rows.folds()]
    model = new_model().fit(rows.x, rows.y)
    return rows.regressor(
        model.predict,
        _root_mean_square(np.concatenate(off)),
        f"Ridge regression on standardised columns; intervals are those of a Normal distribution with the spread of "
        f"its errors {rows.how_held_out()}.",
        lambda: linear_model(model, "identity"),
    )


def _forest_settings(rows: BaselineRows) -> dict[str, Any]:
    size = min(len(rows.x), ROWS_PER_TREE)
    return {"n_estimators": TREES, "max_samples": size, "n_jobs": -1, "random_state": rows.seed}


def _forest_of_classes(rows: BaselineRows) -> SavableBaseline:
    from sklearn.ensemble import RandomForestClassifier

    model = RandomForestClassifier(**_forest_settings(rows)).fit(rows.x, rows.y)
    smoothed = lambda x: (TREES * model.predict_proba(x) + 1) / (TREES + rows.classes)  # noqa: E731
    return rows.classifier(
        smoothed,
        model.classes_,
        f"A random forest of {TREES} trees; probabilities are shares of the trees' votes, with one vote added for "
        f"every class so that none is zero.",
        lambda: forest_model(model, rows.classes),
    )


def _forest_of_numbers(rows: BaselineRows) -> SavableBaseline:
    from sklearn.ensemble import RandomForestRegressor

    columns = max(1, min(COLUMNS_PER_SPLIT, round(rows.x.shape[1] / 3)))
    model = RandomForestRegressor(max_features=columns, oob_score=True, **_forest_settings(rows)).fit(rows.x, rows.y)
    return rows.regressor(
        model.predict,
        _root_mean_square(rows.y - model.oob_prediction_),
        f"A random forest of {TREES} trees; intervals are those of a Normal distribution with the spread of its errors "
        f"on the rows that each tree has not seen.",
        lambda: forest_model(model),
    )


def _boosting_settings(rows: BaselineRows, rounds: int) -> dict[str, Any]:
    leaf = max(3, min(20, len(rows.x) // 20))
    return {"max_iter": rounds, "min_samples_leaf": leaf, "early_stopping": False, "random_state": rows.seed}


def _boosting_of_classes(rows: BaselineRows) -> SavableBaseline:
    from sklearn.ensemble import HistGradientBoostingClassifier

    def new_model(rounds: int) -> HistGradientBoostingClassifier:
        return HistGradientBoostingClassifier(**_boosting_settings(rows, rounds))

    folds, most = _affordable(rows, lambda rounds: new_model(rounds).fit(rows.x, rows.y))
    losses = np.zeros(most)
    about = rows.about_classes
    enough = (np.bincount(rows.y) > 1).sum() > 1  # or some fold would have a single class
    with _one_thread():
        for fit, held in itertools.islice(rows.folds(), folds) if enough else ():
            model = new_model(most)
            for k, probs in enumerate(model.fit(rows.x[fit], rows.y[fit]).staged_predict_proba(rows.x[held])):
                all_probs = all_class_probs(probs, model.classes_, **about)
                losses[k] -= np.log(all_probs[np.arange(len(held)), rows.y[held]]).sum()
        rounds = int(losses.argmin()) + 1 if enough else min(ROUNDS_WITHOUT_FOLDS, most)
        model = new_model(rounds).fit(rows.x, rows.y)

    def probs_of(x: np.ndarray) -> np.ndarray:
        with _one_thread():
            return model.predict_proba(x)

    return rows.classifier(
        probs_of,
        model.classes_,
        f"Histogram gradient boosting with {rounds} rounds, as many as are best {rows.how_held_out(folds)}; its "
        f"own probabilities.",
        lambda: boosted_model(model, "softmax"),
    )


@dataclass(frozen=True, eq=False)
class BoostedMean:
    """Gradient boosting of a number, and its errors on rows that it was not fitted to.

    Args:
        model: fitted to all rows, with as many rounds as were best.
        rounds: how many.
        held: the rows that were held out.
        errors: of these.
        how_held_out: in words.
    """

    model: Any
    rounds: int
    held: np.ndarray
    errors: np.ndarray
    how_held_out: str

    @classmethod
    def fit(cls, rows: BaselineRows) -> "BoostedMean":
        from sklearn.ensemble import HistGradientBoostingRegressor

        def new_model(rounds: int) -> HistGradientBoostingRegressor:
            return HistGradientBoostingRegressor(**_boosting_settings(rows, rounds))

        staged, held_out = [], []
        folds, most = _affordable(rows, lambda rounds: new_model(rounds).fit(rows.x, rows.y))
        with _one_thread():
            for fit, held in itertools.islice(rows.folds(), folds):
                predicted = new_model(most).fit(rows.x[fit], rows.y[fit]).staged_predict(rows.x[held])
                staged.append(rows.y[held] - np.stack(list(predicted)))
                held_out.append(held)
            errors = np.concatenate(staged, axis=1)  # (rounds, rows that were held out)
            rounds = int(np.square(errors).mean(axis=1).argmin()) + 1
            model = new_model(rounds).fit(rows.x, rows.y)
        return cls(model, rounds, np.concatenate(held_out), errors[rounds - 1], rows.how_held_out(folds))

    def predict(self, x: np.ndarray) -> np.ndarray:
        with _one_thread():
            return self.model.predict(x)


def _boosting_of_numbers(rows: BaselineRows) -> SavableBaseline:
    boosted = rows.boosted_mean
    return rows.regressor(
        boosted.predict,
        _root_mean_square(boosted.errors),
        f"Histogram gradient boosting with {boosted.rounds} rounds, as many as are best {boosted.how_held_out}; "
        f"intervals are those of a Normal distribution with the spread of its errors there.",
        lambda: boosted_model(boosted.model, "identity"),
    )


def _distributional_boosting(rows: BaselineRows) -> SavableBaseline:
    boosted = rows.boosted_mean
    squares = np.square(boosted.errors)
    squares = np.maximum(squares, SMALLEST_VARIANCE * max(float(squares.mean()), np.finfo(np.float64).tiny))
    x = rows.x[boosted.held]
    with _one_thread():
        rounds = _rounds_of_variance(x, squares, rows.seed)
        variance = _variance_model(rounds, len(x), rows.seed).fit(x, squares)

    def moments(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        with _one_thread():
            return boosted.predict(x), np.sqrt(variance.predict(x))

    return rows.regressor_with_spread(
        moments,
        f"Histogram gradient boosting with {boosted.rounds} rounds, and the variance of its errors "
        f"{boosted.how_held_out} by boosting with {rounds} rounds: a Normal distribution whose spread depends on the "
        f"row.",
        lambda: boosted_mean_and_spread(boosted.model, variance),
    )


def _variance_model(rounds: int, rows: int, seed: int) -> Any:
    from sklearn.ensemble import HistGradientBoostingRegressor

    return HistGradientBoostingRegressor(
        loss="gamma",
        learning_rate=SPREAD_RATE,
        max_iter=rounds,
        max_leaf_nodes=8,
        min_samples_leaf=max(3, min(SPREAD_LEAF, rows // 20)),
        early_stopping=False,
        random_state=seed,
    )


def _rounds_of_variance(x: np.ndarray, squares: np.ndarray, seed: int) -> int:
    """As many rounds as give held-out squared errors the largest likelihood, at least one."""
    from sklearn.model_selection import KFold

    losses = np.zeros(SPREAD_ROUNDS)
    if len(x) < FOLDS:
        return 1
    for fit, held in KFold(FOLDS, shuffle=True, random_state=seed).split(x):
        model = _variance_model(SPREAD_ROUNDS, len(fit), seed).fit(x[fit], squares[fit])
        for k, variance in enumerate(model.staged_predict(x[held])):
            losses[k] += (np.log(variance) + squares[held] / variance).sum()
    return int(losses.argmin()) + 1


def _suits_gaussian_process(rows: BaselineRows) -> bool:
    """Its time grows with the cube of the rows, and the search for the scales of many columns takes long."""
    return len(rows.x) <= GP_ROWS and rows.given == len(rows.x) and rows.x.shape[1] <= GP_COLUMNS


def _gaussian_process(rows: BaselineRows) -> SavableBaseline:
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    offset, scale = float(rows.y.mean()), float(rows.y.std()) or 1.0
    spread = rows.x.std(axis=0)
    spread = np.where(spread > 0, spread, 1.0)
    x, y = rows.x / spread, (rows.y - offset) / scale
    columns = x.shape[1]
    lengths = np.full(columns, math.sqrt(columns))
    kernel = ConstantKernel(1.0, (1e-3, 1e4)) * RBF(lengths, (1e-2, 1e4)) + WhiteKernel(0.1, (1e-6, 10.0))
    chosen = np.random.default_rng(rows.seed).permutation(len(x))[:GP_ROWS_OF_SCALES]
    optimizer = partial(_few_iterations, ends=rows.ends)
    search = GaussianProcessRegressor(kernel, optimizer=optimizer).fit(x[chosen], y[chosen])
    model = GaussianProcessRegressor(search.kernel_, optimizer=None).fit(x, y)
    product, noise = model.kernel_.k1, float(model.kernel_.k2.noise_level)
    arrays = {  # of k = scale^2 k', in the target's units
        "rows": rows.x,
        "weights": model.alpha_.reshape(-1) / scale,
        "factor": scale * model.L_,
        "lengths": spread * product.k2.length_scale,
        "variances": scale**2 * np.array([product.k1.constant_value, noise]),
        "intercept": np.array([offset]),
    }
    plain_model = PlainModel(arrays, "identity")

    def moments(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        mean, deviation = plain_model(x).T
        return mean, deviation

    of = "" if len(chosen) == len(x) else f" of {len(chosen)} rows"
    return rows.regressor_with_spread(
        moments,
        f"A Gaussian process with a squared exponential kernel, a length scale for each column, and noise; their sizes "
        f"are those of the largest marginal likelihood{of}.",
        lambda: plain_model,
    )


def _few_iterations(
    objective: Callable[..., Any], start: np.ndarray, bounds: np.ndarray, *, ends: float
) -> tuple[np.ndarray, float]:
    """The best kernel of a search that stops when its time is over, but not before its tenth step."""
    from scipy.optimize import minimize

    done = itertools.count(1)

    def stop_in_time(_: np.ndarray) -> None:
        if next(done) >= FEWEST_GP_ITERATIONS and time.monotonic() > ends:
            raise StopIteration

    options = {"maxiter": GP_ITERATIONS}
    found = minimize(
        objective, start, method="L-BFGS-B", jac=True, bounds=bounds, options=options, callback=stop_in_time
    )
    return found.x, float(found.fun)


def _suits_catboost(rows: BaselineRows) -> bool:
    """It refuses columns that are all constant, and a single class; of many classes it has as many trees per round."""
    return _varies(rows.x) and _varies(rows.y) and rows.x.size * max(1, rows.classes) <= CATBOOST_VALUES


def _varies(values: np.ndarray) -> bool:
    return bool(np.ptp(values.astype(np.float32), axis=0).any())  # as CatBoost reads them


def _fit_catboost(rows: BaselineRows, name: str, y: np.ndarray, **settings: Any) -> tuple[Any, str]:
    """A model with as many rounds as are best on held-out rows, and words about it.

    Args:
        rows: with columns and folds.
        name: of CatBoost's class.
        y: targets, as the model is given them.
        settings: of the model.
    """
    package = importlib.import_module("catboost")  # never required, so it is none of the declared dependencies

    def new_model(rounds: int, rate: float | None) -> Any:
        threads = {"thread_count": 1, "random_seed": rows.seed}
        quiet = {"verbose": False, "allow_writing_files": False}
        return getattr(package, name)(iterations=rounds, learning_rate=rate, **threads, **quiet, **settings)

    folds, most = _affordable(rows, lambda rounds: new_model(rounds, None).fit(rows.x, y), CATBOOST_TRIAL_ROUNDS)
    rate = None if rows.classes else float(np.clip(CATBOOST_STEPS / most, *CATBOOST_RATES))
    losses, held_out = np.zeros(most), False
    for fit, held in itertools.islice(rows.folds(), folds):
        if rows.classes:  # the loss of a class that is not among the rows to fit is the same in every round
            held = held[np.isin(y[held], y[fit])]
        if len(held) and _varies(rows.x[fit]) and _varies(y[fit]):
            model = new_model(most, rate)
            model.fit(rows.x[fit], y[fit], eval_set=(rows.x[held], y[held]), use_best_model=False)
            (loss_by_round,) = model.evals_result_["validation"].values()
            losses += len(held) * np.asarray(loss_by_round)
            rate, held_out = model.learning_rate_, True  # of classes, its own choice for that number of rounds
    rounds = int(losses.argmin()) + 1 if held_out else min(ROUNDS_WITHOUT_FOLDS, most)
    best = f", as many as are best {rows.how_held_out(folds)}" if held_out else ""
    return new_model(rounds, rate).fit(rows.x, y), f"CatBoost with {rounds} rounds{best}"


def _catboost_of_classes(rows: BaselineRows) -> SavableBaseline:
    model, words = _fit_catboost(rows, "CatBoostClassifier", rows.y)
    return rows.classifier(
        lambda x: model.predict_proba(x, thread_count=1),
        model.classes_,
        f"{words}; its own probabilities.",
        lambda: catboost_model(model, "softmax"),
    )


def _catboost_of_numbers(rows: BaselineRows) -> SavableBaseline:
    offset, scale = float(rows.y.mean()), float(rows.y.std()) or 1.0
    loss = "RMSEWithUncertainty"
    model, words = _fit_catboost(rows, "CatBoostRegressor", (rows.y - offset) / scale, loss_function=loss)

    def moments(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        mean, log_spread = model.predict(x, prediction_type="RawFormulaVal", thread_count=1).T
        return offset + scale * mean, scale * np.exp(log_spread)

    return rows.regressor_with_spread(
        moments,
        f"{words}; a Normal distribution whose mean and spread depend on the row, by its loss {loss}.",
        lambda: catboost_model(model, "exp", offset, scale),
    )


MODELS_OF_CLASSES = {
    "logistic regression": _logistic_regression,
    "random forest": _forest_of_classes,
    "gradient boosting": _boosting_of_classes,
}
GAUSSIAN_PROCESS, CATBOOST = "gaussian process", "catboost"
MODELS_OF_NUMBERS = {
    "ridge regression": _ridge_regression,
    "random forest": _forest_of_numbers,
    "gradient boosting": _boosting_of_numbers,
    "distributional boosting": _distributional_boosting,
    GAUSSIAN_PROCESS: _gaussian_process,
}
SUITS = {GAUSSIAN_PROCESS: _suits_gaussian_process, CATBOOST: _suits_catboost}  # whether a model can be fitted to rows
if find_spec(CATBOOST) is not None:
    MODELS_OF_CLASSES[CATBOOST] = _catboost_of_classes
    MODELS_OF_NUMBERS[CATBOOST] = _catboost_of_numbers


def _affordable(rows: BaselineRows, fit: Callable[[int], Any], trial: int = TRIAL_ROUNDS) -> tuple[int, int]:
    """How many folds are used to choose the number of rounds, and how many rounds there are at most.

    Args:
        rows: with the time when the models should be fitted.
        fit: fits a model with so many rounds to all rows.
        trial: the rounds that are timed.
    """
    most = _most_rounds(rows)
    if math.isinf(rows.ends):
        return FOLDS, most
    with _one_thread():
        began = time.monotonic()
        fit(trial)
        per_round = (time.monotonic() - began) / trial
    left = max(rows.ends - time.monotonic(), 0.0)
    affordable = lambda folds: int(left / per_round / (folds + 1) / WITH_PREDICTIONS)  # noqa: E731
    folds = FOLDS if affordable(FOLDS) >= min(ENOUGH_ROUNDS, most) else 1
    return folds, int(np.clip(affordable(folds), ROUNDS_WITHOUT_FOLDS, most))


def _most_rounds(rows: BaselineRows) -> int:
    return MOST_ROUNDS if rows.x.size <= LARGE else ROUNDS_OF_LARGE_DATA


def _one_thread() -> AbstractContextManager[object]:
    """A context in which boosting uses one thread: several wait for each other at every split, and if other programs
    use the same cores, that takes up to thirty times as long."""
    from threadpoolctl import threadpool_limits  # comes with scikit-learn

    return threadpool_limits(1, user_api="openmp")


def _root_mean_square(errors: np.ndarray) -> float:
    return float(np.sqrt(np.square(errors).mean()))
