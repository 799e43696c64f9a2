"""Fitted baselines as plain arrays, so that a file can hold them without holding code.

A linear model is a matrix. A forest and gradient boosting are trees in one table of nodes: `feature` and `threshold`
(a row goes left if its value is at most that), `left` and `right`, and `value`, the outputs of a leaf, for which
`left` is -1. A Gaussian process is its rows, the weight of each, and the kernel's scales. scikit-learn's own files are
pickles, which run whatever they say.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np
from scipy.linalg import solve_triangular
from scipy.spatial.distance import cdist
from scipy.special import softmax

from posteriax._internal.tensor_file import read_tensors, write_tensors
from posteriax.evaluation.compare import Baseline
from posteriax.likelihoods.classes import Categorical, ClassPredictive
from posteriax.likelihoods.normal import Normal
from posteriax.likelihoods.number_predictive import NumberPredictive
from posteriax.likelihoods.numbers import InUnits, TargetUnits
from posteriax.posterior.file import PosteriorFileError

FORMAT = "baseline file"
VERSION = 1
ROWS_AT_ONCE = 2_000_000  # rows times trees
LEAF = -1
FLOOR = 1e-6  # of a noise that a Normal likelihood predicts

Link = Literal["identity", "softmax", "exp"]


@dataclass(frozen=True, eq=False)
class PlainModel:
    """A model as arrays: from rows of columns to its outputs.

    Args:
        arrays: ``{"coef": (columns, outputs), "intercept": (outputs,)}``, or of trees, ``feature``, ``threshold``,
            ``left``, ``right``, ``value`` (nodes, outputs), ``roots`` (trees,) and ``intercept``; or of a Gaussian
            process, ``rows``, ``weights``, ``factor`` (the Cholesky factor of their covariance), ``lengths``,
            ``variances`` (of the function and the noise) and ``intercept``.
        link: from outputs to predictions: "softmax" of class scores, or "identity"; "exp" of a second output, the
            logarithm of a variance.

    >>> line = PlainModel({"coef": np.array([[2.0]]), "intercept": np.array([1.0])}, "identity")
    >>> line(np.array([[3.0]])).tolist()
    [[7.0]]
    """

    arrays: dict[str, np.ndarray]
    link: Link

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Predictions, (rows, outputs)."""
        x = np.asarray(x, np.float64)
        if "coef" in self.arrays:
            outputs = x @ self.arrays["coef"] + self.arrays["intercept"]
        elif "lengths" in self.arrays:
            outputs = self._gaussian_process(x)
        else:
            step = max(1, ROWS_AT_ONCE // len(self.arrays["roots"]))
            parts = [self._sum_of_trees(x[first : first + step]) for first in range(0, max(len(x), 1), step)]
            outputs = np.concatenate(parts) + self.arrays["intercept"]
        if self.link == "exp":
            outputs = np.column_stack([outputs[:, 0], np.exp(0.5 * outputs[:, 1])])
        return softmax(outputs, axis=1) if self.link == "softmax" else outputs

    def _gaussian_process(self, x: np.ndarray) -> np.ndarray:
        """Mean and standard deviation, noise included, (rows, 2).

        k(x, x') = v exp(-sum_j (x_j - x'_j)^2 / (2 l_j^2))
        """
        rows, weights, factor, lengths = (self.arrays[name] for name in ("rows", "weights", "factor", "lengths"))
        function, noise = self.arrays["variances"]
        step = max(1, ROWS_AT_ONCE // len(rows))
        means, spreads = [], []
        for first in range(0, max(len(x), 1), step):
            part = x[first : first + step]
            covariance = function * np.exp(-0.5 * cdist(part / lengths, rows / lengths, "sqeuclidean"))
            explained = np.square(solve_triangular(factor, covariance.T, lower=True)).sum(axis=0)
            means.append(covariance @ weights + self.arrays["intercept"][0])
            spreads.append(np.sqrt(np.maximum(function - explained, 0.0) + noise))
        return np.column_stack([np.concatenate(means), np.concatenate(spreads)])

    def _sum_of_trees(self, x: np.ndarray) -> np.ndarray:
        feature, threshold, left, right = (self.arrays[name] for name in ("feature", "threshold", "left", "right"))
        node = np.tile(self.arrays["roots"], (len(x), 1))
        rows = np.arange(len(x))[:, None]
        while (inner := left[node] != LEAF).any():
            below = np.where(x[rows, feature[node]] <= threshold[node], left[node], right[node])
            node = np.where(inner, below, node)
        return self.arrays["value"][node].sum(axis=1)


@dataclass(frozen=True, eq=False)
class SavableBaseline(Baseline):
    """A baseline that can be written to a file.

    Args:
        as_arrays: makes the model that the file holds.
        labels: the classes that the model has seen, in the order of its outputs; empty for numbers.
        about: what its predictions need besides: "classes", and "unseen" and "smallest", the probability of a class
            that the model has not seen and the least of one that it has; or "offset", "scale" and "spread" of numbers,
            without "spread" if the model gives one for each row.
    """

    as_arrays: Callable[[], PlainModel] | None = None
    labels: tuple[int, ...] = ()
    about: Mapping[str, float] = field(default_factory=dict)


def class_predictive(probs: np.ndarray) -> ClassPredictive:
    return ClassPredictive(Categorical(), np.log(probs).astype(np.float32)[None])


def number_predictive(mean: np.ndarray, units: TargetUnits, spread: float | np.ndarray) -> NumberPredictive:
    """N(mean, spread^2), in the target's units; with a spread for each row, or one for all."""
    if isinstance(spread, np.ndarray):
        noises = np.maximum(spread / units.scale, 2 * FLOOR)
        outputs = np.column_stack([units.standardise(mean), inverse_softplus(noises - FLOOR)]).astype(np.float32)
        return InUnits(Normal(scale="predicted"), units.offset, units.scale).predictive(outputs[None], {})
    noise = float(np.asarray(spread) / units.scale)
    likelihood = InUnits(Normal(scale=max(noise, 1e-6)), units.offset, units.scale)
    return likelihood.predictive(units.standardise(mean).astype(np.float32)[None, :, None], {})


def inverse_softplus(values: np.ndarray) -> np.ndarray:
    """What softplus maps to these positive values.

    >>> np.log1p(np.exp(inverse_softplus(np.array([0.1, 3.0])))).round(6).tolist()
    [0.1, 3.0]
    """
    return values + np.log(-np.expm1(-values))


def all_class_probs(probs: np.ndarray, labels: Any, *, classes: int, unseen: float, smallest: float) -> np.ndarray:
    """Probabilities of all classes from those of the classes that a model has seen."""
    all_probs = np.full((len(probs), classes), unseen)
    seen = np.maximum(probs, smallest)
    all_probs[:, labels] = seen / seen.sum(axis=1, keepdims=True) * (1 - unseen * (classes - len(labels)))
    return all_probs


def save_baseline(baseline: SavableBaseline, path: Path) -> None:
    """Write a baseline to a file; an existing file is replaced only by a complete one."""
    assert baseline.as_arrays is not None
    model = baseline.as_arrays()
    about = {
        "format": FORMAT,
        "version": VERSION,
        "link": model.link,
        "labels": list(baseline.labels),
        "description": baseline.description,
        "settings": dict(baseline.about),
    }
    write_tensors(path, about, model.arrays)


def load_baseline(path: Path) -> Baseline:
    """A baseline that :func:`save_baseline` wrote."""
    about, arrays, _ = read_tensors(path, FORMAT, PosteriorFileError)
    if about["version"] > VERSION:
        raise PosteriorFileError(f"{path} was written by a newer posteriax: this one reads versions up to {VERSION}")
    model, labels, settings = PlainModel(arrays, about["link"]), tuple(about["labels"]), about["settings"]

    def predictor(x: Any) -> ClassPredictive | NumberPredictive:
        outputs = model(np.asarray(x).reshape(len(x), -1))
        if labels:
            return class_predictive(all_class_probs(outputs, labels, **settings))
        units = TargetUnits(settings["offset"], settings["scale"])
        return number_predictive(outputs[:, 0], units, settings.get("spread", outputs[:, -1]))

    return SavableBaseline(predictor, about["description"], as_arrays=lambda: model, labels=labels, about=settings)


def linear_model(pipeline: Any, link: Link) -> PlainModel:
    """A standardiser and a linear model of scikit-learn in one matrix."""
    scaler, model = pipeline[0], pipeline[-1]
    coef, intercept = np.atleast_2d(model.coef_) / scaler.scale_, np.atleast_1d(model.intercept_)
    intercept = intercept - coef @ scaler.mean_
    if link == "softmax" and len(coef) == 1:  # the score of the second class, against 0
        coef, intercept = np.concatenate([0 * coef, coef]), np.concatenate([0 * intercept, intercept])
    return PlainModel({"coef": coef.T.copy(), "intercept": intercept}, link)


def forest_model(forest: Any, classes: int = 0) -> PlainModel:
    """The trees of a forest: parts of the mean; or parts of the votes, of which each of `classes` gets one more."""
    trees = [estimator.tree_ for estimator in forest.estimators_]
    values = [tree.value[:, 0] / (len(trees) + classes) for tree in trees]  # of a classifier, shares
    tables = [
        (tree.feature, tree.threshold, tree.children_left, tree.children_right, value)
        for tree, value in zip(trees, values, strict=True)
    ]
    outputs = values[0].shape[1]
    base = np.full(outputs, 1 / (len(trees) + classes) if classes else 0.0)
    return PlainModel(_joined(tables) | {"intercept": base}, "identity")


def boosted_model(boosting: Any, link: Link) -> PlainModel:
    """The trees of histogram gradient boosting, each of which adds to one of the class scores, or to the prediction."""
    base = _baseline_of(boosting)
    outputs = len(base)
    binary = link == "softmax" and outputs == 1
    tables = _tables_of(boosting, 2, 1) if binary else _tables_of(boosting, outputs)
    base = np.concatenate([[0.0], base]) if binary else base
    return PlainModel(_joined(tables) | {"intercept": base}, link)


def boosted_mean_and_spread(mean: Any, log_variance: Any) -> PlainModel:
    """The trees of two models of one number: of its mean, and of the logarithm of its variance."""
    tables = [*_tables_of(mean, 2, 0), *_tables_of(log_variance, 2, 1)]
    base = np.concatenate([_baseline_of(mean), _baseline_of(log_variance)])
    return PlainModel(_joined(tables) | {"intercept": base}, "exp")


def catboost_model(catboost: Any, link: Link, offset: float = 0.0, scale: float = 1.0) -> PlainModel:
    """The trees of CatBoost: of class scores; or of mean and spread of a target that was standardised.

    They are oblivious: all nodes of a level ask the same question, and the answers are the bits of a leaf's number.
    """
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.json"
        catboost.save_model(str(path), format="json")
        exported = json.loads(path.read_text())
    factor, base = exported["scale_and_bias"]
    base = np.asarray(base, np.float64).reshape(-1)
    trees = [
        (tree.get("splits") or [], factor * np.asarray(tree["leaf_values"], np.float64).reshape(-1, len(base)))
        for tree in exported["oblivious_trees"]
    ]
    if link == "exp":  # CatBoost has the logarithm of the standard deviation
        scales = np.array([scale, 2.0])
        base = base * scales + np.array([offset, 2 * np.log(scale)])
        trees = [(splits, values * scales) for splits, values in trees]
    elif link == "softmax" and len(base) == 1:  # the score of the second class, against 0
        base = np.concatenate([[0.0], base])
        trees = [(splits, np.concatenate([0 * values, values], axis=1)) for splits, values in trees]
    return PlainModel(_joined([_oblivious_table(*tree) for tree in trees]) | {"intercept": base}, link)


def _oblivious_table(splits: Sequence[Mapping[str, Any]], values: np.ndarray) -> tuple[np.ndarray, ...]:
    """The nodes of a complete tree, level by level, so that the children of node i are 2 i + 1 and 2 i + 2."""
    levels = splits[::-1]  # the first split is the lowest bit of a leaf's number
    nodes, inner = 2 * len(values) - 1, len(values) - 1
    widths = 2 ** np.arange(len(levels))
    feature, threshold, value = np.zeros(nodes, int), np.zeros(nodes), np.zeros((nodes, values.shape[1]))
    feature[:inner] = np.repeat([split["float_feature_index"] for split in levels], widths)
    threshold[:inner] = np.repeat([split["border"] for split in levels], widths)
    value[inner:] = values
    children = 2 * np.arange(nodes) + 1
    left, right = (np.where(np.arange(nodes) < inner, children + k, LEAF) for k in (0, 1))
    return feature, threshold, left, right, value


def _baseline_of(boosting: Any) -> np.ndarray:
    return np.asarray(boosting._baseline_prediction, np.float64).reshape(-1)


def _tables_of(boosting: Any, outputs: int, first: int = 0) -> list[tuple[np.ndarray, ...]]:
    """The nodes of each tree, where those of the k-th tree of a round add to the output first + k."""
    tables: list[tuple[np.ndarray, ...]] = []
    for of_round in boosting._predictors:
        for k, tree in enumerate(of_round):
            nodes, is_leaf = tree.nodes, tree.nodes["is_leaf"].astype(bool)
            value = np.zeros((len(nodes), outputs))
            value[is_leaf, first + k] = nodes["value"][is_leaf]
            left = np.where(is_leaf, LEAF, nodes["left"].astype(np.int64))
            feature = np.where(is_leaf, 0, nodes["feature_idx"].astype(np.int64))
            tables.append((feature, nodes["num_threshold"], left, nodes["right"].astype(np.int64), value))
    return tables


def _joined(tables: Sequence[tuple[np.ndarray, ...]]) -> dict[str, np.ndarray]:
    """One table of the nodes of all trees."""
    roots = np.cumsum([0, *(len(table[0]) for table in tables)])[:-1]
    feature, threshold, left, right, value = (np.concatenate(parts) for parts in zip(*tables, strict=True))
    first = np.repeat(roots, [len(table[0]) for table in tables])
    inner = left != LEAF
    return {
        "feature": np.where(inner, feature, 0).astype(np.int32),
        "threshold": np.where(inner, threshold, 0.0).astype(np.float64),
        "left": np.where(inner, left + first, LEAF).astype(np.int32),
        "right": np.where(inner, right + first, LEAF).astype(np.int32),
        "value": value.astype(np.float64),
        "roots": roots.astype(np.int32),
    }
