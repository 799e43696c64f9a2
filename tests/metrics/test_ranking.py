"""Detection and selective prediction against scikit-learn, by brute force and by their properties."""

from itertools import permutations

import hypothesis.extra.numpy as arrays
import jax
import numpy as np
import pytest
import sklearn.metrics
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from posteriax import metrics

SIZE = 40
SCORES = arrays.arrays(np.float32, SIZE, elements=st.integers(-6, 6).map(float))  # few values: many ties
YES = arrays.arrays(bool, SIZE)


def fpr_at(score, y, tpr):
    fpr, found, _ = sklearn.metrics.roc_curve(y, score, drop_intermediate=False)
    return fpr[found >= tpr].min()


@settings(max_examples=40, deadline=None)
@given(SCORES, YES)
def test_equal_to_scikit_learn_with_ties(score, y):
    assume(0 < y.sum() < SIZE)
    assert float(metrics.auroc(score, y)) == pytest.approx(sklearn.metrics.roc_auc_score(y, score), abs=1e-6)
    assert float(metrics.average_precision(score, y)) == pytest.approx(
        sklearn.metrics.average_precision_score(y, score), abs=1e-6
    )
    for tpr in (0.5, 0.95, 1.0):
        assert float(metrics.fpr_at_tpr(score, y, tpr)) == pytest.approx(fpr_at(score, y, tpr), abs=1e-6)


def test_equal_to_scikit_learn_on_many_examples():
    rng = np.random.default_rng(0)
    y = rng.uniform(size=300_000) < 0.3
    score = rng.normal(y.astype(float)).astype(np.float32)
    assert float(metrics.auroc(score, y)) == pytest.approx(sklearn.metrics.roc_auc_score(y, score), rel=1e-6)
    assert float(metrics.average_precision(score, y)) == pytest.approx(
        sklearn.metrics.average_precision_score(y, score), rel=1e-6
    )
    assert float(metrics.fpr_at_tpr(score, y)) == pytest.approx(fpr_at(score, y, 0.95), rel=1e-6)


@pytest.mark.parametrize("ones", [20, 60, 100, 1000])
def test_95_percent_of_whole_numbers_is_met_exactly(ones):
    """The last 5 % of the ones score below all zeros: finding exactly 95 % must need none of those."""
    score = np.concatenate([np.full(ones * 95 // 100, 2.0), np.full(ones - ones * 95 // 100, 0.0), np.ones(7)])
    y = np.repeat([1, 0], [ones, 7])
    assert float(metrics.fpr_at_tpr(score, y)) == 0.0
    assert float(metrics.fpr_at_tpr(score, y, 0.96)) == 1.0


@settings(max_examples=25, deadline=None)
@given(SCORES, YES)
def test_only_the_order_of_scores_counts(score, y):
    assume(0 < y.sum() < SIZE)
    for metric in (metrics.auroc, metrics.average_precision, metrics.fpr_at_tpr):
        assert float(metric(np.arctan(score) ** 3, y)) == float(metric(score, y))
    assert float(metrics.auroc(-score, y)) == pytest.approx(1 - float(metrics.auroc(score, y)), abs=1e-6)


def test_perfect_hopeless_and_constant_scores():
    y = np.array([0, 0, 0, 1])
    assert [float(metrics.auroc(s, y)) for s in (y, -y, np.zeros(4))] == [1.0, 0.0, 0.5]
    assert [float(metrics.average_precision(s, y)) for s in (y, -y, np.zeros(4))] == [1.0, 0.25, 0.25]
    assert [float(metrics.fpr_at_tpr(s, y)) for s in (y, -y, np.zeros(4))] == [0.0, 1.0, 1.0]
    assert float(metrics.average_precision([0.3, 0.1], [1, 1])) == 1.0
    assert float(metrics.auroc([-np.inf, 0.0, np.inf], [0, 0, 1])) == 1.0
    assert float(metrics.auroc([0.0, -0.0], [0, 1])) == 0.5


def test_rows_of_scores_and_jit():
    rng = np.random.default_rng(0)
    scores, y = rng.normal(size=(3, 50)), rng.integers(0, 2, 50)
    for metric in (metrics.auroc, metrics.average_precision, metrics.fpr_at_tpr):
        one_by_one = [float(metric(row, y)) for row in scores]
        np.testing.assert_allclose(metric(scores, y), one_by_one, atol=1e-6)
        np.testing.assert_allclose(jax.jit(metric)(scores, y), one_by_one, atol=1e-6)


def test_risk_coverage_is_the_mean_over_the_orders_of_ties():
    confidence, loss = np.array([0.9, 0.5, 0.5, 0.5, 0.1, 0.9]), np.array([0.0, 1.0, 0.0, 2.5, 1.0, 1.0])
    curves = []
    for order in map(list, permutations(range(6))):
        descending = sorted(order, key=lambda i: -confidence[i])  # stable: ties in the permutation's order
        curves.append(np.cumsum(loss[descending]) / np.arange(1, 7))
    curve = metrics.risk_coverage(confidence, loss)
    np.testing.assert_allclose(curve.risk, np.mean(curves, axis=0), rtol=1e-6)
    np.testing.assert_allclose(curve.coverage, np.arange(1, 7) / 6, rtol=1e-6)
    assert float(metrics.aurc(confidence, loss)) == pytest.approx(np.mean(curves), rel=1e-6)


@settings(max_examples=40, deadline=None)
@given(SCORES, YES)
def test_aurc_lies_between_the_best_and_the_worst_order(confidence, wrong):
    value = float(metrics.aurc(confidence, wrong))
    best, worst = (float(metrics.aurc(sign * wrong.astype(float), wrong)) for sign in (-1, 1))
    assert best - 1e-6 <= value <= worst + 1e-6
    assert float(metrics.aurc(np.zeros(SIZE), wrong)) == pytest.approx(wrong.mean(), abs=1e-6)


def test_aurc_of_many_examples_keeps_its_digits():
    rng = np.random.default_rng(0)
    confidence, loss = rng.permutation(300_000).astype(np.float32), rng.exponential(size=300_000).astype(np.float32)
    exact = np.mean(np.cumsum(loss[np.argsort(-confidence)].astype(np.float64)) / np.arange(1, 300_001))
    assert float(metrics.aurc(confidence, loss)) == pytest.approx(exact, rel=1e-6)


BAD = {
    "one class only": (metrics.auroc, ([0.1, 0.2], [1, 1]), "y has no 0"),
    "no ones": (metrics.average_precision, ([0.1, 0.2], [0, 0]), "y has no 1"),
    "labels": (metrics.fpr_at_tpr, ([0.1, 0.2], [1, 2]), "y must be 0 or 1"),
    "nan": (metrics.auroc, ([0.1, np.nan], [0, 1]), r"score has 1 NaN values, the first at index \(1,\)"),
    "empty": (metrics.auroc, ([], []), "is empty"),
    "lengths": (metrics.auroc, ([0.1, 0.2, 0.3], [0, 1]), r"got \(2,\) and \(3,\)"),
    "tpr": (metrics.fpr_at_tpr, ([0.1, 0.2], [0, 1], 95), "tpr must be above 0 and at most 1"),
    "loss": (metrics.aurc, ([0.1, 0.2], [0.0]), "confidence and loss must have the same shape"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input(name):
    metric, given, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        metric(*given)


def test_one_class_only_is_nan_where_values_are_not_known():
    assert np.isnan(jax.jit(metrics.auroc)(np.array([0.1, 0.2]), np.array([1, 1])))
