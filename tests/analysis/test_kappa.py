"""kappa against automatic differentiation, and sparse ensembles."""

import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from by_hand import drawn, variational

import posteriax as px
from posteriax import families as q
from posteriax.analysis.kappa import curvature_diagonal

KAPPA = sys.modules[curvature_diagonal.__module__]  # `px.analysis.kappa` is the function
KEY = jax.random.key(0)
RNG = np.random.default_rng(0)


def linen_conv():
    linen = pytest.importorskip("flax.linen")

    class Net(linen.Module):
        @linen.compact
        def __call__(self, x):
            x = jax.nn.softplus(linen.Conv(3, (2, 2), strides=2)(x))
            return linen.Dense(4)(x.reshape(x.shape[0], -1))

    return Net(), Net().init(KEY, jnp.ones((1, 6, 6, 2)))


def equinox_conv():
    keys = jax.random.split(KEY, 3)
    return eqx.nn.Sequential(
        [
            eqx.nn.Conv2d(2, 6, 3, padding=1, key=keys[0]),
            eqx.nn.Lambda(jax.nn.softplus),
            eqx.nn.Conv2d(6, 8, 3, stride=2, key=keys[1]),
            eqx.nn.Lambda(jax.nn.relu),
            eqx.nn.Lambda(jnp.ravel),
            eqx.nn.Linear(32, 4, key=keys[2]),
        ]
    )


def sequence():
    """A dense layer that every example meets at several positions, turned before it is used."""
    params = {"w": RNG.normal(size=(3, 5)), "v": RNG.normal(size=(4, 5)), "twice": RNG.normal(size=(3, 3))}

    def apply(w, x):
        x = jnp.tanh(jnp.tanh(x @ w["twice"]) @ w["twice"])
        hidden = jax.nn.softplus(jnp.einsum("npi,ih->nph", x, w["w"]))
        return hidden.sum(axis=1) @ w["v"].T

    return apply, params


CASES = {
    "dense": (lambda: eqx.nn.MLP(5, 4, 7, 2, jax.nn.softplus, key=KEY), (5,)),
    "dense with kinks": (lambda: eqx.nn.MLP(5, 4, 7, 2, key=KEY), (5,)),
    "equinox convolution": (equinox_conv, (2, 6, 6)),
    "linen convolution": (linen_conv, (6, 6, 2)),
    "positions, turned, used twice": (sequence, (4, 3)),
}


def problem_and_data(name, examples=9):
    make, shape = CASES[name]
    x = RNG.normal(size=(examples, *shape)).astype(np.float32)
    return px.Problem(make(), px.Categorical()), (x, RNG.integers(0, 4, size=examples))


def autodiff_diagonal(problem, latents, data, index):
    leaves, treedef = jax.tree.flatten(latents)

    def loss(flat):
        value = flat.reshape(leaves[index].shape)
        return -problem.log_likelihood(treedef.unflatten([*leaves[:index], value, *leaves[index + 1 :]]), data)

    return np.diag(jax.jit(jax.hessian(loss))(leaves[index].reshape(-1))).reshape(leaves[index].shape)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    # which has a dense layer, too
    [name if name == "equinox convolution" else pytest.param(name, marks=pytest.mark.slow) for name in CASES],
)
def test_the_identity_is_the_diagonal_of_the_hessian(name, monkeypatch):
    monkeypatch.setattr(KAPPA, "EXAMPLES", 4)  # several parts, the last one padded
    problem, data = problem_and_data(name)
    for index, leaf in enumerate(problem.leaf_infos):
        if leaf.is_bias:
            continue
        exact = autodiff_diagonal(problem, problem.latents, data, index)
        found = curvature_diagonal(problem, problem.latents, data, leaf)
        assert np.abs(found - exact).max() < 1e-4 * max(np.abs(exact).max(), 1.0), leaf.path


def test_a_layer_takes_products_of_its_pre_activations_not_of_its_weights(monkeypatch):
    problem, data = problem_and_data("equinox convolution")
    asked = []
    for name in ("_by_push", "_by_weights"):
        real = getattr(KAPPA, name)
        monkeypatch.setattr(KAPPA, name, lambda *a, real=real, name=name: asked.append(name) or real(*a))
    by_path = {leaf.path: leaf for leaf in problem.leaf_infos if not leaf.is_bias}
    for leaf in by_path.values():
        curvature_diagonal(problem, problem.latents, data, leaf)
    # 108 weights for 216 pre-activations; 432 for 32; 128 for 4
    assert asked == ["_by_weights", "_by_push", "_by_push"]


def test_it_refuses_what_would_take_too_long(monkeypatch):
    monkeypatch.setattr(KAPPA, "MOST_PRODUCTS", 8)
    problem, data = problem_and_data("positions, turned, used twice")
    twice = next(leaf for leaf in problem.leaf_infos if leaf.path == "twice")
    with pytest.raises(ValueError, match=r"would take 9 Hessian-vector products.*used 2 times"):
        curvature_diagonal(problem, problem.latents, data, twice)


def test_kappa_is_curvature_times_variance_at_each_members_mean():
    _, data = problem_and_data("dense")
    posterior = variational(CASES["dense"][0](), mean=0.5, scale=0.1, members=2)
    found = px.analysis.kappa(posterior, data, "layers/1/weight")
    assert list(found) == ["layers/1/weight"]
    own = posterior.variational["layers/1/weight"]
    index = posterior.problem.leaf_names.index("layers/1/weight")
    for member in range(2):
        leaves = [posterior.variational[name]["mean"][member] for name in posterior.problem.leaf_names]
        mean = jax.tree.unflatten(jax.tree.structure(posterior.problem.latents), leaves)
        exact = autodiff_diagonal(posterior.problem, mean, data, index) * np.exp(2 * own["log_scale"][member])
        np.testing.assert_allclose(found["layers/1/weight"][member], exact, rtol=1e-3, atol=1e-4 * np.abs(exact).max())


def test_networks_with_batch_statistics_are_refused():
    params = {"a": RNG.normal(size=(3, 5)), "b": RNG.normal(size=(5, 4))}

    def apply(w, x):
        hidden = x @ w["a"]
        return jax.nn.softplus((hidden - hidden.mean(axis=0)) / hidden.std(axis=0)) @ w["b"]

    posterior = variational((apply, params))
    with pytest.raises(ValueError, match="batch statistics"):
        px.analysis.kappa(posterior, (RNG.normal(size=(9, 3)).astype(np.float32), RNG.integers(0, 4, size=9)))


def test_where_most_are_zero_a_threshold_still_leaves_them_out():
    kappa = px.analysis.Kappa({"w": np.array([[0.0, 0.0, 0.0, 5.0, -7.0]])})
    assert kappa.threshold(keep=0.8) == 5.0 and kappa.threshold(keep=0.2) == 7.0
    assert kappa.threshold(keep=1.0) == 0.0


def test_a_million_weights_take_no_hessian():
    net = eqx.nn.MLP(784, 10, 700, 2, key=KEY)
    posterior = variational(net, mean=0.03, scale=0.0)
    x = RNG.normal(size=(6, 784)).astype(np.float32)
    found = px.analysis.kappa(posterior, (x, RNG.integers(0, 10, size=6)), "layers/1/weight")
    assert found["layers/1/weight"].shape == (1, 700, 700) and np.isfinite(found["layers/1/weight"]).all()


@pytest.mark.slow
@pytest.mark.parametrize("rest", ["mean", pytest.param("zero", marks=pytest.mark.slow)])
def test_a_sparse_ensemble_keeps_what_is_beyond_the_threshold(rest, tmp_path):
    net = CASES["dense"][0]()
    posterior = variational(net, mean=0.5, scale=0.1, members=2)
    _, data = problem_and_data("dense")
    kappa = px.analysis.kappa(posterior, data)
    threshold = kappa.threshold(keep=0.2)
    sparse = px.analysis.sparse_ensemble(posterior, kappa, threshold, rest)
    assert sparse.removed == pytest.approx(0.8, abs=0.01)
    draws = sparse.posterior.sample(0, 6)
    members = np.arange(6) % 2
    for i, name in enumerate(("layers/0/weight", "layers/1/weight", "layers/2/weight")):
        kept = np.abs(kappa[name]) >= threshold
        assert sparse.kept[name] == kept.sum()
        values, means = np.asarray(draws.layers[i].weight), np.asarray(posterior.variational[name]["mean"])
        for value, member in zip(values, members, strict=True):
            fixed = ~kept[member]
            np.testing.assert_array_equal(value[fixed], 0.0 if rest == "zero" else means[member][fixed])
        own = sparse.posterior.variational[name]
        family = sparse.posterior.families[name]
        variance = np.exp(2 * np.asarray(posterior.variational[name]["log_scale"])) * kept
        np.testing.assert_allclose(jax.vmap(family.variance)(own), variance, rtol=1e-5)
    assert np.asarray(draws.layers[0].bias).std(axis=0).min() > 0  # biases stay as they were
    sparse.save(tmp_path / "sparse.posterior")
    again = px.load(tmp_path / "sparse.posterior", net)
    np.testing.assert_array_equal(again.predict(data[0], 10).probs, sparse.predict(data[0], 10).probs)
    posterior.save(tmp_path / "dense.posterior")
    dense, left = (
        sum(a.size for name in kappa for a in made.variational[name].values()) for made in (posterior, sparse.posterior)
    )
    assert sparse.compression == pytest.approx(dense / left)
    assert (sparse.compression > 1.5) == (rest == "zero")
    if rest == "zero":
        sizes = [(tmp_path / f"{name}.posterior").stat().st_size for name in ("sparse", "dense")]
        assert sizes[0] < sizes[1]
    assert "removed" in str(sparse)


@pytest.mark.slow
def test_with_nothing_beyond_the_threshold_nothing_is_random():
    posterior = variational(CASES["dense"][0]())
    _, data = problem_and_data("dense")
    kappa = px.analysis.kappa(posterior, data)
    sparse = px.analysis.sparse_ensemble(posterior, kappa, np.inf, rest="mean")
    assert sparse.removed == 1.0
    np.testing.assert_allclose(
        sparse.posterior.sample(0, 1).layers[0].weight[0], posterior.mean.layers[0].weight, rtol=1e-6
    )
    whole = px.analysis.sparse_ensemble(posterior, kappa, 0.0)
    assert whole.removed == 0.0


@pytest.mark.slow
def test_what_they_cannot_do_is_said():
    net = CASES["dense"][0]()
    _, data = problem_and_data("dense")
    with pytest.raises(TypeError, match="variational posterior"):
        px.analysis.kappa(drawn(net, jax.tree.map(lambda a: a[None, None], eqx.filter(net, eqx.is_array))), data)
    with pytest.raises(TypeError, match="variance of each weight"):
        px.analysis.kappa(variational(net, family=q.Rank1(2)), data)
    posterior = variational(net)
    kappa = px.analysis.kappa(posterior, data)
    with pytest.raises(ValueError, match="threshold"):
        px.analysis.sparse_ensemble(posterior, kappa, -1.0)
    with pytest.raises(ValueError, match='"zero" or "mean"'):
        px.analysis.sparse_ensemble(posterior, kappa, 1.0, rest="none")
    with pytest.raises(ValueError, match="keep"):
        kappa.threshold(keep=0.0)
    with pytest.raises(ValueError, match="kappa of layers/0/weight has shape"):
        px.analysis.sparse_ensemble(variational(net, members=2), kappa, 1.0)
    with pytest.raises(TypeError, match="is not trained"):
        px.fit(px.Problem(net, px.Categorical()), data, px.VI(q.SparseNormal((5, 7))), steps=1, key=0)
