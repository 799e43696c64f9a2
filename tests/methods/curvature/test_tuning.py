"""p.tune: the maximum of the closed-form evidence of linear models, and better than a grid on a small network."""

import pickle

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize, minimize_scalar
from scipy.stats import multivariate_normal

import posteriax as px
from posteriax import priors as p


def linear(parts=(5,), rows=60, seed=0):
    """Inputs in several parts, each with weights of its own size, and targets with noise 0.4."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, sum(parts)))
    sizes = np.concatenate([np.full(size, 1.5 / 4**i) for i, size in enumerate(parts)])
    y = x @ (sizes * rng.normal(size=sum(parts))) + 0.4 * rng.normal(size=rows)
    ends = np.cumsum((0, *parts))

    def apply(params, inputs):
        return sum(inputs[:, ends[i] : ends[i + 1]] @ params[f"w{i}"] for i in range(len(parts)))

    weights = {f"w{i}": np.zeros((size, 1), np.float32) for i, size in enumerate(parts)}
    return (apply, weights), (x.astype(np.float32), y.astype(np.float32))


def closed_form(x, y, parts, *, shared=False, noise=None):
    """The scales of each part, the noise, and the log evidence at its maximum: y ~ N(0, sigma^2 I + X S X')."""
    x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)

    def log_evidence(logs):
        scales = np.full(len(parts), logs[0]) if shared else logs[: len(parts)]
        variances = np.exp(2 * np.repeat(scales, parts))
        sigma = np.exp(logs[-1]) if noise is None else noise
        factor = cho_factor(sigma**2 * np.eye(len(y)) + (x * variances) @ x.T)
        log_det = 2 * np.log(np.diag(factor[0])).sum()
        return -0.5 * (y @ cho_solve(factor, y) + log_det + len(y) * np.log(2 * np.pi))

    start = np.zeros((1 if shared else len(parts)) + (noise is None))
    found = minimize(lambda logs: -log_evidence(logs), start, method="BFGS", options={"gtol": 1e-5})
    scales = np.exp(found.x[:1] if shared else found.x[: len(parts)])
    return scales, (np.exp(found.x[-1]) if noise is None else noise), -found.fun


@pytest.mark.parametrize("structure", ["full", "kronecker"])
def test_scale_and_noise_maximise_the_evidence_of_linear_regression(structure):
    """One leaf and one output: the Kronecker factors are exact too."""
    net, data = linear()
    scales, noise, log_evidence = closed_form(*data, (5,))
    tuned = p.tune(px.Problem(net, px.Normal("learned")), data, structure=structure)
    assert tuned.prior["w0"].scale == pytest.approx(scales[0], rel=0.01)
    assert tuned.likelihood.scale == pytest.approx(noise, rel=0.01)
    assert tuned.tuning.log_evidence == pytest.approx(log_evidence, abs=0.01)


def test_each_leaf_gets_its_own_scale_from_far_starts():
    parts = (4, 7, 3)
    net, data = linear(parts, rows=100, seed=1)
    scales, noise, _ = closed_form(*data, parts)
    start = {"w0": p.Normal(0.1), "w1": p.Normal(20.0), "w2": dist.Normal(0.0, 3.0)}
    tuned = p.tune(px.Problem(net, px.Normal("learned"), start), data)
    np.testing.assert_allclose([tuned.prior[name].scale for name in ("w0", "w1", "w2")], scales, rtol=0.01)
    assert tuned.likelihood.scale == pytest.approx(noise, rel=0.01)


@pytest.mark.slow
def test_one_factor_for_all_leaves_keeps_their_ratios_and_a_given_noise():
    net, data = linear((4, 7), seed=2)
    scales, _, _ = closed_form(*data, (4, 7), shared=True, noise=0.4)
    tuned = p.tune(px.Problem(net, px.Normal(0.4), {"w0": p.Normal(2.0), "w1": p.Normal(2.0)}), data, per="network")
    assert tuned.likelihood == px.Normal(0.4)
    assert tuned.prior["w0"] == tuned.prior["w1"]
    assert tuned.prior["w0"].scale == pytest.approx(scales[0], rel=0.01)
    apart = p.tune(px.Problem(net, px.Normal(0.4), {"w0": p.Normal(2.0), "w1": p.Normal(0.5)}), data, per="network")
    assert apart.prior["w0"].scale == pytest.approx(4 * apart.prior["w1"].scale, rel=1e-6)


def test_the_noise_alone_maximises_the_evidence_under_a_given_prior():
    net, (x, y) = linear((12,), rows=20, seed=4)

    def log_evidence(log_noise):
        return multivariate_normal(cov=np.exp(2 * log_noise) * np.eye(20) + 4.0 * x @ x.T).logpdf(y)

    noise = np.exp(minimize_scalar(lambda log_noise: -log_evidence(log_noise), bounds=(-4, 1)).x)
    tuned = p.tune(px.Problem(net, px.Normal("learned"), p.Normal(2.0)), (x, y), per="none")
    assert tuned.likelihood.scale == pytest.approx(noise, rel=0.01)
    assert tuned.prior["w0"].scale == pytest.approx(2.0, rel=1e-6)


def test_weights_count_as_repetitions():
    net, (x, y) = linear(rows=40, seed=3)
    times = np.random.default_rng(0).integers(0, 4, 40)
    scales, noise, _ = closed_form(np.repeat(x, times, axis=0), np.repeat(y, times), (5,))
    tuned = p.tune(px.Problem(net, px.Normal("learned")), (x, y, times))
    assert tuned.prior["w0"].scale == pytest.approx(scales[0], rel=0.01)
    assert tuned.likelihood.scale == pytest.approx(noise, rel=0.01)


@pytest.fixture(scope="module")
def waves():
    """A sine with noise 0.1 and a network of 41 weights."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, size=(80, 2)).astype(np.float32)
    y = (np.sin(2 * x[:, 0]) * x[:, 1] + 0.1 * rng.normal(size=80)).astype(np.float32)
    net = eqx.nn.MLP(2, 1, 10, 1, activation=jnp.tanh, key=jax.random.key(0))
    return net, (x, y), p.tune(px.Problem(net, px.Normal("learned")), (x, y))


def laplace_evidences(net, data, grid):
    """Laplace's evidence for each (prior scale, noise), at modes found by SciPy from the network's own weights."""
    x, y = (jnp.asarray(a) for a in data)
    params, static = eqx.partition(net, eqx.is_array)
    start, unravel = jax.flatten_util.ravel_pytree(params)

    def outputs(vector):
        return jax.vmap(eqx.combine(unravel(vector), static))(x)[:, 0]

    @jax.jit
    @jax.value_and_grad
    def loss(vector, scale, noise):
        return jnp.square(y - outputs(vector)).sum() / (2 * noise**2) + jnp.square(vector).sum() / (2 * scale**2)

    jacobian_of, found = jax.jit(jax.jacfwd(outputs)), []
    for scale, noise in grid:
        both = (np.float32(scale), np.float32(noise))
        mode = minimize(lambda w, both=both: [np.asarray(a, np.float64) for a in loss(w, *both)], start, jac=True)
        rows = np.asarray(jacobian_of(jnp.asarray(mode.x, jnp.float32)), np.float64) * scale / noise
        log_det = np.linalg.slogdet(np.eye(start.size) + rows.T @ rows)[1]
        found.append(-mode.fun - 0.5 * log_det - len(y) * np.log(noise * np.sqrt(2 * np.pi)))
    return found


@pytest.mark.slow
def test_the_tuned_evidence_of_a_network_is_at_least_that_of_a_grid(waves):
    """A grid of one scale for all weights and of the noise."""
    net, data, tuned = waves
    assert 0.07 < tuned.likelihood.scale < 0.13
    best = max(laplace_evidences(net, data, [(s, noise) for s in (0.5, 1.0, 2.0, 4.0) for noise in (0.08, 0.1, 0.15)]))
    assert tuned.tuning.log_evidence - 60 < best < tuned.tuning.log_evidence  # the grid is no empty comparison


@pytest.mark.slow
def test_laplace_at_the_mode_that_was_found_has_the_same_evidence(waves):
    _, data, tuned = waves
    posterior = px.fit(tuned, data, px.Laplace(structure="full", mode=tuned.mode), epochs=1, key=0)
    expected = tuned.tuning.log_evidence
    assert posterior.trace["log_evidence"] == pytest.approx(expected, abs=0.05)


def test_the_record_says_what_was_chosen(waves):
    text = str(waves[2].tuning)
    assert "layers/0/weight" in text
    assert f"noise {waves[2].likelihood.scale:.4g}" in text
    assert "log evidence" in text


@pytest.mark.slow
def test_the_tuned_problem_is_saved_and_pickled_with_its_posterior(waves, tmp_path):
    net, data, tuned = waves
    posterior = px.fit(tuned, data, px.Laplace(structure="diagonal", mode=tuned.mode), epochs=1, key=0)
    posterior.save(tmp_path / "tuned.posterior")
    for again in (px.load(tmp_path / "tuned.posterior", net), pickle.loads(pickle.dumps(posterior))):
        assert again.problem.prior == tuned.prior
        assert (again.predict(data[0], 5).mean == posterior.predict(data[0], 5).mean).all()


def test_learned_noise_can_stay_learned(waves):
    net, data, _ = waves
    tuned = p.tune(px.Problem(net, px.Normal("learned")), data, noise="learned", rounds=2)
    assert tuned.likelihood.scale == "learned"
    assert tuned.mode.draws.likelihood["log_scale"].item() == pytest.approx(np.log(tuned.tuning.noise), abs=1e-5)


def test_fixed_leaves_are_not_tuned(waves):
    net, data, _ = waves
    tuned = p.tune(px.Problem(net, px.Normal(0.1), fixed="layers/0"), data, rounds=2)
    assert sorted(tuned.prior) == ["layers/1/bias", "layers/1/weight"]


class Halves:
    def __len__(self):
        return 2

    def __iter__(self):
        yield from ()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"prior": p.ARD()}, "ARDPrior, which has no density"),
        ({"prior": p.Laplace(0.5)}, "Gaussian priors with independent weights, but layers/0/weight has Laplace"),
        ({"prior": p.EmpCov(np.random.default_rng(0).normal(size=(50, 2)))}, "has CorrelatedNormal"),
        ({"temperature": 0.5}, "temperature 1, but the problem has 0.5"),
        ({"per": "layer"}, 'per must be "leaf", "network" or "none"'),
        ({"rounds": 0}, "rounds must be"),
        ({"data": Halves()}, "not a loader"),
        ({"start": "prior"}, "start must be"),
    ],
)
def test_errors_say_what_to_do(waves, change, message):
    net, data, _ = waves
    own = {name: change.pop(name) for name in ("prior", "temperature") if name in change}
    if isinstance(own.get("prior"), p.EmpCov):
        own["prior"] = {"**": p.Normal(), "layers/0/weight": own["prior"]}
    with pytest.raises(ValueError, match=message):
        p.tune(px.Problem(net, px.Normal(0.1), **own), change.pop("data", data), **change)


def test_a_start_is_one_point(waves):
    net, data, _ = waves
    problem = px.Problem(net, px.Normal(0.1))
    chains = px.fit(problem, data, px.Ensemble(px.MAP(), 2), steps=2, key=0)
    with pytest.raises(ValueError, match="one set of weights"):
        p.tune(problem, data, start=chains)
