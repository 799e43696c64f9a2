"""Calibration by its definition, over batches and over draws."""

from functools import reduce

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posteriax import metrics


def predictions(n=300, classes=5, seed=0):
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.ones(classes), n).astype(np.float32), rng.integers(0, classes, n)


def by_definition(confidence, right, bins):
    confidence = confidence.astype(np.float64)
    index = np.clip(np.ceil(confidence * bins).astype(int) - 1, 0, bins - 1)
    return sum(
        (index == b).mean() * abs(right[index == b].mean() - confidence[index == b].mean()) for b in np.unique(index)
    )


@pytest.mark.parametrize("bins", [1, 10, 15])
def test_classwise_by_the_definition(bins):
    probs, y = predictions()
    truth = np.mean([by_definition(probs[:, c], y == c, bins) for c in range(5)])
    assert float(metrics.classwise_ece(probs, y, bins)) == pytest.approx(truth, abs=1e-6)


def test_classwise_sees_what_the_highest_probability_hides():
    """Right half the time at confidence 1/2, but the rest goes to a class that never comes."""
    probs, y = np.tile(np.float32([0.5, 0.1, 0.4]), (100, 1)), np.repeat([0, 1], 50)
    assert float(metrics.ece_equal_width(probs, y)) == pytest.approx(0.0, abs=1e-6)
    assert float(metrics.classwise_ece(probs, y)) == pytest.approx((0.0 + 0.4 + 0.4) / 3, abs=1e-6)


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(st.randoms(use_true_random=False))
def test_batches_add_up(random):
    probs, y = predictions(60)
    parts = np.split(np.array(random.sample(range(60), 60)), [20, 59])  # the last batch holds one example
    for bins_of, ece in (
        (metrics.calibration_bins, metrics.ece_equal_width),
        (metrics.classwise_bins, metrics.classwise_ece),
    ):
        total = reduce(metrics.CalibrationBins.add, (bins_of(probs[part], y[part]) for part in parts))
        assert float(total.error().mean()) == pytest.approx(float(ece(probs, y)), abs=1e-6)
        np.testing.assert_array_equal(total.right, bins_of(probs, y).right)


def test_reliability_diagram():
    probs, y = predictions()
    bins = metrics.calibration_bins(probs, y, 4)
    confidence, right = probs.max(axis=1), probs.argmax(axis=1) == y
    for b in range(4):
        inside = (confidence > b / 4) & (confidence <= (b + 1) / 4)
        assert int(bins.examples[b]) == inside.sum()
        if inside.any():
            assert float(bins.accuracy()[b]) == pytest.approx(right[inside].mean(), abs=1e-6)
            assert float(bins.confidence()[b]) == pytest.approx(confidence[inside].mean(), abs=1e-6)
        else:
            assert np.isnan(bins.accuracy()[b])


def test_float32_keeps_its_digits_over_many_examples():
    rng = np.random.default_rng(1)
    confidence = rng.uniform(0.5, 1.0, 400_000).astype(np.float32)
    probs = np.stack([confidence, 1 - confidence], axis=1)
    y = (rng.uniform(size=400_000) > confidence**1.2).astype(int)
    wide = probs.astype(np.float64)
    taken = np.take_along_axis(wide, y[:, None], axis=1)
    assert float(metrics.nll(probs, y)) == pytest.approx(-np.log(taken).mean(), rel=1e-6)
    assert float(metrics.brier(probs, y)) == pytest.approx(((wide - np.eye(2)[y]) ** 2).sum(axis=1).mean(), rel=1e-6)
    assert float(metrics.accuracy(probs, y)) == pytest.approx((probs.argmax(axis=1) == y).mean(), rel=1e-6)
    # the edges of bins in float32 too: an example on an edge is in the bin that float32 says
    index = np.clip(np.ceil(confidence * np.float32(15)).astype(int) - 1, 0, 14)
    gaps = np.bincount(index, (probs.argmax(axis=1) == y) - wide.max(axis=1))
    assert float(metrics.ece_equal_width(probs, y)) == pytest.approx(np.abs(gaps).sum() / len(y), rel=1e-6)


SCORES = {
    "accuracy": metrics.accuracy,
    "nll": metrics.nll,
    "brier": metrics.brier,
    "equal width": metrics.ece_equal_width,
    "equal mass": metrics.ece_equal_mass,
    "classwise": metrics.classwise_ece,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SCORES)
def test_one_score_per_draw_and_jit(name):
    score = SCORES[name]
    draws = np.stack([predictions(60, seed=s)[0] for s in range(3)])
    y = predictions(60)[1]
    one_by_one = [float(score(probs, y)) for probs in draws]
    np.testing.assert_allclose(score(draws, y), one_by_one, atol=1e-6)
    np.testing.assert_allclose(jax.jit(score)(draws, y), one_by_one, atol=1e-6)
    # tokens are examples
    tokens = score(draws.reshape(3, 10, 6, 5), np.stack([y.reshape(10, 6)] * 3))
    assert float(tokens) == pytest.approx(float(score(draws.reshape(180, 5), np.tile(y, 3))), abs=1e-6)


PROBS, Y = predictions(4, 3)
BAD = {
    "a label too many": (PROBS, [0, 1, 2, 3], ValueError, r"y has the label 3, but probs has 3 classes"),
    "a label far out": (PROBS, [0, 1, 2, 2**32], ValueError, r"y has the label 4294967296"),
    "a negative label": (PROBS, [0, 1, 2, -1], ValueError, r"y has the label -1"),
    "fractions": (PROBS, [0.0, 1.0, 2.0, 1.0], TypeError, r"y must be whole-number labels"),
    "nan": (np.where(np.eye(4, 3) > 0, np.nan, PROBS), Y, ValueError, r"probs has 3 .* the first at index \(0, 0\)"),
    "empty": (PROBS[:0], Y[:0], ValueError, r"probs is empty: it has the shape \(0, 3\)"),
    "lengths": (PROBS, Y[:3], ValueError, r"a last axis of classes"),
    "words": ([["a", "b"]], [0], TypeError, r"probs must be an array of real numbers"),
}


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("name", BAD)
def test_bad_input(name, score):
    probs, y, error, message = BAD[name]
    with pytest.raises(error, match=message):
        SCORES[score](probs, y)


@pytest.mark.parametrize("score", sorted(set(SCORES) - {"accuracy"}))
def test_logits_are_not_probabilities(score):
    with pytest.raises(ValueError, match=r"Apply jax\.nn\.softmax to logits first"):
        SCORES[score](np.log(PROBS), Y)


def test_bins_are_a_count():
    with pytest.raises(ValueError, match="bins must be a whole number of at least 1"):
        metrics.ece_equal_width(PROBS, Y, 0)
