import hypothesis.extra.numpy as arrays
import numpy as np
import pytest
import scipy.stats
import sklearn.metrics
from hypothesis import given, settings
from hypothesis import strategies as st

import posteriax as px
from posteriax import metrics
from posteriax.metrics.regression import QUANTILE_LEVELS

pytestmark = pytest.mark.quick

RNG = np.random.default_rng(0)
PROBS = RNG.dirichlet(np.ones(5), 300).astype(np.float32)
LABELS = RNG.integers(0, 5, 300)


def test_scores_agree_with_scikit_learn():
    assert float(metrics.accuracy(PROBS, LABELS)) == pytest.approx(
        sklearn.metrics.accuracy_score(LABELS, PROBS.argmax(axis=1)), abs=1e-6
    )
    assert float(metrics.nll(PROBS, LABELS)) == pytest.approx(sklearn.metrics.log_loss(LABELS, PROBS), rel=1e-5)
    binary, yes = PROBS[:, :2] / PROBS[:, :2].sum(axis=1, keepdims=True), LABELS % 2
    # scikit-learn's is of one class; both classes' squares are the same
    assert float(metrics.brier(binary, yes)) == pytest.approx(
        2 * sklearn.metrics.brier_score_loss(yes, binary[:, 1]), rel=1e-5
    )
    values, truth = RNG.normal(size=(2, 50))
    assert float(metrics.rmse(values, truth)) == pytest.approx(
        sklearn.metrics.root_mean_squared_error(truth, values), rel=1e-5
    )


def binned(probs, y, index, bins):
    confidence, right = probs.max(axis=1).astype(np.float64), probs.argmax(axis=1) == y
    gaps = [
        (index == b).mean() * abs(right[index == b].mean() - confidence[index == b].mean())
        for b in range(bins)
        if (index == b).any()
    ]
    return sum(gaps)


@pytest.mark.parametrize("bins", [1, 10, 15])
def test_ece_by_the_definition(bins):
    confidence = PROBS.max(axis=1)
    width = np.clip(np.ceil(confidence * bins).astype(int) - 1, 0, bins - 1)
    assert float(metrics.ece_equal_width(PROBS, LABELS, bins)) == pytest.approx(
        binned(PROBS, LABELS, width, bins), abs=1e-5
    )
    ranks = np.argsort(np.argsort(confidence)) * bins // len(confidence)
    mass = float(metrics.ece_equal_mass(PROBS, LABELS, bins))
    assert mass == pytest.approx(binned(PROBS, LABELS, ranks, bins), abs=1e-5)


@settings(max_examples=60, deadline=None)
@given(
    arrays.arrays(np.float32, (40, 3), elements=st.floats(0.0, 1.0, width=32)),
    arrays.arrays(np.int32, 40, elements=st.integers(0, 2)),
    st.randoms(use_true_random=False),
)
def test_ece_is_a_fraction_that_order_and_edges_do_not_change(raw, y, random):
    probs = (raw + 1e-3) / (raw + 1e-3).sum(axis=1, keepdims=True)
    order = np.array(random.sample(range(40), 40))
    for ece in (metrics.ece_equal_width, metrics.ece_equal_mass):
        value = float(ece(probs, y))
        assert 0.0 <= value <= 1.0
        assert value == pytest.approx(float(ece(probs[order], y[order])), abs=1e-5)
        assert value == pytest.approx(float(ece(np.tile(probs, (3, 1)), np.tile(y, 3))), abs=1e-5)  # size plays no part


def test_no_example_is_dropped_on_an_edge():
    for confidence in np.arange(1, 16) / 15:  # every edge of the 15 bins
        rest = (1 - confidence) / 20
        probs = np.array([[confidence, *[rest] * 20]], np.float32)
        gap = 1 - probs.max()
        for ece in (metrics.ece_equal_width, metrics.ece_equal_mass):
            assert float(ece(probs, [int(probs.argmax())])) == pytest.approx(gap, abs=1e-6)


def test_perfect_and_hopeless_predictions():
    certain = np.eye(3, dtype=np.float32)
    right, wrong = np.arange(3), (np.arange(3) + 1) % 3
    for ece in (metrics.ece_equal_width, metrics.ece_equal_mass):
        assert float(ece(certain, right)) == 0.0
        assert float(ece(certain, wrong)) == 1.0
    assert float(metrics.brier(certain, wrong)) == 2.0


@settings(max_examples=60, deadline=None)
@given(arrays.arrays(np.float32, (2, 10, 3), elements=st.floats(0.0, 1.0, width=32)))
def test_distances_to_a_reference(raw):
    """Agreement 1 and total variation 0 for identical predictions; both lie in [0, 1] and are symmetric."""
    a, b = (raw + 1e-3) / (raw + 1e-3).sum(axis=-1, keepdims=True)
    assert float(metrics.agreement(a, a)) == 1.0
    assert float(metrics.total_variation(a, a)) == 0.0
    assert 0.0 <= float(metrics.total_variation(a, b)) <= 1.0 + 1e-6
    assert float(metrics.total_variation(a, b)) == pytest.approx(float(metrics.total_variation(b, a)), abs=1e-6)
    assert float(metrics.agreement(a, b)) == pytest.approx(np.mean(a.argmax(-1) == b.argmax(-1)))


def test_wasserstein_of_gaussians_is_scipys():
    a, b = (
        px.likelihoods.NormalPredictive(px.Normal(scale=s), np.full((1, 1, 1), m, np.float32), {})
        for m, s in ((0, 1), (1, 2))
    )
    ours = float(metrics.wasserstein(a.quantile(QUANTILE_LEVELS), b.quantile(QUANTILE_LEVELS)))
    levels = (np.arange(100_000) + 0.5) / 100_000
    truth = np.mean(np.abs(scipy.stats.norm.ppf(levels) - scipy.stats.norm.ppf(levels, 1, 2)))
    assert ours == pytest.approx(truth, rel=0.02)  # 32 quantiles cut the tails a little


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="a last axis of classes"):
        metrics.accuracy(PROBS, LABELS[:5])
    with pytest.raises(ValueError, match="same shape"):
        metrics.agreement(PROBS, PROBS[:5])
