"""EmpCov against SciPy, a hand loop over patches and the posterior of weights that meet dead inputs."""

import json
import math

import equinox as eqx
import flax.nnx as nnx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import posteriax as px
from posteriax import families as q
from posteriax import priors as p
from posteriax.methods import Task
from posteriax.methods.sampling.masses import prior_metric, reference_scale
from posteriax.networks.leaf import Leaf
from posteriax.posterior.file import PosteriorFileError
from posteriax.priors.empirical_covariance import _symmetric_from_text, _symmetric_to_text
from posteriax.priors.prior import typical_scale

RNG = np.random.default_rng(0)
X = RNG.normal(size=(200, 5)) @ RNG.normal(size=(5, 5))
IMAGES = RNG.normal(size=(7, 5, 6, 3)).cumsum(axis=1)  # neighbours are correlated


def expected_covariance(inputs, scale, floor):
    covariance = np.cov(inputs, rowvar=False)
    return scale**2 * covariance / np.diag(covariance).mean() + floor**2 * np.eye(len(covariance))


@pytest.mark.parametrize(("shape", "out_axis"), [((3, 5), 0), ((5, 3), -1)], ids=["Equinox", "Flax"])
def test_the_density_is_that_of_independent_units(shape, out_axis):
    prior = p.EmpCov(X, scale=0.7, floor=0.05).distribution(Leaf("w", shape, out_axis))
    covariance = expected_covariance(X, 0.7, 0.05)
    w = np.random.default_rng(1).normal(size=(4, *shape)).astype(np.float32)
    units = w if out_axis == 0 else w.swapaxes(1, 2)
    exact = stats.multivariate_normal(np.zeros(5), covariance).logpdf(units).sum(axis=1)
    np.testing.assert_allclose(prior.log_prob(jnp.asarray(w)), exact, rtol=2e-5)
    np.testing.assert_allclose(jax.jit(lambda d, w: d.log_prob(w))(prior, w[0]), exact[0], rtol=2e-5)  # a pytree too
    spread = np.broadcast_to(np.diag(covariance), (3, 5))
    np.testing.assert_allclose(prior.variance, spread if out_axis == 0 else spread.T, rtol=1e-5)
    assert typical_scale(prior) == pytest.approx(math.hypot(0.7, 0.05), rel=1e-5)


def test_draws_have_the_covariance_and_units_are_independent():
    prior = p.EmpCov(X, scale=0.7, floor=0.05).distribution(Leaf("w", (2, 5), 0))
    n = 20_000
    draws = np.asarray(prior.sample(jax.random.key(0), (n,)), np.float64).reshape(n, 10)
    covariance = np.kron(np.eye(2), expected_covariance(X, 0.7, 0.05))
    variances = np.diag(covariance)
    error = np.sqrt((covariance**2 + np.outer(variances, variances)) / n)  # of an entry of a sample covariance
    assert np.all(np.abs(draws.T @ draws / n - covariance) < 5 * error)


def test_whitening_is_undone_and_gives_standard_normals():
    prior = p.EmpCov(IMAGES, kernel=2).distribution(Leaf("w", (2, 2, 3, 4)))
    w = prior.sample(jax.random.key(0), (500,))
    np.testing.assert_allclose(prior.unwhiten(prior.whiten(w)), w, atol=1e-4)
    z = np.asarray(prior.whiten(w)).ravel()
    assert stats.kstest(z, "norm").pvalue > 0.01


@pytest.mark.parametrize("padding", [0, 2, (1, 0)])
@pytest.mark.parametrize("channels", ["first", "last"])
def test_patches_are_those_of_a_loop(padding, channels):
    pads = (padding, padding) if isinstance(padding, int) else padding
    padded = np.pad(IMAGES, ((0, 0), (pads[0],) * 2, (pads[1],) * 2, (0, 0)))
    patches = [
        image[i : i + 3, j : j + 2].ravel()
        for image in padded
        for i in range(padded.shape[1] - 2)
        for j in range(padded.shape[2] - 1)
    ]
    given = IMAGES if channels == "last" else np.moveaxis(IMAGES, -1, 1)
    prior = p.EmpCov(given, kernel=(3, 2), padding=padding, channels=channels)
    np.testing.assert_allclose(prior.covariance, np.cov(np.array(patches), rowvar=False), rtol=1e-9, atol=1e-12)


def test_both_layouts_of_a_kernel_have_one_density():
    kernel = np.random.default_rng(1).normal(size=(3, 2, 3, 4)).astype(np.float32)  # Flax: height, width, in, out
    last = p.EmpCov(IMAGES, kernel=(3, 2)).distribution(Leaf("kernel", (3, 2, 3, 4), -1))
    first = p.EmpCov(np.moveaxis(IMAGES, -1, 1), kernel=(3, 2), channels="first")
    first = first.distribution(Leaf("weight", (4, 3, 3, 2), 0))  # Equinox: out, in, height, width
    units = kernel.reshape(-1, 4).T
    patches = np.lib.stride_tricks.sliding_window_view(IMAGES, (3, 2), axis=(1, 2))
    covariance = expected_covariance(np.moveaxis(patches, 3, -1).reshape(-1, 18), 1.0, 0.01)
    exact = stats.multivariate_normal(np.zeros(18), covariance).logpdf(units).sum()
    assert float(last.log_prob(kernel)) == pytest.approx(exact, rel=1e-4)
    assert float(first.log_prob(kernel.transpose(3, 2, 0, 1))) == pytest.approx(exact, rel=1e-4)


def test_the_covariance_does_not_depend_on_chunks(monkeypatch):
    whole, far = p.EmpCov(X), p.EmpCov(X + 1e4)
    monkeypatch.setattr("posteriax.priors.empirical_covariance.PATCH_VALUES", 37)
    np.testing.assert_allclose(p.EmpCov(X).covariance, whole.covariance, rtol=1e-10)
    np.testing.assert_allclose(far.covariance, whole.covariance, rtol=1e-7)  # a large mean costs no digits


NETWORKS = {
    "MAP, Flax dense": (px.MAP(), lambda: nnx.Linear(5, 2, rngs=nnx.Rngs(0)), "kernel", {}, (20, 5)),
    "VI, Flax convolution": (
        px.VI(q.Normal()),
        lambda: nnx.Sequential(nnx.Conv(3, 2, (2, 2), padding="VALID", rngs=nnx.Rngs(0)), lambda a: a[:, 0, 0]),
        "layers/0/kernel",
        {"kernel": (2, 2)},
        (20, 4, 4, 3),
    ),
    "HMC, Equinox convolution": (
        px.HMC(warmup=3),
        lambda: eqx.nn.Sequential([eqx.nn.Conv2d(3, 2, 2, key=jax.random.key(0)), eqx.nn.Lambda(lambda a: a[:, 0, 0])]),
        "layers/0/weight",
        {"kernel": 2, "channels": "first"},
        (20, 3, 4, 4),
    ),
}


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.slow
def test_methods_take_it_and_files_keep_it(name, tmp_path):
    method, make, path, settings, shape = NETWORKS[name]
    x = np.random.default_rng(2).normal(size=shape).astype(np.float32)
    net, prior = make(), p.EmpCov(x, scale=0.5, **settings)
    problem = px.Problem(net, px.Categorical(), {"**": p.Normal(), path: prior})
    length = "draws" if isinstance(method, px.HMC) else "steps"
    posterior = px.fit(problem, (x, np.arange(len(x)) % 2), method, **{length: 3}, key=0)
    posterior.save(tmp_path / "run")
    again = px.load(tmp_path / "run", make())
    own, loaded = prior, again.problem.prior[path]
    assert (loaded.scale, loaded.floor, loaded.kernel) == (own.scale, own.floor, own.kernel)
    for field in ("covariance", "variances", "directions"):
        np.testing.assert_array_equal(getattr(loaded, field), getattr(own, field))
    np.testing.assert_array_equal(again.predict(x).probs, posterior.predict(x).probs)


def test_a_large_covariance_survives_json_to_the_last_bit():
    matrix = np.cov(np.random.default_rng(3).random((30, 784)), rowvar=False)
    matrix = (matrix + matrix.T) / 2
    text = json.dumps(_symmetric_to_text(matrix))
    assert len(text) < 3.3e6
    np.testing.assert_array_equal(_symmetric_from_text(json.loads(text)), matrix)


def test_a_file_for_another_network_says_so(tmp_path):
    net = (lambda params, x: x @ params["w"], {"w": np.zeros((5, 2), np.float32)})
    problem = px.Problem(net, px.Categorical(), p.EmpCov(X))
    px.fit(problem, (X, np.arange(200) % 2), px.MAP(), steps=1, key=0).save(tmp_path / "run")
    other = (lambda params, x: x @ params["w"], {"w": np.zeros((6, 2), np.float32)})
    with pytest.raises(PosteriorFileError, match="5 inputs"):
        px.load(tmp_path / "run", other)


WIDE = np.diag([1.0, 1e-2, 1e-4, 1e-6, 0.0])  # standard deviations over four orders of magnitude


def test_the_mass_is_the_priors_precision():
    net = (lambda params, x: x[:, :1] * 0.0, {"w": np.zeros((5, 1), np.float32), "v": np.zeros((3, 1), np.float32)})
    prior = p.EmpCov.from_covariance(np.cov(X, rowvar=False), scale=2.0, floor=0.1)
    task = Task(
        problem=px.Problem(net, px.Normal(1.0), {"w": prior, "v": p.Normal(0.5)}), example=None, num_examples=3, steps=1
    )
    scale, own = reference_scale(task.problem), prior_metric(task.problem)
    covariance = expected_covariance(X, 2.0, 0.1)
    momentum = {"w": np.random.default_rng(0).normal(size=(5, 1)).astype(np.float32), "v": np.zeros((3, 1))}
    latents = px.problem.Latents(momentum, {})
    exact = 0.5 * (momentum["w"].T @ covariance @ momentum["w"]).item() / scale**2
    assert float(own.kinetic_energy(latents)) == pytest.approx(exact, rel=1e-4)
    keys = jax.random.split(jax.random.key(0), 20_000)
    w = np.asarray(jax.vmap(lambda k: own.sample_momentum(k, task.problem.latents))(keys).network["w"])[..., 0]
    mass = scale**2 * np.linalg.inv(covariance)
    error = np.sqrt((mass**2 + np.outer(np.diag(mass), np.diag(mass))) / len(w))
    assert np.all(np.abs(w.T @ w / len(w) - mass) < 5 * error)


def test_without_data_one_trajectory_forgets_the_start_in_every_direction():
    """A quarter period with standard deviations from 2 to 2e-3: they only swing together because of the mass matrix."""
    net = (lambda params, x: x[:, :1] * 0.0, {"w": np.zeros((5, 40), np.float32)})
    prior = p.EmpCov.from_covariance(WIDE, scale=1.0, floor=2e-4)
    problem = px.Problem(net, px.Normal(scale=1.0), prior)
    data = np.zeros((3, 1), np.float32), np.zeros(3, np.float32)
    posterior = px.fit(problem, data, px.HMC(step_size=0.02, jitter=0.0, warmup=1), draws=200, key=0)
    w = np.asarray(posterior.draws.network["w"])[0]
    assert posterior.trace["acceptance"].mean() > 0.99
    exact = np.sqrt(5 * np.diag(WIDE) / np.trace(WIDE) + 4e-8)
    count = w[1:, 0].size
    np.testing.assert_allclose(w.std(axis=(0, 2)), exact, rtol=4 / np.sqrt(2 * count))
    correlations = (w[1:] * w[:-1]).mean(axis=(0, 2)) / exact**2
    assert np.all(np.abs(correlations) < 4 / np.sqrt(count))


def linear_regression():
    """A linear network, its data, and the exact posterior N(mean, covariance) under EmpCov."""
    rng = np.random.default_rng(4)
    x = (rng.normal(size=(30, 4)) * [1.0, 1.0, 0.3, 0.02]) @ np.linalg.qr(rng.normal(size=(4, 4)))[0]
    y = x @ np.array([1.0, -0.5, 0.3, 0.8]) + 0.5 * rng.normal(size=30)
    net = (lambda params, x: x @ params["w"], {"w": np.zeros((4, 1), np.float32)})
    problem = px.Problem(net, px.Normal(scale=0.5), p.EmpCov(x, scale=0.5, floor=0.1))
    covariance = np.linalg.inv(x.T @ x / 0.25 + np.linalg.inv(expected_covariance(x, 0.5, 0.1)))
    return problem, (x.astype(np.float32), y.astype(np.float32)), covariance @ x.T @ y / 0.25, covariance


@pytest.mark.slow
def test_linear_regression_is_recovered():
    problem, data, mean, covariance = linear_regression()
    top = px.fit(problem, data, px.MAP(), steps=2000, key=0).mean["w"][:, 0]
    np.testing.assert_allclose(top, mean, atol=1e-3)
    n = 2000
    draws = np.asarray(px.fit(problem, data, px.HMC(warmup=200), draws=n, key=0).draws.network["w"])[0, :, :, 0]
    scale, independent = np.sqrt(np.diag(covariance)), n / 4  # as many as these draws are worth, at the least
    assert np.all(np.abs(draws.mean(axis=0) - mean) < 4 * scale / np.sqrt(independent))
    error = np.sqrt((covariance**2 + np.outer(scale, scale) ** 2) / independent)
    assert np.all(np.abs(np.cov(draws, rowvar=False) - covariance) < 4 * error)


@pytest.mark.slow
def test_mean_field_has_the_precisions_of_the_posterior():
    """The closest factorised Gaussian has the variances 1 / diag(precision), although its KL is estimated by draws."""
    problem, data, mean, covariance = linear_regression()
    posterior = px.fit(problem, data, px.VI(q.Normal(scale=0.1)), steps=3000, batch_size=30, key=0)
    assert any("no closed form" in note for note in posterior.trace.notes)
    draws = np.asarray(posterior.sample(0, 4000)["w"])[:, :, 0]
    scale = 1 / np.sqrt(np.diag(np.linalg.inv(covariance)))
    np.testing.assert_allclose(draws.mean(axis=0), mean, atol=0.3 * scale.min())  # the optimiser's last noise
    np.testing.assert_allclose(draws.std(axis=0), scale, rtol=0.1)


# inputs 4 and 5 are always zero in training


def dead_pixels(n, seed, awake=0.0):
    """Three classes around their centres in four live inputs; the dead ones wake up in the test set only."""
    rng = np.random.default_rng(seed)
    y = rng.integers(3, size=n)
    centres = 1.5 * np.array([[1, 0, 0, 1], [0, 1, 0, -1], [0, 0, 1, 0]])
    live = centres[y] + rng.normal(size=(n, 4))
    return np.concatenate([live, awake * rng.normal(size=(n, 2))], axis=1).astype(np.float32), y


@pytest.fixture(scope="module")
def dead():
    """Posteriors under both priors, with the same prior scale of 1 on weights of live inputs."""
    data = dead_pixels(150, seed=0)
    net = eqx.nn.MLP(6, 3, 8, 1, jnp.tanh, key=jax.random.key(0))
    live = np.cov(data[0][:, :4], rowvar=False)
    scale = math.sqrt(np.trace(live) / 6 / np.diag(live).mean())  # the mean over all inputs, two of them without any
    priors = {"Normal": p.Normal(1.0), "EmpCov": {"**": p.Normal(1.0), "layers/0/weight": p.EmpCov(data[0], scale)}}
    problems = {name: px.Problem(net, px.Categorical(), prior) for name, prior in priors.items()}
    return data, {
        name: px.fit(problem, data, px.HMC(warmup=100, masses="prior"), draws=400, key=1)
        for name, problem in problems.items()
    }


def first_layer(posterior):
    """(draws, 8, 6)"""
    return np.asarray(posterior.draws.network.layers[0].weight)[0]


@pytest.mark.slow
def test_under_an_ordinary_prior_weights_of_dead_inputs_keep_it(dead):
    thinned = first_layer(dead[1]["Normal"])[::4, :, 4:]
    lag = (thinned[1:] * thinned[:-1]).mean()
    assert abs(lag) < 4 / np.sqrt(thinned[1:].size)  # nearly independent, as the test below takes them to be
    assert stats.kstest(thinned.ravel(), "norm").pvalue > 0.01


@pytest.mark.slow
def test_map_shrinks_weights_of_dead_inputs(dead):
    data, posteriors = dead
    best = px.fit(posteriors["Normal"].problem, data, px.MAP(), steps=1500, key=0).mean.layers[0].weight
    assert np.abs(best[:, 4:]).max() < 0.01
    assert np.abs(best[:, :4]).max() > 0.3


@pytest.mark.slow
def test_empcov_shrinks_weights_of_dead_inputs_only(dead):
    normal, empcov = (first_layer(dead[1][name]).std(axis=0) for name in ("Normal", "EmpCov"))
    assert dead[1]["EmpCov"].trace["acceptance"][100:].mean() > 0.6
    assert np.all(empcov[:, 4:] < 0.02) and np.all(normal[:, 4:] > 0.8)
    assert np.all(empcov[:, :4] > 0.3)
    assert empcov[:, :4].mean() == pytest.approx(normal[:, :4].mean(), rel=0.2)


@pytest.mark.slow
def test_empcov_predicts_better_when_dead_inputs_wake_up(dead):
    def scores(name, awake):
        x, y = dead_pixels(1000, seed=1, awake=awake)
        return px.evaluate(dead[1][name].predict(x, draws=200), y)

    clean, shifted = ({name: scores(name, awake) for name in dead[1]} for awake in (0.0, 3.0))
    assert clean["EmpCov"]["nll"] == pytest.approx(clean["Normal"]["nll"], abs=0.03)
    assert shifted["EmpCov"]["nll"] == pytest.approx(clean["EmpCov"]["nll"], abs=0.01)
    assert shifted["EmpCov"]["nll"] < shifted["Normal"]["nll"] - 0.05
    assert shifted["EmpCov"]["accuracy"] >= shifted["Normal"]["accuracy"]


# bad input

KERNEL = Leaf("conv/kernel", (3, 3, 3, 8), -1)
REFUSED = {
    "one example": (lambda: p.EmpCov(X[:1]), "at least 2 examples"),
    "not finite": (lambda: p.EmpCov(np.where(X > 2, np.nan, X)), "x has .* non-finite"),
    "constant": (lambda: p.EmpCov(np.full((5, 3), 0.1)), "does not vary"),
    "many inputs": (lambda: p.EmpCov(np.zeros((2, 5000))), "5,000 inputs"),
    "floor": (lambda: p.EmpCov(X, floor=1e-9), "floor must be at least"),
    "scale": (lambda: p.EmpCov(X, scale=0.0), "scale must be a positive"),
    "padding alone": (lambda: p.EmpCov(X, padding=2), "kernel="),
    "no channels": (lambda: p.EmpCov(X, kernel=3), "channel axis"),
    "kernel of other axes": (lambda: p.EmpCov(IMAGES, kernel=(3, 3, 3)), "kernel must be"),
    "large kernel": (lambda: p.EmpCov(IMAGES, kernel=9), "larger than the padded images"),
    "channels": (lambda: p.EmpCov(IMAGES, kernel=3, channels="middle"), "channels must be"),
    "asymmetric": (lambda: p.EmpCov.from_covariance([[1.0, 0.5], [0.0, 1.0]]), "symmetric"),
    "negative": (lambda: p.EmpCov.from_covariance([[1.0, 2.0], [2.0, 1.0]]), "negative"),
    "bias": (lambda: p.EmpCov(X).distribution(Leaf("layers/0/bias", (5,))), "layers/0/bias .* no inputs.*by path"),
    "other layer": (lambda: p.EmpCov(X).distribution(Leaf("w", (6, 2))), "5 inputs, but a unit of w .* has 6"),
    "no kernel": (lambda: p.EmpCov(X).distribution(KERNEL), r"kernel=\(3, 3\)"),
    "other kernel": (lambda: p.EmpCov(IMAGES, kernel=2).distribution(KERNEL), "check kernel="),
    "other layout": (
        lambda: p.EmpCov(np.moveaxis(IMAGES, -1, 1), kernel=3).distribution(KERNEL),
        "6 channels, .*channels=",
    ),
    "sweep": (lambda: p.scale_sweep([0.1, 0.1]), "differ"),
    "sweep variance": (lambda: p.family_sweep(-1.0), "variance must be"),
    "sweep family": (lambda: p.scale_sweep(family="Cauchy"), "family must be one of"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_with_the_reason(name):
    make, message = REFUSED[name]
    with pytest.raises(ValueError, match=message):
        make()


def test_sweeps_have_the_variances_they_promise():
    leaf = Leaf("w", (2, 2))
    assert list(p.family_sweep()) == ["Normal", "Laplace", "Logistic", "StudentT", "NormalMixture"]
    for variance in (1 / 40, 3.0):
        for prior in p.family_sweep(variance).values():
            assert float(prior.distribution(leaf).variance) == pytest.approx(variance, rel=1e-6)
    for family in p.family_sweep():
        found = [float(prior.distribution(leaf).variance) for prior in p.scale_sweep(family=family).values()]
        assert found == pytest.approx([1 / 40, 1 / 20, 1 / 10, 1 / 5, 1], rel=1e-6)
