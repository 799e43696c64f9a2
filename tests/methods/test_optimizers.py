"""Natural gradients find the optima that are known, and a 1 x 1 matrix normal steps as a Normal does."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import known
import numpy as np
import optax
import pytest

import posteriax as px
from posteriax import families as q
from posteriax import priors as p
from posteriax.families import DiagonalGaussian
from posteriax.families.matrix_normal import factors


@pytest.mark.slow
def test_it_recovers_mean_field_and_kronecker_posteriors():
    exact = known.linear_regression()
    x, y = exact.data
    params = {"a": np.zeros((4, 1), np.float32), "b": np.zeros((4, 3), np.float32)}
    net = (lambda params, x: jnp.concatenate([x @ params["a"], x @ params["b"]], axis=1), params)
    problem = px.Problem(net, px.Normal(scale=0.5), p.Normal(1.0))
    steps = 20_000
    rates = (optax.cosine_decay_schedule(rate, steps) for rate in (0.03, 0.02))
    method = px.VI({"a": q.Normal(), "b": q.MatrixNormal()}, optimizer=px.methods.natural_gradient(*rates))
    posterior = px.fit(problem, (x, np.repeat(y[:, None], 4, axis=1)), method, steps=steps, key=0)
    own = {name: jax.tree.map(lambda a: a[0], leaf) for name, leaf in posterior.variational.items()}
    scale = np.sqrt(np.diag(exact.covariance)).min()
    np.testing.assert_allclose(own["a"]["mean"][:, 0], exact.mean, atol=0.05 * scale)
    np.testing.assert_allclose(np.exp(2 * own["a"]["log_scale"][:, 0]), exact.mean_field_variance, rtol=0.03)
    np.testing.assert_allclose(own["b"]["mean"], np.repeat(exact.mean[:, None], 3, axis=1), atol=0.05 * scale)
    left, right = (np.asarray(factor) for factor in factors(own["b"]))
    truth = np.kron(exact.covariance, np.eye(3))
    found = np.kron(left @ left.T, right @ right.T)
    assert np.linalg.norm(found - truth) < 0.03 * np.linalg.norm(truth)


@pytest.mark.slow
def test_it_steps_a_single_weight_the_same_in_both_families():
    settings = px.methods.natural_gradient(0.1, 0.05, momentum=0.0)
    mean, log_scale, by_mean, by_log_scale = 0.7, -1.0, 2.0, 0.4
    normal = {"w": {"mean": jnp.full((1, 1), mean), "log_scale": jnp.full((1, 1), log_scale)}}
    matrix = {
        "w": {
            "mean": jnp.full((1, 1), mean),
            "log_left": jnp.array([log_scale]),
            "left": jnp.zeros(0),
            "log_right": jnp.zeros(1),
            "right": jnp.zeros(0),
        }
    }
    normal_gradient = {"w": {"mean": jnp.full((1, 1), by_mean), "log_scale": jnp.full((1, 1), by_log_scale)}}
    matrix_gradient = jax.tree.map(jnp.zeros_like, matrix)
    matrix_gradient["w"] |= {"mean": jnp.full((1, 1), by_mean), "log_left": jnp.array([by_log_scale])}
    optimizer = settings.for_families({"w": q.Normal()})
    ours, _ = optimizer.update(normal_gradient, optimizer.init(normal), normal)
    optimizer = settings.for_families({"w": q.MatrixNormal()})
    theirs, _ = optimizer.update(matrix_gradient, optimizer.init(matrix), matrix)
    np.testing.assert_allclose(ours["w"]["mean"], -0.1 * np.exp(2 * log_scale) * by_mean, rtol=1e-5)
    np.testing.assert_allclose(ours["w"]["mean"], theirs["w"]["mean"], rtol=1e-5)
    np.testing.assert_allclose(ours["w"]["log_scale"][0], theirs["w"]["log_left"], rtol=1e-5)


def test_other_families_get_the_optimiser_for_the_rest(moons):
    net = (lambda params, x: x @ params["w"] + params["b"], {"w": np.zeros((2, 2)), "b": np.zeros(2)})
    method = px.VI({"w": q.Normal(), "b": q.Point()}, optimizer=px.methods.natural_gradient(rest=optax.sgd(0.0)))
    posterior = px.fit(px.Problem(net, px.Categorical()), moons[0], method, steps=5, key=0)
    assert np.all(posterior.mean["b"] == 0)
    assert np.any(np.asarray(posterior.mean["w"]) != 0)


@dataclass(frozen=True)
class Logistic(DiagonalGaussian):
    """A family of a stranger, with a Normal's parameters by name: its log_scale is not a Gaussian's."""

    def init(self, key, value, leaf):
        return {"mean": value, "log_scale": jnp.full_like(value, -3.0)}

    def moments(self, variational):
        return variational["mean"], np.pi / 3**0.5 * jnp.exp(variational["log_scale"])


def test_a_new_family_with_a_normals_parameter_names_gets_no_gaussian_updates(moons):
    """By its own account it has no natural step, so that it belongs to the rest."""
    net = (lambda params, x: x @ params["w"] + params["b"], {"w": np.zeros((2, 2)), "b": np.zeros(2)})
    method = px.VI({"w": q.Normal(), "b": Logistic()}, optimizer=px.methods.natural_gradient(rest=optax.sgd(0.0)))
    posterior = px.fit(px.Problem(net, px.Categorical()), moons[0], method, steps=5, key=0)
    np.testing.assert_array_equal(posterior.variational["b"]["log_scale"], -3.0)
    assert np.all(np.asarray(posterior.variational["w"]["log_scale"]) != np.float32(np.log(0.01)))


@pytest.mark.parametrize("settings", [{"momentum": 1.0}, {"precision_rate": 0.0}])
def test_settings_without_meaning_are_refused(settings):
    with pytest.raises(ValueError, match=next(iter(settings))):
        px.methods.natural_gradient(**settings)


def test_elsewhere_than_in_vi_it_says_where_it_belongs(moons):
    net = (lambda params, x: x @ params["w"], {"w": np.zeros((2, 2))})
    with pytest.raises(TypeError, match=r"directly as the optimizer of px\.VI"):
        px.fit(px.Problem(net, px.Categorical()), moons[0], px.MAP(px.methods.natural_gradient()), steps=1, key=0)
    with pytest.raises(TypeError, match=r"not of another method or within optax\.chain"):
        optax.chain(optax.clip(1.0), px.methods.natural_gradient())
