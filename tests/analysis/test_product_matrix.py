"""Product matrices against Monte Carlo, closed forms, and theory's zeros."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from by_hand import drawn, variational

import posteriax as px
from posteriax import families as q

KEY = jax.random.key(0)


def random_layers(*sizes, seed=0):
    rng = np.random.default_rng(seed)
    shapes = itertools.pairwise(sizes)
    return [(rng.normal(size=shape), rng.uniform(0.05, 0.5, size=shape)) for shape in shapes]


def test_four_layers_match_monte_carlo_within_one_percent():
    layers = random_layers(3, 4, 5, 4, 2)
    exact = px.analysis.product_of(layers)
    rng, draws = np.random.default_rng(1), 400_000
    # uniform noise: only the first two moments count
    product = None
    for mean, variance in layers:
        noise = rng.uniform(-1, 1, size=(draws, *mean.shape)) * np.sqrt(3 * variance)
        product = mean + noise if product is None else product @ (mean + noise)
    flat = product.reshape(draws, -1)
    sampled = np.cov(flat, rowvar=False)
    own = exact.covariance.reshape(sampled.shape)
    error = np.abs(sampled - own).max() / np.abs(own).max()
    assert error < 0.01
    scale = np.sqrt(np.diag(own))
    # five standard errors of a mean, for every entry
    assert (np.abs(flat.mean(axis=0) - exact.mean.reshape(-1)) < 5 * scale / np.sqrt(draws)).all()


def test_entries_correlate_exactly_where_theory_says():
    one, two, three = (px.analysis.product_of(random_layers(*[4] * (n + 1))) for n in (1, 2, 3))
    a, b, c, d = np.ogrid[:4, :4, :4, :4]
    assert (one.covariance[(a != c) | (b != d)] == 0).all()
    apart = np.broadcast_to((a != c) & (b != d), two.covariance.shape)
    assert (two.covariance[apart] == 0).all() and (two.covariance[~apart] != 0).all()
    assert (three.covariance[apart] != 0).all()
    assert one.outside_share == two.outside_share == 0.0 and 0.1 < three.outside_share < 1
    assert one.correlated_share() == 0.0 < two.correlated_share() < three.correlated_share()


def test_two_and_three_layers_are_the_closed_forms():
    (a, alpha), (b, beta), (c, _) = layers = random_layers(3, 4, 5, 2)
    two = px.analysis.product_of(layers[:2]).covariance
    row = np.einsum("ai,ib,id->abd", alpha, b, b)
    column = np.einsum("ib,ai,ci->abc", beta, a, a)
    both = np.einsum("ai,ib->ab", alpha, beta)
    expected = np.einsum("abd,ac->abcd", row, np.eye(3)) + np.einsum("abc,bd->abcd", column, np.eye(5))
    expected += np.einsum("ab,ac,bd->abcd", both, np.eye(3), np.eye(5))
    np.testing.assert_allclose(two, expected, atol=1e-12)
    three = px.analysis.product_of(layers).covariance
    apart = np.einsum("ak,ck,ki,ib,id->abcd", a, a, beta, c, c)
    assert three[0, 0, 1, 1] == pytest.approx(apart[0, 0, 1, 1])
    assert three[2, 1, 0, 0] == pytest.approx(apart[2, 1, 0, 0])


def test_zero_means_leave_no_covariance_between_entries():
    for count in (2, 3, 4):
        layers = [(0 * mean, variance) for mean, variance in random_layers(*[3] * (count + 1))]
        size = 9
        covariance = px.analysis.product_of(layers).covariance.reshape(size, size)
        assert (covariance[~np.eye(size, dtype=bool)] == 0).all()


def test_a_random_matrix_between_fixed_ones_is_matrix_normal():
    (a, zero_a), (b, _), (c, zero_c) = random_layers(3, 4, 5, 2)
    layers = [(a, 0 * zero_a), (b, np.ones_like(b)), (c, 0 * zero_c)]
    product = px.analysis.product_of(layers)
    np.testing.assert_allclose(product.mean, a @ b @ c, atol=1e-12)
    identity = np.einsum("ac,bd->abcd", a @ a.T, c.T @ c)
    assert np.abs(product.covariance - identity).max() < 1e-6


def test_the_smaller_side_is_multiplied_first_and_gives_the_same():
    layers = random_layers(5, 2, 6, 2)
    from_right = px.analysis.product_of(layers)
    turned = px.analysis.product_of([(m.T, v.T) for m, v in reversed(layers)])
    np.testing.assert_allclose(from_right.mean, turned.mean.T)
    np.testing.assert_allclose(from_right.covariance, turned.covariance.transpose(1, 0, 3, 2), atol=1e-12)


FAMILIES = {"normal": q.Normal(0.3)}
SLOW_FAMILIES = {
    "tied": q.KTied(2, scale=0.3),
    "zero-mean": q.ZeroMeanNormal(),
    "uniform": q.ZeroMeanNoise("uniform"),
    "two-valued": q.ZeroMeanNoise("bernoulli"),
    "multiplicative": q.MultiplicativeNormal("neuron"),
    "matrix normal": q.MatrixNormal(0.3),
    "full": q.FullCovariance(scale=0.3),
    "low rank": q.LowRank(2, scale=0.3),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", [*FAMILIES, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW_FAMILIES)])
def test_a_posteriors_product_is_that_of_its_draws(name):
    net = eqx.nn.MLP(3, 2, 4, 2, key=KEY)
    posterior = variational(net, family=(FAMILIES | SLOW_FAMILIES)[name], scale=0.2, members=2)
    exact = px.analysis.product_matrix(posterior, "layers/*/weight")
    draws = 20_000
    sampled = px.analysis.sampled_product_matrix(posterior, "layers/*/weight", draws=draws, key=1)
    params = posterior.sample(1, 2)  # y = M x for a linear network
    first = [np.asarray(layer.weight[0]) for layer in params.layers]
    assert (first[2] @ first[1] @ first[0]).shape == exact.mean.shape == (2, 3)
    scale = np.sqrt(np.einsum("abab->ab", exact.covariance))
    assert (np.abs(sampled.mean - exact.mean) <= 5 * scale / np.sqrt(draws) + 1e-5).all()
    size = np.multiply.outer(scale, scale)
    # products have heavy tails: their fourth moment is a few times that of a Gaussian
    assert (np.abs(sampled.covariance - exact.covariance) <= 20 * size / np.sqrt(draws) + 1e-5).all()


def test_points_and_mixtures_of_them_are_exact_too():
    net = eqx.nn.MLP(3, 2, 4, 2, key=KEY)
    alone, two = (variational(net, family=q.Point(), members=n) for n in (1, 2))
    assert (px.analysis.product_matrix(alone, "layers/*/weight").covariance == 0).all()
    products = [np.asarray(two.variational[f"layers/{i}/weight"]["value"], np.float64) for i in range(3)]
    each = (products[2] @ products[1] @ products[0]).reshape(2, -1)
    mixture = px.analysis.product_matrix(two, "layers/*/weight")
    np.testing.assert_allclose(mixture.covariance.reshape(6, 6), np.cov(each, rowvar=False, ddof=0), rtol=1e-6)


@pytest.mark.slow
def test_flax_layers_come_in_the_order_of_their_numbers():
    linen = pytest.importorskip("flax.linen")

    class Deep(linen.Module):
        @linen.compact
        def __call__(self, x):
            for width in (*range(2, 13), 2):
                x = linen.Dense(width, use_bias=False)(x)
            return x

    module = Deep()
    posterior = variational((module, module.init(KEY, jnp.ones((1, 3)))), mean=0.5)
    product = px.analysis.product_matrix(posterior, "**/kernel")
    assert product.mean.shape == (2, 3)
    x = np.ones((1, 3), np.float32)
    np.testing.assert_allclose(posterior.problem.outputs(posterior.mean, x)[0], product.mean @ x[0], rtol=1e-3)


def test_draws_of_any_posterior_serve():
    rng = np.random.default_rng(0)
    weights = rng.normal(size=(2, 50, 3, 4)).astype(np.float32)
    posterior = drawn(((lambda w, x: x @ w["w"]), {"w": np.ones((3, 4))}), {"w": weights})
    product = px.analysis.sampled_product_matrix(posterior, "w")
    flat = weights.reshape(100, 3, 4).swapaxes(1, 2).reshape(100, -1)
    np.testing.assert_allclose(product.covariance.reshape(12, 12), np.cov(flat, rowvar=False), atol=1e-6)
    assert product.draws == 100


@pytest.mark.slow
def test_a_million_weights_need_no_matrix_of_their_square():
    net = eqx.nn.MLP(784, 10, 680, 2, key=KEY)
    posterior = variational(net, mean=0.03, scale=0.0)
    assert posterior.problem.network.num_parameters > 1_000_000
    product = px.analysis.product_matrix(posterior, ["layers/1/weight", "layers/2/weight"])
    assert product.mean.shape == (10, 680) and product.covariance[0, 0, 1, 1] == 0.0
    with pytest.raises(ValueError, match=r"533,120 x 533,120 matrix of 2 TB .limit 2 GB.: choose narrower"):
        px.analysis.product_matrix(posterior, ["layers/0/weight", "layers/1/weight"])
    with pytest.raises(ValueError, match="533,120 x 533,120"):
        px.analysis.sampled_product_matrix(posterior, "layers/0/weight", draws=2)


def test_what_cannot_be_multiplied_is_said():
    net = eqx.nn.MLP(3, 2, 4, 2, key=KEY)
    posterior = variational(net)
    with pytest.raises(ValueError, match="layers/2/weight has 2 outputs, but layers/0/weight takes 3 inputs"):
        px.analysis.product_matrix(posterior, ["layers/2/weight", "layers/0/weight"])
    with pytest.raises(ValueError, match="matches no leaf"):
        px.analysis.product_matrix(posterior, "layers/9/weight")
    with pytest.raises(ValueError, match="all are biases"):
        px.analysis.product_matrix(posterior, "layers/*/bias")
    with pytest.raises(TypeError, match="sampled_product_matrix"):
        px.analysis.product_matrix(variational(net, family=q.Rank1(2)), "layers/*/weight")
    with pytest.raises(TypeError, match="sampled_product_matrix"):
        px.analysis.product_matrix(drawn(net, jax.tree.map(lambda a: a[None, None], posterior.mean)), "**")
    with pytest.raises(ValueError, match=r"\(2, 3\) and \(2, 2\) cannot be multiplied"):
        px.analysis.product_of([(np.ones((2, 3)), np.ones((2, 3))), (np.ones((2, 2)), np.ones((2, 2)))])
    with pytest.raises(ValueError, match="a variance of that shape"):
        px.analysis.product_of([(np.ones((2, 3)), np.ones((3, 3)))])
    conv = variational(eqx.nn.Conv2d(1, 2, 3, key=KEY), likelihood=px.Normal(0.1))
    with pytest.raises(ValueError, match="is not a matrix"):
        px.analysis.product_matrix(conv, "weight")
