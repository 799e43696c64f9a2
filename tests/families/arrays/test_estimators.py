"""Estimators: same output mean and variance as explicit draws of the weights, unbiased gradients, less noise."""

from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

import posteriax as px
from posteriax import families as q
from posteriax.families.arrays.estimators import plan_estimators
from posteriax.methods import Task
from posteriax.methods.vi import block_keys, random_outputs
from posteriax.networks.tracing.uses import Use

DRAWS = 4_000
KEY = jax.random.key(0)


def dense_kernel_last(params, x):
    return x @ params["w"] + params["b"]


def dense_kernel_first(params, x):
    return (params["w"] @ x.T).T + params["b"]


def dense_transposed(params, x):
    return x @ params["w"].T + params["b"]


def dense_over_positions(params, x):
    return jnp.einsum("btd,de->bte", x, params["w"]) + params["b"]


def conv(order):
    def apply(params, x):
        out = jax.lax.conv_general_dilated(x, params["w"], (1, 1), "SAME", dimension_numbers=order)
        return out + params["b"]

    return apply


def grouped_conv(params, x):
    order = ("NHWC", "HWIO", "NHWC")
    out = jax.lax.conv_general_dilated(x, params["w"], (1, 1), "SAME", dimension_numbers=order, feature_group_count=2)
    return out + params["b"]


def embedding(params, tokens):
    return params["w"][tokens] + params["b"]


def embedding_of_slices(params, tokens):
    return jax.vmap(jax.vmap(lambda t: params["w"][t]))(tokens) + params["b"]


def normal(*shape):
    return np.asarray(jax.random.normal(jax.random.fold_in(KEY, sum(shape)), shape))


NETWORKS = {
    "dense": (dense_kernel_last, (3, 4), (4,), normal(5, 3)),
    "dense, kernel first": (dense_kernel_first, (4, 3), (4,), normal(5, 3)),
    "dense, transposed": (dense_transposed, (4, 3), (4,), normal(5, 3)),
    "dense over positions": (dense_over_positions, (3, 4), (4,), normal(2, 3, 3)),
    "convolution, channels last": (conv(("NHWC", "HWIO", "NHWC")), (3, 3, 2, 3), (3,), normal(2, 4, 4, 2)),
    "convolution, channels first": (conv(("NCHW", "OIHW", "NCHW")), (3, 2, 3, 3), (3, 1, 1), normal(2, 2, 4, 4)),
    "grouped convolution": (grouped_conv, (3, 3, 1, 4), (4,), normal(2, 4, 4, 2)),
    "embedding": (embedding, (6, 3), (3,), np.array([[0, 2, 2], [5, 1, 0]])),
    "embedding by slices": (embedding_of_slices, (6, 3), (3,), np.array([[0, 2, 2], [5, 1, 0]])),
}


def random_network(name, estimator):
    """A function of keys that gives the random network's outputs, the mean and scale of its weights, and its plans."""
    apply, weight, bias, x = NETWORKS[name]
    params = {"w": normal(*weight), "b": normal(*bias)}
    problem = px.Problem((apply, params), px.Normal(scale=1.0))
    example = jax.ShapeDtypeStruct(x.shape[1:], jnp.asarray(x).dtype)
    task = Task(problem=problem, example=example, num_examples=len(x), steps=1)
    method = px.VI(q.Normal(), estimator=estimator)
    leaves = method.bind(task).blocks
    variational = {
        leaf: {"mean": jnp.asarray(value), "log_scale": jnp.log(0.1 + 0.2 * jax.random.uniform(KEY, value.shape))}
        for leaf, value in params.items()
    }

    def outputs(key, variational=variational):
        return random_outputs(problem, leaves, variational, block_keys(key, leaves), jnp.asarray(x))[1]

    return outputs, variational, {leaf.name: leaf.plan for leaf in leaves}


def draw(outputs, count=DRAWS):
    """(count, size) outputs, each with a key of its own."""
    keys = jax.random.split(jax.random.key(1), count)
    draws = jax.jit(lambda keys: jax.lax.map(outputs, keys, batch_size=500))(keys)
    return np.asarray(draws.reshape(count, -1))


DRAWN = {}


def drawn(name, estimator):
    """Draws of a network; estimators that plan the same for every leaf, as "auto" does, share them."""
    outputs, _, plans = random_network(name, estimator)
    key = name, tuple(plans.items())
    if key not in DRAWN:
        DRAWN[key] = draw(outputs)
        DRAWN[key].flags.writeable = False
    return DRAWN[key]


@cache
def explicit(name):
    """The network at explicit draws of its weights, with other keys than `drawn`."""
    apply, _, _, x = NETWORKS[name]
    variational = random_network(name, "weight")[1]

    def outputs(key):
        keys = dict(zip(variational, jax.random.split(jax.random.fold_in(key, 99)), strict=True))
        params = {k: q.Normal().sample(v, keys[k]) for k, v in variational.items()}
        return apply(params, jnp.asarray(x))

    return draw(outputs)


# "weight" does what `explicit` does, whatever the network; "local" is in "auto" wherever that takes it
RELATED = {("weight", name) for name in NETWORKS if name not in ("dense", "convolution, channels last", "embedding")}
RELATED |= {("local", name) for name in ("dense, kernel first", "dense, transposed", "embedding by slices")}
CASES = [
    pytest.param(estimator, name, marks=pytest.mark.slow if (estimator, name) in RELATED else ())
    for name in NETWORKS
    for estimator in ("weight", "flipout", "local", "auto")
]


@pytest.mark.parametrize(("estimator", "name"), CASES)
def test_outputs_have_the_moments_of_explicit_draws(estimator, name):
    draws, truth = drawn(name, estimator), explicit(name)
    scale = truth.std(axis=0)
    # the difference of two means of n has the error scale sqrt(2/n), of two scales sqrt(1/n) (Gaussian); 5 of them
    np.testing.assert_array_less(np.abs(draws.mean(axis=0) - truth.mean(axis=0)), 5 * scale * np.sqrt(2 / DRAWS))
    np.testing.assert_array_less(np.abs(draws.std(axis=0) - scale), 5 * scale * np.sqrt(1 / DRAWS))
    if estimator == "local":
        return
    # what `auto` may choose must give each example the joint distribution of explicit draws, positions included
    size = draws.shape[1] // len(NETWORKS[name][-1])
    for first in range(0, draws.shape[1], size):
        own = slice(first, first + size)
        error = 6 * np.outer(scale[own], scale[own]) * np.sqrt(2 * 2 / DRAWS)
        np.testing.assert_array_less(np.abs(np.cov(draws[:, own].T) - np.cov(truth[:, own].T)), error)


@pytest.mark.parametrize("estimator", ["weight", "flipout", "local"])
def test_the_noise_of_outputs_follows_their_unit(estimator):
    """Weights times 1e-9, outputs times 1e-9. rtol: the rounding of log(scale), 4e-6, and of sums."""
    outputs, variational, _ = random_network("dense", estimator)
    small = {
        name: {"mean": 1e-9 * leaf["mean"], "log_scale": leaf["log_scale"] + np.log(1e-9)}
        for name, leaf in variational.items()
    }
    one, other = np.asarray(outputs(KEY)), np.asarray(outputs(KEY, small))
    np.testing.assert_allclose(1e9 * other, one, rtol=1e-4, atol=1e-4)


def test_auto_takes_the_exact_estimator_that_is_worth_its_cost():
    chosen = {name: random_network(name, "auto")[2]["w"].estimator for name in NETWORKS}
    assert chosen == {
        "dense": "local",
        "dense, kernel first": "local",
        "dense, transposed": "local",
        "dense over positions": "flipout",
        "convolution, channels last": "weight",
        "convolution, channels first": "weight",
        "grouped convolution": "weight",
        "embedding": "local",
        "embedding by slices": "local",
    }


def test_auto_has_flipout_for_convolutions_whose_weights_have_no_mean():
    """Their noise is all there is, not a small part of the gradient's."""
    use = Use("conv_general_dilated", example_axis=0, other_axes=True)
    plans = plan_estimators("auto", [use, use], has_mean=[True, False])
    assert [plan.estimator for plan in plans] == ["weight", "flipout"]


@pytest.mark.parametrize("estimator", ["flipout", "local"])
def test_examples_are_uncorrelated(estimator):
    draws = drawn("dense", estimator).reshape(DRAWS, 5, 4)
    correlation = np.corrcoef(draws[:, :, 0].T) - np.eye(5)
    assert np.abs(correlation).max() < 5 / np.sqrt(DRAWS)
    shared = drawn("dense", "weight").reshape(DRAWS, 5, 4)
    assert np.abs(np.corrcoef(shared[:, :, 0].T) - np.eye(5)).max() > 0.3


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dense", "convolution, channels last"])
def test_gradients_are_unbiased_and_less_noisy_than_one_shared_draw(name):
    """Against the exact gradient of E[sum y^2] = sum (mean^2 + variance), from the analytic moments."""
    apply, _, _, x = NETWORKS[name]
    _, variational, _ = random_network(name, "weight")

    def exact(v):
        mean = apply({k: v[k]["mean"] for k in v}, jnp.asarray(x))
        variance = apply({k: jnp.exp(2 * v[k]["log_scale"]) for k in v}, jnp.asarray(x) ** 2)
        return jnp.sum(mean**2 + variance)

    truth = jax.flatten_util.ravel_pytree(jax.grad(exact)(variational))[0]
    noise = {}
    for estimator in ("weight", "flipout", "local"):
        outputs = random_network(name, estimator)[0]

        def gradient(key, outputs=outputs):
            grad = jax.grad(lambda v: jnp.sum(outputs(key, v) ** 2))(variational)
            return jax.flatten_util.ravel_pytree(grad)[0]

        draws = draw(gradient)
        error = draws.std(axis=0) / np.sqrt(DRAWS)
        np.testing.assert_array_less(np.abs(draws.mean(axis=0) - truth), 5 * error + 1e-4)
        noise[estimator] = draws.var(axis=0).sum()
    assert noise["local"] < noise["weight"]
    assert noise["flipout"] < noise["weight"]


@pytest.mark.slow
def test_the_same_token_twice_in_an_example_is_the_same_draw():
    outputs, _, _ = random_network("embedding", "auto")
    out = np.asarray(outputs(jax.random.key(3)))
    np.testing.assert_allclose(out[0, 1], out[0, 2], rtol=1e-5)  # token 2 twice; one bias draw per example
    assert np.abs(out[0, 0] - out[1, 2]).max() > 1e-3  # token 0 in two examples: two draws


class Flax(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(2)(nn.relu(nn.Dense(4)(x)))


@pytest.mark.slow
def test_the_same_network_gives_the_same_draws_in_every_framework():
    """One key, the same leaves in the same order: they must agree to rounding. (Equinox transposes its weights.)"""
    from flax import nnx

    x = normal(5, 3)
    linen = Flax()
    weights = linen.init(jax.random.key(0), x)["params"]

    class Model(nnx.Module):
        def __init__(self, rngs):
            self.Dense_0 = nnx.Linear(4, 2, rngs=rngs)
            self.Dense_1 = nnx.Linear(3, 4, rngs=rngs)

        def __call__(self, x):
            return self.Dense_0(nnx.relu(self.Dense_1(x)))

    def plain(params, x):
        hidden = jax.nn.relu(x @ params["Dense_1"]["kernel"] + params["Dense_1"]["bias"])
        return hidden @ params["Dense_0"]["kernel"] + params["Dense_0"]["bias"]

    model = Model(nnx.Rngs(0))
    for layer in ("Dense_0", "Dense_1"):
        for leaf in ("kernel", "bias"):
            getattr(getattr(model, layer), leaf)[...] = weights[layer][leaf]

    results = {}
    nets = {"linen": (linen, {"params": weights}), "nnx": model, "function": (plain, weights)}
    for name, net in nets.items():
        for estimator in ("weight", "flipout", "local", "auto"):
            problem = px.Problem(net, px.Categorical())
            task = Task(problem=problem, example=jax.ShapeDtypeStruct((3,), jnp.float32), num_examples=5, steps=1)
            leaves = px.VI(q.Normal(scale=0.3), estimator=estimator).bind(task).blocks
            values = jax.tree.leaves(problem.latents)
            variational = {
                leaf.name: leaf.family.init(KEY, v, leaf.info) for leaf, v in zip(leaves, values, strict=True)
            }
            results[name, estimator] = random_outputs(
                problem, leaves, variational, block_keys(jax.random.key(5), leaves), x
            )[1]
    for (name, estimator), outputs in results.items():
        np.testing.assert_allclose(outputs, results["function", estimator], rtol=1e-5, atol=1e-6, err_msg=name)


def test_equinox_has_the_moments_of_the_same_function():
    x = normal(5, 3)
    module = eqx.nn.MLP(3, 2, 4, 1, key=KEY)

    def plain(params, x):
        hidden = jax.nn.relu(x @ params.layers[0].weight.T + params.layers[0].bias)
        return hidden @ params.layers[1].weight.T + params.layers[1].bias

    params = eqx.filter(module, eqx.is_inexact_array)
    draws = {}
    for name, net in {"equinox": module, "function": (plain, params)}.items():
        problem = px.Problem(net, px.Categorical())
        task = Task(problem=problem, example=jax.ShapeDtypeStruct((3,), jnp.float32), num_examples=5, steps=1)
        leaves = px.VI(q.Normal(scale=0.3)).bind(task).blocks
        assert [leaf.plan.estimator for leaf in leaves] == ["local", "flipout", "local", "flipout"]
        variational = {
            leaf.name: leaf.family.init(KEY, value, leaf.info)
            for leaf, value in zip(leaves, jax.tree.leaves(problem.latents), strict=True)
        }
        draws[name] = draw(
            lambda key, p=problem, ls=leaves, v=variational: random_outputs(p, ls, v, block_keys(key, ls), x)[1]
        )
    scale = draws["function"].std(axis=0)
    gap = np.abs(draws["equinox"].mean(axis=0) - draws["function"].mean(axis=0))
    np.testing.assert_array_less(gap, 5 * scale * np.sqrt(2 / DRAWS))
    np.testing.assert_allclose(draws["equinox"].std(axis=0), scale, rtol=0.08)
