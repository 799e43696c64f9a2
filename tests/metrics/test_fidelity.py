"""Distances between posteriors' outputs, and between members, against SciPy and by the definitions."""

from itertools import combinations

import numpy as np
import pytest
import scipy.special
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from posteriax import diagnostics, metrics

RNG = np.random.default_rng(0)
MEMBERS = RNG.dirichlet(np.ones(3), (4, 50)).astype(np.float32)


@pytest.mark.parametrize(("s", "t"), [(8, 8), (6, 9), (7, 1)])
def test_wasserstein_of_draws_is_scipys(s, t):
    a, b = RNG.normal(100.0, 1.0, (s, 5, 2)).astype(np.float32), RNG.normal(100.5, 2.0, (t, 5, 2)).astype(np.float32)
    truth = np.mean([scipy.stats.wasserstein_distance(a[:, i, d], b[:, i, d]) for i in range(5) for d in range(2)])
    assert float(metrics.wasserstein(a, b)) == pytest.approx(truth, rel=1e-6)


@settings(max_examples=30, deadline=None)
@given(st.floats(-3, 3, width=32), st.sampled_from([1, 5]))  # two shapes to compile for
def test_wasserstein_of_a_shift_is_the_shift(shift, copies):
    draws = np.arange(12.0).reshape(6, 2)[::-1]
    shifted = np.repeat(draws, copies, axis=0) + shift  # every draw as often: the same distribution, more draws
    assert float(metrics.wasserstein(draws, shifted)) == pytest.approx(abs(shift), abs=1e-5)


@pytest.mark.parametrize("n", [41, 97])  # 41 times float32's 1 / 41 is less than 1
def test_all_is_exactly_one(n):
    probs = RNG.dirichlet(np.ones(3), n)
    assert float(metrics.agreement(probs, probs)) == 1.0
    assert float(metrics.accuracy(probs, probs.argmax(axis=1))) == 1.0
    assert float(metrics.accuracy(np.stack([probs] * 2), probs.argmax(axis=1)).min()) == 1.0
    assert float(metrics.interval_coverage(probs - 1, probs + 1, probs)) == 1.0


def test_rhat_takes_the_two_posteriors_as_chains():
    ours, theirs = RNG.normal(size=(400, 3)), RNG.normal([0.0, 0.0, 3.0], [1.0, 4.0, 1.0], size=(400, 3))
    chains = np.stack([ours, theirs])
    np.testing.assert_array_equal(metrics.rhat_to_reference(ours, theirs), diagnostics.rhat(chains))
    plain = metrics.rhat_to_reference(ours, theirs, diagnostics.rhat_between)
    np.testing.assert_array_equal(plain, diagnostics.rhat_between(chains))
    same, wider, elsewhere = metrics.rhat_to_reference(ours, theirs)
    assert same < 1.02 and wider > 1.1 and elsewhere > 1.1
    thinned = metrics.rhat_to_reference(ours, np.repeat(theirs, 3, axis=0))
    np.testing.assert_array_equal(thinned, diagnostics.rhat(chains))


def test_diversity_by_the_definitions_over_pairs():
    y = RNG.integers(0, 3, 50)
    differs = np.mean([(a.argmax(-1) != b.argmax(-1)).mean() for a, b in combinations(MEMBERS, 2)])
    error = (MEMBERS.mean(axis=0).argmax(-1) != y).mean()
    assert float(metrics.disagreement(MEMBERS).mean()) == pytest.approx(differs, rel=1e-6)
    assert float(metrics.disagreement_over_error(MEMBERS, y).mean()) == pytest.approx(differs / error, rel=1e-5)
    wide = MEMBERS.astype(np.float64)
    kl = np.array([[scipy.stats.entropy(a, b, axis=1).mean() for b in wide] for a in wide])
    np.testing.assert_allclose(metrics.pairwise_kl(MEMBERS), kl.sum(axis=1) / 3, rtol=1e-5)


def test_a_member_that_differs_stands_out():
    odd = np.stack([MEMBERS[0]] * 3 + [MEMBERS[0, :, ::-1]])
    per_member = np.asarray(metrics.disagreement(odd))
    assert per_member.argmax() == 3
    np.testing.assert_allclose(per_member[:3], per_member[3] / 3, rtol=1e-6)
    same = np.stack([MEMBERS[0]] * 3)
    assert float(metrics.disagreement(same).max()) == 0.0
    assert float(metrics.pairwise_kl(same).max()) == 0.0


def test_kl_of_a_member_that_rules_out_what_another_does_not():
    certain, open_minded = [[1.0, 0.0]], [[0.5, 0.5]]
    forward, backward = metrics.pairwise_kl([certain, open_minded]).tolist()
    assert forward == pytest.approx(np.log(2), rel=1e-6)
    assert backward == np.inf


BAD = {
    "points": (metrics.wasserstein, (np.zeros((3, 4)), np.zeros((3, 5))), r"got \(3, 4\) and \(3, 5\)"),
    "rhat": (metrics.rhat_to_reference, (np.zeros((5, 4)), np.zeros((5, 3))), r"got \(5, 4\) and \(5, 3\)"),
    "one member": (metrics.disagreement, (MEMBERS[:1],), "at least two members"),
    "no members": (metrics.pairwise_kl, (MEMBERS[0],), "at least two members"),
    "nan": (metrics.agreement, ([[np.nan, 1.0]], [[0.5, 0.5]]), "probs has 1 NaN"),
    "reference": (metrics.total_variation, ([[0.5, 0.5]], [[2.0, 1.0]]), "reference must be at least 0 and sum to 1"),
    "empty": (metrics.agreement, (MEMBERS[0, :0], MEMBERS[0, :0]), "probs is empty"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input(name):
    metric, given, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        metric(*given)
