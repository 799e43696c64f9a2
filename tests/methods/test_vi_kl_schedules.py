"""KL schedules: their values, and that a run must end at 1."""

import numpy as np
import pytest

import posteriax as px
from posteriax import families as q

pytestmark = pytest.mark.quick


def test_the_linear_schedule_reaches_one_after_its_epochs():
    schedule = px.methods.LinearKL(epochs=4)
    weights = np.array([float(schedule.weight(step, steps_per_epoch=10)) for step in range(60)])
    np.testing.assert_allclose(weights[:40], np.arange(1, 41) / 40, rtol=1e-6)
    assert weights[38] < 1.0
    assert np.all(weights[39:] == 1.0)


def test_the_staircase_climbs_once_in_a_while_and_stops_at_one():
    schedule = px.methods.StaircaseKL(slope=5e-5, every=100)
    weights = np.array([float(schedule.weight(step, 49)) for step in (0, 99, 100, 199, 200, 19_999, 20_000, 50_000)])
    np.testing.assert_allclose(weights, [0, 0, 0.005, 0.005, 0.01, 0.995, 1, 1], rtol=1e-5)


def test_a_run_that_ends_before_the_schedule_is_refused(moons):
    net = (lambda params, x: x @ params["w"], {"w": np.zeros((2, 2))})
    method = px.VI(q.Normal(), kl_schedule=px.methods.LinearKL(epochs=10))
    with pytest.raises(ValueError, match=r"kl_schedule must end at 1, but is 0\.5"):
        px.fit(px.Problem(net, px.Categorical()), moons[0], method, epochs=5, batch_size=2, key=0)
