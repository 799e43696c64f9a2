"""One scale: the log joint and everything that is built from it."""

import equinox as eqx
import jax
import jax.numpy as jnp
import known
import numpy as np
import optax
import pytest
import scipy.stats

import posteriax as px
from posteriax import families as q
from posteriax import priors as p
from posteriax._internal import memory
from posteriax.data.batches import Minibatches, full_batch
from posteriax.likelihoods import NormalPredictive
from posteriax.methods import Task
from posteriax.networks.leaf import Leaf


def softmax_problem(temperature=1.0, likelihood=None, outputs=3):
    net = eqx.nn.MLP(2, outputs, 5, 1, key=jax.random.key(0))
    return px.Problem(net, likelihood or px.Categorical(), p.Normal(0.7), temperature)


RNG = np.random.default_rng(0)
X = RNG.normal(size=(23, 2)).astype(np.float32)
LABELS = RNG.integers(0, 3, 23)


def test_the_log_joint_is_the_sum_in_nats():
    problem = softmax_problem()
    logits = np.asarray(problem.network.apply(problem.network.params, X), np.float64)
    log_likelihood = (logits - scipy.special.logsumexp(logits, axis=1, keepdims=True))[np.arange(23), LABELS].sum()
    weights = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(problem.network.params)])
    truth = log_likelihood + scipy.stats.norm.logpdf(weights, scale=0.7).sum()
    assert float(problem.log_joint(problem.network.params, (X, LABELS))) == pytest.approx(truth, rel=1e-5)


def test_temperature_divides_both_terms():
    hot, plain = softmax_problem(0.25), softmax_problem()
    data = X, LABELS
    params = plain.network.params
    assert float(hot.log_joint(params, data)) == pytest.approx(4 * float(plain.log_joint(params, data)), rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("batch_size", [1, 4, 5, 22, 23, 100])
def test_minibatch_estimates_average_to_the_full_value_over_an_epoch(batch_size):
    problem = softmax_problem()
    batches = Minibatches.of(23, min(batch_size, 23))
    data = jnp.asarray(X), jnp.asarray(LABELS)
    order = batches.order(jax.random.key(3), 1)
    values = [problem.log_joint(problem.latents, batches.take(data, order, i)) for i in range(batches.per_epoch)]
    assert np.mean(values) == pytest.approx(float(problem.log_joint(problem.latents, (X, LABELS))), rel=1e-5)
    real = [int((batches.take(data, order, i).weight > 0).sum()) for i in range(batches.per_epoch)]
    assert sum(real) == 23
    assert max(real) - min(real) <= 1


def test_all_methods_report_the_same_log_joint():
    """At one point of the weights: MAP's first value, HMC's at a standstill, and VI's with vanishing noise."""
    problem = softmax_problem()
    data = X, LABELS
    truth = float(problem.log_joint(problem.network.params, data))
    map_trace = px.fit(problem, data, px.MAP(optax.sgd(0.0)), steps=1, key=0).trace
    hmc = px.HMC(start="network", step_size=1e-6, trajectory=1e-6, warmup=1)
    hmc_trace = px.fit(problem, data, hmc, draws=1, key=0).trace
    vi = px.VI(q.Point(), optimizer=optax.sgd(0.0))  # a point's "ELBO" is the log joint
    vi_trace = px.fit(problem, data, vi, steps=1, key=0).trace
    assert map_trace["log_joint"][0] == pytest.approx(truth, rel=1e-5)
    assert hmc_trace["log_joint"][-1] == pytest.approx(truth, rel=1e-4)
    assert vi_trace["elbo"][0] == pytest.approx(truth, rel=1e-5)
    assert map_trace["nll_per_example"][0] == pytest.approx(vi_trace["nll_per_example"][0], rel=1e-5)


@pytest.mark.slow
def test_the_elbo_at_the_optimum_is_the_evidence_less_the_known_gap():
    """For a Gaussian posterior: max ELBO = log evidence - KL(mean-field optimum || posterior)."""
    exact = known.linear_regression()
    x, y = (np.asarray(a, np.float64) for a in exact.data)
    evidence = scipy.stats.multivariate_normal.logpdf(y, np.zeros(30), x @ x.T + 0.25 * np.eye(30))
    precision = np.linalg.inv(exact.covariance)
    gap = 0.5 * (np.log(np.diag(precision)).sum() - np.linalg.slogdet(precision)[1])
    method = px.VI(q.Normal(), optimizer=optax.adam(optax.cosine_decay_schedule(3e-2, 20_000)))
    last = px.fit(exact.problem, exact.data, method, steps=20_000, key=0).trace["elbo"][-5000:]
    assert last.mean() == pytest.approx(evidence - gap, abs=4 * last.std() / np.sqrt(len(last)) + 0.05)


def test_vi_tempers_the_whole_objective():
    """At T the optimal variances are T / diag(precision): both terms of the log joint are divided, the entropy not."""
    net = (lambda w, x: x[:, :1] * w, jnp.ones(()))
    problem = px.Problem(net, px.Normal(scale=1.0), p.Normal(1.0), temperature=0.5)
    method = px.VI(q.Normal(scale=0.3), optimizer=optax.sgd(0.0))
    data = np.ones((4, 1), np.float32), np.zeros((4, 1), np.float32)
    task = Task(problem=problem, example=jax.ShapeDtypeStruct((1,), jnp.float32), num_examples=4, steps=1)
    batch = full_batch(jax.tree.map(jnp.asarray, data))
    kernel = method.bind(task)
    state = kernel.init(jax.random.key(0), problem.latents, batch)
    from posteriax.methods.vi import complexity_of

    _, complexity = complexity_of(problem, kernel.blocks, state.variational, jax.random.key(0))
    log_prior = -0.5 * np.log(2 * np.pi) - 0.5 * (1.0 + 0.3**2)
    entropy = 0.5 * np.log(2 * np.pi * np.e * 0.3**2)
    assert float(complexity) == pytest.approx(-log_prior / 0.5 - entropy, rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    "prior",
    [
        p.NormalMixture(1.0, 0.1),
        pytest.param(p.Laplace(0.5), marks=pytest.mark.slow),
        pytest.param(p.StudentT(3.0, 0.5), marks=pytest.mark.slow),
    ],
)
def test_a_kl_without_closed_form_is_estimated_without_bias_and_noted(prior):
    family = q.Normal()
    variational = {"mean": jnp.array([0.3, -0.5]), "log_scale": jnp.log(jnp.array([0.2, 0.4]))}
    distribution = prior.distribution(Leaf("w", (2,)))
    estimates = jax.vmap(lambda k: family.kl(variational, distribution, k))(jax.random.split(jax.random.key(0), 20_000))
    grid = np.linspace(-6, 6, 200_001)
    truth = 0.0
    for mean, scale in ((0.3, 0.2), (-0.5, 0.4)):
        density = scipy.stats.norm.pdf(grid, mean, scale)
        ratio = scipy.stats.norm.logpdf(grid, mean, scale) - np.asarray(distribution.log_prob(grid), np.float64)
        truth += np.trapezoid(density * ratio, grid)
    assert estimates.mean() == pytest.approx(truth, abs=4 * float(estimates.std()) / np.sqrt(20_000))
    problem = px.Problem(eqx.nn.Linear(2, 2, key=jax.random.key(0)), px.Categorical(), prior)
    notes = px.fit(problem, (X, LABELS % 2), px.VI(), steps=1, key=0).trace.notes
    assert any(note.startswith("weight: KL estimated with one draw") for note in notes)


@pytest.mark.slow
def test_learned_and_predicted_noise_recover_the_noise():
    x = RNG.uniform(-1, 1, (400, 1)).astype(np.float32)
    y = (2 * x[:, 0] + np.where(x[:, 0] > 0, 0.5, 0.1) * RNG.normal(size=400)).astype(np.float32)
    fast = px.MAP(optax.adam(optax.cosine_decay_schedule(3e-2, 2000)))
    learned = px.Problem(eqx.nn.Linear(1, 1, key=jax.random.key(0)), px.Normal(scale="learned"))
    posterior = px.fit(learned, (x, y), fast, steps=2000, key=0)
    overall = np.sqrt((0.5**2 + 0.1**2) / 2)
    assert posterior.predict(x).std[0, 0] == pytest.approx(overall, rel=4 / np.sqrt(2 * 400) + 0.02)
    predicted = px.Problem(eqx.nn.MLP(1, 2, 16, 1, key=jax.random.key(0)), px.Normal(scale="predicted"))
    std = px.fit(predicted, (x, y), fast, steps=2000, key=0).predict(np.array([[-0.5], [0.5]], np.float32)).std
    np.testing.assert_allclose(std[:, 0], [0.1, 0.5], rtol=0.25)  # 200 points each: 5 % error, and a network between


@pytest.mark.slow
def test_kl_schedules_must_end_at_one():
    with pytest.raises(ValueError, match="must end at 1"):
        method = px.VI(kl_schedule=lambda step: 0.5)
        px.fit(softmax_problem(), (X, LABELS), method, steps=2, key=0)
    ramp = px.VI(kl_schedule=optax.linear_schedule(0.0, 1.0, 2))
    assert np.isfinite(px.fit(softmax_problem(), (X, LABELS), ramp, steps=2, key=0).trace["elbo"]).all()


RIDGE = px.Problem((lambda w, x: x @ w, np.zeros((2, 1), np.float32)), px.Normal(scale=0.5), p.Normal(scale=2.0))


def test_the_prior_predictive_of_a_linear_model_is_gaussian():
    x, draws = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, -2.0]], np.float32), 4000
    predictive = RIDGE.prior_predictive(x, draws, key=1)
    truth = scipy.stats.norm(0.0, np.sqrt(0.25 + 4.0 * np.square(x).sum(axis=1, keepdims=True)))
    assert isinstance(predictive, NormalPredictive) and predictive.outputs.shape == (draws, 3, 1)
    error = truth.std() / np.sqrt(draws)
    assert (np.abs(predictive.mean) <= 4 * error + 1e-6).all()
    np.testing.assert_allclose(predictive.std, truth.std(), rtol=4 / np.sqrt(2 * draws))
    y = np.array([0.3, -1.0, 4.0])
    np.testing.assert_allclose(predictive.log_prob(y), truth.logpdf(y[:, None])[:, 0], atol=0.2)


def test_the_prior_predictive_does_not_depend_on_chunks(monkeypatch):
    problem = softmax_problem()
    at_once = problem.prior_predictive(X, draws=5, key=3)
    monkeypatch.setattr(memory, "EXAMPLES_AT_ONCE", 4)
    monkeypatch.setattr(memory, "WORKING_BYTES", 300)
    in_chunks = problem.prior_predictive(X, draws=5, key=3)
    np.testing.assert_allclose(in_chunks.outputs, at_once.outputs, rtol=1e-5, atol=1e-6)
    assert at_once.probs.shape == (23, 3)
    assert not np.array_equal(problem.prior_predictive(X, draws=5, key=4).outputs, at_once.outputs)


def test_the_prior_predictive_draws_a_learned_noise_from_the_prior_that_a_fit_uses():
    net = (lambda w, x: x @ w, np.zeros((2, 1), np.float32))
    y = 100.0 * RNG.normal(size=23)
    problem = px.Problem(net, px.Normal("learned")).for_data((X, y))
    latents = problem.prior_predictive(X, draws=2000).latents["log_scale"]
    assert latents.shape == (2000,)
    assert latents.mean() == pytest.approx(np.log(y.std()), abs=4 * 3.0 / np.sqrt(2000))
    assert latents.std() == pytest.approx(3.0, rel=4 / np.sqrt(4000))


def test_the_prior_predictive_follows_the_axes_that_a_fit_reads_off_the_program():
    def attention(w, x):
        return jnp.einsum("ni,ihd->nhd", x, w).reshape(len(x), -1)

    x = np.ones((2, 4), np.float32)
    problem = px.Problem((attention, np.zeros((4, 8, 1), np.float32)), px.Normal(scale=1e-3), p.HeNormal())
    read, _ = problem.reading(x)
    assert read.leaf_scales[0] > 2 * problem.leaf_scales[0]  # 4 inputs, not 4 x 8 as by convention
    expected = read.prior_predictive(x, draws=50, key=0).std
    np.testing.assert_allclose(problem.prior_predictive(x, draws=50, key=0).std, expected, rtol=1e-5)


def test_a_prior_without_a_density_has_no_prior_predictive():
    with pytest.raises(ValueError, match="a prior predictive needs priors with a density"):
        px.Problem(RIDGE.network, px.Normal(scale=1.0), p.ARD()).prior_predictive(X)
