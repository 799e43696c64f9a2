"""A likelihood and a predictive written from nothing but the base classes, as a stranger may, work everywhere."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import posteriax as px


class Sums(NamedTuple):
    total: Any
    count: Any

    def join(self, other):
        return Sums(self.total + other.total, self.count + other.count)


class UnitNormal(px.likelihoods.Predictive):
    """A Gaussian of scale 1 around the draws' mean."""

    def __init__(self, means):
        self.means = np.asarray(means)

    mean = property(lambda self: self.means.mean(axis=0))
    std = property(lambda self: np.ones(self.means.shape[1]))

    def quantile(self, q):
        return self.mean + np.asarray(stats.norm.ppf(q))[..., None] if np.ndim(q) else self.mean + stats.norm.ppf(q)

    def entropy(self):
        return np.full(self.means.shape[1], stats.norm.entropy())

    def mutual_information(self):
        return np.zeros(self.means.shape[1])

    def log_prob(self, y):
        return stats.norm.logpdf(y, self.mean)

    def check(self, y):
        return np.asarray(y)

    def uncertainties(self):
        return {"std": self.std + np.abs(self.mean)}

    def per_draw(self):
        return self.means[..., None]


@dataclass(frozen=True)
class Unit(px.Likelihood):
    def check(self, outputs, y):
        return np.asarray(y, np.float32)

    def log_prob(self, latents, outputs, y):
        return -0.5 * (outputs[:, 0] - y) ** 2

    def predictive(self, outputs, latents):
        return UnitNormal(np.asarray(outputs)[..., 0])

    def sums(self, latents, outputs):
        return Sums(outputs[:, 0], jnp.ones(()))

    def reduced_predictive(self, sums, output_shape):
        return UnitNormal((np.asarray(sums.total) / sums.count)[None])


NET = (lambda w, x: x @ w["w"], {"w": np.zeros((2, 1), np.float32)})
X = np.random.default_rng(0).normal(size=(20, 2)).astype(np.float32)
Y = X[:, 0]


@pytest.fixture(scope="module")
def posterior():
    return px.fit(px.Problem(NET, Unit()), (X, Y), px.MAP(), steps=400, key=0)


def test_it_is_predicted_scored_compared_reported_and_saved(posterior, tmp_path):
    predictive = posterior.predict(X)
    expected = -stats.norm.logpdf(Y, predictive.mean).mean()
    assert px.evaluate(predictive, Y)["nll"] == pytest.approx(expected, rel=1e-5)
    np.testing.assert_allclose(posterior.predict(X, reduce=True).mean, predictive.mean, rtol=1e-5)
    comparison = px.compare({"a": posterior, "b": posterior}, (X, Y), reference="a", out={"far": 9 * X})
    assert comparison["a"]["nll"] == pytest.approx(expected, rel=1e-5)
    comparison.to_html(tmp_path / "report.html")
    posterior.save(tmp_path / "a.posterior")
    loaded = px.load(tmp_path / "a.posterior", NET)
    np.testing.assert_array_equal(loaded.predict(X).mean, predictive.mean)
    assert px.evaluation.drift(predictive, posterior.predict(9 * X)).certainty.p_value < 0.01


def test_doubt_may_have_any_name():
    class Named(UnitNormal):
        reported_uncertainty = "doubt"

        def uncertainties(self):
            return {"doubt": np.linspace(0.0, 1.0, self.means.shape[1])}

        def confidence(self):
            return np.full(self.means.shape[1], 0.5)

        def point(self):
            return np.zeros(self.means.shape[1], int)

    drift = px.evaluation.drift(Named(np.zeros((2, 20))), Named(np.zeros((2, 20))))
    assert drift.changes["confidence"].reference == 0.5 and "doubt" in drift.changes
