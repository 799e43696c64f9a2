"""Truncation and switches, on posteriors whose scales are set by hand."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import posteriax as px
from posteriax import families as q
from posteriax.analysis.spectra import truncate_matrix
from posteriax.posterior import VariationalPosterior
from posteriax.posterior.trace import Trace

KEY = jax.random.key(0)


def scales_of(posterior, name):
    own = posterior.variational[name]
    return np.exp(np.asarray(own["log_scale"]))


def posterior_of(net, members=2):
    """Mean-field with random means and scales for every leaf."""
    problem = px.Problem(net, px.Categorical())
    values = jax.tree.leaves(problem.latents)
    variational = {}
    for i, (name, value) in enumerate(zip(problem.leaf_names, values, strict=True)):
        keys = jax.random.split(jax.random.fold_in(KEY, i))
        shape = (members, *value.shape)
        variational[name] = {"mean": jax.random.normal(keys[0], shape), "log_scale": jax.random.normal(keys[1], shape)}
    return VariationalPosterior(problem, Trace({}, ()), dict.fromkeys(variational, q.Normal()), variational)


NETS = {
    "dense": eqx.nn.MLP(5, 4, 6, 1, key=KEY),
    "convolution, outputs first": px.network(
        (lambda w, x: x.reshape(len(x), -1) @ w["conv"].reshape(-1, 6), {"conv": np.ones((6, 2, 3, 3))}), out_axis=0
    ),
    "convolution, outputs last": (
        lambda w, x: x.reshape(len(x), -1) @ w["conv"].reshape(-1, 6),
        {"conv": np.ones((3, 3, 2, 6))},
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", NETS)
def test_truncation_is_that_of_numpys_singular_values(name):
    posterior = posterior_of(NETS[name])
    weight = next(leaf for leaf in posterior.families if "bias" not in leaf)
    before = scales_of(posterior, weight)
    matrices = before.reshape(2, 6, -1) if "last" not in name else before.reshape(2, -1, 6)
    after = scales_of(px.analysis.truncate(posterior, k=2), weight).reshape(matrices.shape)
    for old, new in zip(matrices, after, strict=True):
        u, s, v = np.linalg.svd(old, full_matrices=False)
        np.testing.assert_allclose(new, np.maximum((u[:, :2] * s[:2]) @ v[:2], 0), atol=1e-4)
    whole = px.analysis.truncate(posterior, k=50)  # a full rank is the identity
    np.testing.assert_allclose(scales_of(whole, weight), before, rtol=1e-3, atol=1e-5)
    np.testing.assert_array_equal(whole.variational[weight]["mean"], posterior.variational[weight]["mean"])


def test_negative_entries_are_clipped():
    matrix = jnp.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.9, 0.9, 0.1]])
    u, s, v = np.linalg.svd(matrix)
    assert ((u[:, :2] * s[:2]) @ v[:2]).min() < -1e-3  # of rank 2; the first approximation has none below 0
    assert float(truncate_matrix(matrix, 2).min()) == 0.0


def test_truncation_leaves_biases_and_other_leaves_alone():
    posterior = posterior_of(NETS["dense"])
    truncated = px.analysis.truncate(posterior, k=1, leaves="layers/0/*")
    for name in ("layers/0/bias", "layers/1/weight", "layers/1/bias"):
        np.testing.assert_array_equal(scales_of(truncated, name), scales_of(posterior, name))
    assert np.abs(scales_of(truncated, "layers/0/weight") - scales_of(posterior, "layers/0/weight")).max() > 0.1


def test_zero_mean_keeps_the_scales_and_permute_keeps_their_set():
    posterior = posterior_of(NETS["dense"])
    name = "layers/0/weight"
    without = px.analysis.zero_mean(posterior, name)
    assert np.all(np.asarray(without.variational[name]["mean"]) == 0)
    np.testing.assert_allclose(scales_of(without, name), scales_of(posterior, name), rtol=1e-5)
    shuffled = px.analysis.permute(posterior, name, key=1)
    before, after = scales_of(posterior, name), scales_of(shuffled, name)
    assert np.abs(before - after).max() > 0.1
    for member in range(2):
        np.testing.assert_allclose(np.sort(before[member], axis=None), np.sort(after[member], axis=None), rtol=1e-5)
    np.testing.assert_array_equal(shuffled.variational[name]["mean"], posterior.variational[name]["mean"])


def test_they_serve_tied_and_multiplicative_families_and_can_be_saved(tmp_path):
    net = eqx.nn.MLP(2, 2, 4, 1, key=KEY)
    problem = px.Problem(net, px.Categorical())
    families, variational = {}, {}
    for leaf, value in zip(problem.leaf_infos, jax.tree.leaves(problem.latents), strict=True):
        family = (q.KTied(1) if "0" in leaf.path else q.MultiplicativeNormal("layer")).for_leaf(leaf)
        families[leaf.path] = family
        variational[leaf.path] = jax.tree.map(lambda a: a[None], family.init(KEY, value, leaf))
    posterior = VariationalPosterior(problem, Trace({}, ()), families, variational)
    changed = px.analysis.zero_mean(px.analysis.truncate(posterior, 1))
    changed.save(tmp_path / "changed.posterior")
    again = px.load(tmp_path / "changed.posterior", net)
    np.testing.assert_array_equal(again.sample(0, 3).layers[0].weight, changed.sample(0, 3).layers[0].weight)


def test_what_they_cannot_do_is_said():
    posterior = posterior_of(NETS["dense"])
    with pytest.raises(ValueError, match="matches no leaf"):
        px.analysis.truncate(posterior, 1, leaves="layers/7/*")
    with pytest.raises(TypeError, match="independent Gaussian entries"):
        px.analysis.truncate(posterior, 1, leaves="**/bias")
    with pytest.raises(ValueError, match="k must be"):
        px.analysis.truncate(posterior, 0)
    draws = px.posterior.DrawsPosterior(posterior.problem, posterior.trace, None)
    with pytest.raises(TypeError, match="variational posterior"):
        px.analysis.zero_mean(draws)
