"""Partial dependence of models whose effects are known in closed form."""

import numpy as np
import pytest

import posteriax as px
from posteriax.evaluation.partial_dependence import BAND

RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 4)).astype(np.float32)
WEIGHTS = np.stack([np.linspace(1, 3, 21), np.full(21, 0.1), np.zeros(21), np.full(21, -0.5)], axis=1)  # by draw


def linear(x):
    """21 draws of a linear model with noise of standard deviation 0.5."""
    return px.likelihoods.NormalPredictive(
        px.Normal(scale=0.5), (np.asarray(x) @ WEIGHTS.T).T[:, :, None].astype(np.float32), {}
    )


MODEL = px.evaluation.Baseline(linear)


def test_curve_band_and_influence_of_a_linear_model():
    features = [px.evaluation.Feature(f"c{i}", (i,), offset=10.0, scale=2.0) for i in range(4)]
    effects = px.evaluation.partial_dependence(MODEL, X, features, rows=300, seed=1)
    assert [effect.feature.name for effect in effects] == ["c0", "c3", "c1", "c2"]
    first = effects[0]
    z = (first.values - 10) / 2  # standardised
    rest = X.astype(np.float64)[:, 1:].mean(axis=0) @ WEIGHTS[:, 1:].T  # by draw
    by_draw = WEIGHTS[:, :1] * z + rest[:, None]
    np.testing.assert_allclose(first.mean[:, 0], by_draw.mean(axis=0), atol=1e-5)
    np.testing.assert_allclose([first.low[:, 0], first.high[:, 0]], np.quantile(by_draw, BAND, axis=0), atol=1e-5)
    np.testing.assert_allclose(first.observed, 10 + 2 * np.quantile(X[:, 0], np.arange(1, 10) / 10), rtol=1e-6)
    # shuffling a column changes 2 x by 2 |x - x'| on average, whose mean is 2 * 2 / sqrt(pi) for standard normals
    assert first.influence == pytest.approx(4 / np.sqrt(np.pi), rel=0.2)
    assert effects[-1].influence == 0
    assert (first.interval_low < first.low).all()
    assert (first.interval_high > first.high).all()


def test_uncertainty_is_the_mean_predictive_deviation():
    effect = px.evaluation.partial_dependence(MODEL, X, [px.evaluation.Feature("c0", (0,))], rows=300)[0]
    changed = X.copy()
    changed[:, 0] = effect.values[3]
    assert effect.uncertainty[3] == pytest.approx(linear(changed).std.mean(), rel=1e-5)


def test_a_category_has_one_value_per_level_and_its_share_of_rows():
    x = np.zeros((90, 3), np.float32)
    x[np.arange(90), np.arange(90) % 3] = 1
    levels = {"oak": (1.0, 0.0, 0.0), "elm": (0.0, 1.0, 0.0), "ash": (0.0, 0.0, 1.0)}
    model = px.evaluation.Baseline(
        lambda x: px.likelihoods.NormalPredictive(px.Normal(scale=1.0), (x @ np.float32([5, 7, 2]))[None, :, None], {})
    )
    (effect,) = px.evaluation.partial_dependence(model, x, [px.evaluation.Feature("kind", (0, 1, 2), levels=levels)])
    np.testing.assert_allclose(effect.mean[:, 0], [5, 7, 2])
    np.testing.assert_allclose(effect.observed, 1 / 3)


def test_rows_with_a_missing_value_are_shown_as_if_it_were_there():
    x = np.stack([np.where(np.arange(60) % 3 == 0, 0.0, np.arange(60)), np.arange(60) % 3 == 0], axis=1).astype(
        np.float32
    )
    model = px.evaluation.Baseline(
        lambda x: px.likelihoods.NormalPredictive(px.Normal(scale=1.0), (x @ np.float32([1, 99]))[None, :, None], {})
    )
    (effect,) = px.evaluation.partial_dependence(model, x, [px.evaluation.Feature("age", (0,), marks=(1,))])
    assert effect.values.min() > 0.9  # zero stands for what is missing
    np.testing.assert_allclose(effect.mean[:, 0], effect.values, rtol=1e-5)


def test_probabilities_of_the_second_of_two_classes_and_of_all_of_three():
    two = px.evaluation.Baseline(
        lambda x: px.likelihoods.ClassPredictive(px.Categorical(), np.stack([0 * x[:, 0], x[:, 0]], axis=1)[None])
    )
    effect = px.evaluation.partial_dependence(two, X, [px.evaluation.Feature("c0", (0,))])[0]
    np.testing.assert_allclose(effect.mean[:, 0], 1 / (1 + np.exp(-effect.values)), rtol=1e-4)
    assert effect.interval_low.shape[1] == 0
    three = px.evaluation.Baseline(
        lambda x: px.likelihoods.ClassPredictive(px.Categorical(), np.asarray(x[:, :3])[None])
    )
    np.testing.assert_allclose(px.evaluation.partial_dependence(three, X)[0].mean.sum(axis=1), 1, rtol=1e-5)


def test_the_cost_is_bounded():
    asked = []

    def counted(x):
        asked.append(len(x))
        return linear(x[:, :4])

    wide = np.concatenate([X, RNG.normal(size=(300, 396)).astype(np.float32)], axis=1)
    effects = px.evaluation.partial_dependence(px.evaluation.Baseline(counted), wide)
    assert len(effects) == 8
    assert sum(asked) <= 400 * 51 + 8 * 20 * 100


def test_what_is_not_a_table_is_refused():
    with pytest.raises(ValueError, match=r"x must be a table, \(rows, columns\), got \(5, 2, 2\)"):
        px.evaluation.partial_dependence(MODEL, np.zeros((5, 2, 2)))
    with pytest.raises(ValueError, match="'date' is 2 inputs: give its values in `levels`"):
        px.evaluation.partial_dependence(MODEL, X, [px.evaluation.Feature("date", (0, 1))])
