"""Families inside networks: structured arrays against the explicit weights they stand for."""

import dataclasses
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import quax

import posteriax as px
from posteriax import families as q
from posteriax.families.arrays.factor import FactorArray
from posteriax.families.matrix_normal import KroneckerArray
from posteriax.methods import Task
from posteriax.methods.vi import block_keys, random_outputs

KEY = jax.random.key(0)
BATCH = 3


def normal(seed, *shape):
    return jax.random.normal(jax.random.key(seed), shape)


def dense(params, x):
    return x @ params["w"]


def dense_outputs_first(params, x):
    return jax.vmap(lambda row: params["w"] @ row)(x)


def dense_transposed(params, x):
    return x @ params["w"].T


def conv(order, groups=1):
    def apply(params, x):
        return jax.lax.conv_general_dilated(
            x, params["w"], (1, 1), "SAME", dimension_numbers=order, feature_group_count=groups
        )

    return apply


def recurrent(params, x):
    def step(h, x_t):
        return jnp.tanh(x_t + h @ params["w"]), None

    return jax.lax.scan(step, jnp.zeros((x.shape[0], 4)), jnp.swapaxes(x, 0, 1))[0]


NETWORKS = {  # apply, the leaf's shape, its output axis, the shape of one example
    "dense": (dense, (3, 4), -1, (3,)),
    "dense, outputs first": (dense_outputs_first, (4, 3), 0, (3,)),
    "dense, transposed": (dense_transposed, (4, 3), 0, (3,)),
    "convolution, channels last": (conv(("NHWC", "HWIO", "NHWC")), (3, 3, 2, 4), -1, (5, 5, 2)),
    "convolution, channels first": (conv(("NCHW", "OIHW", "NCHW")), (4, 2, 3, 3), 0, (2, 5, 5)),
    "grouped convolution": (conv(("NHWC", "HWIO", "NHWC"), 2), (3, 3, 1, 4), -1, (5, 5, 2)),
    "recurrent": (recurrent, (4, 4), -1, (6, 4)),
}


def setting(name, family, estimator):
    """Outputs of keys and variational parameters, with the leaf's block, parameters and plan."""
    apply, shape, out_axis, example = NETWORKS[name]
    params = {"w": normal(1, *shape)}
    problem = px.Problem(px.network((apply, params), out_axis=out_axis), px.Normal(scale=1.0))
    task = Task(problem=problem, example=jax.ShapeDtypeStruct(example, jnp.float32), num_examples=BATCH, steps=1)
    leaves = px.VI(family, estimator=estimator).bind(task).blocks
    own = leaves[0].family.init(KEY, params["w"], leaves[0].info)
    x = normal(2, BATCH, *example)
    return problem, leaves, own, x


FAST = {
    ("dense", "factor"),
    ("dense", "auto"),
    ("dense, outputs first", "factor"),
    ("dense, transposed", "auto"),
    ("convolution, channels last", "auto"),
    ("convolution, channels first", "factor"),
    ("recurrent", "auto"),
}
CASES = [
    pytest.param(
        name, estimator, place, marks=[] if (name, estimator) in FAST and place == "both" else pytest.mark.slow
    )
    for name in NETWORKS
    for estimator in ("factor", "auto")
    for place in ("both", "input", "output")
]


@pytest.mark.parametrize(("name", "estimator", "place"), CASES)
def test_factored_products_are_those_of_the_explicit_weights(name, estimator, place):
    """Outputs and gradients, for shared factors and for each example its own."""
    problem, leaves, own, x = setting(name, q.Rank1(2, place=place, scale=0.3), estimator)
    keys = block_keys(KEY, leaves)
    family, plan = leaves[0].family, leaves[0].plan
    assert plan.factors == ("shared" if estimator == "factor" else "per example")

    def outputs(own):
        return random_outputs(problem, leaves, {"w": own}, keys, x)[1]

    def explicit(own):
        def of(component):
            k = jax.vmap(jax.random.fold_in, (0, None))(keys[0], component)
            array = family.array(family.component(own, component), k, plan, BATCH)

            def one(example, *factors):
                w = dataclasses.replace(array, factors=tuple(f[None] for f in factors)).materialise()
                return problem.network.apply({"w": w}, example[None])[0]

            return jax.vmap(one)(x, *(jnp.broadcast_to(f, (BATCH, f.shape[1])) for f in array.factors))

        return jax.vmap(of)(jnp.arange(2))

    weights = normal(3, *jax.eval_shape(outputs, own).shape)

    @jax.jit
    def compare(own):
        return [
            jax.value_and_grad(lambda v, f=f: (jnp.vdot(weights, f(v)), f(v)), has_aux=True)(own)
            for f in (outputs, explicit)
        ]

    ((_, ours), our_gradient), ((_, truth), true_gradient) = compare(own)
    np.testing.assert_allclose(ours, truth, rtol=1e-4, atol=1e-5)
    for leaf in own:
        np.testing.assert_allclose(our_gradient[leaf], true_gradient[leaf], rtol=1e-3, atol=1e-4, err_msg=leaf)


def test_the_weight_matrix_is_never_formed():
    def with_layers(params, x):
        return jnp.tanh(x @ params["first"]) @ params["last"]

    params = {"first": np.ones((30, 20), np.float32), "last": np.ones((20, 10), np.float32)}
    problem = px.Problem((with_layers, params), px.Categorical())
    task = Task(problem=problem, example=jax.ShapeDtypeStruct((30,), jnp.float32), num_examples=BATCH, steps=1)
    for estimator in ("factor", "auto"):
        leaves = px.VI(q.Rank1(2), estimator=estimator).bind(task).blocks
        own = {leaf.name: leaf.family.init(KEY, jnp.asarray(params[leaf.name]), leaf.info) for leaf in leaves}
        program = jax.make_jaxpr(
            lambda v, x, leaves=leaves: random_outputs(problem, leaves, v, block_keys(KEY, leaves), x)
        )
        lines = str(program(own, jnp.ones((BATCH, 30)))).splitlines()
        formed = [line for line in lines if "= mul" in line and ("[30,20]" in line or "[20,10]" in line)]
        assert not formed
        assert any("dot_general" in line for line in lines)


def test_one_component_of_fixed_ones_is_the_plain_network():
    problem, leaves, own, x = setting("dense", q.Rank1(1, noise="point", start="normal", start_value=0.0), "auto")
    outputs = random_outputs(problem, leaves, {"w": own}, block_keys(KEY, leaves), x)[1]
    np.testing.assert_allclose(outputs, problem.outputs({"w": own["kernel"]}, x)[None], rtol=1e-5)


def test_additive_factors_shift_inputs_and_outputs():
    problem, leaves, own, x = setting("dense", q.Rank1(2, form="additive", noise="point"), "auto")
    outputs = random_outputs(problem, leaves, {"w": own}, block_keys(KEY, leaves), x)[1]
    for k in range(2):
        np.testing.assert_allclose(outputs[k], (x + own["in"][k]) @ own["kernel"] + own["out"][k], rtol=1e-4, atol=1e-5)


def test_dropout_masks_differ_between_examples_and_scale_what_they_keep():
    problem, leaves, own, _ = setting("dense", q.Dropout(0.5), "auto")
    x = jnp.ones((2000, 3))
    family, plan = leaves[0].family, leaves[0].plan
    array = family.array(own, block_keys(KEY, leaves)[0], plan, 2000)
    masks = np.asarray(array.factors[0])
    assert set(np.unique(masks)) == {0.0, 2.0}
    assert abs((masks > 0).mean() - 0.5) < 5 * 0.5 / np.sqrt(masks.size)
    outputs = quax.quaxify(problem.network.apply)({"w": array}, x)
    np.testing.assert_allclose(outputs, masks @ own["value"], rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dense", "dense, outputs first", "dense, transposed"])
def test_the_local_matrix_normal_has_the_moments_of_explicit_draws(name):
    problem, leaves, own, x = setting(name, q.MatrixNormal(0.3), "local")
    own = {k: v + 0.3 * normal(4, *v.shape) for k, v in own.items()}
    draws = 20_000
    keys = jax.vmap(lambda k: block_keys(k, leaves))(jax.random.split(KEY, draws))
    local = jax.jit(jax.vmap(lambda k: random_outputs(problem, leaves, {"w": own}, k, x)[1]))(keys)
    family = leaves[0].family
    assert isinstance(family.array(own, keys[0, 0], leaves[0].plan, BATCH), KroneckerArray)
    explicit = jax.jit(jax.vmap(lambda k: problem.outputs({"w": family.sample(own, k[0, 1])}, x)))(keys)
    for b in range(BATCH):
        scale = np.asarray(explicit[:, b].std(axis=0))
        difference = np.abs(np.asarray(local[:, b].mean(axis=0) - explicit[:, b].mean(axis=0)))
        np.testing.assert_array_less(difference, 5 * scale * np.sqrt(2 / draws))
        error = np.abs(np.cov(np.asarray(local[:, b]).T) - np.cov(np.asarray(explicit[:, b]).T))
        np.testing.assert_array_less(error, 6 * np.outer(scale, scale) * np.sqrt(4 / draws))
    shared = np.corrcoef(np.asarray(local[:, :2, 0]).T)[0, 1]
    assert abs(shared) < 5 / np.sqrt(draws)  # examples have draws of their own


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in NETWORKS if name not in ("recurrent", "grouped convolution")])
def test_tied_variances_contract_by_their_factors(name):
    apply, shape, out_axis, example = NETWORKS[name]
    wide = tuple(24 if n == shape[out_axis] and axis == out_axis % len(shape) else n for axis, n in enumerate(shape))
    if len(shape) == 2:
        wide = tuple(24 for _ in shape)
        example = (24,)
    problem = px.Problem(px.network((apply, {"w": normal(1, *wide)}), out_axis=out_axis), px.Normal(scale=1.0))
    task = Task(problem=problem, example=jax.ShapeDtypeStruct(example, jnp.float32), num_examples=BATCH, steps=1)
    (leaf,) = px.VI(q.KTied(2), estimator="local").bind(task).blocks
    own = leaf.family.init(KEY, problem.network.params["w"], leaf.info)
    keys = block_keys(KEY, (leaf,))[0]
    array = leaf.family.array(own, keys, leaf.plan, BATCH)
    assert array.factors is not None
    run = quax.quaxify(problem.network.apply)
    x = normal(2, BATCH, *example)
    plain = run({"w": dataclasses.replace(array, factors=None)}, x)
    np.testing.assert_allclose(run({"w": array}, x), plain, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_a_mixture_predicts_the_mean_of_its_components_and_trains_on_their_average_or_mixture():
    """Outputs are (components, examples); the mixture is never worse than the average."""
    problem, leaves, own, x = setting("dense", q.Rank1(3, scale=0.3), "factor")
    y = normal(6, BATCH, 4)
    outputs = random_outputs(problem, leaves, {"w": own}, block_keys(KEY, leaves), x)[1]
    assert outputs.shape == (3, BATCH, 4)
    each = jax.vmap(lambda o: problem.likelihood.log_prob({}, o, y))(outputs)
    losses = {}
    from posteriax.data import Batch
    from posteriax.families.blocks import Mixture
    from posteriax.methods.vi import _log_likelihood
    from posteriax.problem import Latents

    batch = Batch(x, y, jnp.ones(BATCH))
    for kind in ("average", "mixture"):
        losses[kind] = float(_log_likelihood(problem, Mixture(3, kind), Latents(None, {}), outputs, batch))
    assert losses["average"] == pytest.approx(float(each.mean(axis=0).sum()), rel=1e-5)
    assert losses["mixture"] == pytest.approx(float(np.log(np.exp(np.asarray(each)).mean(axis=0)).sum()), rel=1e-4)
    assert losses["mixture"] >= losses["average"]


MIXED = {
    "Equinox": [q.FullCovariance("network"), q.Rank1(2), q.KTied(1), q.LowRank(2, "network")],
    "NNX": [q.MultiplicativeNormal("layer"), q.Dropout(0.1), q.Normal(), q.Rank1(2, "cauchy")],
    "Linen": [q.MatrixNormal(), q.Rank1(2, "point"), q.ZeroMeanNormal(), q.ZeroMeanNoise()],
}


def networks(depth):
    from flax import linen, nnx

    sizes = [2, *[3] * (depth - 1), 2]

    class Linen(linen.Module):
        @linen.compact
        def __call__(self, x):
            for i, size in enumerate(sizes[1:]):
                x = linen.tanh(linen.Dense(size, name=str(i))(x))
            return x

    class Nnx(nnx.Module):
        def __init__(self, rngs):
            for i in range(depth):
                setattr(self, f"l{i}", nnx.Linear(sizes[i], sizes[i + 1], rngs=rngs))

        def __call__(self, x):
            for i in range(depth):
                x = nnx.tanh(getattr(self, f"l{i}")(x))
            return x

    module = Linen()
    return {
        "Equinox": (eqx.nn.MLP(2, 2, 3, depth - 1, key=KEY), lambda i: f"layers/{i}/*"),
        "NNX": (Nnx(nnx.Rngs(0)), lambda i: f"l{i}/*"),
        "Linen": ((module, module.init(KEY, jnp.ones((1, 2)))), lambda i: f"**/{i}/*"),
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    "framework", ["Equinox", *(pytest.param(name, marks=pytest.mark.slow) for name in ("NNX", "Linen"))]
)
def test_families_mixed_by_path_train_predict_and_survive_a_file(framework, moons, tmp_path):
    check_mixed(framework, MIXED[framework][:2], moons, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("shift", range(3))
@pytest.mark.parametrize("framework", ["Equinox", "NNX", "Linen"])
def test_every_family_in_every_framework(framework, shift, moons, tmp_path):
    families = [family for chosen in MIXED.values() for family in chosen]
    check_mixed(framework, families[4 * shift : 4 * shift + 4], moons, tmp_path)


def check_mixed(framework, families, moons, tmp_path):
    net, path = networks(len(families))[framework]
    problem = px.Problem(net, px.Categorical())
    method = px.VI({path(i): family for i, family in enumerate(families)})
    method = px.Ensemble(method, 2) if framework == "Equinox" else method
    (x, y), _ = moons
    posterior = px.fit(problem, (x, y), method, steps=5, key=0)
    assert np.isfinite(posterior.trace["elbo"]).all()
    probs = posterior.predict(x[:7], draws=8).probs
    np.testing.assert_allclose(probs.sum(axis=1), 1, rtol=1e-5)
    assert jax.tree.structure(posterior.sample(0, 2)) == jax.tree.structure(posterior.mean)
    posterior.save(tmp_path / "mixed.posterior")
    again = px.load(tmp_path / "mixed.posterior", net)
    np.testing.assert_array_equal(again.predict(x[:7], draws=8).probs, probs)
    assert again.num_parameters == posterior.num_parameters


@pytest.mark.slow
def test_additive_factors_predict_but_have_no_params_to_sample(moons):
    net = eqx.nn.MLP(2, 2, 4, 1, key=KEY)
    (x, y), _ = moons
    posterior = px.fit(px.Problem(net, px.Categorical()), (x, y), px.VI(q.Rank1(2, form="additive")), steps=5, key=0)
    assert posterior.predict(x[:7], draws=6, reduce=True).probs.shape == (7, 2)
    with pytest.raises(TypeError, match="predict"):
        posterior.sample(0, 3)


@pytest.mark.slow
def test_a_batch_ensemble_has_as_many_draws_as_components(moons):
    net = eqx.nn.MLP(2, 2, 4, 1, key=KEY)
    (x, y), _ = moons
    method = px.VI(q.Rank1(3, noise="point"))
    posterior = px.fit(px.Problem(net, px.Categorical()), (x, y), method, steps=5, key=0)
    assert posterior.support == 3
    assert posterior.predict(x[:7]).outputs.shape[0] == 3
    alone = [posterior.draw(KEY, np.array([k]), 3) for k in range(3)]
    weights = np.stack([np.asarray(one.network.layers[0].weight[0]) for one in alone])
    own = posterior.variational["layers/0/weight"]
    for k in range(3):
        explicit = own["kernel"][0] * np.outer(own["out"][0, k], own["in"][0, k])
        np.testing.assert_allclose(weights[k], explicit, rtol=1e-5)


BAD = {
    "rank": ({"**": q.Normal(), "layers/0/weight": q.KTied(3)}, "layers/0/weight .* rank 2 at most"),
    "no density": (q.Point(), "needs a prior with a density"),
    "rank-1 without density": (q.Rank1(2), "needs a prior with a density"),
    "too large": (q.FullCovariance("network"), "q.FullCovariance for"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_family_that_does_not_fit_is_refused_before_any_compute(name, moons, monkeypatch):
    family, message = BAD[name]
    width = 200 if name == "too large" else 4
    net = eqx.nn.MLP(2, 2, width, 2 if name == "too large" else 1, key=KEY)
    prior = px.priors.LogUniform() if "density" in name else px.priors.Normal(1.0)
    monkeypatch.setattr("posteriax.run.fitting.Program", None)
    with pytest.raises(ValueError, match=message):
        px.fit(px.Problem(net, px.Categorical(), prior), moons[0], px.VI(family), steps=5, key=0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (partial(q.KTied, 0), "k must be"),
        (partial(q.Rank1, 0), "components must be"),
        (partial(q.Rank1, noise="gamma"), 'noise must be "normal"'),
        (partial(q.Rank1, place="inside"), 'place must be "input"'),
        (partial(q.Rank1, form="additive", noise="log_normal"), "both signs"),
        (partial(q.Rank1, noise="log_normal", prior_mean=-1.0), "prior_mean must be"),
        (partial(q.LowRank, 0), "rank must be"),
        (partial(q.FullCovariance, "layer"), "over must be"),
        (partial(q.MultiplicativeNormal, "filter"), "share must be"),
        (partial(q.Dropout, 1.0), "rate must lie"),
        (partial(q.ZeroMeanNoise, "normal"), "noise must be"),
    ],
)
def test_settings_without_meaning_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_mixtures_of_different_sizes_are_refused(moons):
    net = eqx.nn.MLP(2, 2, 4, 1, key=KEY)
    families = {"layers/0/*": q.Rank1(2), "layers/1/*": q.Rank1(3)}
    with pytest.raises(ValueError, match="same components"):
        px.fit(px.Problem(net, px.Categorical()), moons[0], px.VI(families), steps=5, key=0)


@pytest.mark.parametrize("method", [px.MAP(), px.HMC()], ids=["MAP", "HMC"])
def test_priors_without_density_are_refused_by_what_needs_one(method, moons):
    net = eqx.nn.MLP(2, 2, 4, 1, key=KEY)
    length = {"draws": 5} if isinstance(method, px.HMC) else {"steps": 5}
    with pytest.raises(ValueError, match="needs priors with a density"):
        px.fit(px.Problem(net, px.Categorical(), px.priors.ARD()), moons[0], method, key=0, **length)


def test_a_factor_array_is_handled_as_its_product_where_it_has_no_rule():
    array = FactorArray(normal(1, 3, 4), (normal(2, 1, 3), normal(3, 1, 4)), ((0,), (1,)), 0)
    explicit = array.materialise()
    np.testing.assert_allclose(quax.quaxify(jnp.sum)(array), explicit.sum(), rtol=1e-5)
    np.testing.assert_allclose(quax.quaxify(lambda w: w.reshape(-1)[3:5])(array), explicit.reshape(-1)[3:5], rtol=1e-5)
