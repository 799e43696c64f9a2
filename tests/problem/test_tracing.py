"""What is read off a network's program is true, and the network is traced once for all of it."""

import copy

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import posteriax as px
from posteriax import families as q
from posteriax.methods.method import Task
from posteriax.networks.tracing import coupling, linearity
from posteriax.networks.tracing.linearity import Degree, degree_in_params, is_linear
from posteriax.networks.tracing.program import NetworkPrograms, spec_of_example
from posteriax.networks.tracing.uses import find_uses

X = np.asarray(jax.random.normal(jax.random.key(0), (9, 6)))
PARAMS = {"a": jnp.ones((6, 6)), "b": jnp.eye(6) + 0.1, "c": jnp.arange(6.0)}
TOKENS = np.arange(18).reshape(9, 2) % 6


@jax.custom_vjp
def doubled(x):
    return 2 * x


doubled.defvjp(lambda x: (2 * x, None), lambda _, g: (2 * g,))


def convolved(w, x):
    images = jnp.stack([x, x * x], axis=-1).reshape(-1, 3, 2, 2)
    hidden = jax.lax.conv_general_dilated(
        images, w["a"][:2, :2].reshape(1, 1, 2, 2), (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    return jax.lax.reduce_window(hidden, 0.0, jax.lax.add, (1, 2, 2, 1), (1, 1, 1, 1), "VALID").reshape(len(x), -1)


def recurrent(w, x):
    def cell(h, entry):
        return jnp.tanh(h @ w["a"] + entry[:, None]), entry

    return jax.lax.scan(cell, jnp.zeros(x.shape), x.T)[0]


def attention(w, x):
    scores = jax.nn.softmax(jnp.einsum("bi,bj->bij", x @ w["a"], x), axis=-1)
    return jnp.einsum("bij,bj->bi", scores, x @ w["b"])


ALONE = {
    "dense": lambda w, x: jax.nn.relu(x @ w["a"]) @ w["b"] + w["c"],
    "one by one": lambda w, x: jax.vmap(lambda row: jax.nn.gelu(w["a"] @ row) * jnp.sort(row)[::-1])(x),
    "convolution": convolved,
    "loop over features": recurrent,
    "attention": attention,
    "layer norm": lambda w, x: jax.nn.standardize(x @ w["a"]),
    "checkpoint": lambda w, x: jax.checkpoint(lambda h: jnp.tanh(h @ w["a"]))(x),
    "gradient of its own": lambda w, x: doubled(x) @ w["a"],
    "position in the batch": lambda w, x: x @ w["a"] + jnp.arange(len(x))[:, None],
    "branch by params": lambda w, x: jax.lax.cond(w["c"].sum() > 0, lambda h: h @ w["a"], lambda h: h @ w["b"], x),
    "lookup in the example": lambda w, x: jnp.take_along_axis(x @ w["a"], jnp.argsort(x, axis=1), axis=1),
    "features picked": lambda w, x: (x @ w["a"])[:, jnp.array([2, 0])],
    "parts": lambda w, x: jnp.concatenate([jnp.cumsum(part, axis=1) for part in jnp.split(x @ w["a"], 2, axis=1)], 1),
}
COUPLED = {
    "batch norm": lambda w, x: x @ w["a"] - (x @ w["a"]).mean(axis=0),
    "attention over examples": lambda w, x: jax.nn.softmax(x @ x.T) @ x @ w["a"],
    "first example": lambda w, x: x @ w["a"] - x[1:2] @ w["b"],
    "order": lambda w, x: jnp.sort(x, axis=0) @ w["a"],
    "running sum": lambda w, x: jnp.cumsum(x[::-1], axis=0)[::-1] @ w["a"],
    "shifted": lambda w, x: jnp.roll(x, -1, axis=0) @ w["a"],
    "window": lambda w, x: (x + jnp.pad(x, ((0, 1), (0, 0)))[1:]) @ w["a"],
    "examples as features": lambda w, x: jnp.broadcast_to(x.T.reshape(-1)[:: len(x)][None] + x.sum(), x.shape) @ w["a"],
    "loop over examples": lambda w, x: jax.lax.scan(lambda h, row: (h + row, h), x.sum(0), x)[1] @ w["a"],
    "as long as any": lambda w, x: jax.lax.while_loop(lambda h: jnp.abs(h).sum() < 99, lambda h: h * 1.1, x) @ w["a"],
    "branch by data": lambda w, x: jax.lax.cond((x[1] != x[2]).any(), lambda h: h @ w["a"], lambda h: -h @ w["a"], x),
}
UNTOLD = {
    "statistics that do not matter": lambda w, x: x @ w["a"] + 0 * x.mean(axis=0),
    "positions as examples": lambda w, x: (jnp.stack([x, -x], 1).reshape(-1, 6) @ w["a"]).reshape(-1, 2, 6)[:, 0],
    "one after another": lambda w, x: jax.lax.map(lambda row: row @ w["a"], x),
}


@pytest.mark.parametrize("name", ALONE)
def test_the_program_shows_that_examples_are_treated_alone(name):
    net = px.network((ALONE[name], PARAMS))
    assert coupling.examples_are_independent(net, spec_of_example(X))
    assert not coupling._coupled_in_trial(net, X)


def test_lookups_in_a_table_are_treated_alone():
    net = px.network((lambda w, x: w["a"][x].sum(axis=1), PARAMS))
    assert coupling.examples_are_independent(net, spec_of_example(TOKENS))


@pytest.mark.parametrize("name", COUPLED)
def test_coupled_examples_are_never_taken_for_independent(name):
    net = px.network((COUPLED[name], PARAMS))
    assert not coupling.examples_are_independent(net, spec_of_example(X))
    assert coupling.couples_examples(net, X)


@pytest.mark.parametrize("name", UNTOLD)
def test_trial_decides_where_the_program_does_not_tell(name):
    net = px.network((UNTOLD[name], PARAMS))
    assert not coupling.examples_are_independent(net, spec_of_example(X))
    assert not coupling.couples_examples(net, X)


AFFINE, HIGHER, UNKNOWN = Degree.AFFINE, Degree.HIGHER, Degree.UNKNOWN
DEGREES = {
    "affine": (lambda w, x: jnp.tanh(x) @ w["a"] / 3 - w["c"].sum(), AFFINE),
    "choice by data": (lambda w, x: jnp.where(x > 0, x @ w["a"], w["c"]), AFFINE),
    "lookup": (lambda w, x: w["a"][(x > 0).astype(int)].sum(axis=1), AFFINE),
    "loop": (lambda w, x: jax.lax.fori_loop(0, 3, lambda _, h: 2 * h + w["c"], x @ w["a"]), AFFINE),
    "product of leaves": (lambda w, x: x @ (w["a"] @ w["b"]), HIGHER),
    "loop of products": (lambda w, x: jax.lax.fori_loop(0, 2, lambda _, h: h @ w["a"], x), HIGHER),
    "activation": (lambda w, x: jax.nn.relu(x @ w["a"]) @ w["b"], HIGHER),
    "product of activations": (lambda w, x: jnp.tanh(x @ w["a"]) * jnp.tanh(x @ w["b"]), HIGHER),
    "choice by params": (lambda w, x: jnp.where(w["c"] > 0, x @ w["a"], 0.0), HIGHER),
    "branch by params": (lambda w, x: jax.lax.cond(w["c"][0] > 0, jnp.negative, jnp.positive, x @ w["a"]), HIGHER),
    "divided by params": (lambda w, x: x / (1 + w["c"] ** 2), HIGHER),
    "low precision": (lambda w, x: (x @ w["a"]).astype(jnp.bfloat16).astype(x.dtype), UNKNOWN),
    "Fourier": (lambda w, x: jnp.fft.rfft(x @ w["a"]).real, UNKNOWN),
}


@pytest.mark.parametrize("name", DEGREES)
def test_the_degree_of_outputs_in_the_params(name):
    function, degree = DEGREES[name]
    net, example = px.network((function, PARAMS)), spec_of_example(X)
    assert degree_in_params(net, example) == degree
    assert is_linear(net, example) == linearity._linear_in_trial(net, example)


def test_a_fit_traces_the_network_once_for_every_kind_of_call_and_batch_size():
    traced = []

    def function(w, x, key=None):
        traced.append((len(x), key is not None))
        return jax.nn.relu(x @ w["a"]) @ w["b"]

    problem, _ = px.Problem((function, PARAMS), px.Categorical()).reading(X)
    assert not problem.couples_examples(X)
    task = Task(problem=problem, example=spec_of_example(X), num_examples=len(X), steps=1)
    for _ in range(2):
        px.VI(q.Normal()).bind(task)
    assert not is_linear(problem.network, task.example)
    assert sorted(traced) == [(5, False), (5, True), (7, True)]


def test_a_network_that_was_traced_can_be_copied_deeply():
    net = px.network((ALONE["dense"], PARAMS), example=X)
    assert copy.deepcopy(net).reading(X).axes == net.axes


def test_uses_inside_calls_are_counted_one_by_one():
    @jax.jit
    def inner(w, v, x):
        return (x @ w.T) @ v, w

    def function(w, x, key=None):
        h, same = inner(w["a"], w["b"], x)
        return h + same[0] + w["c"]

    uses = find_uses(NetworkPrograms(function, PARAMS), spec_of_example(X))
    assert [use.primitive for use in uses] == [None, "dot_general", "add"]
    assert uses[0].reason == "it is used 2 times"
