"""Which axes of a leaf are inputs is read off the program, and priors and families go by it."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import quax
from flax import linen as nn
from flax import nnx
from scipy.stats import multivariate_normal

import posteriax as px
from posteriax import families as q
from posteriax import priors as p
from posteriax.families.arrays import EstimatorPlan, FactorArray
from posteriax.networks.leaf import Axes, Leaf

X = np.asarray(jax.random.normal(jax.random.key(0), (6, 5, 6)))  # examples, positions, features
TOKENS = np.arange(12).reshape(6, 2) % 7


class Attention(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.MultiHeadDotProductAttention(2, qkv_features=8, out_features=10)(x, x)
        return nn.DenseGeneral(3, axis=(-2, -1))(x)


def attention():
    module = Attention()
    return module, module.init(jax.random.key(0), X)


def infos(net, x):
    return {leaf.path: leaf for leaf in px.network(net, example=x).leaf_infos}


def test_attention_kernels_of_linen():
    found = infos(attention(), X)
    mha = "MultiHeadDotProductAttention_0"
    for name in ("query", "key", "value"):
        kernel = found[f"{mha}/{name}/kernel"]
        assert kernel.shape == (6, 2, 4)
        assert (kernel.in_axes, kernel.out_axes, kernel.fan_in, kernel.matrix_shape) == ((0,), (1, 2), 6, (6, 8))
        assert found[f"{mha}/{name}/bias"].is_bias
    out = found[f"{mha}/out/kernel"]
    assert (out.shape, out.in_axes, out.out_axes) == ((2, 4, 10), (0, 1), (2,))
    assert (out.fan_in, out.matrix_shape) == (8, (8, 10))
    general = found["DenseGeneral_0/kernel"]
    assert (general.shape, general.in_axes, general.fan_in) == ((5, 10, 3), (0, 1), 50)


def test_attention_kernels_of_nnx():
    found = infos(nnx.MultiHeadAttention(2, 6, 8, decode=False, rngs=nnx.Rngs(0)), X)
    assert (found["query/kernel"].shape, found["query/kernel"].fan_in) == ((6, 2, 4), 6)
    assert (found["out/kernel"].in_axes, found["out/kernel"].fan_in) == ((0, 1), 8)


def test_attention_of_equinox_keeps_its_convention():
    class Encoder(eqx.Module):
        attention: eqx.nn.MultiheadAttention

        def __call__(self, x):
            return self.attention(x, x, x)

    found = infos(Encoder(eqx.nn.MultiheadAttention(2, 6, key=jax.random.key(0))), X)
    assert {(leaf.in_axes, leaf.out_axes, leaf.fan_in) for leaf in found.values()} == {((1,), (0,), 6)}


def of_each_position(w, x):
    return jnp.einsum("bsi,sio->bso", x, w)  # each has a matrix of its own


def split(w, x):
    query, key = jnp.split(w.reshape(6, 2, 4), 2, axis=1)
    return x @ query.reshape(6, 4) + x @ key.reshape(6, 4)


def scanned(w, x):
    return jax.lax.scan(lambda h, layer: (jnp.tanh(h @ layer.T), None), x, w)[0]


def standardised(w, x):
    return x @ ((w - w.mean()) / jnp.sqrt(w.var() + 1e-5)).T


def remembered(w, x):
    return jax.checkpoint(lambda h: jax.nn.relu(h @ w))(x)


def in_a_loop(block):
    """A loop over the first axis of a leaf, as over the equal blocks of a deep network."""
    return lambda w, x: jax.lax.scan(lambda x, own: (block(own, x), None), x, w)[0]


PROGRAMS = {
    "transposed": (lambda w, x: x @ w.T, (3, 6), X, Axes((1,), (0,))),
    "einsum, outputs around": (lambda w, x: jnp.einsum("bsi,hio->bsho", x, w), (4, 6, 3), X, Axes((1,), (0, 2))),
    "einsum, positions are copies": (of_each_position, (5, 6, 3), X, Axes((1,), (2,))),
    "layers one by one": (lambda w, x: x @ w[0] @ w[1], (2, 6, 6), X, Axes((1,), (2,))),
    "product of two leaves": (lambda w, x: x @ (w @ w.T), (6, 2), X, None),
    "summed over entirely": (lambda w, x: x @ w, (6,), X, Axes((0,), ())),
    "split in parts": (split, (6, 8), X, Axes((0,), (1,))),
    "layers in a scan": (scanned, (3, 6, 6), X, Axes((2,), (1,))),
    "weight standardisation": (standardised, (4, 6), X, Axes((1,), (0,))),
    "under checkpoint": (remembered, (6, 4), X, Axes((0,), (1,))),
    "embedding": (lambda w, x: w[x], (7, 4), TOKENS, Axes((0,), (1,), lookup=True)),
    "positions": (lambda w, x: x + w[None], (5, 6), X, Axes((), (0, 1))),
    "token": (
        lambda w, x: jnp.concatenate([jnp.tile(w, (x.shape[0], 1, 1)), x], axis=1),
        (1, 1, 6),
        X,
        Axes((), (0, 1, 2)),
    ),
    "convolution": (
        lambda w, x: jax.lax.conv_general_dilated(x, w, (1,), "SAME", dimension_numbers=("NWC", "OWI", "NWC")),
        (4, 3, 6),
        X,
        Axes((2,), (0,), (1,)),
    ),
    "transposed convolution": (
        lambda w, x: jax.lax.conv_transpose(
            x, w, (2,), "SAME", dimension_numbers=("NWC", "WIO", "NWC"), transpose_kernel=True
        ),
        (3, 4, 6),
        X,
        Axes((2,), (1,), (0,)),
    ),
    "tied embedding, two uses that disagree": (lambda w, x: w[x] @ w.T, (7, 4), TOKENS, None),
    "cut across its axes": (lambda w, x: x @ w.reshape(6, 6), (4, 3, 3), X, None),
    "scale": (lambda w, x: x * w, (6,), X, None),
    "scale in each block of a loop": (in_a_loop(lambda w, x: x * w), (4, 6), X, Axes((), (0, 1))),
    "bias in each block of a loop": (in_a_loop(lambda w, x: x + w), (4, 6), X, Axes((), (0, 1))),
    "matrix in each block of a loop": (in_a_loop(lambda w, x: x @ w), (4, 6, 6), X, Axes((1,), (2,))),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_program_says_which_axes_are_inputs(name):
    function, shape, x, expected = PROGRAMS[name]
    (leaf,) = px.network((lambda params, x: function(params["w"], x), {"w": jnp.ones(shape)}), example=x).leaf_infos
    assert leaf.axes == expected


@pytest.mark.parametrize(
    ("leaf", "expected"),
    [
        (Leaf("w", (5, 3)), (5, 3)),
        (Leaf("w", (3, 5), 0), (3, 5)),
        (Leaf("w", (3, 3, 2, 6)), (18, 6)),
        (Leaf("w", (2, 3, 4, 5), axes=Axes((0, 1), (2, 3))), (6, 20)),
        (Leaf("w", (3, 4, 6), axes=Axes((2,), (1,), (0,))), (12, 6)),
        (Leaf("w", (6,), axes=Axes((0,), ())), (6, 1)),
    ],
)
def test_a_leaf_as_a_matrix(leaf, expected):
    assert leaf.matrix_shape == expected


@pytest.mark.slow
@pytest.mark.parametrize("family", [q.KTied(2), q.Rank1(3), q.Dropout(0.2)], ids=["k-tied", "rank-1", "dropout"])
def test_the_blocks_of_a_loop_are_as_independent_as_separate_leaves(family):
    """Four stacked blocks have the parameters of four leaves, and their draws are not correlated with each other."""
    (stacked,) = px.network(
        (lambda params, x: in_a_loop(lambda w, x: x @ w)(params["w"], x), {"w": jnp.ones((4, 6, 6))}), example=X
    ).leaf_infos
    single = Leaf("w", (6, 6), axes=Axes((0,), (1,)))
    assert (stacked.copies, stacked.one_copy) == ((4,), single)
    whole, one = family.for_leaf(stacked), family.for_leaf(single)
    params = whole.init(jax.random.key(0), jnp.ones(stacked.shape), stacked)
    of_one = one.init(jax.random.key(0), jnp.ones(single.shape), single)
    assert sum(leaf.size for leaf in params.values()) == 4 * sum(leaf.size for leaf in of_one.values())
    if family.components:
        params = whole.component(params, 0)
    n = 2000
    draws = jax.vmap(lambda key: whole.sample(params, key))(jax.random.split(jax.random.key(1), n)).reshape(n, 4, 36)
    between = np.corrcoef(np.asarray(draws.transpose(1, 2, 0)[:2]).reshape(72, n))[:36, 36:]
    assert np.abs(between).max() < 5 / np.sqrt(n)  # 36 x 36 correlations of independent draws


def test_he_scales_go_by_the_real_fan_in():
    problem = px.Problem(px.network(attention(), example=X), px.Categorical(), p.HeNormal())
    priors = problem.priors.network["MultiHeadDotProductAttention_0"]
    assert float(priors["query"]["kernel"].scale) == pytest.approx(math.sqrt(2 / 6))
    assert float(priors["out"]["kernel"].scale) == pytest.approx(math.sqrt(2 / 8))
    assert float(priors["query"]["bias"].scale) == 1.0
    words = px.network((lambda w, x: w["t"][x], {"t": jnp.ones((7, 4))}), example=TOKENS)
    table = px.Problem(words, px.Normal(scale=1.0), p.HeNormal())
    assert float(table.priors.network["t"].scale) == pytest.approx(math.sqrt(2.0))


@pytest.mark.slow
def test_fit_reads_the_program_and_says_where_the_prior_changed(tmp_path):
    problem = px.Problem(attention(), px.Categorical(), p.HeNormal())
    with pytest.warns(UserWarning, match=r"key/kernel \(6, 2, 4\).*axes \[0\] are inputs.* 2 more leaves"):
        posterior = px.fit(problem, (X, np.arange(6) % 3), px.MAP(), steps=1, key=0)
    assert [note.split("/")[1] for note in posterior.trace.notes] == ["key", "query", "value"]
    known = px.Problem(px.network(attention(), example=X), px.Categorical(), p.HeNormal())
    params = known.network.params
    assert float(posterior.problem.log_prior(params)) == float(known.log_prior(params))
    assert float(problem.log_prior(params)) != float(known.log_prior(params))
    posterior.save(tmp_path / "run.posterior")
    again = px.load(tmp_path / "run.posterior", attention())
    assert float(again.problem.log_prior(params)) == float(known.log_prior(params))


def test_fit_is_silent_where_nothing_changed(recwarn):
    net = eqx.nn.MLP(6, 3, 4, 1, key=jax.random.key(0))
    px.fit(px.Problem(net, px.Categorical(), p.HeNormal()), (X[:, 0], np.arange(6) % 3), px.MAP(), steps=1, key=0)
    assert not [w for w in recwarn if "program" in str(w.message)]


def test_empirical_covariance_of_an_attention_kernel():
    x = np.random.default_rng(0).normal(size=(50, 6)) @ np.diag([1.0, 2.0, 3.0, 1.0, 1.0, 0.0])
    leaf = Leaf("query/kernel", (6, 2, 4), axes=Axes((0,), (1, 2)))
    prior = p.EmpCov(x, scale=0.7).distribution(leaf)
    covariance = np.cov(x.T)
    expected = 0.49 * np.diag(covariance) / np.diag(covariance).mean() + 0.007**2
    np.testing.assert_allclose(prior.variance, np.broadcast_to(expected[:, None, None], (6, 2, 4)), rtol=1e-4)
    # its density is that of 8 independent units
    full = 0.49 * covariance / np.diag(covariance).mean() + 0.007**2 * np.eye(6)
    w = np.random.default_rng(1).normal(size=(6, 2, 4)) * 0.01
    truth = multivariate_normal(np.zeros(6), full).logpdf(w.reshape(6, 8).T).sum()
    assert float(prior.log_prob(jnp.asarray(w))) == pytest.approx(truth, rel=1e-4)
    with pytest.raises(ValueError, match=r"px.network\(net, example=x\) reads the input axes off the program"):
        p.EmpCov(x).distribution(Leaf("query/kernel", (6, 2, 4)))


def serving(family, leaf):
    own = family.for_leaf(leaf)
    return own, own.init(jax.random.key(0), jnp.ones(leaf.shape), leaf)


QUERY = Leaf("query/kernel", (6, 2, 4), axes=Axes((0,), (1, 2)))
OUT = Leaf("out/kernel", (2, 4, 10), axes=Axes((0, 1), (2,)))


@pytest.mark.parametrize(("leaf", "inputs", "outputs"), [(QUERY, 6, 8), (OUT, 8, 10)], ids=["query", "out"])
def test_factors_have_the_size_of_inputs_and_outputs(leaf, inputs, outputs):
    _, variational = serving(q.Rank1(3), leaf)
    assert variational["in"].shape == (3, inputs)
    assert variational["out"].shape == (3, outputs)


def test_dropout_switches_off_input_features():
    for leaf in (QUERY, OUT):
        family, variational = serving(q.Dropout(0.5), leaf)
        draw = np.asarray(family.sample(variational, jax.random.key(3))).reshape(leaf.matrix_shape)
        off = draw == 0
        assert np.all(off == off[:, :1])  # whole rows
        assert 0 < off[:, 0].mean() < 1
    word, variational = serving(q.Dropout(0.5), Leaf("table", (20, 4), 0, Axes((0,), (1,), lookup=True)))
    rows = np.asarray(word.sample(variational, jax.random.key(3))) == 0
    assert np.all(rows == rows[:, :1]) and 0 < rows.mean() < 1


def test_multiplicative_noise_is_shared_by_outputs():
    _, variational = serving(q.MultiplicativeNormal("neuron"), QUERY)
    assert variational["log_alpha"].shape == (1, 2, 4)


@pytest.mark.slow
@pytest.mark.parametrize("family", [q.Rank1(2, noise="normal", scale=0.5), q.Dropout(0.5)], ids=["rank-1", "dropout"])
@pytest.mark.parametrize("which", ["query", "out"])
def test_factors_on_the_data_are_factors_on_the_kernel(family, which):
    """The contraction by factors gives what the drawn kernel gives, with several axes of inputs or outputs."""
    leaf = QUERY if which == "query" else OUT
    equation, shape = ("bsi,ihd->bshd", (4, 3, 6)) if which == "query" else ("bshd,hdo->bso", (4, 3, 2, 4))
    x = jax.random.normal(jax.random.key(5), shape)
    own = family.for_leaf(leaf)
    variational = own.init(jax.random.key(0), jax.random.normal(jax.random.key(1), leaf.shape), leaf)
    variational = own.component(variational, 1)
    keys = jax.random.split(jax.random.key(2), 3)
    array = own.array(variational, keys, EstimatorPlan(factors="per example", factor_axis=0), 4)
    outputs = quax.quaxify(lambda w, x: jnp.einsum(equation, x, w))(array, x)
    for i in range(4):
        kernel = array.kernel
        for factor, axes in zip(array.factors, array.axes, strict=True):
            lengths = [n if axis in axes else 1 for axis, n in enumerate(leaf.shape)]
            kernel = kernel * factor[i].reshape(lengths)
        np.testing.assert_allclose(outputs[i], _one(equation, x[i], kernel), rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize("which", ["query", "out"])
def test_gradients_by_factors_of_several_axes(which):
    """Components that see the same data take their factors' gradients by way of the weights: it must be the same."""
    leaf = QUERY if which == "query" else OUT
    equation, shape = ("bsi,ihd->bshd", (4, 3, 6)) if which == "query" else ("bshd,hdo->bso", (4, 3, 2, 4))
    x, kernel = jax.random.normal(jax.random.key(5), shape), jax.random.normal(jax.random.key(1), leaf.shape)
    sizes = [math.prod(leaf.shape[axis] for axis in axes) for axes in (leaf.in_axes, leaf.out_axes)]
    factors = [jax.random.normal(jax.random.key(7 + i), (3, n)) for i, n in enumerate(sizes)]

    def by_factors(kernel, factors):
        def one(into, out):
            array = FactorArray(kernel, (into[None], out[None]), (leaf.in_axes, leaf.out_axes), 0, of_component=True)
            return quax.quaxify(lambda w, x: jnp.einsum(equation, x, w))(array, x)

        return jnp.sin(jax.vmap(one)(*factors)).sum()

    def by_kernels(kernel, factors):
        both = leaf.in_axes, leaf.out_axes
        shapes = [[n if axis in axes else 1 for axis, n in enumerate(leaf.shape)] for axes in both]
        own = [f.reshape(3, *shape) for f, shape in zip(factors, shapes, strict=True)]
        return jnp.sin(jax.vmap(lambda a, b: jnp.einsum(equation, x, kernel * a * b))(*own)).sum()

    got, expected = (jax.jit(jax.grad(f, argnums=(0, 1)))(kernel, factors) for f in (by_factors, by_kernels))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4), got, expected)


def test_factors_turn_with_their_kernel():
    x = jax.random.normal(jax.random.key(5), (4, 3, 4, 2))
    factors = tuple(jax.random.normal(jax.random.key(7 + i), (4, n)) for i, n in enumerate((8, 10)))
    array = FactorArray(jax.random.normal(jax.random.key(1), OUT.shape), factors, (OUT.in_axes, OUT.out_axes), 0)
    outputs = quax.quaxify(lambda w, x: jnp.einsum("bsdh,dho->bso", x, w.transpose(1, 0, 2)))(array, x)
    for i in range(4):
        kernel = array.kernel * factors[0][i].reshape(2, 4, 1) * factors[1][i]
        np.testing.assert_allclose(outputs[i], jnp.einsum("sdh,hdo->so", x[i], kernel), rtol=2e-5, atol=1e-5)


def _one(equation, x, kernel):
    return jnp.einsum(equation.replace("b", ""), x, kernel)
