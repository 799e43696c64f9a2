"""Conformal intervals and sets hold their level, whatever the predictive."""

import numpy as np
import pytest
from scipy.stats import norm

import posteriax as px

RNG = np.random.default_rng(0)


def normal_predictive(mean, scale):
    return px.Normal(scale=scale).predictive(np.asarray(mean, np.float32)[None, :, None], {})


@pytest.mark.parametrize("scale", [0.2, 1.0, 5.0])
def test_intervals_hold_their_level_for_any_scale(scale):
    """Coverage over 100 splits is at least the level and at most 1 / (n + 1) above it, within three standard errors."""
    n, new, splits, level = 99, 200, 100, 0.9
    mean = np.zeros(n)
    covered = []
    for _ in range(splits):
        y, y_new = RNG.normal(size=(n, 1)), RNG.normal(size=(new, 1))
        found = px.conformal(normal_predictive(mean, scale), y, level)
        low, high = found.interval(normal_predictive(np.zeros(new), scale))
        covered.append(np.mean((low <= y_new) & (y_new <= high)))
    error = np.std(covered, ddof=1) / np.sqrt(splits)
    assert level - 3 * error < np.mean(covered) < level + 1 / (n + 1) + 3 * error


def test_the_threshold_is_the_stretch_that_a_wrong_scale_needs():
    y = np.random.default_rng(1).normal(size=(20_000, 1))
    found = px.conformal(normal_predictive(np.zeros(20_000), 0.5), y, 0.8)
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
        wrong = px.ClassPredictive(px.Categorical(), (3 * logits).astype(np.float32)[None])  # far too sure
        held, new = wrong_rows(wrong, slice(0, 100)), wrong_rows(wrong, slice(100, None))
        sets = px.conformal(held, y[:100], level).sets(new)
        assert sets[np.arange(50), new.probs.argmax(axis=1)].all()
        covered.append(sets[np.arange(50), y[100:]].mean())
        sizes.append(sets.sum(axis=1).mean())
    error = np.std(covered, ddof=1) / np.sqrt(100)
    assert np.mean(covered) > level - 3 * error
    assert np.mean(sizes) < 4


def wrong_rows(predictive, rows):
    return px.ClassPredictive(px.Categorical(), predictive.outputs[:, rows])


def test_too_few_examples_and_the_wrong_kind_are_refused():
    with pytest.raises(ValueError, match="at least 19 held-out targets, got 10"):
        px.conformal(normal_predictive(np.zeros(10), 1.0), np.zeros(10), 0.95)
    found = px.conformal(normal_predictive(np.zeros(50), 1.0), np.arange(50.0), 0.9)
    with pytest.raises(TypeError, match=r"use \.interval"):
        found.sets(normal_predictive(np.zeros(5), 1.0))
    with pytest.raises(ValueError, match="level"):
        px.conformal(normal_predictive(np.zeros(50), 1.0), np.arange(50.0), 1.5)
