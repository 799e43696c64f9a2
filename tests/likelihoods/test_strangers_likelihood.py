"""A likelihood that posteriax does not know: grades with an order, written in this file alone, works everywhere.

So do `px.Poisson` and `px.StudentT`, by the same test.
"""

from dataclasses import dataclass
from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import optax
import pytest

import posteriax as px
from posteriax import priors as p


@dataclass(frozen=True)
class Ordinal(px.likelihoods.ClassLikelihood):
    """One of several grades with an order, by a cumulative logit (McCullagh 1980); the network gives one score.

    P(y <= k | f) = sigmoid(c_k - f)        cut points c_0 < c_1 < ..., inferred with the weights
    """

    grades: int = 4

    def latents(self):
        return {"first_cut": jnp.full((), -1.0), "log_gaps": jnp.zeros(self.grades - 2)}

    def priors(self):
        return {"first_cut": dist.Normal(0.0, 3.0), "log_gaps": dist.Normal(0.0, 1.0)}

    def log_probs(self, latents, outputs):
        gaps = jnp.concatenate([latents["first_cut"][None], jnp.exp(latents["log_gaps"])])
        below = jax.nn.sigmoid(jnp.cumsum(gaps) - outputs.reshape(-1, 1))
        ends = jnp.pad(below, ((0, 0), (1, 1)), constant_values=((0.0, 0.0), (0.0, 1.0)))
        return jnp.log(jnp.maximum(jnp.diff(ends), 1e-30))


X = np.random.default_rng(0).uniform(-2, 2, size=(80, 1)).astype(np.float32)
NOISE = np.random.default_rng(1)
F = np.sin(1.5 * X[:, 0])
TARGETS = {
    "ordinal": (Ordinal(), np.digitize(2 * F + NOISE.logistic(size=80), [-1.0, 0.0, 1.0])),
    "Poisson": (px.Poisson(), NOISE.poisson(np.exp(1 + F))),
    "StudentT": (px.StudentT(df="learned", scale="learned"), F + 0.2 * NOISE.standard_t(3, size=80)),
}
METHODS = {
    "MAP": (px.MAP(optax.adam(1e-2)), dict(steps=300)),
    "VI": (px.VI(), dict(steps=300)),
    "HMC": (px.HMC(warmup=20, start="network"), dict(draws=10, chains=2)),
    "SWAG": (px.SWAG(), dict(steps=300)),
}


SLOW = ("Poisson", "StudentT")  # what the ordinal one shows, with quantiles that take long to compile


NET = eqx.nn.MLP(1, 1, 5, 1, key=jax.random.key(0))


@cache
def fitted(target, name):
    likelihood, y = TARGETS[target]
    method, size = METHODS[name]
    return px.fit(px.Problem(NET, likelihood, prior=p.HeNormal()), (X, y), method, key=0, **size)


@pytest.fixture(params=[pytest.param(n, marks=pytest.mark.slow if n in SLOW else ()) for n in TARGETS])
def target(request):
    return request.param


def baseline(likelihood, y):
    """The nll of the best network that is the same everywhere, by a grid of its output at the likelihood's start."""
    check = likelihood.check(jax.ShapeDtypeStruct((80, 1), jnp.float32), y)
    grid = np.linspace(-3, 3, 61, dtype=np.float32)
    return min(-likelihood.log_prob(likelihood.latents(), jnp.full((80, 1), f), check).mean() for f in grid)


@pytest.mark.slow
def test_every_method_learns_and_draws_may_be_summed(target):
    likelihood, y = TARGETS[target]
    for name in METHODS:
        posterior = fitted(target, name)
        kept, reduced = (posterior.predict(X, draws=10, reduce=reduce) for reduce in (False, True))
        np.testing.assert_allclose(reduced.mean, kept.mean, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(reduced.std, kept.std, rtol=1e-2, atol=1e-4)
        scores = px.evaluate(kept, y)
        assert {"nll"} < set(scores) and all(np.isfinite(list(scores.values())))
        assert scores["nll"] < baseline(likelihood, y)
        assert kept.per_draw().shape[1] == len(X)


@pytest.mark.slow
def test_posteriors_are_compared_and_reported(target, tmp_path):
    y, posteriors = TARGETS[target][1], {name: fitted(target, name) for name in METHODS}
    comparison = px.compare(posteriors, (X, y), reference="HMC", out={"elsewhere": X + 5}, draws=10, costs=False)
    assert set(comparison.rows) == set(METHODS)
    assert "nll" in str(comparison) and "MAP" in comparison.to_markdown()
    comparison.to_html(tmp_path / "report.html")
    assert "SWAG" in (tmp_path / "report.html").read_text()
    assert 0 <= px.evaluation.drift(posteriors["VI"].predict(X, 10), posteriors["VI"].predict(X + 5, 10)).p_value <= 1
    posteriors["HMC"].diagnose(X)


@pytest.mark.parametrize("name", ["VI", "HMC"])  # of either kind
def test_posteriors_are_saved_and_loaded(target, name, tmp_path):
    posterior = fitted(target, name)
    posterior.save(tmp_path / name)
    again = px.load(tmp_path / name, NET)
    assert again.problem.likelihood == posterior.problem.likelihood
    np.testing.assert_array_equal(again.predict(X, draws=10).mean, posterior.predict(X, draws=10).mean)


@pytest.mark.slow
def test_grades_are_attacked_and_recalibrated_as_classes_are():
    likelihood, y = TARGETS["ordinal"]
    posterior = px.fit(px.Problem(NET, likelihood), (X, y), px.MAP(), steps=300, key=0)
    attacked = px.evaluation.PGD(0.1, iterations=5, bound=0.4, low=None, high=None).run(posterior, X, y)
    assert attacked.accuracy[-1] < attacked.accuracy[0]
    np.testing.assert_array_equal(attacked.labels[-1], posterior.predict(attacked.x).point())
    table = px.compare({"MAP": posterior}, (X, y), recalibrate=(X, y), costs=False)
    assert table.sets["recalibrated"]["MAP"]["nll"].value <= table.rows["MAP"]["nll"].value + 1e-4


def test_labels_beyond_the_last_grade_are_named():
    with pytest.raises(ValueError, match="labels up to 4, but Ordinal has 4 outcomes"):
        Ordinal().check(jax.ShapeDtypeStruct((2, 1), jnp.float32), np.array([0, 4]))


@dataclass(frozen=True)
class FromNumPyro(px.likelihoods.NumberLikelihood):
    """One of NumPyro's distributions, by its name, with the network's output as the log of its last parameter."""

    name: str

    def distribution(self, latents, outputs):
        parameters = {"Gamma": (2.0,), "Beta": (2.0,), "NegativeBinomial2": (3.0,), "Uniform": (0.0,)}
        return getattr(dist, self.name)(*parameters.get(self.name, ()), jnp.exp(outputs))


@pytest.mark.parametrize(
    ("name", "bad"),
    [("Gamma", -1.5), ("Beta", 1.5), ("NegativeBinomial2", -1), ("NegativeBinomial2", 2.5), ("HalfNormal", -0.1)],
)
def test_a_target_that_the_distribution_cannot_give_is_named(name, bad):
    problem = px.Problem((lambda w, x: x @ w, jnp.zeros((1, 1))), FromNumPyro(name))
    with pytest.raises(ValueError, match=f"the value {bad}, but FromNumPyro .* {name} .*, whose support is "):
        px.fit(problem, (X[:3], np.array([1, bad, 1])), px.MAP(), steps=1, key=0)


@pytest.mark.parametrize(("name", "y"), [("Exponential", 0.0), ("NegativeBinomial2", 0), ("Uniform", 5.0)])
def test_ends_of_the_support_and_a_support_that_depends_on_parameters_are_allowed(name, y):
    checked = FromNumPyro(name).check(jax.ShapeDtypeStruct((1, 1), jnp.float32), np.array([y]))
    np.testing.assert_array_equal(checked, [[y]])
