"""Compiled and not compiled, a random network is the same: small networks of every kind, under every estimator.

One side is compiled as it ships: optimised and fused. The other runs one operation at a time, each a program of its
own, without LLVM's optimisations and by the older of XLA's code generators, as all tests do: a compiler that gets a
combination wrong cannot get both wrong alike.
"""

import jax
import jax.numpy as jnp
import jaxlib.version
import numpy as np
import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

import posteriax as px
from posteriax import families as q
from posteriax.families.arrays.estimators import ESTIMATORS
from posteriax.methods import Task
from posteriax.methods.vi import block_keys, random_outputs

EXAMPLES, OUTPUTS = 3, 2
# what ships, instead of what tests set in XLA_FLAGS
SHIPPED = {"xla_backend_optimization_level": 2} | (
    {"xla_cpu_use_fusion_emitters": True} if jaxlib.version.__version_info__ < (0, 11) else {}
)
# Sums of some hundred terms in a few layers, there and back: a thousand roundings of 2^-24, relative to the largest
# entry of an array, at the worst. Wrong programs that were seen were off by a hundred times this and more.
TOLERANCE = 1000 * 2.0**-24


def convolution(p, x):
    return jax.lax.conv_general_dilated(x, p["w"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def average_pooling(p, x):
    return jax.lax.reduce_window(x, 0.0, jax.lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "VALID") / 4


def max_pooling(p, x):
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def normalisation(p, x):
    centred = x - x.mean(-1, keepdims=True)
    return p["scale"] * centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-3)


def attention(p, x):
    query, keys, values = jnp.split(x @ p["w"], 3, axis=-1)
    scores = jnp.einsum("ntd,nsd->nts", query, keys) / np.sqrt(x.shape[-1])
    return x + jnp.einsum("nts,nsd->ntd", jax.nn.softmax(scores), values)


def recurrence(p, x):
    def step(h, x_t):
        h = jnp.tanh(x_t @ p["w"] + h @ p["u"])
        return h, h

    start = jnp.zeros((len(x), p["u"].shape[0]))
    return jax.lax.scan(step, start, x.swapaxes(0, 1))[1].swapaxes(0, 1)


def dense(p, x):
    return x @ p["w"]


def head(p, x):
    return x.reshape(len(x), -1) @ p["w"] + p["b"]


# each with the shapes of its weights, given the shape of its input
LAYERS = {
    "dense": (lambda p, x: jax.nn.relu(dense(p, x)), lambda s: {"w": (s[-1], 6)}),
    "convolution": (lambda p, x: jax.nn.relu(convolution(p, x)), lambda s: {"w": (3, 3, s[-1], 2 * s[-1])}),
    "average pooling": (average_pooling, lambda s: {}),
    "max pooling": (max_pooling, lambda s: {}),
    "normalisation": (normalisation, lambda s: {"scale": (s[-1],)}),
    "attention": (attention, lambda s: {"w": (s[-1], 3 * s[-1])}),
    "recurrence": (recurrence, lambda s: {"w": (s[-1], 4), "u": (4, 4)}),
    "head": (head, lambda s: {"w": (int(np.prod(s[1:])), OUTPUTS), "b": (OUTPUTS,)}),
}
# the shape of an example, what may come first, and what may follow
KINDS = {
    (5,): (("dense",), ("dense", "normalisation")),
    (8, 8, 2): (("convolution",), ("convolution", "average pooling", "max pooling", "normalisation")),
    (4, 5): (("attention", "recurrence", "dense"), ("attention", "recurrence", "dense", "normalisation")),
}


@st.composite
def networks(draw):
    """The shape of an example and the names of two to four layers; an image has room for two poolings."""
    shape = draw(st.sampled_from(list(KINDS)))
    first, others = KINDS[shape]
    layers = [draw(st.sampled_from(first)), *draw(st.lists(st.sampled_from(others), min_size=1, max_size=3))]
    poolings = [i for i, name in enumerate(layers) if "pooling" in name]
    return shape, tuple(name for i, name in enumerate(layers) if i not in poolings[2:])


def build(shape, layers):
    """The network as a function of its weights and inputs, and weights that keep the size of what passes through."""
    rng = np.random.default_rng(0)
    at, params = jax.ShapeDtypeStruct((EXAMPLES, *shape), jnp.float32), []
    applied = [LAYERS[name][0] for name in (*layers, "head")]
    for name, apply in zip((*layers, "head"), applied, strict=True):
        shapes = LAYERS[name][1](at.shape)
        params.append({k: np.float32(rng.normal(size=s) / np.sqrt(np.prod(s[:-1]))) for k, s in shapes.items()})
        at = jax.eval_shape(apply, params[-1], at)

    def network(params, x):
        for apply, own in zip(applied, params, strict=True):
            x = apply(own, x)
        return x

    return network, params


def assert_compiled_as_not_compiled(network, estimator):
    """Outputs and gradients of the random network, from the same keys."""
    shape, layers = network
    problem = px.Problem(build(shape, layers), px.Categorical())
    method = px.VI(q.Rank1() if estimator == "factor" else q.Normal(scale=0.1), estimator=estimator)
    task = Task(problem=problem, example=jax.ShapeDtypeStruct(shape, jnp.float32), num_examples=EXAMPLES, steps=1)
    kernel = method.bind(task)
    leaves, state = kernel.blocks, kernel.init(jax.random.key(0), problem.latents, None)
    rng = np.random.default_rng(1)
    x = jnp.asarray(rng.normal(size=(EXAMPLES, *shape)), jnp.float32)
    slope = jnp.asarray(rng.normal(size=(EXAMPLES, OUTPUTS)), jnp.float32)

    def loss(variational, keys, x):
        outputs = random_outputs(problem, leaves, variational, keys, x)[1]
        return jnp.sum(outputs * slope), outputs

    program = jax.value_and_grad(loss, has_aux=True)
    arguments = (state.variational, block_keys(jax.random.key(2), leaves), x)
    compiled = jax.jit(program, compiler_options=SHIPPED)(*arguments)
    with jax.disable_jit():
        one_by_one = program(*arguments)
    for (path, found), expected in zip(jax.tree.leaves_with_path(compiled), jax.tree.leaves(one_by_one), strict=True):
        size = np.abs(expected).max()
        assert np.isfinite(size)
        where = f"{network} {estimator} {jax.tree_util.keystr(path)}"
        np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE * size, err_msg=where)


@pytest.mark.slow
@settings(deadline=None, database=None, phases=[Phase.explicit])
@given(networks(), st.sampled_from(ESTIMATORS))
@example(((8, 8, 2), ("convolution", "average pooling", "normalisation")), "local")
@example(((4, 5), ("attention",)), "flipout")
@example(((5,), ("dense",)), "factor")
def test_compiled_and_not_compiled_agree(network, estimator):
    assert_compiled_as_not_compiled(network, estimator)


@pytest.mark.slow
@pytest.mark.parametrize("estimator", ESTIMATORS)
@settings(max_examples=8, deadline=None, derandomize=True, database=None, phases=[Phase.generate])
@given(networks())
def test_many_compiled_and_not_compiled_agree(estimator, network):
    assert_compiled_as_not_compiled(network, estimator)
