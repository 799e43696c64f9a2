"""Conformal intervals and sets hold their level, whatever the predictive."""

import numpy as np
import pytest
from scipy.stats import norm, poisson

import posteriax as px
from posteriax.likelihoods import InUnits

RNG = np.random.default_rng(0)


def normal_predictive(mean, scale):
    return px.Normal(scale=scale).predictive(np.asarray(mean, np.float32)[None, :, None], {})


@pytest.mark.slow
@pytest.mark.parametrize("scale", [0.2, 1.0, 5.0])
def test_intervals_hold_their_level_for_any_scale(scale):
    """Coverage over 100 splits is at least the level and at most 1 / (n + 1) above it, within three standard errors."""
    n, new, splits, level = 99, 200, 100, 0.9
    mean = np.zeros(n)
    covered = []
    for _ in range(splits):
        y, y_new = RNG.normal(size=(n, 1)), RNG.normal(size=(new, 1))
        found = px.evaluation.conformal(normal_predictive(mean, scale), y, level)
        low, high = found.interval(normal_predictive(np.zeros(new), scale))
        covered.append(np.mean((low <= y_new) & (y_new <= high)))
    error = np.std(covered, ddof=1) / np.sqrt(splits)
    assert level - 3 * error < np.mean(covered) < level + 1 / (n + 1) + 3 * error


def test_the_threshold_is_the_stretch_that_a_wrong_scale_needs():
    y = np.random.default_rng(1).normal(size=(20_000, 1))
    found = px.evaluation.conformal(normal_predictive(np.zeros(20_000), 0.5), y, 0.8)
    # density of |z| at its 80 % quantile, for the standard error of that quantile
    end = norm.ppf(0.9)
    error = np.sqrt(0.8 * 0.2 / 20_000) / (2 * norm.pdf(end)) / (0.5 * end)
    assert found.threshold == pytest.approx(2.0, abs=4 * error)


def test_sets_hold_their_level_and_the_most_probable_class():
    level, covered, sizes = 0.8, [], []
    for _ in range(100):
        logits = RNG.normal(size=(150, 4)) * 2
        truth = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        y = np.array([RNG.choice(4, p=row) for row in truth])
        wrong = px.likelihoods.ClassPredictive(px.Categorical(), (3 * logits).astype(np.float32)[None])  # far too sure
        held, new = wrong_rows(wrong, slice(0, 100)), wrong_rows(wrong, slice(100, None))
        sets = px.evaluation.conformal(held, y[:100], level).sets(new)
        assert sets[np.arange(50), new.probs.argmax(axis=1)].all()
        covered.append(sets[np.arange(50), y[100:]].mean())
        sizes.append(sets.sum(axis=1).mean())
    error = np.std(covered, ddof=1) / np.sqrt(100)
    assert np.mean(covered) > level - 3 * error
    assert np.mean(sizes) < 4


def wrong_rows(predictive, rows):
    return px.likelihoods.ClassPredictive(px.Categorical(), predictive.outputs[:, rows])


def test_too_few_examples_and_the_wrong_kind_are_refused():
    with pytest.raises(ValueError, match="at least 19 held-out targets, got 10"):
        px.evaluation.conformal(normal_predictive(np.zeros(10), 1.0), np.zeros(10), 0.95)
    found = px.evaluation.conformal(normal_predictive(np.zeros(50), 1.0), np.arange(50.0), 0.9)
    with pytest.raises(TypeError, match=r"use \.interval"):
        found.sets(normal_predictive(np.zeros(5), 1.0))
    with pytest.raises(ValueError, match="level"):
        px.evaluation.conformal(normal_predictive(np.zeros(50), 1.0), np.arange(50.0), 1.5)


def test_evaluate_and_compare_show_conformal_intervals_beside_the_predictives_own():
    """A predictive twice too sure: its own 90 % intervals hold P(|z| < 0.82), the conformal ones 90 %."""
    rng = np.random.default_rng(3)
    y, y_cal = rng.normal(size=2000), rng.normal(size=2000)
    sure, honest = (px.evaluation.Baseline(lambda x, s=s: normal_predictive(np.zeros(len(x)), s)) for s in (0.5, 1.0))
    x = np.zeros((2000, 1))
    found = px.evaluation.conformal(sure.predict(x), y_cal, 0.9)
    scores = px.evaluate(sure.predict(x), y, conformal=found)
    own = norm.cdf(1.645 / 2) * 2 - 1
    assert scores["own_coverage"] == pytest.approx(own, abs=4 * np.sqrt(own * (1 - own) / 2000))
    # of 2,000 held-out and 2,000 test targets
    assert scores["conformal_coverage"] == pytest.approx(0.9, abs=4 * np.sqrt(2 * 0.09 / 2000))
    assert scores["own_width"] == pytest.approx(2 * 1.645 * 0.5, rel=1e-3)
    low, high = found.interval(sure.predict(x))
    assert scores["conformal_width"] == pytest.approx((high - low).mean(), rel=1e-6)
    table = px.compare({"sure": sure, "honest": honest}, (x, y), conformal=(x, y_cal))
    row = table.sets["conformal 90 %"]["sure"]
    assert {name: value.value for name, value in row.items()} == pytest.approx(
        {name: scores[name] for name in ("own_coverage", "own_width", "conformal_coverage", "conformal_width")}
    )
    assert table.best["conformal 90 %"]["own_coverage"] == ("honest",)
    assert "conformal width ↓" in str(table)


def test_sets_of_classes_are_counted():
    probs = np.array([[0.7, 0.2, 0.1], [0.5, 0.3, 0.2]])
    predictive = px.likelihoods.ClassPredictive(px.Categorical(), np.log(probs).astype(np.float32)[None])
    found = px.evaluation.Conformal(level=0.75, threshold=0.75, examples=10, classes=True)
    scores = px.evaluate(predictive, [1, 2], scores=["accuracy"], conformal=found)
    # own: {0, 1} and {0, 1}; conformal, at least 0.25: {0} and {0, 1}
    assert scores == {
        "accuracy": 0.0,
        "own_coverage": 0.5,
        "own_size": 2.0,
        "conformal_coverage": 0.0,
        "conformal_size": 1.5,
    }


def test_a_predictive_alone_cannot_be_made_conformal_by_compare():
    with pytest.raises(ValueError, match="pass posteriors to score several"):
        px.compare({"a": normal_predictive(np.zeros(50), 1.0)}, (np.zeros((50, 1)), np.zeros(50)), conformal=([], []))


def constant_classes(p, rows):
    """Every row has the probabilities 1 - p and p."""
    return px.likelihoods.ClassPredictive(px.Categorical(), np.log(np.tile(np.float32([1 - p, p]), (1, rows, 1))))


def test_sets_hold_their_level_when_all_predictions_are_equal():
    """Labels of probability 0.35: a set without that class would hold 65 % of them."""
    n, new, splits, level, rng = 50, 50, 100, 0.9, np.random.default_rng(4)
    held, fresh = constant_classes(0.35, n), constant_classes(0.35, new)
    covered = []
    for _ in range(splits):
        y, y_new = (rng.uniform(size=(2, n)) < 0.35).astype(int)
        sets = px.evaluation.conformal(held, y, level).sets(fresh)
        covered.append(sets[np.arange(new), y_new].mean())
    assert np.mean(covered) >= level - 3 * np.std(covered, ddof=1) / np.sqrt(splits)


def test_the_label_that_sets_the_threshold_is_in_its_own_set():
    """Whatever its probability, and however float32 rounds that in a batch of another size."""
    for p in np.arange(1, 500) / 1000:
        held = constant_classes(p, 10)
        found = px.evaluation.conformal(held, np.ones(10, int), 0.9)
        assert found.sets(held)[:, 1].all(), p
        logits = held.outputs.copy()
        logits[..., 1] -= 2e-6  # float32's steps around log(0.001) are 5e-7
        assert found.sets(px.likelihoods.ClassPredictive(px.Categorical(), logits))[:, 1].all(), p


def test_intervals_hold_the_held_out_targets_that_they_were_made_from():
    """At least ceil((n + 1) level) of them, also where rounding in float64 is as coarse as 2e-7."""
    rng, n, level = np.random.default_rng(5), 200, 0.9
    outputs = rng.normal(size=(3, n, 1)).astype(np.float32)
    for offset in (0.0, 1.7e9):
        likelihood = InUnits(px.Normal(1.0), offset=offset)
        predictive = likelihood.predictive(outputs, {})
        for _ in range(100):
            y = offset + 3 * rng.normal(size=n)
            low, high = px.evaluation.conformal(predictive, y, level).interval(predictive)
            assert ((low[:, 0] <= y) & (y <= high[:, 0])).sum() >= np.ceil((n + 1) * level)


def count_predictive(rate, rows):
    return px.Poisson(rate).predictive(np.zeros((1, rows, 1), np.float32), {})


def test_intervals_of_counts_grow_from_zero_width():
    """The predictive's own interval of a rate of 0.0025 is [0, 0], which holds 86 % of counts with a rate of 0.15."""
    n, new, splits, level, rng = 50, 50, 200, 0.9, np.random.default_rng(6)
    held, fresh = count_predictive(0.0025, n), count_predictive(0.0025, new)
    np.testing.assert_array_equal(held.interval(level), 0.0)
    covered = []
    for _ in range(splits):
        low, high = px.evaluation.conformal(held, rng.poisson(0.15, n), level).interval(fresh)
        y = rng.poisson(0.15, (new, 1))
        covered.append(((low <= y) & (y <= high)).mean())
    assert np.mean(covered) >= level - 3 * np.std(covered, ddof=1) / np.sqrt(splits)


def test_intervals_of_counts_are_whole_numbers_by_the_formula():
    predictive = px.likelihoods.join_examples([count_predictive(3.0, 5), count_predictive(40.0, 5)])
    a, m, b = (poisson.ppf(q, np.repeat([3.0, 40.0], 5)) for q in (0.1, 0.5, 0.9))
    y = np.array([3, 9, 0, 2, 1, 40, 41, 30, 60, 25])
    q = np.sort(np.where(y < m, (m - y) / np.maximum(m - a, 1), (y - m) / np.maximum(b - m, 1)))[8]  # ceil(11 * 0.8)
    found = px.evaluation.conformal(predictive, y, 0.8)
    low, high = found.interval(predictive)
    assert found.threshold == pytest.approx(q, rel=1e-12)
    np.testing.assert_array_equal(low[:, 0], np.maximum(np.ceil(m - q * np.maximum(m - a, 1)), 0))
    np.testing.assert_array_equal(high[:, 0], np.floor(m + q * np.maximum(b - m, 1)))


def test_cqr_moves_both_ends_by_the_same_width():
    """y ~ N(0, 1), predicted with scale 0.5: q is the gap between the quantiles of the two."""
    y = np.random.default_rng(1).normal(size=(20_000, 1))
    found = px.evaluation.conformal(normal_predictive(np.zeros(20_000), 0.5), y, 0.8, score="cqr")
    end = norm.ppf(0.9)
    error = np.sqrt(0.8 * 0.2 / 20_000) / (2 * norm.pdf(end))
    assert found.threshold == pytest.approx(0.5 * end, abs=4 * error)
    low, high = found.interval(normal_predictive([3.0], 0.5))
    np.testing.assert_allclose([low[0, 0], high[0, 0]], [3 - end, 3 + end], atol=4 * error)


@pytest.mark.parametrize("score", ["probability", "aps", "raps"])
def test_sets_hold_their_level_and_aps_is_larger_where_the_model_is_unsure(score):
    rng = np.random.default_rng(2)
    logits = rng.normal(size=(4000, 8)) * rng.choice([0.3, 3.0], (4000, 1))
    probs = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    y = np.array([rng.choice(8, p=p) for p in probs])
    predictive = lambda rows: px.likelihoods.ClassPredictive(px.Categorical(), logits[None, rows])  # noqa: E731
    found = px.evaluation.conformal(predictive(slice(0, 2000)), y[:2000], 0.8, score=score)
    sets = found.sets(predictive(slice(2000, None)))
    inside = sets[np.arange(2000), y[2000:]].mean()
    # both the threshold and the share vary: sqrt(2) of a share of 2,000, four times; sets are whole numbers of classes
    assert inside > 0.8 - 4 * np.sqrt(2 * 0.16 / 2000)
    unsure = probs[2000:].max(axis=1) < 0.3
    if score == "aps":
        assert sets[unsure].sum(axis=1).mean() > sets[~unsure].sum(axis=1).mean() + 2


def test_each_group_holds_the_level_by_itself():
    rng = np.random.default_rng(3)
    group = np.tile(["calm", "wild"], 2000)
    y = rng.normal(size=4000) * np.where(group == "calm", 0.5, 2.0)
    predictive = lambda n: normal_predictive(np.zeros(n), 1.0)  # noqa: E731
    found = px.evaluation.conformal(predictive(2000), y[:2000, None], 0.9, groups=group[:2000])
    low, high = found.interval(predictive(2000), groups=group[2000:])
    held = ((low[:, 0] <= y[2000:]) & (y[2000:] <= high[:, 0])).reshape(-1, 2).mean(axis=0)
    assert (np.abs(held - 0.9) < 4 * np.sqrt(2 * 0.09 / 1000)).all()
    with pytest.raises(ValueError, match="no held-out example is of the group 'new'"):
        found.interval(predictive(1), groups=["new"])
    with pytest.raises(ValueError, match="say groups="):
        found.interval(predictive(1))
    with pytest.raises(ValueError, match="needs at least 9 held-out targets of the group 'b', got 1"):
        px.evaluation.conformal(predictive(21), np.zeros((21, 1)), 0.9, groups=["a"] * 20 + ["b"])


def test_adaptive_intervals_follow_a_drift_that_fixed_ones_do_not():
    """The spread doubles halfway: over a long time the missed share is within 1 / (steps * step) of 1 - level."""
    rng = np.random.default_rng(4)
    scale = np.where(np.arange(3000) < 1000, 1.0, 2.0)
    y = rng.normal(size=3000) * scale
    held_out, later = normal_predictive(np.zeros(200), 1.0), normal_predictive(np.zeros(3000), 1.0)
    first = rng.normal(size=(200, 1))
    low, high = px.evaluation.adaptive_intervals(held_out, first, later, y[:, None], level=0.9, step=0.02)
    inside = (low <= y) & (y <= high)
    assert abs(inside.mean() - 0.9) <= 1.1 / (3000 * 0.02)  # Gibbs and Candes 2021, proposition 4.1
    fixed_low, fixed_high = px.evaluation.conformal(held_out, first, 0.9).interval(later)
    fixed = (fixed_low[:, 0] <= y) & (y <= fixed_high[:, 0])
    assert fixed[1000:].mean() < 0.75 < inside[1000:].mean()
