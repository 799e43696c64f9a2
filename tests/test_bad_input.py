"""Bad input: a clear error, before any compute."""

import re
import warnings
from functools import partial

import equinox as eqx
import jax
import numpy as np
import numpyro.distributions as dist
import pytest

import posteriax as px
from posteriax import families as q
from posteriax import priors as p

pytestmark = pytest.mark.quick

X = np.zeros((10, 3), np.float32)
Y = np.arange(10) % 2
NAN = X.copy()
NAN[4, 1] = np.nan


@pytest.fixture(scope="module")
def problem():
    return px.Problem(eqx.nn.MLP(3, 2, 4, 1, key=jax.random.key(0)), px.Categorical())


@pytest.fixture(scope="module")
def posterior(problem):
    return px.fit(problem, (X, Y), px.MAP(), steps=1, key=0)


DATA = {
    "wrong width": ((np.zeros((10, 5), np.float32), Y), ValueError, r"network fails for x of shape \(10, 5\)"),
    "whole numbers beyond 32 bits": (
        (np.full((10, 3), 1_700_000_000_000), Y),
        ValueError,
        "x has the whole number 1700000000000, which does not fit into 32 bits",
    ),
    "nan": ((NAN, Y), ValueError, r"x has 1 non-finite values, the first at index \(4, 1\)"),
    "nan in y": ((X, np.full(10, np.nan)), ValueError, "y has 10 non-finite values"),
    "label out of range": (
        (X, Y * 10),
        ValueError,
        r"labels up to 10, but the network has 2 outputs \(labels 0 to 1\)",
    ),
    "negative label": ((X, Y - 1), ValueError, "y has the label -1, but labels start at 0"),
    "huge label": ((X, Y * 2**32), ValueError, "labels up to"),
    "nested lists": ((X.tolist(), Y), ValueError, "Turn nested lists into an array"),
    "empty": ((X[:0], Y[:0]), ValueError, "x is empty"),
    "lengths": ((X, Y[:9]), ValueError, "x has 10 examples, but y has 9"),
    "labels as floats": ((X, Y + 0.5), TypeError, "whole-number labels.*fractions"),
    "labels of float dtype": ((X, Y.astype(float)), TypeError, r"use y.astype\(int\)"),
    "strings": ((X, np.array(["a"] * 10)), TypeError, r"y must be an array of real numbers, got dtype.*return_inverse"),
    "codes": ((X, Y * 945_000_000), ValueError, r"labels up to 945000000.*classes, y = np.unique"),
    "objects": ((X.astype(object), Y), TypeError, "x must be an array of real numbers, got dtype object"),
    "complex": ((X.astype(complex), Y), TypeError, "dtype complex128"),
    "no pair": (X, TypeError, r"data must be a pair \(x, y\)"),
    "four parts": ((X, Y, Y, Y), TypeError, r"data must be a pair \(x, y\), got tuple of 4"),
    "negative weight": ((X, Y, Y - 1.0), ValueError, "weight must be at least 0.*got values from -1 to 0"),
    "no weight at all": ((X, Y, np.zeros(10)), ValueError, "above 0 for some example"),
    "infinite weight": ((X, Y, np.full(10, np.inf)), ValueError, "weight has 10 non-finite values"),
    "huge weight": ((X, Y, np.full(10, 1e300)), ValueError, "finite in single precision"),
    "weights of another length": ((X, Y, np.ones(9)), ValueError, r"weight must have shape \(10,\).*got \(9,\)"),
    "scalar y": ((X, 3), ValueError, "y has no axis of examples"),
    "one-hot labels": ((X, np.eye(2, dtype=int)[Y]), ValueError, r"look one-hot; give.*y.argmax\(axis=1\)"),
    "one-hot floats": (
        (X, np.eye(2)[Y]),
        ValueError,
        r"y has labels of shape \(2,\) per example, and they look one-hot",
    ),
}


@pytest.mark.parametrize("name", DATA)
@pytest.mark.parametrize("method", [px.MAP(), px.HMC()], ids=["MAP", "HMC"])
def test_bad_data(problem, name, method, monkeypatch):
    monkeypatch.setattr("posteriax.run.fitting.Program", None)  # nothing may be compiled
    data, error, message = DATA[name]
    length = {"draws": 2} if method.samples else {"steps": 2}
    with pytest.raises(error, match=message):
        px.fit(problem, data, method, key=0, **length)


@pytest.mark.parametrize("name", ["wrong width", "nan", "empty", "objects"])
def test_bad_inputs_to_predict(posterior, name):
    (x, _), error, message = DATA[name]
    with pytest.raises(error, match=message):
        posterior.predict(x)


@pytest.mark.parametrize("name", ["label out of range", "lengths", "labels as floats"])
def test_bad_targets_to_evaluate(posterior, name):
    (_, y), error, _ = DATA[name]
    with pytest.raises(error):
        px.evaluate(posterior.predict(X), y)


def test_one_hot_labels_of_bernoulli():
    problem = px.Problem(eqx.nn.Linear(3, 1, key=jax.random.key(0)), px.Bernoulli())
    with pytest.raises(ValueError, match=r"y.argmax\(axis=1\)"):
        px.fit(problem, (X, np.eye(2)[Y]), px.MAP(), steps=1, key=0)


def test_a_single_example_needs_an_axis_of_examples(posterior):
    of_batches = px.Problem((lambda w, x: x @ w, np.zeros((3, 2), np.float32)), px.Categorical())
    batched = px.fit(of_batches, (X, Y), px.MAP(), steps=1, key=0)
    for fitted in (posterior, batched):
        with pytest.raises(ValueError, match=r"For a single example, add an axis of examples: x\[None\]"):
            fitted.predict(X[0])
    with pytest.raises(ValueError, match=r"batched=False"):  # x[None] is of no use here
        of_one = px.Problem((lambda w, x: (x @ w).sum(axis=0), np.zeros((3, 2), np.float32)), px.Categorical())
        px.fit(of_one, (X, Y), px.MAP(), steps=1, key=0)


def test_posteriors_where_predictions_or_names_are_needed(posterior):
    with pytest.raises(TypeError, match=r"evaluate takes predictions.*px.evaluate\(posterior.predict\(x\), y\)"):
        px.evaluate(posterior, (X, Y))
    with pytest.raises(TypeError, match="compare takes posteriors by name, got list"):
        px.compare([posterior], (X, Y))


SOFTMAX = {
    "softmax": (lambda w, x: jax.nn.softmax(x @ w), True),
    "by hand, reshaped": (lambda w, x: (np.exp(1) ** (x @ w) / (np.exp(1) ** (x @ w)).sum(-1, keepdims=True))[:], True),
    "log-softmax": (lambda w, x: jax.nn.log_softmax(x @ w), False),
    "divided": (lambda w, x: x @ w / 2.0, False),
    "logits": (lambda w, x: x @ w, False),
}


@pytest.mark.parametrize("name", SOFTMAX)
def test_a_softmax_before_categorical_is_noted(name):
    function, is_noted = SOFTMAX[name]
    x = np.random.default_rng(0).normal(size=(10, 3)).astype(np.float32)
    problem = px.Problem((function, np.ones((3, 2), np.float32)), px.Categorical())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        notes = px.fit(problem, (x, Y), px.MAP(), steps=1, key=0).trace.notes
    said = "look like probabilities"
    assert any(said in note and "remove the softmax" in note for note in notes) == is_noted
    assert any(said in str(warning.message) for warning in caught) == is_noted


def test_paths_that_cannot_be_written_or_read(posterior, tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ValueError, match="the path is empty: give the name of a file"):
        posterior.save("")
    with pytest.raises(IsADirectoryError, match=r"is a folder: give the name of a file, such as .*run.posterior"):
        posterior.save(tmp_path)
    with pytest.raises(FileNotFoundError, match=rf"there is no folder {tmp_path}/none. Create it first"):
        posterior.save(tmp_path / "none" / "a.posterior")
    with pytest.raises(px.posterior.PosteriorFileError, match="is a folder: give the file that"):
        px.load(tmp_path, posterior.problem.network)


def test_checkpoint_folders_that_cannot_be(problem, tmp_path):
    (tmp_path / "file").write_bytes(b"")
    run = partial(px.fit, problem, (X, Y), px.MAP(), steps=1, key=0)
    with pytest.raises(px.run.CheckpointError, match="is a file: checkpoint= takes a folder"):
        run(checkpoint=tmp_path / "file")
    with pytest.raises(px.run.CheckpointError, match=r"Not a directory$"):  # there is no previous checkpoint
        run(checkpoint=tmp_path / "file" / "folder")


REGRESSION = {
    "too many targets": (px.Normal(scale=1.0), np.zeros((10, 3)), r"targets of shape \(3,\) per example.*\(2,\)"),
    "one target for two outputs": (px.Normal(scale=1.0), np.zeros(10), r"targets of shape \(\)"),
    "predicted scale": (px.Normal(scale="predicted"), np.zeros((10, 2)), r"\(2,\) per example.*\(1,\)"),
    "bernoulli": (px.Bernoulli(), Y, r"one output \(logit\) per example, but the network's output shape is \(2,\)"),
}


@pytest.mark.parametrize("name", REGRESSION)
def test_likelihoods_that_do_not_fit_the_network(problem, name):
    likelihood, y, message = REGRESSION[name]
    with pytest.raises(ValueError, match=message):
        px.fit(px.Problem(problem.network, likelihood), (X, y), px.MAP(), steps=1, key=0)


@pytest.mark.slow
def test_one_target_and_one_output_fit_in_either_shape():
    """(N,) against (N, 1) must not broadcast to (N, N)."""
    net = px.network(eqx.nn.Linear(3, 1, key=jax.random.key(0)))
    problem = px.Problem(net, px.Normal(scale=1.0))
    x, y = np.random.default_rng(0).normal(size=(2, 10, 3)).astype(np.float32)
    flat, column = (problem.log_joint(net.params, (x, targets)) for targets in (y[:, 0], y[:, :1]))
    assert float(flat) == float(column)


ARGUMENTS = {
    "no length": ({}, ValueError, "give either epochs= or steps=, such as epochs=100$"),
    "both lengths": ({"epochs": 1, "steps": 1}, ValueError, "either epochs= or steps=, not both"),
    "draws of an optimiser": ({"draws": 5}, ValueError, "MAP optimises"),
    "chains of an optimiser": ({"steps": 1, "chains": 2}, ValueError, r"chains= is for samplers.*px.Ensemble"),
    "no steps": ({"steps": 0}, ValueError, "steps must be a whole number of at least 1, got 0"),
    "half an epoch": ({"epochs": 0.5}, ValueError, "epochs must be a whole number"),
    "no batch": ({"steps": 1, "batch_size": 0}, ValueError, "batch_size must be a whole number of at least 1, got 0"),
    "batch size": ({"steps": 1, "batch_size": -1}, ValueError, "batch_size must be a whole number"),
    "key": ({"steps": 1, "key": "a"}, TypeError, "key must be an int or a JAX key"),
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_bad_arguments_to_fit(problem, name):
    arguments, error, message = ARGUMENTS[name]
    with pytest.raises(error, match=message):
        px.fit(problem, (X, Y), px.MAP(), **{"key": 0, **arguments})


def test_samplers_take_draws_and_the_whole_data_set(problem):
    with pytest.raises(ValueError, match="HMC is a sampler: give draws="):
        px.fit(problem, (X, Y), px.HMC(), epochs=3, key=0)
    with pytest.raises(ValueError, match=r"HMC is a sampler: give draws=, such as draws=1000$"):
        px.fit(problem, (X, Y), px.HMC(), key=0)
    with pytest.raises(ValueError, match="HMC needs the whole data set"):
        px.fit(problem, (X, Y), px.HMC(), draws=3, batch_size=5, key=0)


SETTINGS = {
    "prior scale": (lambda: p.Normal(scale=-1.0), ValueError, "scale must be a positive number, got -1.0"),
    "mixture weight": (lambda: p.NormalMixture(weight=1.5), ValueError, "strictly between 0 and 1"),
    "noise": (lambda: px.Normal(scale="guessed"), ValueError, '"learned" or "predicted"'),
    "rank": (lambda: q.KTied(k=0), ValueError, "k must be a whole number"),
    "estimator": (lambda: px.VI(estimator="best"), ValueError, "auto, weight, factor, flipout, local"),
    "family": (lambda: px.VI("normal"), TypeError, "posteriax.families"),
    "step size": (lambda: px.HMC(step_size=0.0), ValueError, "step_size must be a positive number"),
    "start": (lambda: px.HMC(start="here"), ValueError, "map, network, prior"),
    "members": (lambda: px.Ensemble(px.MAP(), 0), ValueError, "members must be a whole number"),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_bad_settings(name):
    make, error, message = SETTINGS[name]
    with pytest.raises(error, match=message):
        make()


def test_problem_settings(problem):
    with pytest.raises(ValueError, match="temperature must be a positive number"):
        px.Problem(problem.network, px.Categorical(), temperature=0.0)
    with pytest.raises(TypeError, match=r"posteriax.priors \(such as p.Normal\(scale=0.3\)\)"):
        px.Problem(problem.network, px.Categorical(), prior=0.3)
    with pytest.raises(TypeError, match="prior is the class Normal: give an instance"):
        px.Problem(problem.network, px.Categorical(), prior=p.Normal)
    with pytest.raises(TypeError, match="likelihood must be"):
        px.Problem(problem.network, "categorical")
    with pytest.raises(TypeError, match="method must be an inference method"):
        px.fit(problem, (X, Y), px.MAP, steps=1, key=0)


def test_priors_that_no_weight_can_have_are_refused(problem):
    with pytest.raises(ValueError, match="Uniform is bounded, but weights take any real value"):
        px.Problem(problem.network, px.Categorical(), dist.Uniform(-1.0, 1.0))
    with pytest.raises(ValueError, match=r"events of shape \(3,\) does not fit the leaf layers/0/weight"):
        px.Problem(problem.network, px.Categorical(), dist.MultivariateNormal(np.zeros(3), np.eye(3)))


def test_half_precision_is_refused_by_hmc():
    net = (lambda w, x: x @ w, np.zeros((3, 2), np.float16))
    with pytest.raises(TypeError, match="HMC needs params of at least float32"):
        px.fit(px.Problem(net, px.Categorical()), (X, Y), px.HMC(), draws=1, key=0)


def test_family_patterns_for_the_likelihood_are_checked(problem):
    regression = px.Problem(eqx.nn.Linear(3, 1, key=jax.random.key(0)), px.Normal(scale="learned"))
    method = px.VI({"**": q.Normal(), "likelihood/log_sale": q.Point()})
    with pytest.raises(ValueError, match=r'"likelihood/log_sale" matches no leaf.*likelihood/log_scale'):
        px.fit(regression, (X, X[:, 0]), method, steps=1, key=0)
    wild = px.VI({"**": q.Normal(), "likelihood/*": q.Point()})
    assert px.fit(regression, (X, X[:, 0]), wild, steps=1, key=0).families["likelihood/log_scale"] == q.Point()


TIMES = 1.7e9 + np.arange(10.0)  # float32 has steps of 128 there


@pytest.mark.parametrize(
    ("x", "y", "expected"),
    [
        (np.column_stack([X[:, 0], TIMES, X[:, 2]]), np.zeros(10), r"^x \(column 1\) lies between 1700000000"),
        (X, TIMES, "^y lies between 1700000000 and 1700000009, and .* rounds that by up to 9"),
        (X, 300.0 + 1e-4 * np.arange(10), "^y lies between"),
        (np.full((10, 3), 0.1) + 1e-17, 1e9 + 64.0 * np.arange(10), None),  # constant; whole steps of float32
        (1e3 + np.random.default_rng(0).normal(size=(10, 3)), 2024.0 + np.arange(10) / 365, None),
        (TIMES[:, None].astype(np.float32) * np.ones(3, np.float32), np.arange(10), None),  # rounded by the user
    ],
    ids=["times", "targets", "small differences", "exact", "ordinary", "float32"],
)
def test_values_that_single_precision_would_blur_get_a_warning(x, y, expected):
    problem = px.Problem((lambda w, x: x @ w, np.zeros((3, 1), np.float32)), px.Normal(scale=1.0))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        problem.check((x, y))
    assert [bool(re.search(expected or "", str(warning.message))) for warning in caught] == [True] * bool(expected)
