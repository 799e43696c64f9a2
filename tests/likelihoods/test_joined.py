"""Predictions of several test sets as one, against scores of each part by itself."""

from dataclasses import dataclass

import numpy as np
import pytest

import posteriax as px
from posteriax.likelihoods import InUnits

RNG = np.random.default_rng(0)
SIZES, DRAWS = (6, 3, 6), (4, 2, 4)  # two shapes to compile for


def normals():
    """Folds with noise, units and numbers of draws of their own, as a cross-validation has them."""
    for size, draws, offset, scale in zip(SIZES, DRAWS, (100.0, 90.0, 110.0), (10.0, 8.0, 12.0), strict=True):
        likelihood = InUnits(px.Normal(scale="learned"), offset, scale)
        outputs = RNG.normal(size=(draws, size, 1)).astype(np.float32)
        latents = {"log_scale": RNG.normal(-1, 0.3, draws).astype(np.float32)}
        yield likelihood.predictive(outputs, latents), offset + scale * RNG.normal(size=size)


def counts():
    for size, draws, base in zip(SIZES, DRAWS, (1.0, 4.0, 9.0), strict=True):
        outputs = RNG.normal(0, 0.5, size=(draws, size, 1)).astype(np.float32)
        yield px.Poisson(base_rate=base).predictive(outputs, {}), RNG.poisson(base, size)


def classes():
    for size, draws in zip(SIZES, DRAWS, strict=True):
        yield (
            px.likelihoods.ClassPredictive(px.Categorical(), RNG.normal(size=(draws, size, 3)).astype(np.float32)),
            (RNG.integers(0, 3, size)),
        )


@dataclass(frozen=True, eq=False)
class Case:
    parts: list
    y: np.ndarray
    joined: px.likelihoods.Predictive

    @property
    def own_y(self):
        return np.split(self.y, np.cumsum(SIZES)[:-1])


@pytest.fixture(scope="module", params=[normals, counts, classes], ids=lambda make: make.__name__)
def case(request):
    parts, y = zip(*request.param(), strict=True)
    return Case(list(parts), np.concatenate(y), px.likelihoods.join_examples(parts))


MEANS = ("accuracy", "nll", "brier", "crps", "coverage_90")


@pytest.mark.slow
def test_scores_are_the_parts_scores_by_their_sizes(case):
    together = px.evaluate(case.joined, case.y)
    each = [px.evaluate(part, y) for part, y in zip(case.parts, case.own_y, strict=True)]
    assert set(together) == set(each[0])
    for name in together.keys() & set(MEANS):
        expected = np.average([scores[name] for scores in each], weights=SIZES)
        assert together[name] == pytest.approx(expected, rel=1e-6), name
    if "rmse" in together:
        squared = np.average([scores["rmse"] ** 2 for scores in each], weights=SIZES)
        assert together["rmse"] == pytest.approx(np.sqrt(squared), rel=1e-6)


def test_every_result_is_that_of_the_part_an_example_came_from(case):
    last = slice(-SIZES[-1], None)
    part, y = case.parts[-1], case.own_y[-1]
    for found, expected in (
        (case.joined.mean, part.mean),
        (case.joined.std, part.std),
        (case.joined.entropy(), part.entropy()),
        (case.joined.mutual_information(), part.mutual_information()),
        (case.joined.quantile(0.3), part.quantile(0.3)),
        (case.joined.point(), part.point()),
        (case.joined.log_prob(case.y), part.log_prob(y)),
        (case.joined.targets(case.y), part.targets(y)),
    ):
        assert len(found) == sum(SIZES)
        np.testing.assert_array_equal(found[last], expected)
    low, high = case.joined.interval(0.8)
    np.testing.assert_array_equal([low[last], high[last]], part.interval(0.8))
    for name, values in part.uncertainties().items():
        np.testing.assert_array_equal(case.joined.uncertainties()[name][last], values)
    assert case.joined.per_draw().shape[:2] == (min(len(part.outputs) for part in case.parts), sum(SIZES))


def test_a_joined_predictive_is_compared_with_another(case):
    if hasattr(case.joined, "probs"):
        return
    other = px.likelihoods.join_examples(case.parts[::-1])
    by_parts = case.joined.distance(other)
    same = np.concatenate([part.distance(another) for part, another in zip(case.parts, other.parts, strict=True)])
    np.testing.assert_array_equal(by_parts, same)
    assert by_parts.max() > 0.01
    table = px.compare({"a": case.joined, "b": other}, (np.zeros((sum(SIZES), 1)), case.y), reference="b")
    assert table["a"]["rmse"] == pytest.approx(px.evaluate(case.joined, case.y)["rmse"])


def test_a_joined_predictive_has_a_distance_from_an_ordinary_one():
    """Of two Gaussians of the same scale, whose distance is that of their means."""
    one, other = (
        px.likelihoods.NormalPredictive(px.Normal(scale=2.0), RNG.normal(size=(1, 6, 1)).astype(np.float32), {})
        for _ in range(2)
    )
    found = px.likelihoods.join_examples([one]).distance(other)
    np.testing.assert_allclose(found, np.abs(one.mean - other.mean), rtol=1e-4, atol=1e-5)


def test_classes_have_probabilities_and_temperatures():
    parts = [part for part, _ in classes()]
    joined = px.likelihoods.join_examples(parts)
    np.testing.assert_array_equal(joined.probs, np.concatenate([part.probs for part in parts]))
    np.testing.assert_array_equal(joined.confidence(), joined.probs.max(axis=1))
    softer = joined.tempered(2.0)
    np.testing.assert_allclose(softer.probs[:6], parts[0].tempered(2.0).probs)


def test_counts_have_probabilities_of_every_count():
    parts = [part for part, _ in counts()]
    np.testing.assert_array_equal(
        px.likelihoods.join_examples(parts).pmf(5), np.concatenate([part.pmf(5) for part in parts])
    )


def test_reduced_predictions_are_joined():
    likelihood, shape = px.Categorical(), (6, 3)
    outputs = RNG.normal(size=shape).astype(np.float32)
    reduced = likelihood.reduced_predictive(likelihood.sums({}, outputs), shape)
    joined = px.likelihoods.join_examples([reduced, reduced])
    np.testing.assert_array_equal(joined.probs, np.concatenate([reduced.probs] * 2))
    labels = RNG.integers(0, 3, 12)
    assert px.evaluate(joined, labels)["nll"] == pytest.approx(-joined.log_prob(labels).mean())


def test_what_does_not_belong_together_is_refused():
    two, three = (px.likelihoods.ClassPredictive(px.Categorical(), np.zeros((1, 4, c), np.float32)) for c in (2, 3))
    number = px.likelihoods.NormalPredictive(px.Normal(scale=1.0), np.zeros((1, 4, 1), np.float32), {})
    for wrong in ([two, three], [two, number]):
        with pytest.raises(ValueError, match="different targets cannot be joined"):
            px.likelihoods.join_examples(wrong)
    with pytest.raises(ValueError, match="nothing to join"):
        px.likelihoods.join_examples([])
    with pytest.raises(ValueError, match="predictions for 8 examples"):
        px.likelihoods.join_examples([two, two]).log_prob(np.zeros(7, int))
