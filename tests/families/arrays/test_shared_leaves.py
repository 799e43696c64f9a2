"""A leaf that meets the data more than once is one draw, made outside the loop."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import posteriax as px
from posteriax import families as q
from posteriax.methods import Task
from posteriax.methods.vi import block_keys, random_outputs

STEPS = 6


def recurrent(params, x):
    """h <- h + w x_t: with one shared draw the last state has variance (sum x)^2 s^2, not sum x^2 s^2."""

    def cell(hidden, inputs):
        return hidden + inputs @ params["w"], None

    return jax.lax.scan(cell, jnp.zeros((x.shape[0], 1)), jnp.swapaxes(x, 0, 1))[0]


def tied(params, x):
    """The same matrix in and out, as a tied embedding."""
    return (x @ params["w"]) @ params["w"].T


def checkpointed(params, x):
    return jax.checkpoint(lambda w, x: jnp.tanh(x @ w))(params["w"], x)


@jax.custom_vjp
def _scaled(w, x):
    return x @ w


_scaled.defvjp(lambda w, x: (x @ w, (w, x)), lambda saved, g: (saved[1].T @ g, g @ saved[0].T))


def custom_gradient(params, x):
    return _scaled(params["w"], x)


def setup(apply, weight_shape, x, estimator="auto", scale=0.5):
    net = (apply, {"w": np.zeros(weight_shape, np.float32)})
    problem = px.Problem(net, px.Normal(scale=1.0))
    task = Task(problem=problem, example=jax.ShapeDtypeStruct(x.shape[1:], jnp.float32), num_examples=len(x), steps=1)
    leaves = px.VI(q.Normal(scale=scale), estimator=estimator).bind(task).blocks
    variational = {"w": leaves[0].family.init(jax.random.key(0), jnp.zeros(weight_shape), leaves[0].info)}
    return (
        lambda key, v=variational: random_outputs(problem, leaves, v, block_keys(key, leaves), x)[1],
        leaves[0].plan,
        variational,
    )


@pytest.mark.parametrize("estimator", ["auto", "local", "flipout"])
def test_a_recurrent_weight_is_one_draw(estimator):
    x = jnp.ones((3, STEPS, 1))
    outputs, plan, _ = setup(recurrent, (1, 1), x, estimator)
    assert plan.estimator == "weight"
    assert plan.note == "it is used in a loop"
    n = 20_000
    draws = np.asarray(jax.vmap(outputs)(jax.random.split(jax.random.key(1), n)))[:, 0, 0]
    assert draws.std() == pytest.approx(0.5 * STEPS, rel=5 / np.sqrt(2 * n))  # independent draws: 0.5 sqrt(STEPS)


@pytest.mark.slow
@pytest.mark.parametrize(
    "family",
    [q.Rank1(2), *(pytest.param(family, marks=pytest.mark.slow) for family in (q.Normal(), q.KTied(1), q.Dropout()))],
    ids=lambda family: type(family).__name__,
)
def test_a_loop_over_the_blocks_of_a_leaf_trains_with_one_draw(family):
    def deep(params, x):
        return jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, params["w"])[0]

    rng = np.random.default_rng(0)
    net = (deep, {"w": rng.normal(size=(3, 2, 2)).astype(np.float32)})
    x = rng.normal(size=(4, 2)).astype(np.float32)
    posterior = px.fit(px.Problem(net, px.Normal(scale=1.0)), (x, x), px.VI(family), steps=1, key=0)
    assert "because a loop runs over its first axis" in "".join(posterior.trace.notes)
    assert np.isfinite(posterior.sample(jax.random.key(0), 1)["w"]).all()


def test_the_draw_is_made_outside_the_loop():
    outputs, _, _ = setup(recurrent, (1, 1), jnp.ones((3, STEPS, 1)))
    jaxpr = jax.make_jaxpr(outputs)(jax.random.key(0))
    (loop,) = [eqn for eqn in jaxpr.eqns if eqn.primitive.name == "scan"]
    inside, everywhere = str(loop.params["jaxpr"]), str(jaxpr)
    assert "random_bits" in everywhere or "threefry" in everywhere
    assert "random_bits" not in inside
    assert "threefry" not in inside


@pytest.mark.parametrize("estimator", ["auto", "local", "flipout"])
def test_a_tied_matrix_is_one_draw(estimator):
    x = jnp.array([[1.0, 0.0]])
    outputs, plan, _ = setup(tied, (2, 1), x, estimator, scale=1.0)
    assert plan.note == "it is used 2 times"
    n = 40_000
    draws = np.asarray(jax.vmap(outputs)(jax.random.split(jax.random.key(1), n)))[:, 0, 0]
    # w^2 for one standard normal w: mean 1, variance 2. Two independent draws would give mean 0.
    assert draws.mean() == pytest.approx(1.0, abs=5 * np.sqrt(2 / n))


@pytest.mark.parametrize("apply", [checkpointed, custom_gradient], ids=["checkpoint", "custom_vjp"])
def test_opaque_calls_fall_back_to_one_draw_and_say_so(apply):
    x = jnp.ones((3, 2))
    outputs, plan, variational = setup(apply, (2, 2), x)
    assert plan.estimator == "weight"
    assert plan.note.startswith(("it is used by", "the network has a function with a gradient of its own"))
    gradient = jax.grad(lambda v: outputs(jax.random.key(0), v).sum())(variational)
    assert np.isfinite(gradient["w"]["log_scale"]).all()
    assert np.abs(gradient["w"]["mean"]).max() > 0


def test_the_note_reaches_the_trace():
    net = (tied, {"w": 0.1 * np.ones((2, 1), np.float32)})
    x = np.ones((4, 2), np.float32)
    posterior = px.fit(px.Problem(net, px.Normal(scale=1.0)), (x, x), px.VI(q.Normal()), steps=2, key=0)
    assert posterior.trace.notes == ("w: one shared draw per step, because it is used 2 times",)


def test_examples_merged_with_positions_are_not_taken_for_examples():
    """(B, T, D) reshaped to (B T, D): noise per row would give positions of one example different draws."""

    def merged(params, x):
        return (x.reshape(-1, x.shape[-1]) @ params["w"]).reshape(x.shape[0], -1)

    _, plan, _ = setup(merged, (3, 2), jnp.ones((4, 5, 3)))
    assert plan.estimator == "weight"
    assert "no separate axis of examples" in plan.note


def test_a_custom_gradient_on_activations_only_still_trains():
    @jax.custom_vjp
    def squash(h):
        return jnp.tanh(h)

    squash.defvjp(lambda h: (jnp.tanh(h), h), lambda h, g: (g * (1 - jnp.tanh(h) ** 2),))
    net = (lambda params, x: squash(x @ params["w"]), {"w": 0.1 * np.ones((2, 2), np.float32)})
    x = np.ones((4, 2), np.float32)
    posterior = px.fit(px.Problem(net, px.Normal(scale=1.0)), (x, x), px.VI(q.Normal()), steps=2, key=0)
    assert "custom_vjp" in posterior.trace.notes[0]


def test_local_is_not_used_where_the_leaf_meets_no_examples():
    """x (a c): the product a c is shared by all examples, so noise on its entries would be noise of another leaf."""
    fixed = jnp.ones((2, 3))
    _, plan, _ = setup(lambda params, x: x @ (fixed @ params["w"]), (3, 2), jnp.ones((4, 2)), "local")
    assert plan.estimator == "weight"


def test_a_network_that_couples_examples_gets_plain_draws():
    def normalised(params, x):
        hidden = x @ params["w"]
        return (hidden - hidden.mean(axis=0)) / (hidden.std(axis=0) + 1e-3)

    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 16, 2)).astype(np.float32)
    net = (normalised, {"w": rng.normal(size=(2, 2)).astype(np.float32)})
    notes = px.fit(px.Problem(net, px.Normal(scale=1.0)), (x, y), px.VI(q.Normal()), steps=1, key=0).trace.notes
    assert "w: one shared draw per step, because the network's outputs couple the examples of a batch" in notes


@pytest.mark.slow
@pytest.mark.parametrize("estimator", ["local", "flipout", "weight"])
def test_half_precision_has_the_right_noise(estimator):
    def half(params, x):
        return x.astype(jnp.float16) @ params["w"].astype(jnp.float16)

    outputs, _, _ = setup(half, (4, 1), jnp.ones((1, 4)), estimator, scale=0.01)
    n = 5000
    draws = np.asarray(jax.vmap(outputs)(jax.random.split(jax.random.key(1), n)), np.float64)
    assert draws.std() == pytest.approx(0.02, rel=5 / np.sqrt(2 * n) + 0.01)  # 0.01 sqrt(4), and float16's rounding
