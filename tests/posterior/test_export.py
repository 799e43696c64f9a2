"""Exported models say what `predict` says, where there is no posteriax, and refuse what they cannot do in one line."""

import json
import os
import runpy
import subprocess
import sys
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

import posteriax as px
from posteriax import families as q
from posteriax.posterior import DrawsPosterior, PosteriorFileError, Trace
from posteriax.problem import Latents

pytest.importorskip("flatbuffers")
FLOAT32 = 2e-6  # a few roundings of single precision, in standard deviations, probabilities or nats
FORMATS = ("stablehlo", "onnx", "numpy")


def skip_without(format):
    if format == "onnx":
        pytest.importorskip("onnx")


def posterior_of(draws, likelihood, function, latents=None):
    """A posterior with these draws, (S, ...) each."""
    first = jax.tree.map(lambda a: a[0], draws)
    problem = px.Problem((function, first), likelihood)
    latents = {} if latents is None else latents
    all_draws = jax.tree.map(lambda a: jnp.asarray(a)[None], Latents(draws, latents))
    return DrawsPosterior(problem, Trace({}), all_draws)


def mlp(w, x):
    return jnp.tanh(x @ w["a"] + w["b"]) @ w["c"]


def random_mlp(draws, inputs, outputs, seed=0):
    rng = np.random.default_rng(seed)
    shapes = {"a": (inputs, 8), "b": (8,), "c": (8, outputs)}
    return {name: rng.normal(size=(draws, *shape)).astype(np.float32) for name, shape in shapes.items()}


X = np.random.default_rng(1).normal(size=(40, 3)).astype(np.float32)


@pytest.mark.parametrize("format", FORMATS)
def test_two_draws_of_a_line_have_the_moments_and_quantiles_of_their_mixture(format, tmp_path):
    skip_without(format)
    # f = +x and -x with noise 1/2: at x = 1, y is an even mixture of N(1, 1/4) and N(-1, 1/4)
    line = posterior_of(np.float32([[[1.0]], [[-1.0]]]), px.Normal(scale=0.5), lambda w, x: x @ w)
    exported = line.export(tmp_path / f"line.{format}", np.ones((2, 1), np.float32), format, quantiles=(0.05, 0.5, 0.8))
    results = run(format, exported.path, np.float32([[1.0], [1.0], [0.0]]))
    assert (exported.draws, exported.path.exists()) == (2, True)
    np.testing.assert_allclose(results["mean"][:, 0], 0.0, atol=FLOAT32)
    np.testing.assert_allclose(results["std"][:, 0], [np.sqrt(1.25)] * 2 + [0.5], rtol=FLOAT32)
    np.testing.assert_allclose(results["noise"], 0.5, rtol=FLOAT32)
    np.testing.assert_allclose(results["knowledge"][:, 0], [1.0, 1.0, 0.0], atol=FLOAT32)
    below = lambda y: (norm.cdf(y, 1, 0.5) + norm.cdf(y, -1, 0.5)) / 2  # noqa: E731
    exact = [brentq(lambda y, p=p: below(y) - p, -4, 4) for p in (0.05, 0.5, 0.8)]
    # bisection stops at 2^-24 of the interval, and the density at 0.5 is 0.1: an error of float32's cdf counts tenfold
    np.testing.assert_allclose(results["quantiles"][:, 0, 0], exact, atol=20 * FLOAT32)
    np.testing.assert_allclose(results["entropy"][2], 0.5 * np.log(2 * np.pi * np.e / 4), atol=FLOAT32)
    np.testing.assert_allclose(results["mutual_information"][2], 0.0, atol=FLOAT32)


CASES = {
    "classes": (px.Categorical(), 3, FORMATS),
    "ordinal": (px.likelihoods.Ordinal(4), 1, FORMATS),
    "predicted noise": (px.Normal("predicted"), 2, FORMATS),
    "units": (px.likelihoods.InUnits(px.Normal(0.3), 1000.0, 20.0), 1, FORMATS),
    "counts": (px.Poisson(), 1, ("stablehlo",)),
    "student-t": (px.StudentT(df=4.0, scale=0.5), 1, ("stablehlo",)),
}


SLOW = ("ordinal", "units", "student-t")  # further likelihoods: each takes seconds to compile


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] if n in SLOW else []) for n in CASES])
def test_every_result_agrees_with_predict_for_any_number_of_examples(name, tmp_path):
    likelihood, outputs, formats = CASES[name]
    latents = {key: jnp.stack([value, value + 0.1, value]) for key, value in likelihood.latents().items()}
    posterior = posterior_of(random_mlp(3, 3, outputs), likelihood, mlp, latents)
    for format in formats:
        skip_without(format)
        exported = posterior.export(tmp_path / f"model.{format}", X[:10], format)
        # in units of 20, 1000 has 6e-5 / 20 of rounding
        assert exported.largest_difference < (1e-5 if name == "units" else 10 * FLOAT32), exported.difference
        results, expected = run(format, exported.path, X), posterior.predict(X)  # of 40 examples, not of 10
        mean = results["probs" if "probs" in results else "mean"]
        np.testing.assert_allclose(mean, expected.mean, rtol=1e-6, atol=10 * FLOAT32)
        np.testing.assert_allclose(results["std"], expected.std, rtol=1e-4, atol=10 * FLOAT32)
        np.testing.assert_allclose(results["entropy"], expected.entropy(), atol=20 * FLOAT32)


def test_what_a_format_cannot_say_can_be_left_out(tmp_path):
    posterior = posterior_of(random_mlp(3, 3, 1), px.Poisson(), mlp)
    with pytest.raises(NotImplementedError, match=r"no translation of the operation 'lgamma'.* results="):
        posterior.export(tmp_path / "counts", X, "numpy")
    exported = posterior.export(tmp_path / "counts", X, "numpy", results=["mean", "std", "knowledge"])
    assert set(exported.difference) == {"mean", "std", "knowledge"} and exported.largest_difference < 10 * FLOAT32


def run(format, path, x):
    """As docs/export.md says, with nothing of posteriax."""
    if format == "stablehlo":
        model = jax.export.deserialize(bytearray(path.read_bytes()))
        return jax.tree.map(np.asarray, jax.jit(model.call)(x))
    if format == "onnx":
        onnxruntime = pytest.importorskip("onnxruntime")
        session = onnxruntime.InferenceSession(path.read_bytes())
        return dict(zip([r.name for r in session.get_outputs()], session.run(None, {"x": x}), strict=True))
    return runpy.run_path(str(path / "predict.py"))["predict"](x)


def test_a_convolutional_network_is_exported(tmp_path):
    pytest.importorskip("onnx")

    class Small(eqx.Module):
        convolution: eqx.nn.Conv2d
        normalised: eqx.nn.GroupNorm
        linear: eqx.nn.Linear

        def __call__(self, x):
            hidden = jax.nn.silu(self.normalised(self.convolution(x[None])))
            return self.linear(eqx.nn.MaxPool2d(2, 2)(hidden).reshape(-1))

    key = jax.random.key(0)
    parts = eqx.nn.Conv2d(1, 4, 3, padding=1, key=key), eqx.nn.GroupNorm(2, 4), eqx.nn.Linear(64, 3, key=key)
    problem = px.Problem(Small(*parts), px.Categorical())
    draws = jax.tree.map(lambda leaf: jnp.stack([leaf, 2 * leaf])[None], problem.latents)
    posterior, images = DrawsPosterior(problem, Trace({}), draws), np.random.default_rng(0).normal(size=(3, 8, 8))
    for format in ("stablehlo", "onnx"):
        exported = posterior.export(tmp_path / f"cnn.{format}", images, format)
        assert exported.largest_difference < 10 * FLOAT32
        again = px.load(exported.path)
        np.testing.assert_allclose(again.predict(images).probs, posterior.predict(images).probs, atol=10 * FLOAT32)
    with pytest.raises(NotImplementedError, match=r"dense networks: it has no translation of the operation 'conv_gen"):
        posterior.export(tmp_path / "cnn", images, "numpy")
    assert sorted(os.listdir(tmp_path)) == ["cnn.onnx", "cnn.stablehlo"]


@pytest.fixture(scope="module")
def posterior():
    return posterior_of(random_mlp(4, 3, 2), px.Categorical(), mlp)


def test_what_is_loaded_is_a_posterior_to_the_rest(posterior, tmp_path):
    posterior.export(tmp_path / "model.stablehlo", X)
    loaded, y = px.load(tmp_path / "model.stablehlo"), np.arange(40) % 2
    expected = posterior.predict(X)
    assert px.evaluate(loaded.predict(X), y) == pytest.approx(px.evaluate(expected, y), rel=1e-5)
    compared = px.compare({"exported": loaded, "posterior": posterior}, (X, y), reference="posterior")
    assert compared["exported"]["total_variation"] < FLOAT32
    np.testing.assert_allclose(loaded.predict(X, draws=2).probs, posterior.predict(X, draws=2).probs, atol=FLOAT32)


def test_random_draws_are_those_of_predict(tmp_path):
    (x, y), _ = px.data.two_moons()
    net = eqx.nn.MLP(2, 2, 8, 1, key=jax.random.key(0))
    posterior = px.fit(px.Problem(net, px.Categorical()), (x, y), px.VI(q.Normal()), steps=5, key=0)
    exported = posterior.export(tmp_path / "model.stablehlo", x, draws=7, key=3, results=["probs", "outputs"])
    assert (exported.draws, exported.results) == (7, ("probs", "outputs"))
    probs = posterior.predict(x[:5], 7, key=3).probs
    np.testing.assert_allclose(px.load(exported.path).predict(x[:5]).probs, probs, atol=FLOAT32)


def test_numpy_models_run_in_a_process_that_imports_nothing_else(posterior, tmp_path):
    posterior.export(tmp_path / "model", X, "numpy")
    code = (
        "import sys, numpy as np, json; sys.path.insert(0, sys.argv[1]); from predict import predict;"
        "probs = predict(np.ones((1, 3)))['probs'].tolist();"
        "print(json.dumps([probs, 'jax' in sys.modules, 'posteriax' in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "model")], capture_output=True, check=True)
    probs, *others = json.loads(done.stdout)
    assert others == [False, False]
    np.testing.assert_allclose(probs, posterior.predict(np.ones((1, 3))).probs, atol=FLOAT32)


def test_bad_input_is_one_line_and_nothing_is_written(posterior, tmp_path):
    good = tmp_path / "model.stablehlo"
    posterior.export(good, X)
    before = good.read_bytes()
    for path, error, line in (
        (tmp_path / "no" / "model.onnx", FileNotFoundError, "there is no folder"),
        (tmp_path, IsADirectoryError, "is a folder: give the name of a file"),
        ("", ValueError, "the path is empty"),
    ):
        with pytest.raises(error, match=line) as raised:
            posterior.export(path, X, "stablehlo")
        assert "\n" not in str(raised.value)
    with pytest.raises(ValueError, match=r"the network fails for x of shape \(40, 2\)"):
        posterior.export(good, X[:, :2])
    with pytest.raises(ValueError, match="there is no result 'variance': results are probs"):
        posterior.export(good, X, results=["variance"])
    with pytest.raises(ValueError, match='format must be "stablehlo", "onnx" or "numpy"'):
        posterior.export(good, X, "pickle")
    with pytest.raises(ValueError, match="strictly between 0 and 1"):
        posterior.export(good, X, quantiles=(0.0, 0.5))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").touch()
    with pytest.raises(FileExistsError, match="a folder with other files"):
        posterior.export(tmp_path / "mine", X, "numpy")
    assert sorted(os.listdir(tmp_path)) == ["mine", "model.stablehlo"] and good.read_bytes() == before

    loaded = px.load(good)
    with pytest.raises(ValueError, match=r"x has examples of shape \(2,\), but the model was exported for .* \(3,\)"):
        loaded.predict(X[:, :2])
    good.write_bytes(before[:100] + b"x" + before[101:])
    with pytest.raises(PosteriorFileError, match="not the one that was written"):
        px.load(good)
    posterior.save(tmp_path / "run.posterior")
    with pytest.raises(TypeError, match=r"holds a posterior, not an exported model: give its network"):
        px.load(tmp_path / "run.posterior")


def test_a_summary_that_differs_from_predict_is_not_written(tmp_path):
    class Wrong(px.Categorical):
        def summary(self, latents, outputs, levels):
            right = super().summary(latents, outputs, levels)
            return right | {"entropy": right["entropy"] + 0.01}

    posterior = posterior_of(random_mlp(2, 3, 2), Wrong(), mlp)
    with pytest.raises(RuntimeError, match=r"entropy differs from posterior.predict by 0.01"):
        posterior.export(tmp_path / "model.stablehlo", X)
    assert os.listdir(tmp_path) == []


def test_a_network_that_couples_examples_is_refused(posterior, tmp_path):
    coupled = posterior_of(random_mlp(2, 3, 2), px.Categorical(), lambda w, x: mlp(w, x - x.mean(axis=0)))
    with pytest.raises(ValueError, match="depend on the others in its batch"):
        replace(coupled).export(tmp_path / "model.stablehlo", X)
