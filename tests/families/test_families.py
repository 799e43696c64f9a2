"""Families by themselves: draws, KLs, entropies and parameter counts, against formulas and explicit sampling."""

import math
from functools import cache
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from every_family import FAMILIES
from scipy import stats

import posteriax as px
from posteriax import families as q
from posteriax import priors as p
from posteriax.families.rank1 import NOISES
from posteriax.networks.leaf import Leaf
from posteriax.priors.improper import ard_kl, log_uniform_kl

KEY = jax.random.key(0)
LEAF = Leaf("w", (3, 4))
DRAWS = 20_000

GAUSSIANS = {name: case.family for name, case in FAMILIES.items() if isinstance(case.family, q.Gaussian)}
OTHERS = {
    name: case.family
    for name, case in FAMILIES.items()
    if case.family.random and not isinstance(case.family, q.Gaussian)
}


def started(family, leaf=LEAF):
    """A family for a leaf, with parameters away from their start, so that nothing is hidden by a zero."""
    own = family.for_leaf(leaf)

    @jax.jit  # one program instead of one for every operation
    def start():
        variational = own.init(KEY, jax.random.normal(jax.random.key(1), leaf.shape), leaf)
        keys = jax.random.split(jax.random.key(2), len(variational))
        moved = zip(variational.items(), keys, strict=True)
        return {name: value + 0.1 * jax.random.normal(k, value.shape) for (name, value), k in moved}

    return own, start()


def drawn(family, variational, count=DRAWS):
    keys = jax.random.split(jax.random.key(5), count)
    draws = jax.jit(lambda own, keys: jax.vmap(lambda k: family.sample(own, k))(keys))(variational, keys)
    return np.asarray(draws).reshape(count, -1)


class Gaussian(NamedTuple):
    """What one program says of a Gaussian family: its moments, entropy, draws, and KLs to `PRIORS`."""

    mean: jax.Array
    variance: jax.Array
    entropy: jax.Array
    draws: jax.Array
    kls: dict[str, jax.Array]


PRIORS = {"scalar": dist.Normal(0.2, 0.7), "leaf": dist.Normal(np.zeros((3, 4)), 0.5)}


@cache
def gaussian(name):
    family, variational = started(GAUSSIANS[name])

    @jax.jit
    def program(own):
        keys = jax.random.split(jax.random.key(5), DRAWS)
        draws = jax.vmap(lambda k: family.sample(own, k))(keys)
        kls = {name: family.kl(own, prior, KEY) for name, prior in PRIORS.items()}
        return Gaussian(family.mean(own).ravel(), family.variance(own).ravel(), family.entropy(own), draws, kls)

    return program(variational)


@pytest.mark.parametrize("name", GAUSSIANS)
def test_draws_have_the_moments_that_the_family_states(name):
    own = gaussian(name)
    draws, variance = np.asarray(own.draws).reshape(DRAWS, -1), np.asarray(own.variance)
    error = np.sqrt(variance / DRAWS)
    np.testing.assert_array_less(np.abs(draws.mean(0) - own.mean), 5 * error)
    np.testing.assert_array_less(np.abs(draws.var(0) / variance - 1), 5 * math.sqrt(2 / DRAWS))


@pytest.mark.slow
@pytest.mark.parametrize("name", GAUSSIANS)
def test_the_entropy_is_that_of_the_draws_covariance(name):
    family, variational = started(GAUSSIANS[name])
    # the exact covariance, from the noise's own linear map: it is linear in what standard_normal gives
    draws = drawn(family, variational, 200_000)
    _, logdet = np.linalg.slogdet(np.cov(draws.T))
    entropy = 0.5 * (logdet + 12 * math.log(2 * math.pi * math.e))
    # a sample covariance of n draws in D dimensions has a log-determinant within sqrt(2 D / n) of the true one
    assert abs(float(family.entropy(variational)) - entropy) < 5 * 0.5 * math.sqrt(2 * 12 / 200_000)


@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("name", GAUSSIANS)
def test_the_closed_form_kl_is_the_mean_of_log_q_minus_log_p(name, prior):
    own = gaussian(name)
    p_scipy = stats.norm(np.asarray(PRIORS[prior].loc), np.asarray(PRIORS[prior].scale))
    log_p = p_scipy.logpdf(own.draws).sum(axis=(1, 2))
    estimate = -float(own.entropy) - log_p.mean()
    assert abs(float(own.kls[prior]) - estimate) < 5 * log_p.std() / math.sqrt(DRAWS)


@pytest.mark.slow
@pytest.mark.parametrize("name", GAUSSIANS)
def test_a_kl_without_closed_form_is_estimated_without_bias_and_says_so(name):
    family, variational = started(GAUSSIANS[name])
    prior = dist.StudentT(3.0, 0.0, 0.5)
    assert "one draw" in family.kl_note(prior)
    assert family.kl_note(dist.Normal(0.0, 1.0)) == ""
    values = np.asarray(jax.vmap(lambda k: family.kl(variational, prior, k))(jax.random.split(KEY, DRAWS)))
    draws = drawn(family, variational).reshape(DRAWS, *LEAF.shape)
    log_p = np.asarray(jax.vmap(lambda w: prior.log_prob(w).sum())(draws))
    truth = -float(family.entropy(variational)) - log_p.mean()
    assert abs(values.mean() - truth) < 5 * (values.std() + log_p.std()) / math.sqrt(DRAWS)


# --- log-uniform and ARD priors ---


@pytest.mark.parametrize(("log_alpha", "kl", "ard"), [(-4, 2.634, 2.009), (-2, 1.541, 1.064), (0, 0.431, 0.347)])
def test_the_kl_of_multiplicative_noise_has_its_known_values(log_alpha, kl, ard):
    assert float(log_uniform_kl(jnp.array(log_alpha))) == pytest.approx(kl, abs=1e-3)
    assert float(ard_kl(jnp.array(log_alpha))) == pytest.approx(ard, abs=1e-3)


def test_the_log_uniform_kl_falls_to_zero_and_is_that_of_its_integral():
    grid = jnp.linspace(-10, 12, 200)
    values = np.asarray(log_uniform_kl(grid))
    assert np.all(np.diff(values) < 0)
    assert values[-1] < 1e-5
    # -1/2 log alpha + E log|1 + sqrt(alpha) e|, less its limit (-gamma - log 2) / 2
    e = np.random.default_rng(0).normal(size=400_000)
    for log_alpha in (-2.0, 0.0, 2.0):
        terms = np.log(np.abs(1 + math.exp(log_alpha / 2) * e)) - log_alpha / 2 - (-np.euler_gamma - math.log(2)) / 2
        error = 5 * terms.std() / math.sqrt(e.size) + 0.011  # of the sum, and of the formula
        assert abs(float(log_uniform_kl(jnp.array(log_alpha))) - terms.mean()) < error


@pytest.mark.parametrize("prior", [p.LogUniform(), p.ARD()], ids=["log-uniform", "ARD"])
def test_every_sharing_of_alpha_has_the_same_kl_per_weight(prior):
    distribution = prior.distribution(LEAF)
    values = jax.random.normal(KEY, LEAF.shape)
    kls = []
    for share in ("layer", "neuron", "weight"):
        family = q.MultiplicativeNormal(share, log_alpha=-1.0)
        kls.append(float(family.kl(family.init(KEY, values, LEAF), distribution, KEY)))
    np.testing.assert_allclose(kls, kls[0], rtol=1e-5)
    # a mean-field Gaussian with the same moments has the same KL
    normal = {"mean": values, "log_scale": jnp.log(jnp.exp(-0.5) * jnp.abs(values))}
    assert float(q.Normal().kl(normal, distribution, KEY)) == pytest.approx(kls[0], rel=1e-4)


def test_a_zero_mean_gaussian_has_no_kl_to_the_log_uniform_prior():
    family, variational = started(q.ZeroMeanNormal())
    assert float(family.kl(variational, p.LogUniform().distribution(LEAF), KEY)) == 0.0


# --- the k-tied Normal ---


@pytest.mark.parametrize("k", [1, 2, 3])
def test_tied_scales_start_at_about_a_hundredth(k):
    leaf = Leaf("w", (400, 300))
    scale = q.KTied(k).moments(q.KTied(k).init(KEY, jnp.zeros(leaf.shape), leaf))[1]
    assert 0.009 < float(scale.mean()) < 0.012
    assert scale.shape == leaf.shape


def test_one_tied_is_a_matrix_normal_with_diagonal_factors():
    family, variational = started(q.KTied(1))
    u, v = (np.exp(np.asarray(variational[name])[:, 0]) for name in ("log_u", "log_v"))
    covariance = np.diag(np.asarray(family.variance(variational)).ravel())
    np.testing.assert_allclose(covariance, np.kron(np.diag(u**2), np.diag(v**2)), rtol=1e-5)


@pytest.mark.parametrize(("shape", "out_axis"), [((3, 3, 2, 6), -1), ((6, 2, 3, 3), 0)], ids=["HWIO", "OIHW"])
def test_convolution_kernels_are_tied_as_inputs_by_outputs(shape, out_axis):
    leaf = Leaf("conv", shape, out_axis)
    family, variational = started(q.KTied(2), leaf)
    scale = np.asarray(family.moments(variational)[1])
    matrix = scale.reshape(-1, 6) if out_axis == -1 else scale.reshape(6, -1)
    assert np.linalg.matrix_rank(matrix, tol=1e-5 * matrix.max()) == 2


def mlp_parameters(family):
    net = eqx.nn.MLP(784, 10, 400, 2, key=KEY)
    problem = px.Problem(net, px.Categorical())
    method = px.VI(family)
    return count(method, problem, jax.ShapeDtypeStruct((784,), jnp.float32))


def count(method, problem, example):
    from posteriax.methods import Task

    kernel = method.bind(Task(problem=problem, example=example, num_examples=10, steps=1))
    start = jax.eval_shape(lambda: kernel.init(KEY, problem.latents, None))
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(start.variational))


def test_the_mlp_has_the_papers_parameter_counts():
    counts = [mlp_parameters(family) for family in (q.Normal(), q.KTied(1), q.KTied(2), q.KTied(3))]
    assert counts == [956_820, 481_614, 484_008, 486_402]


def test_the_lstm_has_the_papers_parameter_counts():
    """Embedding 20,000 x 128 and the last dense layer are points; 128 units, both kernels and the bias in one cell."""

    def apply(params, tokens):
        embedded = params["embedding"][tokens]
        carry = (jnp.zeros((tokens.shape[0], 128)),) * 2

        def step(carry, x):
            h, c = carry
            gates = x @ params["input"] + h @ params["recurrent"] + params["bias"]
            i, f, g, o = jnp.split(gates, 4, axis=-1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), None

        (h, _), _ = jax.lax.scan(step, carry, jnp.swapaxes(embedded, 0, 1))
        return h @ params["dense"] + params["dense_bias"]

    shapes = {
        "embedding": (20_000, 128),
        "input": (128, 512),
        "recurrent": (128, 512),
        "bias": (512,),
        "dense": (128, 1),
        "dense_bias": (1,),
    }
    net = (apply, {name: np.zeros(shape, np.float32) for name, shape in shapes.items()})
    problem = px.Problem(net, px.Bernoulli())
    points = {"embedding": q.Point(), "dense*": q.Point(), "bias": q.Point()}
    example = jax.ShapeDtypeStruct((5,), jnp.int32)
    counts = [
        count(px.VI({"**": family, **points}), problem, example)
        for family in (q.Normal(), q.KTied(1), q.KTied(2), q.KTied(3))
    ]
    assert counts == [2_822_785, 2_692_993, 2_694_273, 2_695_553]


# --- rank-1 ---


def test_rank_1_adds_two_numbers_per_factor_and_component():
    components = 4
    dense = [(784, 400), (400, 400), (400, 10)]
    weights = sum(a * b for a, b in dense)
    overhead = sum(components * (a + b) * 2 for a, b in dense)
    biases = components * (400 + 400 + 10)
    assert mlp_parameters(q.Rank1(components)) == weights + overhead + biases
    assert mlp_parameters(q.Rank1(components, noise="point")) == weights + overhead // 2 + biases


NOISE_DISTRIBUTIONS = {
    "normal": (lambda m, s: stats.norm(m, s), lambda m, s: stats.norm(m, s)),
    "cauchy": (lambda m, s: stats.cauchy(m, s), lambda m, s: stats.cauchy(m, s)),
    "log_normal": (lambda m, s: stats.lognorm(s, scale=np.exp(m)), lambda m, s: stats.lognorm(s, scale=m)),
    "half_cauchy": (lambda m, s: stats.halfcauchy(np.exp(m), s), lambda m, s: stats.halfcauchy(0, s)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", NOISE_DISTRIBUTIONS)
def test_the_kl_of_factors_is_the_mean_of_log_q_minus_log_p(name):
    noise, (own, prior) = NOISES[name], NOISE_DISTRIBUTIONS[name]
    location, log_scale = jnp.array([0.3]), jnp.log(jnp.array([0.4]))
    draws = own(0.3, 0.4).rvs(200_000, random_state=0)
    terms = own(0.3, 0.4).logpdf(draws) - prior(1.0, 0.5).logpdf(draws)
    keys = jax.random.split(KEY, 20_000)
    values = np.asarray(jax.vmap(lambda k: noise.kl(k, location, log_scale, 1.0, 0.5))(keys))
    error = 5 * (terms.std() / math.sqrt(200_000) + values.std() / math.sqrt(20_000))
    assert abs(values.mean() - terms.mean()) < error + 1e-5
    entropy = -own(0.3, 0.4).logpdf(draws)
    assert abs(float(noise.entropy(location, log_scale)) - entropy.mean()) < 5 * entropy.std() / math.sqrt(200_000)
    # draws, against the distribution itself; what lies beyond 10 is clipped
    sample = np.asarray(noise.draw(KEY, location, log_scale, 20_000, jnp.ones(1)))[:, 0]
    inside = np.abs(sample) < 9.9
    assert inside.mean() > 0.95
    low, high = own(0.3, 0.4).cdf([-9.9, 9.9])
    assert stats.kstest(sample[inside], lambda z: (own(0.3, 0.4).cdf(z) - low) / (high - low)).pvalue > 1e-3
    assert np.median(sample) == pytest.approx(own(0.3, 0.4).median(), abs=0.02)


@pytest.mark.slow
def test_the_kl_of_rank_1_grows_with_the_number_of_equal_components():
    def kl(components):
        family = q.Rank1(components, start="normal", start_value=0.0).for_leaf(LEAF)
        variational = family.init(KEY, jnp.zeros(LEAF.shape), LEAF)
        equal = {name: jnp.full_like(value, -2.0) if "log" in name else value for name, value in variational.items()}
        return float(family.kl(equal, dist.Normal(0.0, 1.0), KEY)) + float(dist.Normal(0.0, 1.0).log_prob(0.0)) * 12

    assert kl(6) == pytest.approx(6 * kl(1), rel=1e-4)


@pytest.mark.parametrize("name", OTHERS)
def test_the_mean_is_the_mean_of_draws(name):
    family, variational = started(OTHERS[name])
    each = [drawn(family, family.component(variational, k)).mean(axis=0) for k in range(family.components or 1)]
    spread = drawn(family, family.component(variational, 0)).std(axis=0)
    mean = np.asarray(family.mean(variational)).ravel()
    np.testing.assert_array_less(np.abs(np.mean(each, axis=0) - mean), 5 * (spread + 0.1) / math.sqrt(DRAWS))
