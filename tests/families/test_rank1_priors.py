"""Priors of rank-1 factors that are tied or learned: their KLs against numbers from elsewhere."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import optimize, stats

import posteriax as px
from posteriax import families as q
from posteriax.networks.leaf import Leaf

RNG = np.random.default_rng(0)
MEAN, LOG_SCALE = RNG.normal(1.0, 0.3, size=(2, 5)), RNG.normal(-1.0, 0.3, size=(2, 5))
FLAT = dist.ImproperUniform(dist.constraints.real, (), ())


def kl(family: q.Rank1, **more: np.ndarray) -> float:
    own = {"kernel": jnp.zeros((5, 3)), "in": jnp.asarray(MEAN), "log_scale_in": jnp.asarray(LOG_SCALE)}
    own |= {name: jnp.asarray(value) for name, value in more.items()}
    return float(family.for_leaf(Leaf("w", (5, 3))).kl(own, FLAT, jax.random.key(0)))


def normal_kl(mean, scale, prior_mean, prior_scale):
    """Of two Gaussians, by Gauss-Hermite quadrature of log q - log p."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(20)
    w = mean[..., None] + scale[..., None] * nodes
    ratio = stats.norm.logpdf(w, mean[..., None], scale[..., None]) - stats.norm.logpdf(
        w, np.broadcast_to(prior_mean, mean.shape)[..., None], np.broadcast_to(prior_scale, mean.shape)[..., None]
    )
    return (ratio @ weights / weights.sum()).sum()


def test_a_tied_mean_leaves_only_the_scales_a_cost():
    found = kl(q.Rank1(2, place="input", prior_mean="tied", prior_scale=0.3))
    assert found == pytest.approx(normal_kl(MEAN, np.exp(LOG_SCALE), MEAN, 0.3), rel=1e-5)


def test_learned_scales_are_the_priors():
    log_prior = RNG.normal(size=(2, 5))
    found = kl(q.Rank1(2, place="input", prior_scale="learned"), log_prior_scale_in=log_prior)
    assert found == pytest.approx(normal_kl(MEAN, np.exp(LOG_SCALE), 1.0, np.exp(log_prior)), rel=1e-5)


def test_a_tied_scale_is_the_best_one_under_its_inverse_gamma_prior():
    def cost(log_variance):
        variance = np.exp(log_variance)
        own = normal_kl(MEAN, np.exp(LOG_SCALE), 1.0, np.sqrt(variance))
        return own - stats.invgamma.logpdf(variance, 2.01, scale=0.101)

    # the density is of the variance, so that its log needs no Jacobian
    best = optimize.minimize_scalar(cost, bounds=(-8, 4), method="bounded").fun
    assert kl(q.Rank1(2, place="input", prior_scale="tied")) == pytest.approx(best, rel=1e-4)


@pytest.mark.slow
def test_training_finds_the_best_learned_scales():
    """Without data: each prior's variance is sigma^2 + (m - 1)^2, and nothing is left of the KL."""
    net = (lambda params, x: x @ params["w"], {"w": np.ones((4, 3), np.float32)})
    problem = px.Problem(net, px.Normal(1e3))
    data = (np.ones((5, 4), np.float32), np.ones((5, 3), np.float32))
    posterior = px.fit(problem, data, px.VI(q.Rank1(2, prior_scale="learned")), steps=1500, key=0)
    own = {name: np.asarray(value[0]) for name, value in posterior.variational["w"].items()}
    best = np.exp(2 * own["log_scale_in"]) + (own["in"] - 1) ** 2
    np.testing.assert_allclose(np.exp(2 * own["log_prior_scale_in"]), best, rtol=0.05)
    assert own["log_prior_scale_in"].max() < -0.5  # from 0
    assert px.fit(problem, data, px.VI(q.Rank1(2, prior_scale="tied")), steps=5, key=0).num_parameters == 12 + 2 * 2 * 7


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"prior_scale": "trained"}, "prior_scale must be a number or 'learned' or 'tied'"),
        ({"prior_mean": "learned"}, "prior_mean must be a number or 'tied'"),
        ({"prior_scale": "tied", "noise": "cauchy"}, 'needs noise="normal"'),
        ({"prior_scale": -1.0}, "prior_scale"),
        ({"prior_mean": -1.0, "noise": "log_normal"}, "prior_mean"),
    ],
)
def test_priors_without_meaning_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        q.Rank1(2, **settings)


def test_point_factors_on_the_other_side_have_neither_noise_nor_kl():
    leaf = Leaf("w", (5, 3))
    family = q.Rank1(2, place="input", other="point").for_leaf(leaf)
    params = family.init(jax.random.key(0), jnp.ones((5, 3)), leaf)
    assert sorted(params) == ["in", "kernel", "log_scale_in", "out"]
    one_side = q.Rank1(2, place="input").for_leaf(leaf)
    expected = one_side.kl({name: params[name] for name in params if name != "out"}, FLAT, jax.random.key(0))
    assert float(family.kl(params, FLAT, jax.random.key(0))) == pytest.approx(float(expected), rel=1e-6)
    component = family.component(params, 1)
    drawn = [np.asarray(family.sample(component, jax.random.key(seed))) for seed in (1, 2)]
    for w in drawn:  # every row has the same point factors
        np.testing.assert_allclose(w / w[:, :1], np.tile(params["out"][1] / params["out"][1][0], (5, 1)), rtol=1e-5)
    assert not np.allclose(drawn[0], drawn[1])
