"""Mixed precision: the network in bfloat16, everything else in float32."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import known
import numpy as np
import optax
import pytest
from every_family import FAMILIES

import posteriax as px
from posteriax import families as q
from posteriax.families.arrays import GaussianArray
from posteriax.families.arrays.noise import standard_normal
from posteriax.families.matrix_normal import KroneckerArray

NET = eqx.nn.MLP(2, 2, 8, 1, key=jax.random.key(0))
X = np.random.default_rng(0).normal(size=(16, 2)).astype(np.float32)
LOW = jnp.bfloat16


def in_low(exact):
    net = px.network(exact.problem.network, compute="bfloat16")
    return dataclasses.replace(exact, problem=dataclasses.replace(exact.problem, network=net))


@pytest.mark.slow
def test_the_network_computes_in_bfloat16_and_nothing_else_does():
    net = px.network(NET, compute=LOW)
    by_hand = jax.vmap(jax.tree.map(lambda a: a.astype(LOW) if eqx.is_array(a) else a, NET))(X.astype(LOW))
    outputs = net.apply(net.params, X)
    assert by_hand.dtype == LOW
    assert outputs.dtype == jnp.float32
    np.testing.assert_array_equal(outputs, by_hand.astype(np.float32))
    assert np.abs(outputs - px.network(NET).apply(net.params, X)).max() > 0
    problem = px.Problem(net, px.Categorical())
    gradient = jax.grad(problem.log_joint)(problem.network.params, (X, np.zeros(16, int)))
    assert {leaf.dtype for leaf in jax.tree.leaves((net.params, gradient))} == {jnp.dtype("float32")}
    assert px.network(net, compute="bfloat16") is net


def test_whole_numbers_are_left_alone():
    table = np.arange(1000, dtype=np.float32)[:, None]
    net = px.network((lambda w, x: w[x], table), compute="bfloat16")
    np.testing.assert_array_equal(net.apply(net.params, np.array([3, 254])), [[3.0], [254.0]])
    assert net.apply(net.params, np.array([999]))[0, 0] == 1000.0  # an index of its own, a rounded entry


@pytest.mark.parametrize("compute", ["float16", "int8", "half a byte", 5])
def test_other_dtypes_are_refused(compute):
    with pytest.raises(ValueError, match='compute must be "bfloat16" or "float32", got'):
        px.network(NET, compute=compute)


def test_the_mode_is_off_by_the_rounding_of_weights_and_inputs():
    """Weights and inputs are rounded by up to 2^-8 of their size."""
    exact = in_low(known.linear_regression())
    posterior = px.fit(exact.problem, exact.data, px.MAP(known._adam(3000)), steps=3000, key=0)
    error = np.abs(np.asarray(posterior.mean["w"])[:, 0] - exact.mean)
    assert 0 < error.max() < 2**-8


@pytest.mark.slow
def test_vi_finds_the_posterior_in_bfloat16():
    known.check_recovery(known.METHODS["VI, full covariance"], in_low(known.linear_regression()))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["VI, mean-field", "HMC", "SGHMC"])
@pytest.mark.parametrize("problem", known.PROBLEMS)
@pytest.mark.filterwarnings("ignore:HMC computes its energies")
def test_wide_posteriors_are_recovered_in_bfloat16(problem, name):
    known.check_recovery(known.METHODS[name], in_low(known.PROBLEMS[problem]()), thorough=True)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:HMC computes its energies")
def test_a_posterior_narrower_than_the_rounding_stops_hmc():
    """30,000 examples: the standard deviations are 0.003, and numbers just above 1 are 0.008 apart."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(30_000, 4))
    exact = known.linear(x, x @ np.array([1.0, -0.5, 0.3, 0.0]) + 0.5 * rng.normal(size=30_000), 0.5, 1.0, 1.0)
    with pytest.raises(RuntimeError, match=r"leapfrogs for one trajectory|accepted none"):
        px.fit(in_low(exact).problem, exact.data, px.HMC(warmup=300, max_leapfrogs=100), draws=10, chains=2, key=0)


@pytest.mark.slow
def test_full_batch_samplers_warn(moons):
    problem = px.Problem(px.network(NET, compute="bfloat16"), px.Categorical())
    method = px.HMC(start="network", step_size=0.01, trajectory=0.02, warmup=1)
    with pytest.warns(UserWarning, match="HMC computes its energies in bfloat16"):
        posterior = px.fit(problem, moons[0], method, draws=2, key=0)
    assert any("bfloat16" in note for note in posterior.trace.notes)


@pytest.mark.slow
def test_a_file_remembers_it(moons, tmp_path):
    problem = px.Problem(px.network(NET, compute="bfloat16"), px.Categorical())
    posterior = px.fit(problem, moons[0], px.VI(q.Normal()), steps=3, key=0)
    posterior.save(tmp_path / "a.posterior")
    probs = posterior.predict(moons[1][0], draws=3).probs
    for net in (NET, px.network(NET, compute="bfloat16")):
        again = px.load(tmp_path / "a.posterior", net)
        assert again.problem.network.compute == "bfloat16"
        np.testing.assert_array_equal(again.predict(moons[1][0], draws=3).probs, probs)


@pytest.mark.slow
def test_a_checkpoint_of_another_precision_is_refused(moons, tmp_path):
    def fit(**compute):
        problem = px.Problem(px.network(NET, **compute), px.Categorical())
        px.fit(problem, moons[0], px.MAP(), steps=2, key=0, checkpoint=tmp_path)

    fit()
    with pytest.raises(px.run.CheckpointError, match="a step computes something else"):
        fit(compute="bfloat16")


@pytest.mark.slow
@pytest.mark.parametrize("name", [n if n == "Normal" else pytest.param(n, marks=pytest.mark.slow) for n in FAMILIES])
def test_every_family_trains_and_predicts(moons, name):
    problem = px.Problem(px.network(NET, compute="bfloat16"), px.Categorical())
    posterior = px.fit(problem, moons[0], px.VI(FAMILIES[name].family), steps=3, key=0)
    assert np.isfinite(posterior.trace["elbo"]).all()
    assert np.isfinite(posterior.predict(moons[1][0], draws=2).probs).all()


def contractions(jaxpr):
    """The dtypes of all products with the data of a program, those inside calls included."""
    for eqn in jaxpr.eqns:
        if eqn.primitive.name == "dot_general" and any(
            {len(X), 2 * len(X)} & set(v.aval.shape)
            for v in eqn.invars  # or of two components at once
        ):
            yield {v.aval.dtype for v in eqn.invars}
        for value in jax.tree.leaves(eqn.params, is_leaf=lambda v: hasattr(v, "jaxpr") or hasattr(v, "eqns")):
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                yield from contractions(inner)


@pytest.mark.parametrize(
    "family", [q.Normal(), q.KTied(2), q.MatrixNormal(), q.Rank1(2)], ids=lambda f: type(f).__name__
)
def test_products_with_data_are_in_bfloat16(family):
    """Of random arrays too, which keep their cheap products."""
    from posteriax.methods import Task
    from posteriax.methods.vi import block_keys, random_outputs
    from posteriax.networks.tracing.program import spec_of_example

    problem = px.Problem(px.network(eqx.nn.Linear(2, 3, key=jax.random.key(0)), compute="bfloat16"), px.Categorical())
    task = Task(problem=problem, example=spec_of_example(X), num_examples=16, steps=1)
    kernel = px.VI(family, optimizer=optax.sgd(0.0)).bind(task)
    assert any(block.plan.estimator != "weight" or block.plan.factors != "drawn" for block in kernel.blocks)
    key = jax.random.key(0)
    state = kernel.init(key, problem.latents, None)

    def outputs(variational, x):
        return random_outputs(problem, kernel.blocks, variational, block_keys(key, kernel.blocks), x)[1]

    found = list(contractions(jax.make_jaxpr(outputs)(state.variational, X).jaxpr))
    assert found
    assert all(dtypes == {jnp.dtype(LOW)} for dtypes in found)


def test_noise_in_bfloat16_is_that_of_a_normal():
    """Drawn in bfloat16 itself, it would end at 2.7 standard deviations."""
    draws = np.asarray(standard_normal(jax.random.key(0), (200_000,), LOW, unless_nan=jnp.zeros(()))).astype(np.float64)
    assert abs(draws.var() - 1) < 4 * np.sqrt(2 / len(draws)) + 2**-8
    assert np.abs(draws).max() > 4


def test_small_noise_is_added_before_rounding():
    """A mean of 1.501 rounds to 1.5; draws around it, each rounded, average to it."""
    n = 200_000
    mean, scale = jnp.full(n, 1.501), jnp.full(n, 0.01)
    array = GaussianArray(mean, scale, jax.random.split(jax.random.key(0), 3), "flipout", 0, (n,))
    low = array.move(jax.lax.convert_element_type_p, {"new_dtype": LOW})
    assert low.dtype == LOW
    drawn = np.asarray(low.materialise()).astype(np.float64)
    assert drawn.mean() == pytest.approx(1.501, abs=5 * 0.01 / np.sqrt(n))


@pytest.mark.parametrize("kind", ["Gaussian", "Kronecker"])
def test_local_products_have_the_moments_of_the_draws(kind):
    keys = jax.random.split(jax.random.key(0), 3)
    mean = jnp.asarray([[1.0, -2.0], [0.5, 0.25], [2.0, 1.0]])
    x = jnp.tile(jnp.asarray([1.0, 2.0, -1.0]), (40_000, 1))
    if kind == "Gaussian":
        scale = jnp.full((3, 2), 0.5)
        array = GaussianArray(mean, scale, keys, "local", 0, (3, 2))
        covariance = 6 * 0.25 * np.eye(2)
    else:
        left, right = 0.5 * jnp.eye(3), jnp.asarray([[1.0, 0.0], [0.5, 1.0]])
        array = KroneckerArray(mean, left, right, keys, 0)
        covariance = 6 * 0.25 * np.asarray(right @ right.T)
    import quax

    low = quax.quaxify(lambda a, w: a.astype(LOW) @ w.astype(LOW))(x, array)
    assert low.dtype == LOW
    outputs = np.asarray(low).astype(np.float64)
    bound = 5 * np.sqrt(covariance.max() / len(x)) + 2**-8 * np.abs(x[0] @ mean).max()
    np.testing.assert_allclose(outputs.mean(axis=0), np.asarray(x[0] @ mean), atol=bound)
    np.testing.assert_allclose(np.cov(outputs.T), covariance, atol=5 * 2 * covariance.max() / np.sqrt(len(x)) + 0.01)


def test_batch_statistics_are_measured_in_bfloat16_too():
    from flax import nnx

    class Net(nnx.Module):
        def __init__(self, rngs):
            self.hidden, self.norm = nnx.Linear(2, 4, rngs=rngs), nnx.BatchNorm(4, rngs=rngs)

        def __call__(self, x):
            return self.norm(self.hidden(x))

    net = px.network(Net(nnx.Rngs(0)), compute="bfloat16")
    statistics = net.batch_statistics.measure(net.params, X)
    outputs = net.batch_statistics.apply(net.params, statistics, X)
    assert {leaf.dtype for leaf in jax.tree.leaves((statistics, outputs))} == {jnp.dtype("float32")}
    np.testing.assert_allclose(outputs.mean(axis=0), np.zeros(4), atol=0.02)
