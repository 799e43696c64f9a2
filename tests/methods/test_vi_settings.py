"""Settings of VI: draws per step, starts, a cap on scales and their random start, schedules that end below 1."""

import equinox as eqx
import jax
import jax.numpy as jnp
import known
import numpy as np
import optax
import pytest

import posteriax as px
from posteriax import families as q
from posteriax.data import Batch
from posteriax.methods import Task
from posteriax.posterior import DrawsPosterior
from posteriax.posterior.trace import Trace
from posteriax.problem import Latents

EXACT = known.linear_regression()
STILL = optax.sgd(0.0)  # leaves q where it starts


def matrix_problem(prior: float = 1.0) -> px.Problem:
    net = (lambda params, x: x @ params["w"], {"w": np.full((4, 3), 0.1, np.float32)})
    return px.Problem(net, px.Normal(0.5), px.priors.Normal(prior))


DATA3 = (EXACT.data[0], np.repeat(EXACT.data[1][:, None], 3, axis=1))


@pytest.mark.slow
@pytest.mark.parametrize(
    "estimator", ["factor", *(pytest.param(name, marks=pytest.mark.slow) for name in ("weight", "flipout", "local"))]
)
def test_several_draws_have_the_same_expectation_and_less_noise(estimator):
    family = q.Rank1(2, scale=0.3) if estimator == "factor" else q.Normal(scale=0.3)
    one, four = (
        px.fit(
            matrix_problem(),
            DATA3,
            px.VI(family, estimator=estimator, optimizer=STILL, draws=draws),
            steps=600,
            batch_size=30,
            key=0,
        ).trace["elbo"]
        for draws in (1, 4)
    )
    error = np.sqrt(one.var() / 600 + four.var() / 600)
    assert abs(one.mean() - four.mean()) < 4 * error
    # the log of a ratio of two sample variances has a standard error of about 2 / sqrt(600), more for skewed ones
    assert abs(np.log(one.var() / four.var()) - np.log(4)) < 8 * 2 / np.sqrt(600)


@pytest.mark.slow
def test_the_gradient_is_the_mean_over_draws():
    """A step of SGD with one draw moves a mean by that draw's gradient; with 64, with an eighth of its noise."""
    x, y = map(jnp.asarray, DATA3)
    problem, batch = matrix_problem(), Batch(x, y, jnp.ones(30))
    noise = []
    for draws in (1, 64):
        method = px.VI(q.Normal(scale=0.3), estimator="weight", optimizer=optax.sgd(1.0), draws=draws)
        task = Task(problem=problem, example=jax.ShapeDtypeStruct((4,), jnp.float32), num_examples=30, steps=1)
        kernel = method.bind(task)
        state = kernel.init(jax.random.key(0), problem.latents, batch)
        moved = jax.vmap(lambda key: kernel.step(key, state, batch)[0].variational["w"]["mean"])  # noqa: B023
        noise.append(np.asarray(moved(jax.random.split(jax.random.key(1), 200))).std(axis=0).mean())
    # 12 weights' standard deviations, each from 200 steps
    assert noise[1] / noise[0] == pytest.approx(1 / 8, rel=0.15)


def exact_draws(n: int = 1000, chains: int = 1) -> DrawsPosterior:
    rng = np.random.default_rng(0)
    draws = rng.multivariate_normal(EXACT.mean, EXACT.covariance, size=(chains, n)).astype(np.float32)[..., None]
    return DrawsPosterior(EXACT.problem, Trace({}), Latents({"w": draws}, {}))


def start_at(
    posterior: px.posterior.Posterior, family: q.Family, problem: px.Problem | None = None
) -> px.posterior.Posterior:
    method = px.VI(family, optimizer=STILL, start=posterior)
    problem = problem or EXACT.problem
    return px.fit(problem, EXACT.data, method, steps=1, key=0)


@pytest.mark.slow
def test_it_starts_at_the_moments_of_draws():
    given = exact_draws()
    flat = given.draws.network["w"][0, :, :, 0].astype(np.float64)
    full = start_at(given, q.FullCovariance())
    own = jax.tree.map(lambda a: a[0], full.variational["w"])
    np.testing.assert_allclose(full.mean["w"][:, 0], flat.mean(axis=0), atol=1e-5)
    np.testing.assert_allclose(q.FullCovariance().covariance(own), np.cov(flat.T), rtol=1e-3, atol=1e-6)
    normal = start_at(given, q.Normal())
    np.testing.assert_allclose(np.exp(normal.variational["w"]["log_scale"][0, :, 0]), flat.std(0, ddof=1), rtol=1e-4)


@pytest.mark.slow
def test_it_starts_at_the_end_of_another_variational_run():
    first = px.fit(EXACT.problem, EXACT.data, px.VI(q.FullCovariance()), steps=300, batch_size=30, key=0)
    second = start_at(first, q.Normal())
    scale = np.sqrt(np.asarray(q.FullCovariance().variance(jax.tree.map(lambda a: a[0], first.variational["w"]))))
    # 1,000 draws: 5 standard errors of a mean, and of a standard deviation
    np.testing.assert_allclose(second.mean["w"], first.mean["w"], atol=5 * scale.max() / np.sqrt(1000))
    np.testing.assert_allclose(np.exp(second.variational["w"]["log_scale"][0]), scale, rtol=5 / np.sqrt(2000))


@pytest.mark.slow
def test_of_a_point_it_takes_the_value_and_of_several_chains_a_draw():
    point = px.fit(EXACT.problem, EXACT.data, px.MAP(), steps=20, key=0)
    posterior = start_at(point, q.Normal(scale=0.02))
    np.testing.assert_array_equal(posterior.mean["w"], point.mean["w"])
    np.testing.assert_allclose(np.exp(posterior.variational["w"]["log_scale"]), 0.02, rtol=1e-5)
    chains = exact_draws(400, chains=3)
    spread = np.mean(chains.draws.network["w"][..., 0].astype(np.float64).var(axis=1, ddof=1), axis=0)
    posterior = start_at(chains, q.Normal())
    drawn = np.asarray(posterior.mean["w"])
    assert (np.abs(chains.draws.network["w"] - drawn).max(axis=(2, 3)) < 1e-6).any()
    np.testing.assert_allclose(np.exp(2 * posterior.variational["w"]["log_scale"][0, :, 0]), spread, rtol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("family", [q.KTied(2), q.MatrixNormal()], ids=repr)
def test_families_of_rows_and_columns_take_scales_that_are_their_products(family):
    rows, columns = np.array([0.1, 0.2, 0.4, 0.3]), np.array([1.0, 2.0, 0.5])
    rng = np.random.default_rng(0)
    wanted = np.outer(rows, columns)
    draws = (wanted * rng.normal(size=(1, 4000, 4, 3))).astype(np.float32)
    given = DrawsPosterior(matrix_problem(), Trace({}), Latents({"w": draws}, {}))
    posterior = px.fit(matrix_problem(), DATA3, px.VI(family, optimizer=STILL, start=given), steps=1, key=0)
    own = jax.tree.map(lambda a: a[0], posterior.variational["w"])
    found = np.sqrt(np.asarray(family.variance(own)))
    # 1,000 of the draws are looked at; k-tied factors start with differences of 0.1 in the log
    np.testing.assert_allclose(found, wanted, rtol=0.35 if isinstance(family, q.KTied) else 0.1)


@pytest.mark.slow
def test_families_that_cannot_take_a_start_say_so():
    notes = start_at(exact_draws(), q.Rank1(2)).trace.notes
    assert "w: only the means of the start are taken, not its scales" in notes
    with pytest.raises(ValueError, match="ZeroMeanNormal for w has no means"):
        start_at(exact_draws(), q.ZeroMeanNormal())
    with pytest.raises(ValueError, match="posterior of another network"):
        px.fit(matrix_problem(), DATA3, px.VI(start=exact_draws()), steps=1, key=0)
    with pytest.raises(ValueError, match=r"start must be one of auto"):
        px.VI(start="map")


@pytest.mark.slow
def test_the_mode_can_be_asked_for_and_is_refused_where_it_is_too_large(moons):
    posterior = px.fit(
        EXACT.problem, EXACT.data, px.VI(q.FullCovariance(), start="mode", optimizer=STILL), steps=1, key=0
    )
    own = jax.tree.map(lambda a: a[0], posterior.variational["w"])
    np.testing.assert_allclose(own["mean"][:, 0], EXACT.mean, atol=1e-4)
    np.testing.assert_allclose(q.FullCovariance().covariance(own), EXACT.covariance, rtol=1e-3, atol=1e-7)
    wide = px.Problem(eqx.nn.MLP(2, 2, 100, 1, key=jax.random.key(0)), px.Categorical())
    with pytest.raises(ValueError, match=r'start="mode" is not possible: .* 502 latent variables'):
        px.fit(wide, moons[0], px.VI(start="mode"), steps=1, key=0)


@pytest.mark.slow
def test_standard_deviations_are_capped_and_start_at_random():
    family = q.Normal(scale=0.02, scatter=0.1, largest=0.05)
    started = px.fit(matrix_problem(), DATA3, px.VI(family, optimizer=STILL), steps=1, key=0)
    assert repr(family) == "Normal(scale=0.02, scatter=0.1, largest=0.05)"
    net = (lambda params, x: x @ params["w"], {"w": np.zeros((40, 50), np.float32)})
    many = px.fit(
        px.Problem(net, px.Normal(1.0)),
        (np.zeros((5, 40)), np.zeros((5, 50))),
        px.VI(family, optimizer=STILL),
        steps=1,
        key=0,
    )
    logs = np.asarray(many.variational["w"]["log_scale"])
    assert logs.mean() == pytest.approx(np.log(0.02), abs=5 * 0.1 / np.sqrt(2000))
    assert logs.std() == pytest.approx(0.1, rel=5 / np.sqrt(4000))
    assert np.exp(np.asarray(started.variational["w"]["log_scale"])).max() < 0.05
    # without the cap they would go to 1 / sqrt(diag(precision)), which is above 0.05 for all
    trained = px.fit(matrix_problem(), DATA3, px.VI(family, start="network"), steps=400, batch_size=30, key=0)
    assert np.sqrt(EXACT.mean_field_variance).min() > 0.06
    np.testing.assert_allclose(np.exp(trained.variational["w"]["log_scale"]), 0.05, rtol=1e-3)
    for wrong in ({"scatter": -1.0}, {"largest": 0.001}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            q.Normal(**wrong)


@pytest.mark.slow
def test_the_papers_staircase_can_end_below_one_and_is_noted(moons):
    net = (lambda params, x: x @ params["w"], {"w": np.zeros((2, 2), np.float32)})
    problem = px.Problem(net, px.Categorical())
    with pytest.raises(ValueError, match=r"must end at 1, but is 0\.005"):
        px.fit(problem, moons[0], px.VI(kl_schedule=px.methods.StaircaseKL(5e-5)), steps=150, key=0)
    schedule = px.methods.StaircaseKL(5e-5, end_below_one=True)
    posterior = px.fit(problem, moons[0], px.VI(kl_schedule=schedule), steps=150, key=0)
    assert any("the KL's weight was only 0.005 at the end" in note for note in posterior.trace.notes)
    # 300 epochs of MNIST at batch 1024, as in the paper
    assert float(schedule.weight(14_699, 49)) == pytest.approx(0.73)


@pytest.mark.slow
@pytest.mark.parametrize("start", ["auto", "draws", "variational"])
def test_runs_with_a_start_have_checkpoints(start, tmp_path):
    """A checkpoint traces the start, in which nothing can be looked at."""
    given = "auto"
    if start == "draws":
        given = exact_draws()
    elif start == "variational":
        given = px.fit(EXACT.problem, EXACT.data, px.VI(q.FullCovariance()), steps=20, key=0)
    plain, kept, again = (
        px.fit(EXACT.problem, EXACT.data, px.VI(start=given), steps=20, key=0, checkpoint=folder)
        for folder in (None, tmp_path, tmp_path)
    )
    for other in (kept, again):
        np.testing.assert_array_equal(other.mean["w"], plain.mean["w"])
