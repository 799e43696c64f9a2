"""The registry of scores agrees with the functions of px.metrics, and docs/metrics.md with the registry."""

import inspect
import re
from pathlib import Path

import jax
import numpy as np
import pytest

import posteriax as px
from posteriax import metrics
from posteriax.metrics import SCORES

PAGE = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text(encoding="utf-8")
RNG = np.random.default_rng(0)
COMPUTED = [score for score in SCORES.values() if score.per_example is not None]


def table(heading):
    """The cells of the first table below a line that holds these words."""
    lines = PAGE[PAGE.index(heading) :].splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("| "))
    end = next((i for i in range(start, len(lines)) if not lines[i].startswith("| ")), len(lines))
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[start + 2 : end]]


def test_the_table_of_scores_in_the_docs_is_the_registry():
    needs = lambda score: (  # noqa: E731
        ", ".join(f"`{need}`" for need in score.needs) + (", a reference" if score.against_reference else "")
        if score.per_example
        else {"attack_success": "`attack=`", "temperature": "`recalibrate=`"}.get(score.name, "`out=`")
    )
    better = lambda score: score.better if isinstance(score.better, str) else f"close to {score.better:g}"  # noqa: E731
    registry = [[f"`{s.name}`", better(s), needs(s), s.meaning] for s in SCORES.values()]
    assert table("## The scores of `px.evaluate`") == registry


def test_the_docs_name_every_function_of_metrics_and_no_other():
    body = PAGE[PAGE.index("## Classes") :]
    named = {name for row in re.findall(r"^\|.*$", body, re.MULTILINE) for name in re.findall(r"`(\w+)(?:\(|`)", row)}
    named |= set(re.findall(r"`(?:metrics\.)?(\w+)\(", body))
    functions = {name for name in metrics.__all__ if inspect.isfunction(getattr(metrics, name))}
    helpers = {"interval", "calibration_bins", "classwise_bins"}  # what other functions are made of
    assert functions - named <= helpers
    first_cells = [row[0] for heading in ("## Classes", "## Real numbers", "## Against") for row in table(heading)]
    for name in re.findall(r"`(\w+)", " ".join(first_cells)):
        assert name in functions


def test_the_level_of_every_tested_score_is_in_the_docs():
    for heading in ("How often equal posteriors are called", "how often a worse posterior was called"):
        assert {row[0].split()[0] for row in table(heading)} == {score.name for score in COMPUTED}


def test_every_predictive_names_scores_that_exist_and_that_it_has_what_they_need():
    predictives = [
        px.likelihoods.ClassPredictive(px.Categorical(), RNG.normal(size=(2, 5, 3)).astype(np.float32)),
        px.likelihoods.NormalPredictive(px.Normal(scale=1.0), np.zeros((2, 5, 1), np.float32), {}),
    ]
    named = set()
    for predictive in predictives:
        assert all(SCORES[name].applies_to(predictive) for name in predictive.scores)
        named |= set(predictive.scores)
    assert named <= {score.name for score in COMPUTED if not score.against_reference}


def test_scores_are_the_functions_of_metrics():
    """Values per example in float64, reduced, are what the functions of arrays give in float32."""
    y, reference = RNG.integers(0, 3, 200), RNG.dirichlet(np.ones(3), 200).astype(np.float32)
    outputs = RNG.normal(size=(4, 200, 3)).astype(np.float32)
    ours = px.likelihoods.ClassPredictive(px.Categorical(), outputs)
    theirs = px.likelihoods.ClassPredictive(px.Categorical(), np.log(reference)[None])
    functions = {
        "accuracy": metrics.accuracy,
        "nll": metrics.nll,
        "ece": metrics.ece_equal_width,
        "brier": metrics.brier,
    }
    for name, function in functions.items():
        assert px.evaluate(ours, y)[name] == pytest.approx(float(function(ours.probs, y)), rel=1e-5), name
    for name, function in {"agreement": metrics.agreement, "total_variation": metrics.total_variation}.items():
        score = SCORES[name]
        found = score.reduction.value(score.values(ours, theirs))
        assert found == pytest.approx(float(function(ours.probs, reference)), rel=1e-5), name
    y, mean = RNG.normal(size=(2, 200, 1)).astype(np.float32)
    numbers = px.likelihoods.NormalPredictive(px.Normal(scale=0.7), mean[None], {})
    found = px.evaluate(numbers, y)
    assert found["rmse"] == pytest.approx(float(metrics.rmse(mean, y)), rel=1e-5)
    assert found["nll"] == pytest.approx(float(metrics.normal_nll(mean, 0.7, y)), rel=1e-5)
    quantiles = numbers.quantile((np.arange(32) + 0.5) / 32)
    assert found["crps"] == pytest.approx(float(metrics.crps(quantiles, y)), rel=1e-5)
    lower, upper = numbers.quantile([0.05, 0.95])
    assert found["coverage_90"] == pytest.approx(float(metrics.interval_coverage(lower, upper, y)), rel=1e-6)


def test_the_error_of_the_root_mean_is_that_of_the_bootstrap():
    squares, rng = np.random.default_rng(0).chisquare(1, 500), np.random.default_rng(1)
    resampled = [np.sqrt(rng.choice(squares, 500).mean()) for _ in range(2000)]
    # 2000 resamplings know their standard deviation to 1.6 %, and the delta method is off by O(1 / N)
    assert metrics.RootMean().standard_error(squares) == pytest.approx(np.std(resampled), rel=0.07)


def test_bins_of_batches_add_up():
    probs, y = jax.nn.softmax(RNG.normal(size=(30, 3))), RNG.integers(0, 3, 30)
    first, second = metrics.calibration_bins(probs[:10], y[:10]), metrics.calibration_bins(probs[10:], y[10:])
    assert float(first.add(second).error()) == pytest.approx(float(metrics.ece_equal_width(probs, y)), abs=1e-6)


def test_targets_of_the_wrong_shape_are_refused():
    predictive = px.likelihoods.NormalPredictive(px.Normal(scale=1.0), np.zeros((2, 6, 1), np.float32), {})
    with pytest.raises(ValueError, match=r"y has shape \(3,\), but the predictions have shape \(6, 1\)"):
        px.evaluate(predictive, [0.0, 1.0, 2.0], scores=["rmse"])
    with pytest.raises(ValueError, match=r"\(2, 3\)"):
        px.evaluate(predictive, np.zeros((2, 3)), scores=["crps"])
