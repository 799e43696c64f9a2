"""Families of a stranger, in this file alone.

Independent Laplace entries, scales tied along the outputs, and a mean-field Gaussian by other names of its parameters.
"""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from every_family import Case, check_optimum, fit_regressions

import posteriax as px
from posteriax import families as q


@dataclass(frozen=True)
class LaplaceEntries(q.Family):
    """w = mean + scale z, z ~ Laplace(0, 1): a shape that is no Gaussian, with all that a family must say."""

    scale: float = 0.3
    independent = True

    def init(self, key, value, leaf):
        return {"mean": value, "log_scale": jnp.full_like(value, jnp.log(self.scale))}

    def sample(self, variational, key):
        mean = variational["mean"]
        return mean + jnp.exp(variational["log_scale"]) * jax.random.laplace(key, mean.shape, mean.dtype)

    def mean(self, variational):
        return variational["mean"]

    def variance(self, variational):
        return 2 * jnp.exp(2 * variational["log_scale"])

    def entropy(self, variational):
        return (1 + jnp.log(2.0) + variational["log_scale"]).sum()

    def kl(self, variational, prior, key):
        return -prior.log_prob(self.sample(variational, key)).sum() - self.entropy(variational)

    def kl_note(self, prior):
        return "KL estimated with one draw per step"


@dataclass(frozen=True)
class TiedAlongOutputs(q.DiagonalGaussian):
    """One standard deviation for all outputs of an input. As a DiagonalGaussian it says mean and scale, no more."""

    scale: float = 0.3

    def for_leaf(self, leaf):
        return q.Normal(self.scale) if leaf.is_bias else self

    def init(self, key, value, leaf):
        (axis,) = leaf.out_axes
        shape = [1 if a == axis else n for a, n in enumerate(value.shape)]
        return {"mean": value, "log_scale": jnp.full(shape, jnp.log(self.scale), value.dtype)}

    def moments(self, variational):
        mean = variational["mean"]
        return mean, jnp.broadcast_to(jnp.exp(variational["log_scale"]), mean.shape)


class TiedWithUnits(TiedAlongOutputs):
    """The same with the units of its parameters, as in docs/families.md."""

    def units(self, variational):
        mean, scale = self.moments(variational)
        shared = mean.size / variational["log_scale"].size
        return q.Units(means={"mean": scale}, scales={"log_scale": 1.0}, fisher={"log_scale": 2 * shared})


@dataclass(frozen=True)
class LeftRight(q.DiagonalGaussian):
    """A Normal whose parameters have two of a matrix normal's names. It says that its scales are learned as logs."""

    scale: float = 0.3

    def init(self, key, value, leaf):
        return {"left": value, "right": jnp.full_like(value, np.log(self.scale))}

    def moments(self, variational):
        return variational["left"], jnp.exp(variational["right"])

    def log_scale(self, variational):
        return variational["right"]


@dataclass(frozen=True)
class LocRho(q.DiagonalGaussian):
    """sigma = log(1 + e^rho), as in Blundell et al. 2015."""

    scale: float = 0.3

    def init(self, key, value, leaf):
        return {"loc": value, "rho": jnp.full_like(value, np.log(np.expm1(self.scale)))}

    def moments(self, variational):
        return variational["loc"], jax.nn.softplus(variational["rho"])


CASES = {
    "laplace": Case(LaplaceEntries(), "mean-field"),
    "tied": Case(TiedAlongOutputs(), "mean-field", outputs=3),
}


@pytest.fixture(scope="module")
def regressions():
    return fit_regressions(CASES, steps=40_000)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_it_finds_its_optimum_by_the_table_of_families(name, regressions):
    # the KL's one draw per step leaves the Laplace variances a little noisier than a closed form would
    check_optimum(regressions, name, CASES[name], rtol=0.05)


BY_DEFAULT = {
    "left": Case(LeftRight(), "mean-field"),
    "loc": Case(LocRho(), "mean-field"),
    "tied": Case(TiedWithUnits(), "mean-field", outputs=3),
}


@pytest.fixture(scope="module")
def by_default():
    # not from the mode, where the means would be right from the start
    return fit_regressions(BY_DEFAULT, steps=20_000, optimizer=None, start="network", draws=8)


@pytest.mark.slow
@pytest.mark.parametrize("name", BY_DEFAULT)
def test_the_default_optimiser_finds_its_optimum_whatever_its_parameters_are_called(name, by_default):
    check_optimum(by_default, name, BY_DEFAULT[name])


@pytest.mark.slow
def test_what_has_no_units_is_said_and_the_rest_is_checked_for_convergence(by_default):
    (note,) = by_default.trace.notes
    assert note.startswith("loc: steps of 0.003 for rho, and no check")
    assert by_default.diagnose().verdict.startswith("converged")


class GuessedByItself(LocRho):
    """Writes `units`, but leaves them to its base class: that is said as well."""

    def units(self, variational):
        return super().units(variational)


@pytest.mark.slow
@pytest.mark.parametrize(("family", "plain"), [(LaplaceEntries(), "log_scale and mean"), (GuessedByItself(), "rho")])
def test_leaves_without_units_share_a_note(family, plain):
    train, _ = px.data.two_moons(train=40, test=20)
    problem = px.Problem(eqx.nn.Linear(2, 2, key=jax.random.key(0)), px.Categorical())
    notes = px.fit(problem, train, px.VI(family), steps=2, key=0).trace.notes
    (note,) = (note for note in notes if "`units`" in note)
    assert note.startswith(f"weight, bias: steps of 0.003 for {plain}, and no check of convergence")


@pytest.mark.slow
def test_by_any_name_a_normal_takes_the_same_steps():
    """Up to rounding: the default optimiser and its check of convergence, from the same seed."""
    own, normal = (
        fit_regressions({"w": Case(family)}, steps=50, optimizer=None, start="network")
        for family in (LeftRight(), q.Normal(0.3))
    )
    for name, of_normal in (("left", "mean"), ("right", "log_scale")):
        np.testing.assert_allclose(own.variational["w"][name], normal.variational["w"][of_normal], rtol=1e-4)
    np.testing.assert_allclose(own.trace["stationarity"], normal.trace["stationarity"], rtol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(
    "estimator",
    ["auto", *(pytest.param(name, marks=pytest.mark.slow) for name in ("weight", "factor", "flipout", "local"))],
)
@pytest.mark.parametrize("family", [LaplaceEntries(), TiedAlongOutputs()], ids=repr)
def test_it_trains_with_every_estimator(family, estimator):
    train, test = px.data.two_moons(train=40, test=20)
    problem = px.Problem(eqx.nn.Linear(2, 2, key=jax.random.key(0)), px.Categorical())
    method = px.VI(family, estimator=estimator)
    posterior = px.fit(problem, train, method, steps=8, batch_size=20, key=0)
    assert np.isfinite(posterior.trace["elbo"]).all()
    assert posterior.predict(test[0], draws=4).probs.shape == (20, 2)


@pytest.fixture(scope="module")
def fitted():
    train, test = px.data.two_moons(train=60, test=30)
    net = eqx.nn.MLP(2, 2, 6, 2, use_bias=False, use_final_bias=False, key=jax.random.key(0))
    problem = px.Problem(net, px.Categorical())
    families = {"layers/0/*": LaplaceEntries(0.1), "**": TiedAlongOutputs(0.1)}
    return px.fit(problem, train, px.VI(families), steps=200, key=0), net, train, test


@pytest.mark.slow
def test_it_predicts_evaluates_and_compares(fitted):
    posterior, _, _, (x, y) = fitted
    kept, summed = posterior.predict(x, draws=16), posterior.predict(x, draws=16, reduce=True)
    np.testing.assert_allclose(kept.probs, summed.probs, atol=1e-5)
    assert np.isfinite(list(px.evaluate(kept, y).values())).all()
    assert "a stranger's" in str(px.compare({"a stranger's": posterior}, (x, y), draws=8))
    notes = " ".join(posterior.trace.notes)
    assert "KL estimated with one draw" in notes
    assert "layers/0/weight: steps of 0.003 for log_scale and mean, and no check of convergence for them" in notes


@pytest.mark.slow
def test_it_is_saved_by_deriving_from_family(fitted, tmp_path):
    posterior, net, _, (x, _) = fitted
    posterior.save(tmp_path / "a.posterior")
    again = px.load(tmp_path / "a.posterior", net)
    assert again.families == posterior.families
    np.testing.assert_array_equal(again.predict(x, draws=5).probs, posterior.predict(x, draws=5).probs)


@pytest.mark.slow
def test_analyses_take_it(fitted):
    """Exact moments, where a family states them, are those of its draws."""
    posterior, _, train, _ = fitted
    exact = px.analysis.product_matrix(posterior, "layers/*/weight")
    sampled = px.analysis.sampled_product_matrix(posterior, "layers/*/weight", draws=20_000)
    error = np.sqrt(np.einsum("abab->ab", exact.covariance) / 20_000)
    np.testing.assert_array_less(np.abs(exact.mean - sampled.mean), 5 * error)
    assert px.analysis.elbo(posterior, train, draws=20) < 0
    assert set(px.analysis.spectra(posterior)) == {f"layers/{i}/weight" for i in range(3)}
    assert px.analysis.kappa(posterior, train, "layers/0/weight")["layers/0/weight"].shape == (1, 6, 2)
    truncated = px.analysis.truncate(posterior, 1, "layers/1/*")  # of a DiagonalGaussian the scales are known
    assert isinstance(truncated.families["layers/1/weight"], q.Normal)
