"""Shift: scores against their formulas, detection against scikit-learn, tests against SciPy and simulation."""

import functools

import numpy as np
import pytest
from scipy.special import entr, softmax
from scipy.stats import chi2_contingency, ks_2samp
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

import posteriax as px
from posteriax.evaluation.robustness.shift import SIGNIFICANT, Change, TwoSample, detection
from posteriax.likelihoods.classes import ClassSums, ReducedClassPredictive
from posteriax.likelihoods.number_predictive import NumberSums, ReducedNumberPredictive


def classes(seed, n=200, sharpness=3.0, tilt=0.0, draws=4):
    """Predictions for n inputs of one distribution: three classes, draws that differ somewhat."""
    rng = np.random.default_rng(seed)
    logits = sharpness * rng.normal(size=(n, 3)) + 0.5 * rng.normal(size=(draws, n, 3))
    return px.likelihoods.ClassPredictive(
        px.Categorical(), (logits + tilt * np.array([1.0, 0.0, 0.0])).astype(np.float32)
    )


def numbers(seed, n=200, spread=0.5, shift=0.0, targets=1):
    rng = np.random.default_rng(seed)
    disagreement = spread * rng.uniform(size=(n, targets)) * rng.normal(size=(5, n, targets))
    outputs = rng.normal(size=(n, targets)) + shift + disagreement
    return px.likelihoods.NormalPredictive(px.Normal(scale=1.0), outputs.astype(np.float32), {})


def test_scores_of_classes_are_their_formulas():
    predictive = classes(0)
    each = softmax(predictive.outputs.astype(np.float64), axis=-1)
    probs = each.mean(axis=0)
    entropy = entr(probs).sum(axis=1)
    expected = {
        "max_probability": 1 - probs.max(axis=1),
        "entropy": entropy,
        "mutual_information": entropy - entr(each).sum(axis=2).mean(axis=0),
    }
    reduced = ReducedClassPredictive(predictive.likelihood, predictive.sums, (200, 3))
    for scores in (px.evaluation.ood_scores(predictive), px.evaluation.ood_scores(reduced)):
        assert list(scores) == list(expected)
        for name, score in scores.items():
            np.testing.assert_allclose(score, expected[name], rtol=1e-4, atol=2e-6)


def test_the_score_keeps_an_order_where_the_largest_probability_rounds_to_one():
    predictive = px.likelihoods.ClassPredictive(
        px.Categorical(), np.array([[[0.0, 20.0], [0.0, 30.0], [0.0, 40.0]]], np.float32)
    )
    assert np.all(predictive.probs.max(axis=1) == 1.0)
    np.testing.assert_allclose(
        px.evaluation.ood_scores(predictive)["max_probability"], np.exp([-20.0, -30.0, -40.0]), rtol=1e-4
    )


def test_one_draw_has_no_mutual_information_not_even_by_rounding():
    assert np.all(px.evaluation.ood_scores(classes(0, draws=1))["mutual_information"] == 0.0)
    assert np.mean(px.evaluation.ood_scores(classes(0, draws=2))["mutual_information"] > 0.0) > 0.9


def test_scores_of_several_labels_or_targets_are_one_per_example():
    outputs = np.random.default_rng(0).normal(size=(3, 10, 4, 2)).astype(np.float32)
    tokens = px.likelihoods.ClassPredictive(px.Categorical(), outputs)
    np.testing.assert_allclose(px.evaluation.ood_scores(tokens)["entropy"], tokens.entropy().mean(axis=1), rtol=1e-6)
    several = numbers(0, targets=3)
    expected = np.sqrt(np.square(several.std).mean(axis=1))
    sums = functools.reduce(NumberSums.join, (several.likelihood.sums({}, draw) for draw in several.outputs))
    reduced = ReducedNumberPredictive(several.likelihood, sums, (200, 3))
    for predictive in (several, reduced):
        scores = px.evaluation.ood_scores(predictive)
        assert list(scores) == ["std"]
        np.testing.assert_allclose(scores["std"], expected, rtol=1e-4)


@pytest.mark.parametrize("pair", [(classes(0), classes(1, n=90, sharpness=1.0)), (numbers(0), numbers(1, 90, 2.0))])
def test_detection_is_scikit_learns(pair):
    inside, outside = (px.evaluation.ood_scores(predictive) for predictive in pair)
    detections = px.evaluation.ood_detection(*pair)
    assert list(detections) == list(inside)
    for name, found in detections.items():
        score = np.concatenate([inside[name], outside[name]])
        is_outside = np.arange(290) >= 200
        assert found.auroc == pytest.approx(roc_auc_score(is_outside, score), abs=1e-5)
        assert found.auc_pr == pytest.approx(average_precision_score(is_outside, score), abs=1e-5)
        # 95 % of the inside pass, the surest first; which of the outside pass with them?
        passed, by_mistake = roc_curve(~is_outside, -score, drop_intermediate=False)[1::-1]
        assert found.fpr95 == pytest.approx(by_mistake[np.argmax(passed >= 0.95)], abs=1e-6)
        assert found.auroc > 0.7


def test_the_columns_of_a_comparison_are_those_detections():
    pair = classes(0), classes(1, n=90, sharpness=1.0)
    found, columns = px.evaluation.ood_detection(*pair), detection(*pair)
    assert list(columns) == ["auroc", "fpr95", "auroc_max_probability", "auroc_mutual_information"]
    assert (columns["auroc"], columns["fpr95"]) == (found["entropy"].auroc, found["entropy"].fpr95)
    for name in ("max_probability", "mutual_information"):
        assert columns[f"auroc_{name}"] == found[name].auroc


def test_the_numbers_of_drift_are_those_of_the_sets():
    before, after = classes(0), classes(1, n=150, sharpness=2.0, tilt=0.7)
    drift = px.evaluation.drift(before, after)
    assert drift.examples == (200, 150)
    expected = {
        "confidence": [p.probs.max(axis=1).mean() for p in (before, after)],
        "entropy": [p.entropy().mean() for p in (before, after)],
        "mutual_information": [p.mutual_information().mean() for p in (before, after)],
    }
    assert list(drift.changes) == list(expected)
    for name, change in drift.changes.items():
        np.testing.assert_allclose(change, expected[name], rtol=1e-4)
    np.testing.assert_allclose(drift.certainty, ks_2samp(before.entropy(), after.entropy(), method="exact"), rtol=1e-6)
    shares = [np.bincount(p.probs.argmax(axis=1), minlength=3) / len(p.probs) for p in (before, after)]
    assert drift.answers.statistic == pytest.approx(0.5 * np.abs(shares[0] - shares[1]).sum())


def test_the_accuracy_to_expect_is_the_confidence_or_moves_with_it():
    before, after = classes(0), classes(1, sharpness=1.0)
    change = px.evaluation.drift(before, after).changes["confidence"]
    assert px.evaluation.drift(before, after).expected_accuracy == pytest.approx(change.new)
    known = px.evaluation.drift(before, after, reference_accuracy=0.7).expected_accuracy
    assert known == pytest.approx(0.7 + change.new - change.reference)
    assert px.evaluation.drift(before, after, reference_accuracy=0.0).expected_accuracy == 0.0
    # a calibrated model: labels drawn from its own probabilities, whatever the inputs; five standard errors
    probs = classes(3, n=4000, sharpness=1.0).probs
    labels = (np.random.default_rng(0).uniform(size=(4000, 1)) > probs.cumsum(axis=1)).sum(axis=1)
    accuracy = (labels == probs.argmax(axis=1)).mean()
    expected = px.evaluation.drift(before, classes(3, n=4000, sharpness=1.0)).expected_accuracy
    assert abs(expected - accuracy) < 5 * np.sqrt(accuracy * (1 - accuracy) / 4000)


def given(probs):
    """Predictions by their probabilities alone: many sets are made quickly."""
    entropy = entr(probs).sum(axis=1)
    return ReducedClassPredictive(
        px.Categorical(), ClassSums(1.0, np.log(probs), probs, 0 * probs, entropy), probs.shape
    )


def test_sets_of_one_distribution_have_uniform_p_values():
    rng = np.random.default_rng(0)
    sets, bias = 400, np.array([1.0, 0.0, 0.0, -3.0])  # a rare class too
    drifts = [
        px.evaluation.drift(*(given(softmax(2.0 * rng.normal(size=(n, 4)) + bias, axis=1)) for n in (120, 100)))
        for _ in range(sets)
    ]
    for name in ("certainty", "answers"):
        p_values = np.array([getattr(drift, name).p_value for drift in drifts])
        for level in (0.1, 0.5, 0.9):  # five standard errors; and a p-value may be too large, as counts are discrete
            error = 5 * np.sqrt(level * (1 - level) / sets)
            assert level - 0.05 - error < (p_values <= level).mean() < level + error
    false_alarms = sum(drift.drifted for drift in drifts)
    assert false_alarms <= 15  # 4 expected; more than 15 has a chance of 1e-5


def test_the_permutation_test_agrees_with_chi_squared_on_two_classes():
    """With two classes both statistics order tables alike, so that large samples have the same p-value."""
    logits = [np.where(np.arange(n) < k, 1.0, -1.0)[None] for n, k in ((2000, 1000), (1500, 800))]
    answers = px.evaluation.drift(*[px.likelihoods.ClassPredictive(px.Bernoulli(), a) for a in logits]).answers
    expected = chi2_contingency([[1000, 1000], [800, 700]], correction=True).pvalue
    assert 0.02 < expected < 0.2
    assert abs(answers.p_value - expected) < 5 * np.sqrt(expected / 5000) + 0.005  # the latter: chi-squared's own error


def test_the_same_set_has_not_drifted():
    drift = px.evaluation.drift(classes(0), classes(0))
    assert (drift.certainty, drift.answers) == (TwoSample(0.0, 1.0), TwoSample(0.0, 1.0))
    assert not drift.drifted
    assert drift.verdict.startswith("No sign of drift (p = 1). Expect an accuracy of about 0.8")


@pytest.mark.parametrize(
    ("pair", "words"),
    [
        (
            (classes(0), classes(1, sharpness=1.0)),
            "Strong drift (p < 0.0001): predictions are less certain (entropy 0.",
        ),
        ((classes(0), classes(1, sharpness=9.0)), "drift (p < 0.0001): predictions are more certain (entropy 0."),
        ((classes(0), classes(1, tilt=2.5)), "the distribution of predicted classes changed (TV 0."),
        ((numbers(0), numbers(1, spread=2.0)), "Strong drift (p < 0.0001): predictions are less certain (std 1."),
        ((numbers(0), numbers(1, shift=1.0)), "the distribution of predicted values changed (KS 0."),
        ((numbers(0, 2000), numbers(1, 2000, shift=0.2)), "Slight drift (p "),
    ],
)
def test_shifted_sets_are_found_and_described(pair, words):
    drift = px.evaluation.drift(*pair)
    assert drift.drifted and drift.p_value < SIGNIFICANT
    assert words in drift.verdict
    assert ("accuracy" in drift.verdict) == hasattr(pair[0], "probs")
    assert str(drift).endswith(drift.verdict)


def test_only_the_target_that_moved_counts_but_as_one_of_several():
    before, after = numbers(0, targets=3), numbers(1, targets=3)
    moved = px.likelihoods.NormalPredictive(after.likelihood, after.outputs + np.array([0.0, 0.5, 0.0], np.float32), {})
    expected = ks_2samp(before.mean[:, 1], moved.mean[:, 1], method="exact")
    answers = px.evaluation.drift(before, moved).answers
    assert answers.statistic == pytest.approx(expected.statistic)
    assert answers.p_value == pytest.approx(3 * expected.pvalue)


def test_bad_input_is_named():
    with pytest.raises(TypeError, match=r"new must be predictions, as returned by posterior.predict\(x\), got ndarray"):
        px.evaluation.drift(classes(0), np.zeros((5, 3)))
    with pytest.raises(ValueError, match=r"probabilities of shape \(3,\) and real numbers of shape \(1,\)"):
        px.evaluation.ood_detection(classes(0), numbers(0))
    with pytest.raises(ValueError, match="reference_accuracy must be between 0 and 1, got 92"):
        px.evaluation.drift(classes(0), classes(1), reference_accuracy=92)
    with pytest.raises(ValueError, match="reference_accuracy is for predictions of classes"):
        px.evaluation.drift(numbers(0), numbers(1), reference_accuracy=0.9)


def test_a_change_knows_its_difference():
    assert Change(0.25, 0.75).difference == 0.5
