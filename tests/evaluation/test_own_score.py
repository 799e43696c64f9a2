"""A stranger's scores, written here and nowhere else, work in evaluate, compare, its marks, tables and report."""

import re

import numpy as np
import pytest
import scipy.stats

import posteriax as px
from posteriax.evaluation import Comparison
from posteriax.evaluation.report import chart_data
from posteriax.evaluation.report.html_text import fidelity
from posteriax.evaluation.report.page import page
from posteriax.evaluation.significance import significantly_differ
from posteriax.metrics import Estimate, Mean, Reduction, RootMean, Score

CLASSES, N = 6, 400


def rank_of_label(predictive, y):
    """How many classes are thought more probable than the true one."""
    probs = predictive.probs
    return (probs > np.take_along_axis(probs, y[:, None], axis=1)).sum(axis=1)


RANK = Score(
    "label_rank", "How many wrong labels are more probable, on average.", "lower", rank_of_label, needs=("probs",)
)
HELLINGER = Score(
    "hellinger",
    "Root mean squared Hellinger distance to the reference's probabilities.",
    "lower",
    lambda predictive, reference: 1 - np.sqrt(predictive.probs * reference.probs).sum(axis=1),
    RootMean(),
    needs=("probs",),
    against_reference=True,
    title="Hellinger <distance> | root",
)


class TopDecile(Reduction):
    """The mean of the largest tenth: a reduction that the package does not have."""

    def value(self, values):
        return float(np.sort(values)[-len(values) // 10 :].mean())

    def linearised(self, values):
        cut = np.quantile(values, 0.9)
        return cut + 10 * np.maximum(values - cut, 0)


WORST = Score("worst_nll", "The nll of the worst tenth.", "lower", lambda p, y: -p.log_prob(y), TopDecile())
MINE = [RANK, "nll", HELLINGER, WORST]


def predictives():
    """Three classifiers of the same examples: the truth's own logits, noisy ones, and ones without any information."""
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 2, (N, CLASSES))
    y = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    made = {"right": logits, "noisy": logits + rng.normal(size=logits.shape), "ignorant": rng.normal(size=logits.shape)}
    of = lambda values: px.likelihoods.ClassPredictive(px.Categorical(), values[None].astype(np.float32))  # noqa: E731
    return {name: of(values) for name, values in made.items()}, (np.zeros((N, 2), np.float32), y)


@pytest.fixture(scope="module")
def comparison():
    made, data = predictives()
    return px.compare(made, data, reference="right", scores=MINE), made, data


def test_evaluate_takes_names_and_records_in_this_order():
    made, (_, y) = predictives()
    scores = px.evaluate(made["noisy"], y.tolist(), scores=["brier", RANK])  # records get arrays, whatever is given
    assert list(scores) == ["brier", "label_rank"]
    ranks = scipy.stats.rankdata(-made["noisy"].probs, axis=1)[np.arange(N), y] - 1
    assert scores["label_rank"] == pytest.approx(ranks.mean(), rel=1e-12)
    assert scores["brier"] == px.evaluate(made["noisy"], y)["brier"]


def test_columns_values_and_errors_are_those_of_the_records(comparison):
    table, made, (_, y) = comparison
    assert table.columns == ["label_rank", "nll", "hellinger", "worst_nll"]
    ranks = rank_of_label(made["noisy"], y)
    assert table.rows["noisy"]["label_rank"] == Estimate(ranks.mean(), scipy.stats.sem(ranks), "examples")
    squares = 1 - np.sqrt(made["noisy"].probs * made["right"].probs).sum(axis=1, dtype=np.float64)
    assert table["noisy"]["hellinger"] == pytest.approx(np.sqrt(squares.mean()), rel=1e-5)
    assert table["right"]["hellinger"] == pytest.approx(0.0, abs=1e-3)  # float32 probabilities sum to 1 +- 1e-7


def test_the_error_of_an_own_reduction_is_that_of_the_bootstrap():
    losses, rng = np.random.default_rng(0).exponential(size=2000), np.random.default_rng(1)
    resampled = [TopDecile().value(rng.choice(losses, 2000)) for _ in range(400)]
    # 400 resamplings know their standard deviation to 1 / sqrt(800) = 3.5 %
    assert TopDecile().standard_error(losses) == pytest.approx(np.std(resampled, ddof=1), rel=0.2)


def test_own_scores_are_tested_for_significance(comparison):
    marks = comparison[0].best["test"]
    assert list(marks) == comparison[0].columns
    for column in ("label_rank", "nll", "worst_nll"):
        assert marks[column] == ("right",)
    assert marks["hellinger"] == ("noisy",)  # the reference takes no part in distances to itself
    equals = px.compare({"a": comparison[1]["noisy"], "b": comparison[1]["noisy"]}, comparison[2], scores=[RANK])
    assert equals.best["test"]["label_rank"] == ("a", "b")


def test_own_scores_of_several_seeds_are_means_with_errors_over_seeds():
    made, data = predictives()
    noise = np.random.default_rng(1).normal(size=(3, 1, N, CLASSES)).astype(np.float32)
    seeds = [px.likelihoods.ClassPredictive(px.Categorical(), made["right"].outputs + own) for own in noise]
    table = px.compare({"noisy": seeds, "right": made["right"]}, data, scores=[RANK])
    each = [rank_of_label(predictive, data[1]).mean() for predictive in seeds]
    assert table.rows["noisy"]["label_rank"] == Estimate(np.mean(each), scipy.stats.sem(each), "seeds")
    assert table.best["test"]["label_rank"] == ("right",)


def test_the_printed_table_and_markdown_have_the_headings_of_the_records(comparison):
    text, markdown = str(comparison[0]), comparison[0].to_markdown()
    for shown in (text, markdown):
        for heading in ("label rank ↓", "nll ↓", "worst nll ↓"):
            assert heading in shown
    assert "Hellinger <distance> | root ↓" in text
    assert r"Hellinger <distance> \| root ↓" in markdown
    cells = [re.split(r"(?<!\\)\|", line) for line in markdown.splitlines()]
    assert {len(line) for line in cells} == {7}  # five cells between two edges
    assert re.search(r"\| right \| \*\*\d\.\d+ ± \d\.\d+\*\* \|", markdown)


def test_the_report_explains_and_charts_own_scores(comparison):
    table = comparison[0]
    text = page(table)
    assert "<dt>label rank ↓</dt><dd>How many wrong labels are more probable, on average. Lower is better.</dd>" in text
    assert "Hellinger &lt;distance&gt; | root ↓" in text
    assert "Hellinger <distance>" not in text
    column, lines = chart_data.distances(table)
    assert column == "hellinger"
    assert [line.method for line in lines] == [1, 2]
    figure = table.plot("distance")
    assert figure.axes[0].get_xlabel() == "Hellinger <distance> | root to right"
    far = fidelity(table)
    assert px.evaluation.recommend(table).headline.startswith(
        "Use right: its negative log likelihood (nll) is the lowest"
    )
    assert "The closest is noisy" in far
    assert "In brackets: the Hellinger <distance> | root." in far


def test_without_nll_the_recommendation_is_by_the_first_score(comparison):
    table = px.compare(comparison[1], comparison[2], scores=[RANK])
    assert px.evaluation.recommend(table).headline.startswith("Use right: its label rank is the lowest")


def test_own_scores_follow_corrupted_sets_through_tables_and_charts(moons):
    x, y = moons[1]
    worse = {f"fog {s}": px.data.CorruptedSet(x + np.float32(s), y, kind="fog", severity=s) for s in (1, 2)}
    problem = px.Problem((lambda w, x: x @ w, np.zeros((2, 2), np.float32)), px.Categorical())
    posterior = px.fit(problem, moons[0], px.MAP(), steps=20, key=0)
    table = px.compare({"MAP": posterior}, {"clean": (x, y), **worse}, scores=[RANK], costs=False)
    assert list(table.severities("label_rank")["MAP"]) == [0, 1, 2]
    assert "label rank ↓ by severity of corruption" in str(table)
    (group,) = chart_data.severity(table, "label_rank")
    assert group.lines[0].points[2][1] == table.sets["fog 2"]["MAP"]["label_rank"].value


BIAS = Score(
    "bias", "How far too high predictions are, on average.", 0.0, lambda p, y: p.mean[:, 0] - y, needs=("mean",)
)


def test_a_mean_with_any_target_keeps_the_level_of_its_marks():
    """Two equal methods, one too high and one too low by as much, and two that are right: about 5 % are called."""
    rng, repetitions = np.random.default_rng(0), 300
    for off in (0.0, 0.4):
        called = 0
        for _ in range(repetitions):
            one, other = rng.normal([[off], [-off]], 2.0, (2, 300))
            called += significantly_differ(BIAS, one, other)
        assert called <= scipy.stats.binom.ppf(0.999, repetitions, 0.07)


def test_a_mean_far_from_its_target_is_called_worse():
    rng = np.random.default_rng(1)
    noise = rng.normal(0, 2.0, (30, 2, 300))
    called = sum(significantly_differ(BIAS, one, other - 1.0) for one, other in noise)
    assert called >= 28
    runs = [[rng.normal(0.0, 2.0, 300) for _ in range(4)], [rng.normal(-1.0, 2.0, 300) for _ in range(4)]]
    assert significantly_differ(BIAS, *runs)
    assert not significantly_differ(BIAS, np.array([0.0, np.inf]), np.array([0.0, 1.0]))


def test_a_score_that_is_neither_good_nor_bad_gets_no_arrow_and_no_mark():
    made, data = predictives()
    table = px.compare(made, data, scores=[Score("confidence", per_example=lambda p, y: p.probs.max(axis=1)), "nll"])
    assert list(table.best["test"]) == ["nll"]
    assert table.to_markdown().startswith("|  | confidence | nll ↓ |")
    page(table)


def test_columns_that_nobody_knows_are_shown_by_their_names():
    rows = {"a": {"odd_column": Estimate(0.5, 0.1)}, "b": {"nll": Estimate(0.1), "odd_column": Estimate(0.4, 0.1)}}
    table = Comparison({"test": rows}, "a")
    assert table.columns == ["odd_column", "nll"]
    assert table.severities("odd_column") == table.severities("nothing") == {}
    for shown in (str(table), table.to_markdown(), page(table)):
        assert "odd column" in shown
    assert chart_data.distances(table) is None
    assert not table.is_doubtful("odd_column")
    assert table.marked("test", "odd_column") == ()


ZEROS = Score("zeros", "How far the chance of a zero is off.", "lower", lambda p, y: abs(np.exp(-p.mean) - (y == 0)))


class Counts:
    """A stranger's predictive: of counts, with a rate per example. It derives from nothing."""

    scores = ("nll", "rmse", ZEROS)

    def __init__(self, rate):
        self.mean = np.asarray(rate)

    def log_prob(self, y):
        return scipy.stats.poisson.logpmf(y, self.mean)


def test_any_predictive_is_evaluated_by_the_scores_it_says_apply():
    rate = np.array([0.5, 2.0, 3.0])
    y = np.array([0, 3, 1])
    scores = px.evaluate(Counts(rate), y)
    assert list(scores) == ["nll", "rmse", "zeros"]
    assert scores["nll"] == pytest.approx(-scipy.stats.poisson.logpmf(y, rate).mean())
    assert scores["rmse"] == pytest.approx(np.sqrt(np.mean((y - rate) ** 2)))
    assert scores["zeros"] == pytest.approx(np.mean(np.abs(scipy.stats.poisson.pmf(0, rate) - (y == 0))))


@pytest.mark.parametrize(
    ("scores", "error", "message"),
    [
        (["nlll"], ValueError, "there is no score 'nlll'. There are accuracy, nll, ece"),
        (["rmse", "rmse"], ValueError, "'rmse' twice"),
        ("nll", TypeError, "must be a list of names"),
        ([3], TypeError, "a name or a px.metrics.Score, got 3"),
        (
            ["coverage_90"],
            ValueError,
            "'coverage_90' needs predictions with `share_inside`, but got Counts, to which apply: nll, rmse, zeros",
        ),
        (["agreement"], ValueError, "'agreement' needs a reference"),
        (["auroc"], ValueError, "'auroc' cannot be computed from predictions alone"),
        ([Score("all", per_example=lambda p, y: 1.0)], ValueError, "'all' must give one value per example"),
    ],
)
def test_scores_that_cannot_be_given_are_told_why(scores, error, message):
    with pytest.raises(error, match=message):
        px.evaluate(Counts([1.0, 2.0]), [0, 1], scores=scores)


def test_compare_tells_at_the_door_what_scores_it_cannot_give(comparison):
    made, data = comparison[1:]
    for scores, message in (
        ([HELLINGER], "'hellinger' needs a reference"),
        (["auroc"], "'auroc' cannot be chosen"),
        ([], "scores is empty"),
    ):
        with pytest.raises(ValueError, match=message):
            px.compare(made, data, scores=scores)


def test_a_predictive_without_scores_is_told_to_say_which_apply():
    class Silent:
        pass

    with pytest.raises(TypeError, match="Silent does not say which scores apply"):
        px.evaluate(Silent(), [0])


def test_directions_other_than_higher_lower_or_a_number_are_refused():
    with pytest.raises(ValueError, match='better must be "higher"'):
        Score("x", better="up")
    assert isinstance(Score("x").reduction, Mean)
