from functools import lru_cache

import jax
import jax.numpy as jnp
import known
import numpy as np
import pytest

import posteriax as px
from posteriax import families as q
from posteriax import priors as p
from posteriax.methods import Task
from posteriax.methods.swag import add_snapshot, no_moments, plan_snapshots
from posteriax.posterior import DrawsPosterior
from posteriax.posterior.trace import Trace
from posteriax.problem import Latents

N, NOISE, STEPS = 24, 0.5, 20
RATES = {"learning_rate": 0.05, "start_learning_rate": 0.1, "momentum": 0.9}
START = {"bias": np.zeros(1, np.float32), "still": np.zeros(2, np.float32), "w": np.full((3, 1), 0.1, np.float32)}


def affine(temperature=1.0):
    """A linear network with a bias, and two weights that nothing moves. Leaves in order: bias, still, w."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(N, 3)).astype(np.float32)
    y = (x @ np.array([1.0, -0.5, 0.3]) + 0.2 + NOISE * rng.normal(size=N)).astype(np.float32)
    net = (lambda params, inputs: inputs @ params["w"] + params["bias"], START)
    return px.Problem(net, px.Normal(scale=NOISE), p.Normal(scale=1.0), temperature), (x, y)


@lru_cache
def fit(temperature=1.0, **settings):
    """Full batches: one step an epoch, and nothing random."""
    problem, data = affine(temperature)
    return px.fit(problem, data, px.SWAG(**RATES, **settings), steps=STEPS, batch_size=N, key=0)


def snapshots_by_hand(count):
    """The weights after the last `count` steps of SGD with momentum on the log joint per example, in float64."""
    x, y = (np.asarray(a, np.float64) for a in affine()[1])
    w = np.concatenate([START[name].reshape(-1) for name in sorted(START)]).astype(np.float64)
    design = np.concatenate([np.ones((N, 1)), np.zeros((N, 2)), x], axis=1)
    begin, velocity, seen = STEPS - count, np.zeros_like(w), []
    for step in range(STEPS):
        gradient = (design.T @ (design @ w - y) / NOISE**2 + w) / N
        velocity = RATES["momentum"] * velocity + gradient
        fallen = np.clip((step - begin // 2) / (begin - begin // 2), 0.0, 1.0)
        w = w - velocity * (RATES["start_learning_rate"] * (1 - fallen) + RATES["learning_rate"] * fallen)
        seen.append(w)
    return np.array(seen[-count:])


def moments_by_hand(snapshots, rank):
    """Mean, variances, and the last `rank` deviations as columns."""
    running = np.cumsum(snapshots, axis=0) / np.arange(1, len(snapshots) + 1)[:, None]
    return snapshots.mean(axis=0), snapshots.var(axis=0), (snapshots - running)[-rank:].T


def covariance_by_hand(snapshots, rank):
    _, variance, deviations = moments_by_hand(snapshots, rank)
    columns = deviations.shape[1]
    return np.diag(variance) / 2 + deviations @ deviations.T / (2 * (columns - 1))


def covariance_of(variational):
    """S (I + F F') S of the first member."""
    scale = np.exp(np.asarray(variational["log_scale"][0], np.float64))
    factor = scale[:, None] * np.asarray(variational["directions"][0], np.float64)
    return np.diag(scale**2) + factor @ factor.T


def flat_draws(posterior, n):
    draws = posterior.sample(3, n)
    return np.concatenate([np.asarray(draws[name], np.float64).reshape(n, -1) for name in sorted(draws)], axis=1)


@pytest.mark.slow
@pytest.mark.parametrize(("rank", "collect", "count"), [(20, 0.5, 10), (4, 0.5, 10), (4, 0.2, 4)])
def test_the_gaussian_is_made_of_the_snapshots_of_sgd(rank, collect, count):
    posterior = fit(rank=rank, collect=collect)
    snapshots = snapshots_by_hand(count)
    parameters = posterior.variational["bias"]
    assert posterior.families["w"] == q.LowRank(min(rank, count), over="network")
    assert parameters["directions"].shape == (1, 6, min(rank, count))
    np.testing.assert_allclose(parameters["mean"][0], snapshots.mean(axis=0), atol=2e-6)
    exact = covariance_by_hand(snapshots, rank)
    np.testing.assert_allclose(covariance_of(parameters), exact, atol=2e-4 * exact.max())
    np.testing.assert_array_equal(posterior.trace["snapshots"], np.maximum(np.arange(1, STEPS + 1) - STEPS + count, 0))


def test_draws_have_the_covariance_of_the_formula_across_leaves():
    n = 40_000
    draws = flat_draws(fit(rank=4), n)
    exact = covariance_by_hand(snapshots_by_hand(10), 4)
    variance = np.diag(exact)
    error = np.sqrt((np.outer(variance, variance) + exact**2) / n)  # one standard error of a Gaussian's covariances
    assert (np.abs(np.cov(draws.T, bias=True) - exact) <= 5 * error + 1e-12).all()
    assert (np.abs(exact[0, 3:]) > 20 * error[0, 3:]).any()  # the bias and w: noise drawn leaf by leaf would give 0
    mean = moments_by_hand(snapshots_by_hand(10), 4)[0]
    assert (np.abs(draws.mean(axis=0) - mean) <= 5 * np.sqrt(variance / n) + 1e-5).all()


def test_the_diagonal_form_has_the_whole_variance():
    posterior = fit(rank=0)
    variance = snapshots_by_hand(10).var(axis=0)
    assert set(posterior.families.values()) == {q.Normal()}
    for name, exact in (("bias", variance[:1]), ("w", variance[3:].reshape(3, 1))):
        found = np.exp(2 * np.asarray(posterior.variational[name]["log_scale"][0]))
        np.testing.assert_allclose(found, exact, rtol=2e-3)
    n = 20_000
    np.testing.assert_allclose(flat_draws(posterior, n).var(axis=0)[3:], variance[3:], rtol=2e-3 + 5 * np.sqrt(2 / n))


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 20])
def test_a_weight_that_never_moved_stays_where_it_is(rank):
    posterior = fit(rank=rank)
    assert np.abs(posterior.sample(0, 100)["still"]).max() < 1e-12
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(posterior.variational))


def test_moments_keep_a_spread_that_is_small_beside_its_weight():
    """Around 1000 with a spread of 1e-2, float32's E[w^2] - E[w]^2 has no digit left."""
    rng = np.random.default_rng(1)
    recorded = (1000 + 1e-2 * rng.normal(size=(50, 8))).astype(np.float32)
    moments = no_moments(Latents(recorded[0], {}), rank=6)
    for snapshot in recorded:
        moments = add_snapshot(moments, Latents(jnp.asarray(snapshot), {}))
    mean, variance, deviations = moments_by_hand(recorded.astype(np.float64), 6)
    spacing = 6e-5  # of float32 at 1000
    np.testing.assert_allclose(moments.mean, mean, atol=2 * spacing)
    np.testing.assert_allclose(moments.variance, variance, rtol=0.02)
    kept = np.roll(np.asarray(moments.deviations), -(50 % 6), axis=0)  # the ring, oldest first
    np.testing.assert_allclose(kept.T, deviations, atol=4 * spacing)


def test_the_mean_is_that_of_the_posterior_on_linear_regression():
    """With a quadratic log joint SGD wanders around the posterior's mean; its average has an error of its own."""
    exact = known.linear_regression()
    rate, momentum, epochs = 0.01, 0.9, 300
    method = px.SWAG(learning_rate=rate, momentum=momentum, start_learning_rate=0.02)
    posterior = px.fit(exact.problem, exact.data, method, epochs=epochs, batch_size=10, key=0)
    slowest = np.linalg.eigvalsh(np.linalg.inv(exact.covariance))[0] / 30  # curvature per example
    correlated = 1 + 2 / (3 * rate / (1 - momentum) * slowest)  # snapshots, at 3 steps an epoch
    spread = np.sqrt(snapshot_variance(posterior))
    error = np.abs(np.asarray(posterior.mean["w"])[:, 0] - exact.mean)
    assert (error < 4 * spread * np.sqrt(correlated / (epochs / 2))).all()
    assert (
        4 * spread * np.sqrt(correlated / (epochs / 2)) < np.sqrt(np.diag(exact.covariance))
    ).all()  # says something


def snapshot_variance(posterior):
    return 2 * np.exp(2 * np.asarray(posterior.variational["w"]["log_scale"][0]))


@pytest.mark.slow
def test_the_temperature_changes_the_log_joint_but_not_the_gaussian():
    cold, plain = fit(temperature=0.25), fit()
    np.testing.assert_allclose(cold.variational["bias"]["mean"], plain.variational["bias"]["mean"], rtol=1e-5)
    np.testing.assert_allclose(cold.trace["log_joint"], 4 * plain.trace["log_joint"], rtol=1e-5)
    assert any("temperature does not change" in note for note in cold.trace.notes)


@pytest.mark.parametrize("members", [2, 3])  # placed on two devices; vmapped on one
@pytest.mark.slow
def test_multi_swag_has_a_gaussian_for_every_member(members):
    problem, data = affine()
    method = px.SWAG(**RATES, rank=3)
    several = px.fit(problem, data, px.Ensemble(method, members, starts="prior"), epochs=8, batch_size=8, key=4)
    parameters = several.variational["bias"]
    assert parameters["directions"].shape == (members, 6, 3)
    assert np.abs(parameters["mean"][0] - parameters["mean"][1]).max() > 1e-3
    assert (several.trace["snapshots"][:, -1] == 4).all()
    draws = flat_draws(several, 2000 * members)
    for member in range(members):  # draws go round the members
        own = draws[member::members]
        assert (
            np.abs(own.mean(axis=0) - parameters["mean"][member]) <= 5 * own.std(axis=0) / np.sqrt(2000) + 1e-6
        ).all()


def test_a_saved_posterior_predicts_the_same(tmp_path):
    posterior = fit(rank=4)
    posterior.save(tmp_path / "run.posterior")
    again = px.load(tmp_path / "run.posterior", affine()[0].network)
    x = affine()[1][0]
    np.testing.assert_array_equal(again.predict(x, draws=7).mean, posterior.predict(x, draws=7).mean)
    assert again.num_parameters == 6 * (2 + 4)


def test_a_run_stopped_before_two_snapshots_gives_its_last_weights():
    problem, _ = affine()
    kernel = px.SWAG().bind(Task(problem=problem, example=None, num_examples=N, steps=STEPS))
    state = kernel.init(jax.random.key(0), problem.latents, None)
    posterior = kernel.finish(jax.tree.map(lambda a: a[None], state), None, Trace({}))
    assert isinstance(posterior, DrawsPosterior)
    np.testing.assert_array_equal(posterior.mean["w"], START["w"])
    assert "stopped after 0 snapshots" in posterior.trace.notes[0]


def test_snapshots_are_those_of_the_paper():
    """161 to 300 of 300 epochs, at 391 steps an epoch."""
    task = Task(problem=affine()[0], example=None, num_examples=50_000, steps=300 * 391, steps_per_epoch=391)
    snapshots = plan_snapshots(px.SWAG(collect=140 / 300), task)
    due = [step for step in range(391, 300 * 391 + 1, 391) if snapshots.due(step)]
    assert due == [epoch * 391 for epoch in range(161, 301)]
    assert sum(snapshots.due(step) for step in range(1, 300 * 391 + 1)) == 140


@pytest.mark.parametrize(("settings", "needed"), [({}, 4), ({"collect": 0.25}, 8), ({"snapshot_every": 3}, 12)])
def test_too_short_a_run_is_an_error_that_says_what_would_do(settings, needed):
    problem, data = affine()
    with pytest.raises(ValueError, match=rf"at least 2 snapshots, .* {needed - 1} epochs .*epochs={needed} or more"):
        px.fit(problem, data, px.SWAG(**settings), epochs=needed - 1, key=0)
    assert (
        px.SWAG(**settings)
        .bind(Task(problem=problem, example=None, num_examples=N, steps=needed * 5, steps_per_epoch=5))
        .notes
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rank": 1}, "rank must be 0 .* or at least 2"),
        ({"rank": -1}, "rank must be a whole number"),
        ({"collect": 0.0}, "collect must be a fraction"),
        ({"momentum": 1.0}, "momentum must be"),
        ({"learning_rate": 0.0}, "learning_rate must be a positive number"),
    ],
)
def test_settings_are_checked(settings, message):
    with pytest.raises(ValueError, match=message):
        px.SWAG(**settings)
