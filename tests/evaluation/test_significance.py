"""The marks hold their level: equals are called different in about 5 % of test sets, over seeds and examples."""

import numpy as np
import pytest
import scipy.stats

from posteriax.evaluation.significance import best_and_ties, calibration_test, paired_test, significantly_differ
from posteriax.metrics import BinnedGaps

pytestmark = pytest.mark.quick

LEVEL = 0.05


def most(repetitions, level=LEVEL):
    """The 99.9 % quantile of how many of so many tests of this level call equals different."""
    return scipy.stats.binom.ppf(0.999, repetitions, level)


def runs(rng, seeds, *, between, within, shared, worse=0.0):
    """Scores of runs on the same examples: each run is off by its own amount, and on each example by another."""
    own = between * rng.normal(size=(seeds, 1))
    return shared + worse + own + within * rng.normal(size=(seeds, len(shared)))


@pytest.mark.parametrize(("one", "other"), [(3, 3), (5, 5), (3, 5), (1, 4), (2, 2)])
@pytest.mark.parametrize("between", [0.0, 0.1])
def test_equal_methods_of_several_seeds_are_seldom_called_different(one, other, between):
    rng, called = np.random.default_rng(0), 0
    for _ in range(400):
        shared = rng.exponential(size=100)
        of = lambda seeds, shared=shared: list(runs(rng, seeds, between=between, within=0.3, shared=shared))  # noqa: E731
        called += significantly_differ("nll", of(one), of(other))
    assert called <= most(400, 0.07)


def test_several_seeds_see_a_difference_larger_than_their_spread():
    rng, called = np.random.default_rng(1), 0
    for _ in range(100):
        shared = rng.exponential(size=200)
        one = runs(rng, 5, between=0.05, within=0.3, shared=shared)
        other = runs(rng, 5, between=0.05, within=0.3, shared=shared, worse=0.15)
        called += significantly_differ("nll", list(one), list(other))
    assert called > 80


def test_seeds_alone_would_not_do_where_methods_differ_by_example():
    """Two methods, each better on half of all examples: which half the test set has more of is chance."""
    rng, called, by_seeds = np.random.default_rng(2), 0, 0
    for _ in range(300):
        side = np.sign(rng.normal(size=100))
        one, other = (0.01 * rng.normal(size=(3, 100)) + sign * side for sign in (1, -1))
        called += paired_test(one, other).p_value < LEVEL
        by_seeds += scipy.stats.ttest_ind(one.mean(axis=1), other.mean(axis=1)).pvalue < LEVEL
    assert called <= most(300, 0.07)
    assert by_seeds > 200


def test_one_run_each_is_the_paired_t_test_of_scipy():
    one, other = np.random.default_rng(3).normal(size=(2, 40))
    found = paired_test(one[None], other[None])
    assert found.p_value == pytest.approx(scipy.stats.ttest_rel(one, other).pvalue)
    assert found.value == pytest.approx(one.mean() - other.mean())


def test_equal_methods_without_noise_of_examples_is_welchs_t_test_of_scipy():
    rng = np.random.default_rng(4)
    one, other = rng.normal(size=(3, 1)) + np.zeros((3, 50)), 2 * rng.normal(size=(5, 1)) + np.zeros((5, 50))
    truth = scipy.stats.ttest_ind(one[:, 0], other[:, 0], equal_var=False).pvalue
    assert paired_test(one, other).p_value == pytest.approx(truth)


def test_right_and_wrong_are_compared_by_the_mid_p_of_mcnemar():
    one = np.r_[np.ones(9), np.zeros(2), np.ones(80)]
    other = np.r_[np.zeros(9), np.ones(2), np.ones(80)]
    exact = scipy.stats.binomtest(2, 11).pvalue
    truth = exact - scipy.stats.binom.pmf(2, 11, 0.5)
    assert paired_test(one[None], other[None]).p_value == pytest.approx(truth)


def honest(rng, low, high, n, off=0.0):
    confidence = rng.uniform(low, high, n)
    return np.stack([confidence, rng.random(n) < confidence + off], axis=1).astype(float)


CALIBRATED = {
    "unequally sharp": lambda rng: (honest(rng, 0.5, 1.0, 1000), honest(rng, 0.94, 0.99, 1000)),
    "equally sharp": lambda rng: (honest(rng, 0.5, 1.0, 1000), honest(rng, 0.5, 1.0, 1000)),
    "equally off": lambda rng: (honest(rng, 0.5, 0.9, 1000, 0.1), honest(rng, 0.5, 0.9, 1000, -0.1)),
}


@pytest.mark.parametrize("pair", CALIBRATED.values(), ids=CALIBRATED.keys())
def test_equal_calibration_errors_are_seldom_called_different(pair):
    rng = np.random.default_rng(5)
    assert sum(significantly_differ("ece", *pair(rng)) for _ in range(100)) <= most(100, 0.07)


def test_a_predictor_that_is_off_is_called_worse_than_a_calibrated_one():
    rng, called = np.random.default_rng(6), 0
    for _ in range(30):
        values = {"off": {"ece": honest(rng, 0.5, 0.9, 1000, -0.1)}, "right": {"ece": honest(rng, 0.5, 1.0, 1000)}}
        called += best_and_ties(values)["ece"] == ("right",)
    assert called >= 28


@pytest.mark.slow
def test_calibration_over_seeds_is_seldom_called_different_for_unequal_sharpness():
    rng, called = np.random.default_rng(7), 0
    for _ in range(60):
        one = [BinnedGaps().gaps(honest(rng, 0.5, 1.0, 500)) for _ in range(3)]
        called += (
            calibration_test(one, [BinnedGaps().gaps(honest(rng, 0.94, 0.99, 500)) for _ in range(3)]).p_value < LEVEL
        )
    assert called <= most(60, 0.07)


def test_coverage_as_far_above_as_below_is_no_difference():
    rng, called = np.random.default_rng(8), 0
    for _ in range(100):
        low, high = ((rng.random(2000) < share).astype(float) for share in (0.85, 0.95))
        called += significantly_differ("coverage_90", low, high)
    assert called <= most(100, 0.07)
    narrow = (rng.random(2000) < 0.7).astype(float)
    assert best_and_ties({"narrow": {"coverage_90": narrow}, "low": {"coverage_90": low}})["coverage_90"] == ("low",)


def test_an_infinite_score_is_worse_than_any_finite_one():
    finite = np.random.default_rng(0).normal(size=50)
    never = finite.copy()
    never[3] = np.inf  # probability 0 for what happened
    values = {"finite": {"nll": finite}, "never": {"nll": never}, "also": {"nll": never[::-1].copy()}}
    assert best_and_ties(values)["nll"] == ("finite",)
    assert not significantly_differ("nll", never, never[::-1].copy())


def test_of_many_equal_posteriors_any_is_seldom_called_worse():
    rng, called = np.random.default_rng(9), 0
    for _ in range(200):
        shared = rng.exponential(size=100)
        equals = {str(i): {"nll": shared + rng.normal(size=100)} for i in range(8)}
        called += len(best_and_ties(equals)["nll"]) < 8
    assert called <= most(200)


def test_those_clearly_worse_are_set_aside_one_after_the_other():
    shared = np.random.default_rng(10).normal(size=(6, 400))
    values = {str(i): {"nll": noise + (0.0 if i < 3 else 1.0)} for i, noise in enumerate(shared)}
    assert set(best_and_ties(values)["nll"]) == {"0", "1", "2"}
