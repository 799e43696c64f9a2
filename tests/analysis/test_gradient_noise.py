"""Signal-to-noise of gradients against NumPy, and the driver's record of it."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy.stats import f

import posteriax as px
from posteriax import families as q
from posteriax.run.gradient_noise import GradientNoise, _recording

KEY = jax.random.key(0)
NET = eqx.nn.MLP(2, 2, 8, 1, key=KEY)


def ratios_of(gradients, noise):
    """What a watched optimiser finds in a row of gradients."""
    optimizer = _recording(optax.sgd(0.1), noise)
    state = optimizer.init(gradients[0])
    found = []
    update = jax.jit(optimizer.update)
    for gradient in gradients:
        _, state = update(gradient, state)
        found.append(np.asarray(state.ratios))
    return np.stack(found)


def test_ratios_are_numpys_at_the_end_of_every_window():
    rng = np.random.default_rng(0)
    rows = (1.0 + rng.normal(size=(30, 50))).astype(np.float32)
    found = ratios_of([{"w": jnp.asarray(row)} for row in rows], GradientNoise(window=5, every=10))
    ends = [4, 14, 24]
    assert (found[:, 0, 0] >= 0).nonzero()[0].tolist() == ends
    for end in ends:
        window = rows[end - 4 : end + 1].astype(np.float64)
        variance = window.var(axis=0, ddof=1)
        assert found[end, 0, 0] == pytest.approx((np.square(window).mean(axis=0) / variance).mean(), rel=1e-4)
        assert found[end, 0, 1] == pytest.approx((np.square(window.mean(axis=0)) / variance).mean(), rel=1e-4)
        assert found[end, 0, 2] == pytest.approx(np.square(window).mean(axis=0).sum() / variance.sum(), rel=1e-4)


def test_pure_noise_has_the_ratio_that_is_documented():
    rng = np.random.default_rng(0)
    size = 20_000
    rows = [{"w": jnp.asarray(row, jnp.float32)} for row in rng.normal(size=(10, size))]
    paper, plain, pooled, median = ratios_of(rows, GradientNoise())[-1, 0]
    expected = 9 / (10 * 7)  # E[mean^2 / variance] of ten standard normals: F-distributed over ten
    spread = np.sqrt(2 * 9**2 * 8 / (7**2 * 5)) / 10  # its standard deviation
    assert abs(plain - expected) < 5 * spread / np.sqrt(size)
    assert paper == pytest.approx(plain + 0.9, rel=1e-6)
    assert abs(pooled - 1.0) < 5 * np.sqrt(2 / 10 / size)  # unbiased, up to one over the size
    middle = f.median(1, 9)  # of ten times the plain ratio; a median's error is 1 / (2 density sqrt(size))
    assert abs(10 * (median - 0.9) - middle) < 5 / (2 * f.pdf(middle, 1, 9) * np.sqrt(size))


def test_a_strong_signal_survives_single_precision_and_dead_parameters_do_not_count():
    rng = np.random.default_rng(0)
    rows = 100.0 + 0.01 * rng.normal(size=(10, 200))
    rows[:, 100:] = 0.0
    paper = ratios_of([{"w": jnp.asarray(row, jnp.float32)} for row in rows], GradientNoise())[-1, 0, 0]
    alive = rows[:, :100].astype(np.float32).astype(np.float64)
    expected = (np.square(alive).mean(axis=0) / alive.var(axis=0, ddof=1)).mean()
    assert paper == pytest.approx(expected, rel=0.02)


def fit(moons, method, record=None, **settings):
    problem = px.Problem(NET, px.Categorical())
    return px.fit(problem, moons[0], method, steps=45, batch_size=16, key=0, record=record, **settings)


@pytest.fixture(scope="module")
def recorded(moons):
    return fit(moons, px.VI(q.KTied(2)), px.run.GradientNoise(window=5, every=20))


def test_recording_changes_nothing_of_the_run(moons, recorded):
    plain = fit(moons, px.VI(q.KTied(2)))
    np.testing.assert_array_equal(plain.trace["elbo"], recorded.trace["elbo"])
    for mine, theirs in zip(jax.tree.leaves(plain.variational), jax.tree.leaves(recorded.variational), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_what_was_recorded_is_by_trained_parameter_and_survives_a_file(recorded, tmp_path):
    signal = px.analysis.gradient_noise(recorded)
    assert signal.steps.tolist() == [5, 25, 45]
    assert {"layers/0/weight/mean", "layers/0/bias/log_scale"} <= signal.paper.keys()
    assert all(values.shape == (3,) and (values > 0.79).all() for values in signal.paper.values())
    for name in signal.paper:
        np.testing.assert_allclose(signal.paper[name], signal.plain[name] + 0.8, rtol=1e-6)
    recorded.save(tmp_path / "a.posterior")
    again = px.analysis.gradient_noise(px.load(tmp_path / "a.posterior", NET))
    np.testing.assert_array_equal(again.steps, signal.steps)
    assert again.paper.keys() == signal.paper.keys()


@pytest.mark.slow
def test_ensembles_checkpoints_and_map_record_it_too(moons, tmp_path):
    record = px.run.GradientNoise(window=5, every=20)
    members = fit(moons, px.Ensemble(px.MAP(), 2), record)
    assert members.trace["gradient_noise"].shape == (2, 3, 4, 4)
    assert list(px.analysis.gradient_noise(members).paper) == members.problem.leaf_names
    whole = fit(moons, px.MAP(), record)
    stored = fit(moons, px.MAP(), record, checkpoint=tmp_path / "run")
    again = fit(moons, px.MAP(), record, checkpoint=tmp_path / "run")
    for other in (stored, again):
        np.testing.assert_array_equal(other.trace["gradient_noise"], whole.trace["gradient_noise"])


def test_bad_settings_are_said(moons):
    for settings in ({"window": 1}, {"window": 10, "every": 5}, {"window": 0}):
        with pytest.raises(ValueError, match=r"window|every"):
            px.run.GradientNoise(**settings)
    with pytest.raises(ValueError, match="methods with an optimizer"):
        px.fit(px.Problem(NET, px.Categorical()), moons[0], px.HMC(), draws=2, key=0, record=px.run.GradientNoise())
    with pytest.raises(ValueError, match="recorded no gradients"):
        px.analysis.gradient_noise(fit(moons, px.MAP()))
