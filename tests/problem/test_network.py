import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from flax import nnx

import posteriax as px
from posteriax import families as q
from posteriax import priors as p
from posteriax._internal.leaf_paths import choose_by_path
from posteriax.networks.tracing.coupling import couples_examples

X = np.asarray(jax.random.normal(jax.random.key(0), (6, 3)))


class Linen(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(2)(nn.relu(nn.Dense(4)(x)))


class NNX(nnx.Module):
    def __init__(self, rngs):
        self.hidden = nnx.Linear(3, 4, rngs=rngs)
        self.drop = nnx.Dropout(0.5, rngs=rngs)
        self.out = nnx.Linear(4, 2, rngs=rngs)

    def __call__(self, x):
        return self.out(self.drop(nnx.relu(self.hidden(x))))


class Recurrent(nnx.Module):
    def __init__(self, rngs):
        self.rnn = nnx.RNN(nnx.GRUCell(1, 4, rngs=rngs))
        self.out = nnx.Linear(4, 2, rngs=rngs)

    def __call__(self, x):
        return self.out(self.rnn(x[..., None])[:, -1])


def test_an_equinox_module_is_applied_to_every_example():
    module = eqx.nn.MLP(3, 2, 4, 1, key=jax.random.key(0))
    net = px.network(module)
    np.testing.assert_allclose(net.apply(net.params, X), jax.vmap(module)(X), rtol=1e-6)


def test_a_linen_pair_is_applied_as_it_is():
    module = Linen()
    variables = module.init(jax.random.key(0), X)
    net = px.network((module, variables))
    np.testing.assert_allclose(net.apply(net.params, X), module.apply(variables, X), rtol=1e-6)


def test_an_nnx_module_is_applied_without_dropout_unless_a_key_is_given():
    module = NNX(nnx.Rngs(0))
    net = px.network(module)
    module.drop.deterministic = True
    np.testing.assert_allclose(net.apply(net.params, X), module(X), rtol=1e-6)
    one, two = (net.apply(net.params, X, key=jax.random.key(k)) for k in (1, 2))
    assert np.abs(one - two).max() > 1e-3
    np.testing.assert_allclose(one, net.apply(net.params, X, key=jax.random.key(1)))


@pytest.mark.slow
def test_a_recurrent_nnx_module_works():
    module = Recurrent(nnx.Rngs(0))
    net = px.network(module)
    np.testing.assert_allclose(net.apply(net.params, X), module(X), rtol=1e-5, atol=1e-6)
    problem = px.Problem(module, px.Categorical())
    data = X, np.arange(6) % 2
    vi = px.fit(problem, data, px.VI(q.Normal()), steps=3, key=0)
    assert any("loop" in note for note in vi.trace.notes)
    assert vi.predict(X, draws=3).probs.shape == (6, 2)


@pytest.mark.slow
def test_a_recurrent_nnx_module_can_be_sampled():
    problem = px.Problem(Recurrent(nnx.Rngs(0)), px.Categorical())
    method = px.HMC(warmup=2, step_size=0.01, trajectory=0.02)
    posterior = px.fit(problem, (X, np.arange(6) % 2), method, draws=2, key=0)
    assert posterior.predict(X).probs.shape == (6, 2)


def test_equinox_dropout_is_on_in_training_only():
    module = eqx.nn.Sequential([eqx.nn.Linear(3, 2, key=jax.random.key(0)), eqx.nn.Dropout(0.5)])
    net = px.network(module)
    np.testing.assert_allclose(net.apply(net.params, X), jax.vmap(module[0])(X), rtol=1e-6)
    assert np.abs(net.apply(net.params, X, key=jax.random.key(1)) - net.apply(net.params, X)).max() > 1e-3


def test_paths_lists_leaves_with_shape_and_dtype():
    module = eqx.nn.MLP(3, 2, 4, 1, key=jax.random.key(0))
    assert px.paths(module) == [
        "layers/0/weight (4, 3) float32",
        "layers/0/bias (4,) float32",
        "layers/1/weight (2, 4) float32",
        "layers/1/bias (2,) float32",
    ]
    assert px.paths(NNX(nnx.Rngs(0)))[1] == "hidden/kernel (3, 4) float32"


def test_batch_statistics_are_noticed():
    class Normalised(nn.Module):
        use_stored: bool

        @nn.compact
        def __call__(self, x):
            return nn.Dense(2)(nn.BatchNorm(use_running_average=self.use_stored)(x))

    for use_stored in (False, True):
        module = Normalised(use_stored)
        net = px.network((module, module.init(jax.random.key(0), X)))
        assert couples_examples(net, X) is not use_stored


@pytest.mark.parametrize("hidden_by", ["zero head", "sorted data"])
def test_batch_statistics_do_not_hide(hidden_by):
    def normalised(params, x):
        hidden = x @ params["a"]
        return ((hidden - hidden.mean(axis=0)) / (hidden.std(axis=0) + 1e-3)) @ params["b"]

    head = jnp.zeros((4, 2)) if hidden_by == "zero head" else jnp.ones((4, 2))
    net = px.network((normalised, {"a": jax.random.normal(jax.random.key(0), (3, 4)), "b": head}))
    x = np.repeat(X, 20, axis=0) if hidden_by == "sorted data" else X
    assert couples_examples(net, x)


def test_linen_dropout_is_switched_by_the_modules_own_argument():
    class Dropped(nn.Module):
        @nn.compact
        def __call__(self, x, train=False):
            return nn.Dropout(0.5, deterministic=not train)(nn.Dense(8)(x))

    module = Dropped()
    net = px.network((module, module.init(jax.random.key(0), X)))
    zeros = [float((net.apply(net.params, X, key=key) == 0).mean()) for key in (None, jax.random.key(1))]
    assert zeros[0] == 0.0
    assert zeros[1] > 0.2
    with pytest.raises(ValueError, match=r'with variables\["params"\]'):
        px.network((module, {"kernel": X}))


def test_a_key_that_an_equinox_module_insists_on_is_given():
    class Insists(eqx.Module):
        linear: eqx.nn.Linear

        def __call__(self, x, key):
            return self.linear(x)

    net = px.network(Insists(eqx.nn.Linear(3, 2, key=jax.random.key(0))))
    assert net.apply(net.params, X).shape == (6, 2)


@pytest.mark.parametrize("obj", [3, lambda x: x, (1, 2), "net"])
def test_what_is_no_network_is_an_error_that_says_what_is(obj):
    with pytest.raises(TypeError, match=r"Equinox module.*\(function, params\) pair"):
        px.network(obj)


def test_params_must_be_finite_floats():
    with pytest.raises(TypeError, match="floating-point"):
        px.network((lambda w, x: x, {"w": jnp.arange(3)}))
    with pytest.raises(ValueError, match="non-finite"):
        px.network((lambda w, x: x, {"w": jnp.array([jnp.nan])}))
    with pytest.raises(ValueError, match="no floating-point arrays"):
        px.network((lambda w, x: x, {}))


PATHS = ["conv1/bias", "conv1/kernel", "fc/bias", "fc/kernel"]


@pytest.mark.parametrize("reverse", [False, True])
def test_the_most_specific_pattern_wins_in_any_order(reverse):
    patterns = {"**": "-", "**/conv*": "c", "fc": "f", "**/bias": "b", "fc/bias": "x"}
    if reverse:
        patterns = dict(reversed(patterns.items()))
    assert choose_by_path(patterns, PATHS, "family", leaves=PATHS) == ["b", "c", "x", "f"]


def test_patterns_must_cover_all_leaves_and_match_some():
    with pytest.raises(ValueError, match=r'no family pattern matches the leaf conv1/bias.*Add "\*\*"'):
        choose_by_path({"fc": 1}, PATHS, "family", leaves=PATHS)
    with pytest.raises(ValueError, match=r'"\*\*/kernal" matches no leaf. Leaves: conv1/bias'):
        choose_by_path({"**": 1, "**/kernal": 2}, PATHS, "family", leaves=PATHS)
    with pytest.raises(ValueError, match=r'prior pattern "\*\*/kernal" matches no leaf'):
        module = eqx.nn.Linear(2, 2, key=jax.random.key(0))
        px.Problem(module, px.Categorical(), {"**": p.Normal(), "**/kernal": p.Normal()})
