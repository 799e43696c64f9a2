"""Predictions, scores and diagnoses on several devices are those of one."""

import equinox as eqx
import jax
import numpy as np
import optax
import pytest

import posteriax as px
from posteriax import families as q

pytestmark = pytest.mark.usefixtures("two_devices")

MESHES = {"draws": {"members": 2}, "examples": {"data": 2}}


@pytest.fixture(scope="module")
def posteriors(moons):
    problem = px.Problem(eqx.nn.MLP(2, 2, 8, 1, key=jax.random.key(0)), px.Categorical())
    hmc = px.HMC(step_size=0.01, start="network", warmup=2)
    return (
        px.fit(problem, moons[0], px.VI(q.Normal(), optimizer=optax.sgd(1e-3)), steps=5, key=0),
        px.fit(problem, moons[0], hmc, draws=7, chains=2, key=0),
    )


@pytest.mark.parametrize("split", MESHES)
def test_predictions_are_the_same_on_two_devices(posteriors, moons, split):
    """With odd numbers of draws and examples, so that the last parts are padded."""
    x = moons[1][0][:37]
    mesh = px.distributed.mesh(**MESHES[split])
    for posterior in posteriors:
        one, two = posterior.predict(x, draws=13), posterior.predict(x, draws=13, mesh=mesh)
        np.testing.assert_allclose(one.per_draw(), two.per_draw(), rtol=1e-5, atol=1e-6)
        one, two = (posterior.predict(x, draws=13, reduce=True, mesh=where) for where in (None, mesh))
        np.testing.assert_allclose(one.probs, two.probs, rtol=1e-5, atol=1e-6)


def test_scores_and_diagnoses_inside_use_mesh_are_the_same(posteriors, moons):
    x, y = moons[1]
    posterior = posteriors[1]
    plain = px.evaluate(posterior.predict(x), y), str(posterior.diagnose(x))
    with px.distributed.use_mesh(px.distributed.mesh(members=2)):
        spread = px.evaluate(posterior.predict(x), y), str(posterior.diagnose(x))
    assert spread[0] == pytest.approx(plain[0], rel=1e-5)
    assert spread[1] == plain[1]


def test_a_network_that_couples_examples_has_them_on_one_device(moons):
    net = lambda w, x: (x - x.mean(0)) @ w  # noqa: E731  its outputs depend on the other examples
    problem = px.Problem((net, np.ones((2, 2), np.float32)), px.Categorical())
    posterior = px.fit(problem, moons[0], px.VI(), steps=2, key=0)
    x = moons[1][0]
    for reduce in (False, True):
        one, two = (posterior.predict(x, draws=4, reduce=reduce, mesh=m) for m in (None, px.distributed.mesh(data=2)))
        np.testing.assert_allclose(one.probs, two.probs, rtol=1e-5, atol=1e-6)


def test_use_mesh_applies_to_fits_and_takes_a_mesh(posteriors, moons):
    with (
        px.distributed.use_mesh(px.distributed.mesh(data=2)),
        pytest.raises(ValueError, match="over 2 devices, but a batch has 1 examples"),
    ):
        px.fit(posteriors[0].problem, moons[0], px.MAP(), steps=1, key=0, batch_size=1)
    with pytest.raises(TypeError, match=r"mesh must be px\.distributed\.mesh"), px.distributed.use_mesh(2):
        pass
