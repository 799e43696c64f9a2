"""The recommendation: which row, how sure, what its uncertainty is good for, and what would change it."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import spearmanr

import posteriax as px
from posteriax.diagnostics.reference import ReferenceCheck
from posteriax.evaluation import Comparison
from posteriax.evaluation.chart_summaries import ChartSummary, chart_summary, find_disagreements
from posteriax.evaluation.comparison import Cost
from posteriax.evaluation.recommend import not_worse, rows_to_tell
from posteriax.evaluation.trust import trust_in
from posteriax.evaluation.uncertainty_deciles import class_deciles, number_deciles
from posteriax.metrics import Estimate

pytestmark = pytest.mark.quick

NLL = {"map": 0.50, "vi": 0.41, "hmc": 0.40}


def table(nll=NLL, ties=("hmc",), **more):
    rows = {name: {"nll": Estimate(value, 0.01)} for name, value in nll.items()}
    return Comparison({"test": rows}, best={"test": {"nll": tuple(ties)}}, **more)


def of_intervals(share, n=400):
    """A chart whose 90 % intervals hold this share in every tenth."""
    spread = np.linspace(1, 2, n)
    inside = np.tile(np.arange(20) < round(20 * share), n // 20).astype(float)
    return ChartSummary(entropies=spread, deciles=number_deciles(spread, spread, inside))


def test_the_only_one_that_is_not_worse_is_clear():
    advice = px.evaluation.recommend(table())
    assert (advice.name, advice.posterior, advice.clear) == ("hmc", "hmc", True)
    assert advice.reasons == ("That is clear: map and vi are significantly worse.",)


def test_a_mixture_is_recommended_only_if_it_is_better():
    rows = {"map": 0.50, "vi": 0.41, "stacked": 0.40}
    mixed = {"stacked": "A mixture of map (0.5) and vi (0.5)."}
    tied = px.evaluation.recommend(table(rows, ("stacked", "vi"), mixtures=mixed))
    assert (tied.name, tied.posterior) == ("vi", "vi")
    assert any("vi is preferred because it is a single model" in reason for reason in tied.reasons)
    better = px.evaluation.recommend(table(rows, ("stacked",), mixtures=mixed))
    assert (better.name, better.posterior) == ("stacked", "vi")


def test_of_ties_the_converged_one_is_preferred():
    runs = {
        "hmc": px.evaluation.RunEnd("stopped at the budget"),
        "vi": px.evaluation.RunEnd("converged"),
        "map": px.evaluation.RunEnd("converged"),
    }
    advice = px.evaluation.recommend(table(ties=("hmc", "vi"), runs=runs))
    assert advice.name == "vi"
    assert not advice.clear
    assert "not significantly worse than the best, 0.40 ± 0.01 (hmc)" in advice.headline
    assert "Of those that score practically the same, vi is preferred because its run converged." in advice.reasons
    assert any("With more time, hmc may do better" in text for text in advice.changes)


def test_of_ties_a_reference_that_has_not_mixed_is_not_preferred():
    doubtful = table(ties=("hmc", "vi"), reference="hmc", reference_check=ReferenceCheck("hmc", 1.6))
    assert px.evaluation.recommend(doubtful).name == "vi"
    alone = px.evaluation.recommend(replace(doubtful, best={"test": {"nll": ("hmc",)}}))
    assert alone.name == "hmc"
    assert "The chains of hmc have not converged (R-hat 1.60)." in alone.cautions


def test_of_ties_the_calibrated_one_is_preferred():
    charts = {"test": {"hmc": of_intervals(0.75), "vi": of_intervals(0.9), "map": of_intervals(0.9)}}
    advice = px.evaluation.recommend(table(ties=("hmc", "vi"), charts=charts))
    assert advice.name == "vi"
    assert advice.trust[0] == "Its 90 % intervals hold 90 % of the 400 test targets: take them at face value."


def test_of_ties_a_baseline_is_preferred_and_a_network_not_shown_to_be_worth_it():
    advice = px.evaluation.recommend(table(ties=("hmc", "vi"), baselines={"vi": "A forest."}))
    assert (advice.name, advice.posterior) == ("vi", "hmc")
    assert advice.network.startswith("There is no evidence that a network is worth it")


@pytest.mark.parametrize(
    ("baseline", "verdict"),
    [
        ("hmc", "A network is not worth it: hmc predicts significantly better than vi"),
        ("map", "A network is worth it: map"),
    ],
)
def test_whether_a_network_is_worth_it(baseline, verdict):
    advice = px.evaluation.recommend(table(baselines={baseline: "A forest."}))
    assert advice.network.startswith(verdict)
    assert advice.posterior == ("vi" if baseline == "hmc" else "hmc")


@pytest.mark.parametrize(
    ("kind", "verdict"),
    [
        (
            ("vi", "map"),
            "A network is probably worth it: vi, the best of the baselines, is significantly worse",
        ),
        (("hmc",), "A network is probably not worth it: hmc predicts significantly better than vi, the best of"),
    ],
)
def test_a_best_of_its_kind_that_is_significantly_worse_is_not_called_chance(kind, verdict):
    """A worse one may tie where the better one does not, because its errors vary more."""
    advice = px.evaluation.recommend(table(ties=("hmc", "map"), baselines=dict.fromkeys(kind, "A model.")))
    assert advice.network.startswith(verdict)
    assert advice.network.endswith("; only the difference from map could be chance.")


def test_where_every_tie_is_worse_in_something_the_choice_says_so():
    nll = {"boosting": 0.40, "ensemble": 0.45}
    rows = {
        name: {"nll": Estimate(value, 0.1), "rmse": Estimate(1, 0.1), "crps": Estimate(1, 0.1)}
        for name, value in nll.items()
    }
    rows["process"] = rows["boosting"] | {"nll": Estimate(1.0, 0.6)}  # its intervals miss wildly
    tested = {"nll": (*nll, "process"), "rmse": ("process", "ensemble"), "crps": ("process",)}
    advice = px.evaluation.recommend(Comparison({"test": rows}, best={"test": tested}))
    assert advice.name == "ensemble"
    assert "boosting is significantly worse in rmse and crps" in advice.headline
    assert "In crps, it is significantly worse than process." in advice.reasons
    assert any(text.startswith("Do not use process: in nll on average far worse") for text in advice.cautions)


def test_the_better_score_wins_unless_the_difference_is_negligible():
    """On few rows half a nat is not significant: neither convergence nor a baseline's simplicity makes up for it."""
    nll = {"forest": 0.7, "linear": 1.0, "mean-field": 1.0, "ensemble": 1.5}
    runs = {"ensemble": px.evaluation.RunEnd("converged"), "mean-field": px.evaluation.RunEnd("stopped at the budget")}
    baselines = {"forest": "A forest.", "linear": "A line."}
    advice = px.evaluation.recommend(table(nll, ties=tuple(nll), runs=runs, baselines=baselines))
    assert (advice.name, advice.posterior) == ("forest", "mean-field")


def test_a_row_that_is_significantly_worse_in_a_proper_score_is_barred():
    nll = {"linear": 0.40, "forest": 0.405}
    rows = {name: {"nll": Estimate(value, 0.1), "brier": Estimate(0.3, 0.1)} for name, value in nll.items()}
    tested = {"nll": ("linear", "forest"), "brier": ("forest",)}
    advice = px.evaluation.recommend(Comparison({"test": rows}, best={"test": tested}))
    assert advice.name == "forest"
    assert advice.headline.endswith("but linear is significantly worse in brier.")
    tested["ece"] = ("linear",)  # not a proper score
    assert px.evaluation.recommend(Comparison({"test": rows}, best={"test": tested})).name == "forest"


@pytest.mark.parametrize(("factor", "rows", "chosen"), [(3, 5000, "hmc"), (200, 43, "hmc"), (200, 5000, "vi")])
def test_cost_decides_only_if_it_differs_by_orders_and_was_timed_on_many_rows(factor, rows, chosen):
    costs = {"hmc": Cost(10, 5.0, 20.0 * factor, rows), "vi": Cost(10, 5.0, 20.0, rows)}
    assert px.evaluation.recommend(table(ties=("hmc", "vi"), costs=costs)).name == chosen


def test_how_many_rows_would_tell_the_leaders_apart_is_what_a_test_needs():
    """By simulation: with that many rows, four of five paired tests find the difference."""
    differences = {"hmc": Estimate(0.0, 0.0), "vi": Estimate(0.01, 0.01), "map": Estimate(0.1, 0.01)}
    charts = {"test": {name: ChartSummary(entropies=np.ones(400)) for name in NLL}}
    text = rows_to_tell(table(ties=("hmc", "vi"), differences=differences, charts=charts), "hmc", "vi")
    assert text == (
        "With 400 test rows, a difference of less than 0.028 nats between hmc and vi goes unnoticed: to tell them "
        "apart would take about 3,000."
    )
    rows, rng = 3136, np.random.default_rng(0)
    each = rng.normal(0.01, 0.01 * np.sqrt(400), (2000, rows))
    found = np.mean(each.mean(axis=1) / (each.std(axis=1) / np.sqrt(rows)) > 1.96)
    assert found == pytest.approx(0.8, abs=4 * np.sqrt(0.8 * 0.2 / 2000))


def test_a_single_row_is_told_whether_to_trust_it():
    single = Comparison({"test": {"map": {"nll": Estimate(16.0, 9.0)}}}, charts={"test": {"map": of_intervals(0.5)}})
    assert "Its 90 % intervals hold 50 % of the 400 test targets: it is over-confident" in str(single)


@pytest.mark.parametrize("value", [4e21, np.inf, np.nan, 2.0, 0.95])
def test_a_method_that_exploded_is_not_a_tie_however_its_errors_vary(value):
    """A mean of wildly varying values is not significantly worse than anything."""
    wild = table(NLL | {"swag": value}, ties=("hmc", "swag"))
    assert not_worse(wild, "nll") == ["hmc"]
    advice = px.evaluation.recommend(wild)
    assert advice.name == "hmc"
    assert any(text.startswith("Do not use swag: in nll on average far worse") for text in advice.cautions)
    assert advice.reasons == ("That is clear: map and vi are significantly worse.",)


def test_what_would_change_it_names_the_best_point_prediction():
    both = {name: row | {"rmse": Estimate(1.0 if name == "vi" else 2.0, 0.1)} for name, row in table().rows.items()}
    comparison = Comparison({"test": both}, best={"test": {"nll": ("hmc",), "rmse": ("vi",)}})
    assert (
        px.evaluation.recommend(comparison)
        .changes[0]
        .startswith("If only the prediction counts and not its uncertainty, use vi")
    )


def test_few_test_rows_are_a_caution():
    charts = {"test": {name: ChartSummary(entropies=np.ones(36)) for name in NLL}}
    assert any("only 36 test rows" in text for text in px.evaluation.recommend(table(charts=charts)).cautions)


def test_nothing_is_recommended_without_a_score_that_has_a_better_side():
    plain = Comparison({"test": {"a": {"mine": Estimate(1.0)}, "b": {"mine": Estimate(2.0)}}})
    assert plain.recommendation is None
    with pytest.raises(ValueError, match="nothing to decide by"):
        px.evaluation.recommend(plain)
    assert "mine" in str(plain)


def test_printing_ends_with_the_recommendation():
    assert "Use hmc: its negative log likelihood (nll) is the lowest, 0.40 ± 0.01." in str(table())


# -- trust


def test_calibrated_intervals_are_seldom_called_wrong():
    """At the 5 % level: in 400 test sets of 500 targets, at most 5 % and four standard errors."""
    rng = np.random.default_rng(0)
    verdicts = []
    for _ in range(400):
        spread = rng.gamma(5, 1, 500)
        error = rng.normal(size=500) * spread
        verdicts.append(trust_in(ChartSummary(deciles=number_deciles(spread, error, np.abs(error) < 1.645 * spread))))
    wrong = np.mean([not verdict.calibrated for verdict in verdicts])
    assert wrong < 0.05 + 4 * np.sqrt(0.05 * 0.95 / 400)
    where = np.mean([any("over-confident in" in text for text in verdict.sentences) for verdict in verdicts])
    assert where < 0.05 + 4 * np.sqrt(0.05 * 0.95 / 400)
    assert all(any("tells where errors are" in text for text in verdict.sentences) for verdict in verdicts)


def test_over_confidence_is_found_where_it_is():
    rng = np.random.default_rng(1)
    spread = np.sort(rng.gamma(5, 1, 2000))
    error = rng.normal(size=2000) * spread
    error[:200] *= 3  # in the most certain tenth
    found = trust_in(ChartSummary(deciles=number_deciles(spread, error, np.abs(error) < 1.645 * spread)))
    assert found.bias == "over-confident"
    assert any("It is over-confident in the most certain tenth of its predictions" in text for text in found.sentences)


def test_probabilities_that_boast_are_called_over_confident():
    rng = np.random.default_rng(2)
    chance = rng.uniform(0.5, 0.95, 2000)
    labels = (rng.uniform(size=2000) < chance).astype(int)

    def trust(confidence):
        logits = np.log(np.stack([1 - confidence, confidence], axis=1)).astype(np.float32)
        chart = chart_summary(
            px.likelihoods.ClassPredictive(px.Categorical(), logits[None]), np.zeros((2000, 1)), labels
        )
        return trust_in(chart)

    assert trust(chance).calibrated
    boasting = trust(1 - (1 - chance) / 3)
    assert boasting.bias == "over-confident"
    assert any(text.startswith("When it is about") for text in boasting.sentences)


def test_deciles_are_those_of_numpy():
    rng = np.random.default_rng(3)
    spread, error = rng.gamma(3, 1, 1000), rng.normal(size=1000)
    found = number_deciles(spread, error, np.ones(1000))
    order = np.argsort(spread).reshape(10, 100)
    np.testing.assert_allclose(found.expected, np.sqrt((spread[order] ** 2).mean(axis=1)))
    np.testing.assert_allclose(found.observed, np.sqrt((error[order] ** 2).mean(axis=1)))
    assert found.rank_correlation == pytest.approx(spearmanr(spread, np.abs(error)).statistic)
    few = class_deciles(rng.uniform(0.5, 1, 37), rng.uniform(size=37) < 0.5)
    assert few.count.tolist() == [13, 12, 12]
    assert len(number_deciles(np.full(100, 2.0), error[:100], np.ones(100)).count) == 1


# -- disagreements


def test_disagreements_are_where_labels_differ_and_one_odd_method_does_not_decide():
    rng = np.random.default_rng(4)
    logits = np.tile(np.where(np.eye(2)[rng.integers(0, 2, 50)] == 1, 2.0, -2.0), (5, 1, 1)).astype(np.float32)
    logits[:2, 7] *= -1  # two of five predict the other label
    logits[4] *= -1  # and one of five is always wrong
    predictives = {str(i): px.likelihoods.ClassPredictive(px.Categorical(), own[None]) for i, own in enumerate(logits)}
    first = find_disagreements(predictives, np.zeros((50, 3)), np.zeros(50, int))[0]
    assert first.index == 7
    assert len(set(first.predicted.values())) == 2


def test_where_methods_disagree_about_a_censored_time_it_is_marked():
    likelihood = px.likelihoods.SurvivalTime(base_time=10.0, scale=1.0)
    both = {name: likelihood.predictive(np.full((1, 2, 1), f, np.float32), {}) for name, f in {"a": 0, "b": 1}.items()}
    found = find_disagreements(both, np.zeros((2, 1)), np.array([10.0, -12.0]))
    assert {case.index: (case.true, case.censored) for case in found} == {0: (10.0, False), 1: (12.0, True)}


def test_right_predictions_of_counts_are_not_called_under_confident():
    """Between whole counts, the 90 % interval of a rate of 0.5 is 0 to 2, which holds 98.6 %."""
    predictive = px.Poisson(0.5).predictive(np.zeros((1, 1000, 1), np.float32), {})
    y = np.random.default_rng(0).poisson(0.5, size=1000)
    trust = trust_in(chart_summary(predictive, np.zeros((1000, 1)), y))
    assert trust.calibrated and trust.bias == ""
    assert px.evaluate(predictive, y)["coverage_90"] == pytest.approx(0.9, abs=3 * 0.3 / np.sqrt(1000))
