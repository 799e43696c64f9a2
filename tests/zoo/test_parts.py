"""The parts of the zoo compute what other libraries compute, and are initialised as the papers' libraries do it."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import posteriax as px
from posteriax import zoo
from posteriax.zoo import layers

KEY = jax.random.key(0)


@pytest.mark.slow
def test_attention_is_that_of_equinox():
    ours = zoo.SelfAttention(6, heads=2, key=KEY)
    theirs = eqx.nn.MultiheadAttention(
        2, 6, use_query_bias=True, use_key_bias=True, use_value_bias=True, use_output_bias=True, key=KEY
    )
    biases = 0.1 * jax.random.normal(KEY, (4, 6))
    ours = eqx.tree_at(lambda a: (a.qkv.bias, a.out.bias), ours, (biases[:3].reshape(-1), biases[3]))
    parts = [*jnp.split(ours.qkv.weight, 3, axis=1), ours.out.weight]
    theirs = eqx.tree_at(
        lambda a: [x for p in (a.query_proj, a.key_proj, a.value_proj, a.output_proj) for x in (p.weight, p.bias)],
        theirs,
        [x for weight, bias in zip(parts, biases, strict=True) for x in (weight.T, bias)],
    )
    x = jax.random.normal(KEY, (5, 6))
    np.testing.assert_allclose(ours(x), theirs(x, x, x), atol=1e-5)


def test_layer_normalisation_is_that_of_equinox():
    ours = eqx.tree_at(lambda n: (n.gamma, n.beta), zoo.LayerNorm(6), tuple(jax.random.normal(KEY, (2, 6))))
    theirs = eqx.tree_at(lambda n: (n.weight, n.bias), eqx.nn.LayerNorm(6, eps=1e-6), (ours.gamma, ours.beta))
    x = jax.random.normal(KEY, (5, 6))
    np.testing.assert_allclose(ours(x), jax.vmap(theirs)(x), atol=1e-5)


def test_repeated_blocks_are_applied_one_after_the_other():
    blocks = zoo.Repeated(lambda key: zoo.Dense(3, 3, key=key), 4, key=KEY)
    x = expected = jnp.ones(3)
    for i in range(4):
        expected = jax.tree.map(lambda a, i=i: a[i], blocks.block)(expected)
    np.testing.assert_allclose(blocks(x), expected, rtol=1e-5)
    assert not jnp.allclose(blocks.block.weight[0], blocks.block.weight[1])


@pytest.mark.slow
def test_patches_are_those_of_a_strided_convolution():
    net = zoo.vit(shape=(8, 12, 3), features=16, depth=1, heads=2, key=KEY)
    x = jax.random.normal(KEY, (8, 12, 3))
    kernel = net.patches.weight.reshape(4, 4, 3, 16)
    names = ("NHWC", "HWIO", "NHWC")
    expected = jax.lax.conv_general_dilated(x[None], kernel, (4, 4), "VALID", dimension_numbers=names)
    np.testing.assert_allclose(net.patches(net._cut(x)), expected.reshape(6, 16), atol=1e-5)


def test_the_recurrence_is_that_of_equinox():
    ours, theirs = zoo.LSTM(3, 5, key=KEY), eqx.nn.LSTMCell(3, 5, key=KEY)
    theirs = eqx.tree_at(
        lambda cell: (cell.weight_ih, cell.weight_hh, cell.bias), theirs, (ours.weight.T, ours.recurrent.T, ours.bias)
    )
    sequence = jax.random.normal(KEY, (7, 3))
    state = (jnp.zeros(5), jnp.zeros(5))
    for element in sequence:
        state = theirs(element, state)
    np.testing.assert_allclose(ours(sequence)[-1], state[0], atol=1e-6)


def test_pooling_is_that_of_a_window():
    x = jax.random.normal(KEY, (7, 6, 3))
    window = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (2, 2, 1), (2, 2, 1), "VALID")
    np.testing.assert_array_equal(zoo.max_pool(x), window)
    mean = jax.lax.reduce_window(x, 0.0, jax.lax.add, (3, 3, 1), (3, 3, 1), "VALID") / 9
    np.testing.assert_allclose(zoo.average_pool(x, 3), mean, atol=1e-6)


def test_an_offset_of_the_forget_gate_is_a_bias():
    plain = zoo.LSTM(3, 5, key=KEY)
    offset = zoo.LSTM(3, 5, forget_offset=1.0, key=KEY)
    assert not offset.bias.any()
    x = jax.random.normal(KEY, (7, 3))
    np.testing.assert_allclose(plain(x), offset(x), atol=1e-6)


def test_missing_measurements_do_not_matter():
    net = zoo.mortality_lstm(variables=3, static=2, units=4, key=KEY)
    values, observed = jax.random.normal(KEY, (6, 3)), (jax.random.uniform(KEY, (6, 3)) < 0.7).astype(float)
    outputs = [net(jnp.where(observed > 0, values, gap), observed, jnp.ones(2)) for gap in (0.0, 7.0, jnp.nan)]
    assert outputs[0] == outputs[1] == outputs[2]


# standard deviations that the papers' libraries document, for leaves large enough to tell
STARTS = {
    "He": (lambda: zoo.mlp(key=KEY).layers[0].weight, (2 / 784) ** 0.5),
}
SLOW_STARTS = {
    "Haiku": (lambda: zoo.uci_mlp(inputs=400, key=KEY).layers[0].weight, 0.8796 / 400**0.5),
    "Haiku's embeddings": (lambda: zoo.cnn_lstm(words=500, key=KEY).embedding.weight, 0.8796),
    "Haiku's LSTM": (lambda: zoo.cnn_lstm(words=5, key=KEY).lstm.recurrent, 0.8796 / (64 + 128) ** 0.5),
    "He in an LSTM": (lambda: zoo.lstm(words=5, key=KEY).lstm.recurrent, (2 / 128) ** 0.5),
    "Keras's embeddings": (lambda: zoo.lstm(words=500, key=KEY).embedding.weight, 0.05 / 3**0.5),
    "PyTorch": (lambda: zoo.lenet5(key=KEY).dense.weight, 1 / (3 * 800) ** 0.5),
    "TensorFlow Probability": (lambda: zoo.resnet18(width=16, key=KEY)[0].blocks[3].convolutions[1].weight, 0.1),
    "by outputs": (lambda: zoo.preresnet(8, key=KEY)[0].blocks[2].convolutions[0].weight, (2 / (9 * 64)) ** 0.5),
    "transformer": (lambda: zoo.vit_tiny(key=KEY).blocks.block.hidden.weight, 0.8796 * 0.02),
}


@pytest.mark.parametrize("name", [*STARTS, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW_STARTS)])
def test_weights_start_with_the_spread_of_the_papers_library(name):
    make, expected = (STARTS | SLOW_STARTS)[name]
    weight = np.asarray(make())
    assert weight.std() == pytest.approx(expected, rel=5 / np.sqrt(2 * weight.size))
    assert abs(weight.mean()) < 5 * expected / np.sqrt(weight.size)


def test_filter_response_normalisation_starts_as_published():
    norm = zoo.resnet20(width=2, key=KEY).blocks[0].first.norm
    assert (norm.gamma == 1).all()
    assert not norm.beta.any()
    assert not norm.tau.any()


REMAT = {
    "ResNet-8-FRN": lambda remat: zoo.ResNetFRN(1, 4, 3, 4, remat=remat, key=KEY),
    "PreResNet-8": lambda remat: zoo.preresnet(8, remat=remat, key=KEY),
    "ViT": lambda remat: zoo.vit(shape=(8, 8, 3), features=16, depth=8, heads=2, remat=remat, key=KEY),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "ViT",
        pytest.param("ResNet-8-FRN", marks=pytest.mark.slow),
        pytest.param("PreResNet-8", marks=pytest.mark.slow),
    ],
)
def test_rematerialisation_saves_memory_and_changes_no_gradient(name):
    x = jax.random.normal(KEY, (16, 8, 8, 3))
    gradients, memory = [], []
    for remat in (False, True):
        net = px.network(REMAT[name](remat))
        run = jax.jit(jax.grad(lambda p, net=net: jnp.square(net.apply(p, x)).sum())).lower(net.params).compile()
        gradients.append(jax.tree.leaves(run(net.params)))
        memory.append(run.memory_analysis().temp_size_in_bytes)
    for plain, again in zip(*gradients, strict=True):
        np.testing.assert_allclose(again, plain, atol=1e-4 * np.abs(plain).max(initial=1e-6))
    if name == "ViT":  # one block's intermediate values instead of eight
        assert memory[1] < memory[0] / 2


@pytest.mark.parametrize("order", [0, 1, 2])
def test_swish_and_its_derivatives_are_those_of_jax(order):
    """The sigmoid comes from a tanh, to two units in the last place of 1; derivatives multiply that by x."""
    ours, theirs = layers.swish, jax.nn.swish
    for _ in range(order):
        ours, theirs = jax.grad(ours), jax.grad(theirs)
    x = jnp.array([-90.0, -8.0, -1.0, -1e-3, 0.0, 0.5, 3.0, 20.0, 90.0])
    error = jnp.abs(jax.vmap(ours)(x) - jax.vmap(theirs)(x))
    assert bool((error <= 2 * jnp.finfo(jnp.float32).eps * (1 + jnp.abs(x))).all())


def test_filter_response_normalisation_keeps_a_nan():
    norm = layers.FilterResponseNorm(2)
    out = norm(jnp.ones((3, 3, 2)).at[0, 0, 1].set(jnp.nan))
    assert bool(jnp.isnan(out[..., 1]).all()) and not bool(jnp.isnan(out[..., 0]).any())
