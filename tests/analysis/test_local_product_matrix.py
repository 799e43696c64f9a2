"""Local product matrices: P x is the network, and P is its layers with the activations' slopes between them."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from by_hand import variational

import posteriax as px

KEY = jax.random.key(0)


def leaky(x):
    return jax.nn.leaky_relu(x, 0.1)


def equinox_net(activation=leaky):
    return eqx.nn.MLP(5, 3, 8, 3, activation, use_bias=False, use_final_bias=False, key=KEY)


def linen_net():
    linen = pytest.importorskip("flax.linen")

    class Net(linen.Module):
        @linen.compact
        def __call__(self, x):
            for _ in range(3):
                x = linen.relu(linen.Dense(8, use_bias=False)(x))
            return linen.Dense(3, use_bias=False)(x)

    return Net(), Net().init(KEY, jnp.ones((1, 5)))


def nnx_net():
    nnx = pytest.importorskip("flax.nnx")

    class Net(nnx.Module):
        def __init__(self, rngs):
            self.first = nnx.Linear(5, 8, use_bias=False, rngs=rngs)
            self.last = nnx.Linear(8, 3, use_bias=False, rngs=rngs)

        def __call__(self, x):
            return self.last(jnp.where(self.first(x) > 0, self.first(x), 0.2 * self.first(x)))

    return Net(nnx.Rngs(0))


NETS = {"equinox": equinox_net, "linen": linen_net, "nnx": nnx_net}


@pytest.mark.slow
@pytest.mark.parametrize("kind", NETS)
def test_times_the_input_it_is_the_network(kind):
    posterior = variational(NETS[kind](), mean=0.5)
    x = np.random.default_rng(0).normal(size=5).astype(np.float32)
    local = px.analysis.local_product_matrix(posterior, x, draws=20, key=3)
    outputs = np.asarray(posterior.predict(x[None], draws=20, key=3).outputs)[:, 0]
    scale = np.abs(outputs).max()
    assert np.abs(local.matrices @ x - outputs).max() < 1e-5 * scale
    assert np.abs(local.offsets).max() < 1e-5 * scale


def test_it_is_the_product_of_layers_and_slopes_and_the_pattern_tells_them():
    posterior = variational(equinox_net())
    x = np.random.default_rng(0).normal(size=5).astype(np.float32)
    local = px.analysis.local_product_matrix(posterior, x, draws=30, key=2)
    params = posterior.draw(jax.random.key(2), np.arange(30), 30).network
    assert local.patterns.shape == (30, 24)
    for draw in range(30):
        value, product, patterns = x, np.eye(5), []
        for layer in params.layers[:-1]:
            value = np.asarray(layer.weight[draw]) @ value
            slope = np.where(value > 0, 1.0, 0.1)
            patterns.append(value > 0)
            product, value = slope[:, None] * (np.asarray(layer.weight[draw]) @ product), slope * value
        product = np.asarray(params.layers[-1].weight[draw]) @ product
        np.testing.assert_allclose(local.matrices[draw], product, rtol=2e-3, atol=1e-4)
        np.testing.assert_array_equal(local.patterns[draw], np.concatenate(patterns))
    assert 1 < local.distinct_patterns <= 30
    assert local.active_share.shape == (24,) and 0.2 < local.active_share.mean() < 0.8


def test_both_kinks_of_a_clip_and_those_behind_a_checkpoint_are_seen():
    from posteriax.analysis.local_product_matrix import activation_pattern

    x = jnp.array([-1.0, 0.5, 3.0])
    clipped, behind = (activation_pattern(f, x) for f in (lambda a: jnp.clip(a, 0, 1), jax.checkpoint(jax.nn.relu)))
    assert len({tuple(column) for column in np.asarray(clipped).reshape(2, 3).T}) == 3
    np.testing.assert_array_equal(behind, [False, True, True])

    @jax.custom_vjp
    def own(a):
        return jnp.maximum(a, 0)

    own.defvjp(lambda a: (own(a), a), lambda a, g: (g * (a > 0),))
    np.testing.assert_array_equal(activation_pattern(own, x), [False, True, True])


def test_moments_are_numpys_and_a_linear_network_has_those_of_its_product():
    posterior = variational(equinox_net(lambda x: x), mean=0.5, scale=0.1)
    local = px.analysis.local_product_matrix(posterior, np.ones(5, np.float32), draws=4000)
    flat = local.matrices.reshape(4000, -1)
    np.testing.assert_allclose(local.moments.covariance.reshape(15, 15), np.cov(flat, rowvar=False), atol=1e-6)
    product = px.analysis.product_matrix(posterior, "layers/*/weight")
    scale = np.sqrt(np.einsum("abab->ab", product.covariance))
    assert (np.abs(local.moments.mean - product.mean) < 5 * scale / np.sqrt(4000)).all()
    assert local.patterns.shape == (4000, 0) and local.distinct_patterns == 1


def test_biases_and_curves_show_in_the_offset():
    posterior = variational(eqx.nn.MLP(2, 2, 4, 1, jnp.tanh, key=KEY))
    local = px.analysis.local_product_matrix(posterior, np.ones(2, np.float32), draws=5)
    assert np.abs(local.offsets).min() > 1e-3 and local.patterns.size == 0


@pytest.mark.slow
def test_images_are_raveled_and_large_requests_refused():
    net = eqx.nn.Sequential(
        [eqx.nn.Conv2d(1, 4, 3, use_bias=False, key=KEY), eqx.nn.Lambda(jax.nn.relu), eqx.nn.Lambda(jnp.ravel)]
    )
    posterior = variational(net, likelihood=px.Normal(0.1))
    x = np.random.default_rng(0).normal(size=(1, 6, 6)).astype(np.float32)
    local = px.analysis.local_product_matrix(posterior, x, draws=4)
    assert local.matrices.shape == (4, 64, 36)
    outputs = np.asarray(posterior.predict(x[None], draws=4).outputs)[:, 0]
    np.testing.assert_allclose(local.matrices @ x.reshape(-1), outputs, atol=1e-4)
    with pytest.raises(ValueError, match="use fewer draws"):
        px.analysis.local_product_matrix(posterior, x, draws=1_000_000)
    wide = variational(eqx.nn.Linear(6000, 4, key=KEY))
    with pytest.raises(ValueError, match="24,000 x 24,000 matrix of 5 GB"):
        _ = px.analysis.local_product_matrix(wide, np.ones(6000, np.float32), draws=3).moments
