"""Networks of other libraries, with what their calls ask for: keys, training flags, states, several inputs."""

import importlib
import os
import pkgutil
import types

os.environ.setdefault("KERAS_BACKEND", "jax")

import equinox as eqx
import haiku as hk
import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest
from flax import linen as nn
from flax import nnx

import posteriax as px
from posteriax.networks import adapters
from posteriax.networks.adapters.adapter import Adapted, Call
from posteriax.networks.tracing.coupling import couples_examples

X = np.asarray(jax.random.normal(jax.random.key(0), (8, 3)))
KEY = jax.random.key(7)


def noisy(net, x=X):
    """Whether a pass with a key differs from one without, and from one with another key."""
    off, one, two = (np.asarray(net.apply(net.params, x, key=k)) for k in (None, KEY, jax.random.key(8)))
    again = np.asarray(net.apply(net.params, x))
    np.testing.assert_array_equal(off, again)
    return np.abs(one - off).max() > 1e-3 and np.abs(one - two).max() > 1e-3


# ---------------------------------------------------------------------------------------------- how a call is read


def takes(function, x, **fixed):
    return Call.of(function, fixed, skip=0).arguments(x)


def test_inputs_reach_the_call_as_its_signature_says():
    pair = (1, 2)
    assert takes(lambda x: 0, 1) == ((1,), {})
    assert takes(lambda x, train=True: 0, pair) == ((pair,), {})
    assert takes(lambda a, b, train=True: 0, pair) == (pair, {})
    assert takes(lambda a, mask=None: 0, pair) == ((pair,), {})  # one input is required: the tuple is that input
    assert takes(lambda a, b: 0, {"b": 1, "a": 2}) == ((), {"a": 2, "b": 1})
    assert takes(lambda a, mask=None: 0, {"a": 1, "mask": 2}) == ((), {"a": 1, "mask": 2})
    assert takes(lambda batch: 0, {"a": 1, "b": 2}) == (({"a": 1, "b": 2},), {})
    assert takes(lambda x, t=0: 0, {"x": 1, "other": 2}) == (({"x": 1, "other": 2},), {})
    assert takes(lambda *, image: 0, 1) == ((), {"image": 1})
    assert takes(lambda **inputs: 0, {"a": 1}) == ((), {"a": 1})
    assert takes(lambda x, *, scale: 0, 1, scale=3) == ((1,), {"scale": 3})
    with pytest.raises(TypeError, match=r"keys a, c, but the network's call takes a, b: use the names"):
        takes(lambda a, b: 0, {"a": 1, "c": 2})
    with pytest.raises(ValueError, match=r"call= names scale, but the network's call takes x"):
        takes(lambda x: 0, 1, scale=3)


@pytest.mark.parametrize("name", ["train", "training", "is_training", "deterministic", "inference"])
def test_a_switch_is_on_while_there_is_a_key(name):
    on = name not in ("deterministic", "inference")
    space = {}
    exec(f"def f(params, x, *, {name}): return x * params['w'] + (1.0 if {name} is {on} else 0.0)", space)
    net = px.network((space["f"], {"w": jnp.ones(3)}))
    np.testing.assert_allclose(net.apply(net.params, X), X, rtol=1e-6)
    np.testing.assert_allclose(net.apply(net.params, X, key=KEY), X + 1, rtol=1e-5)
    fixed = px.network((space["f"], {"w": jnp.ones(3)}), call={name: on})
    np.testing.assert_allclose(fixed.apply(net.params, X), X + 1, rtol=1e-5)


# --------------------------------------------------------------------------------------------------------- Equinox


class Attended(eqx.Module):
    attention: eqx.nn.MultiheadAttention
    drop: eqx.nn.Dropout

    def __init__(self, key):
        self.attention = eqx.nn.MultiheadAttention(1, 1, key=key)
        self.drop = eqx.nn.Dropout(0.5)

    def __call__(self, *, tokens, mask, key, inference):
        one, two = (None, None) if key is None else jax.random.split(key)
        x = self.attention(*[tokens[:, None]] * 3, mask=jnp.outer(mask, mask), key=one)
        return self.drop(x[:, 0], key=two, inference=inference)


@pytest.mark.slow
def test_equinox_with_keyword_only_inputs_a_key_and_a_switch():
    module = Attended(KEY)
    mask = np.array([[True, True, False]] * 8)
    x = {"tokens": X, "mask": mask}
    net = px.network(module)
    expected = jax.vmap(lambda t, m: module(tokens=t, mask=m, key=None, inference=True))(X, mask)
    np.testing.assert_allclose(net.apply(net.params, x), expected, rtol=1e-5)
    assert noisy(net, x)


class Normed(eqx.Module):
    first: eqx.nn.Linear
    norm: eqx.nn.BatchNorm
    drop: eqx.nn.Dropout
    last: eqx.nn.Linear

    def __init__(self, key, mode):
        one, two = jax.random.split(key)
        self.first, self.last = eqx.nn.Linear(3, 6, key=one), eqx.nn.Linear(6, 2, key=two)
        self.norm, self.drop = eqx.nn.BatchNorm(6, axis_name="examples", mode=mode), eqx.nn.Dropout(0.5)

    def __call__(self, x, state, key=None):
        x, state = self.norm(self.first(x), state)
        return self.last(self.drop(jax.nn.relu(x), key=key)), state


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["batch", "ema"])
def test_equinox_batch_norm_with_its_state(mode):
    module, state = eqx.nn.make_with_state(Normed)(KEY, mode)
    net = px.network((module, state))
    assert couples_examples(net, X)  # as made: by the batch
    assert noisy(net)
    hidden = X @ module.first.weight.T + module.first.bias
    normed = (hidden - hidden.mean(axis=0)) / np.sqrt(hidden.var(axis=0) + 1e-5)
    expected = np.maximum(normed, 0) @ module.last.weight.T + module.last.bias
    measured = net.batch_statistics.measure(net.params, X)
    np.testing.assert_allclose(net.apply(net.params, X), expected, atol=1e-5)
    np.testing.assert_allclose(net.batch_statistics.apply(net.params, measured, X), expected, atol=1e-5)
    np.testing.assert_allclose(net.batch_statistics.apply(net.params, measured, X[:2]), expected[:2], atol=1e-5)


@pytest.mark.slow
def test_equinox_batch_norm_is_fitted_and_its_statistics_measured():
    problem = px.Problem(eqx.nn.make_with_state(Normed)(KEY, "batch"), px.Categorical())
    posterior = px.fit(problem, (X, np.arange(8) % 2), px.MAP(), steps=1, key=0)
    measured = px.posterior.with_batch_statistics(posterior, X, batch_size=8)
    np.testing.assert_allclose(measured.predict(X[:3]).probs, posterior.predict(X).probs[:3], atol=1e-5)


def test_equinox_batch_norm_by_stored_statistics():
    module, state = eqx.nn.make_with_state(Normed)(KEY, "batch")
    for _ in range(2):  # two batches, so that the moving averages are corrected for their start
        _, state = jax.vmap(module, in_axes=(0, None, 0), out_axes=(0, None), axis_name="examples")(
            X, state, jax.random.split(KEY, 8)
        )
    settled = eqx.nn.inference_mode(module)
    leaves, treedef = jax.tree.flatten(state)
    expected = jax.vmap(lambda x: settled(x, state)[0])(X)
    net = px.network((settled, jax.tree.unflatten(treedef, leaves)))
    assert not couples_examples(net, X)
    np.testing.assert_allclose(net.apply(net.params, X), expected, atol=1e-6)
    known = net.batch_statistics
    np.testing.assert_allclose(known.apply(net.params, known.stored, X), expected, atol=1e-6)


class OtherName(Normed):
    def __call__(self, image, table, context, *, key=None):
        out, context = Normed.__call__(self, image, context, key)
        return out + table.sum(), context


def test_an_equinox_state_of_another_name_and_two_inputs():
    net = px.network(eqx.nn.make_with_state(OtherName)(KEY, "batch"))
    plain = px.network(eqx.nn.make_with_state(Normed)(KEY, "batch"))
    outputs = net.apply(net.params, (X, X[:, :2]))
    expected = plain.apply(plain.params, X) + X[:, :2].sum(axis=1, keepdims=True)
    np.testing.assert_allclose(outputs, expected, atol=1e-5)
    linear = eqx.nn.Linear(3, 2, key=KEY)
    with pytest.raises(TypeError, match="the call of Linear takes no state, only x, key"):
        px.network((linear, eqx.nn.State(linear)))


def test_an_equinox_module_without_its_state_says_so():
    module, _ = eqx.nn.make_with_state(Normed)(KEY, "batch")
    with pytest.raises(TypeError, match=r"pass the pair \(module, state\)"):
        px.network(module)


# ------------------------------------------------------------------------------------------------------------ Flax


class CallTimeRngs(nnx.Module):
    def __init__(self, rngs):
        self.linear, self.drop = nnx.Linear(3, 4, rngs=rngs), nnx.Dropout(0.5)

    def __call__(self, x, *, deterministic, rngs=None):
        return self.drop(self.linear(x), deterministic=deterministic, rngs=rngs)


class TwoInputs(nnx.Module):
    def __init__(self, rngs):
        self.left, self.right = nnx.Linear(3, 4, rngs=rngs), nnx.Linear(2, 4, rngs=rngs)

    def __call__(self, image, table):
        return self.left(image) + self.right(table)


@nnx.vmap(in_axes=0, out_axes=0)
def _blocks(rngs):
    return nnx.Dropout(0.5, rngs=rngs)


class Stacked(nnx.Module):
    """Layers that were made by vmap have one random stream for each."""

    def __init__(self, rngs):
        self.drops, self.linear = _blocks(rngs.split(2)), nnx.Linear(3, 4, rngs=rngs)

    def __call__(self, x):
        both = nnx.vmap(lambda drop, x: drop(x), in_axes=(0, None))(self.drops, self.linear(x))
        return both.sum(axis=0)


def test_nnx_with_rngs_at_call_time():
    module = CallTimeRngs(nnx.Rngs(0))
    net = px.network(module)
    np.testing.assert_allclose(net.apply(net.params, X), module.linear(X), rtol=1e-6)
    assert noisy(net)


def test_nnx_streams_of_vmapped_layers():
    assert noisy(px.network(Stacked(nnx.Rngs(0))))


def test_nnx_with_two_inputs_by_name_or_position():
    module = TwoInputs(nnx.Rngs(0))
    net = px.network(module)
    expected = module(X, X[:, :2])
    np.testing.assert_allclose(net.apply(net.params, (X, X[:, :2])), expected, rtol=1e-6)
    np.testing.assert_allclose(net.apply(net.params, {"table": X[:, :2], "image": X}), expected, rtol=1e-6)


class SwitchedNNX(nnx.Module):
    """Its call has the switch, of batch norm and dropout at once."""

    def __init__(self, rngs):
        self.first, self.last = nnx.Linear(3, 6, rngs=rngs), nnx.Linear(6, 2, rngs=rngs)
        self.norm, self.drop = nnx.BatchNorm(6, rngs=rngs), nnx.Dropout(0.5, rngs=rngs)

    def __call__(self, x, train):
        x = nnx.relu(self.norm(self.first(x), use_running_average=not train))
        return self.last(self.drop(x, deterministic=not train))


class SwitchedEquinox(Normed):
    def __call__(self, x, state, *, inference, key=None):
        x, state = self.norm(self.first(x), state, inference=inference)
        return self.last(self.drop(jax.nn.relu(x), inference=inference, key=key)), state


@pytest.mark.slow
@pytest.mark.parametrize("library", ["nnx", "equinox"])
def test_a_switch_of_the_call_is_one_of_dropout_and_batch_norm_is_as_told(library):
    """Without a default: by stored statistics in NNX, as made, by the batch, in Equinox."""
    obj = SwitchedNNX(nnx.Rngs(0)) if library == "nnx" else eqx.nn.make_with_state(SwitchedEquinox)(KEY, "batch")
    name, on = ("train", True) if library == "nnx" else ("inference", False)
    as_made = px.network(obj)
    by_batch, stored = px.network(obj, call={name: on}), px.network(obj, call={name: not on})
    assert [couples_examples(net, X) for net in (as_made, by_batch, stored)] == [library == "equinox", True, False]
    assert all(map(noisy, (as_made, by_batch, stored)))
    known = by_batch.batch_statistics
    measured = known.measure(by_batch.params, X)
    whole = np.asarray(by_batch.apply(by_batch.params, X))
    np.testing.assert_allclose(known.apply(by_batch.params, measured, X[:3]), whole[:3], atol=1e-5)


class LinenDropped(nn.Module):
    @nn.compact
    def __call__(self, tokens, lengths, *, deterministic: bool):
        x = nn.Embed(5, 4)(tokens).sum(axis=1) / lengths[:, None]
        x = nn.Dropout(0.5)(x, deterministic=deterministic)
        if not deterministic:
            x = x + 0.1 * jax.random.normal(self.make_rng("noise"), x.shape)
        return nn.Dense(2)(x)


def test_linen_with_dict_inputs_a_required_switch_and_another_stream():
    module = LinenDropped()
    x = {"lengths": np.full(8, 3.0, np.float32), "tokens": np.arange(24).reshape(8, 3) % 5}
    variables = module.init(KEY, **x, deterministic=True)
    net = px.network((module, variables))
    np.testing.assert_allclose(net.apply(net.params, x), module.apply(variables, **x, deterministic=True), rtol=1e-6)
    assert noisy(net, x)


class LinenNormed(nn.Module):
    @nn.compact
    def __call__(self, x, train):
        x = nn.BatchNorm(use_running_average=not train)(nn.Dense(6)(x))
        return nn.Dense(2)(nn.Dropout(0.5, deterministic=not train)(nn.relu(x)))


def test_linen_batch_norm_with_a_required_switch_goes_by_stored_statistics():
    module = LinenNormed()
    variables = module.init(KEY, X, train=False)
    net = px.network((module, variables))
    assert not couples_examples(net, X)
    assert noisy(net)  # dropout still has the key
    by_batch = px.network((module, variables), call={"train": True})
    assert couples_examples(by_batch, X)
    assert noisy(by_batch)


# ----------------------------------------------------------------------------------------------------------- Haiku


def haiku_dropout(x, is_training):
    x = hk.Linear(6)(x)
    return hk.Linear(2)(hk.dropout(hk.next_rng_key(), 0.5, x) if is_training else x)


def haiku_normed(x, is_training):
    x = hk.BatchNorm(True, True, 0.9, name="norm")(hk.Linear(6, name="first")(x), is_training)
    x = hk.dropout(hk.next_rng_key(), 0.5, x) if is_training else x
    return hk.Linear(2, name="last")(jax.nn.relu(x))


def test_a_haiku_transform_is_applied_as_it_is():
    transformed = hk.transform(haiku_dropout)
    params = transformed.init(KEY, X, False)
    net = px.network((transformed, params))
    np.testing.assert_allclose(net.apply(net.params, X), transformed.apply(params, None, X, False), rtol=1e-6)
    assert noisy(net)
    assert px.paths((transformed, params))[1] == "linear/w (3, 6) float32"
    plain = hk.without_apply_rng(hk.transform(lambda x: hk.Linear(2)(x)))
    params = plain.init(KEY, X)
    net = px.network((plain, params))
    np.testing.assert_allclose(net.apply(net.params, X, key=KEY), plain.apply(params, X), rtol=1e-6)


def test_a_haiku_transform_with_state():
    transformed = hk.transform_with_state(haiku_normed)
    params, state = transformed.init(KEY, X, True)
    net = px.network((transformed, params, state))
    expected, _ = transformed.apply(params, state, None, X, False)
    np.testing.assert_allclose(net.apply(net.params, X), expected, rtol=1e-6)
    assert noisy(net)
    assert not couples_examples(net, X)
    assert couples_examples(px.network((transformed, params, state), call={"is_training": True}), X)
    hidden = X @ params["first"]["w"] + params["first"]["b"]
    normed = (hidden - hidden.mean(axis=0)) / np.sqrt(hidden.var(axis=0) + 1e-5)
    by_batch = np.maximum(normed, 0) @ params["last"]["w"] + params["last"]["b"]
    measured = net.batch_statistics.measure(net.params, X)
    np.testing.assert_allclose(net.batch_statistics.apply(net.params, measured, X), by_batch, atol=2e-5)
    with pytest.raises(TypeError, match=r"give \(transformed, params\) with params = transformed.init"):
        px.network(hk.transform(haiku_dropout))
    with pytest.raises(TypeError, match=r"hk.transform_with_state is \(transformed, params, state\), got 2"):
        px.network((transformed, params))


# ----------------------------------------------------------------------------------------------------------- Keras


def keras_normed():
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input((3,)),
            layers.Dense(6, name="first"),
            layers.BatchNormalization(epsilon=1e-5, name="norm"),
            layers.ReLU(),
            layers.Dropout(0.5),
            layers.Dense(2, name="last"),
        ],
        name="normed",
    )


def test_a_keras_model_is_applied_as_it_is():
    model = keras_normed()
    before = [np.asarray(v) for v in model.variables]
    net = px.network(model)
    np.testing.assert_allclose(net.apply(net.params, X), model(X, training=False), atol=1e-6)
    assert noisy(net)
    assert not couples_examples(net, X)
    assert couples_examples(px.network(model, call={"training": True}), X)
    assert "first/kernel (3, 6) float32" in px.paths(model)
    assert all(np.array_equal(a, v) for a, v in zip(before, model.variables, strict=True))  # the model is unchanged
    hidden = X @ np.asarray(model.get_layer("first").kernel)
    normed = (hidden - hidden.mean(axis=0)) / np.sqrt(hidden.var(axis=0) + 1e-5)
    by_batch = np.maximum(normed, 0) @ np.asarray(model.get_layer("last").kernel)
    measured = net.batch_statistics.measure(net.params, X)
    np.testing.assert_allclose(net.batch_statistics.apply(net.params, measured, X), by_batch, atol=2e-5)
    assert all(np.array_equal(a, v) for a, v in zip(before, model.variables, strict=True))


@keras.saving.register_keras_serializable()
class Subclassed(keras.Model):
    def __init__(self):
        super().__init__()
        self.left, self.right = keras.layers.Dense(4), keras.layers.Dense(4)

    def call(self, image, table, training=None):
        return self.left(image) + self.right(table)


def test_keras_models_with_two_inputs():
    a, b = keras.Input((3,), name="a"), keras.Input((2,), name="b")
    functional = keras.Model([a, b], keras.layers.Dense(2)(keras.layers.Concatenate()([a, b])))
    pair = (X, X[:, :2])
    net = px.network(functional)
    np.testing.assert_allclose(net.apply(net.params, pair), functional(list(pair)), atol=1e-6)
    model = Subclassed()
    expected = model(*pair)
    net = px.network(model)
    np.testing.assert_allclose(net.apply(net.params, {"table": pair[1], "image": pair[0]}), expected, atol=1e-6)


def test_keras_that_cannot_be_used_says_why(monkeypatch):
    with pytest.raises(ValueError, match=r"no variables yet: call it on some inputs"):
        px.network(keras.Sequential([keras.layers.Dense(2)]))
    monkeypatch.setattr(keras.backend, "backend", lambda: "torch")
    with pytest.raises(ValueError, match=r"Keras runs on torch.*KERAS_BACKEND=jax before keras is first imported"):
        px.network(keras_normed())


# ------------------------------------------------------------------------------------------- one file and one name


def test_every_adapter_is_listed():
    found = {
        name
        for _, name, _ in pkgutil.iter_modules(adapters.__path__)
        if hasattr(importlib.import_module(f"{adapters.__name__}.{name}"), "adapt")
    }
    assert found == {library.__name__.rsplit(".", 1)[-1] for library in adapters.LIBRARIES}


def test_another_library_is_one_file_and_one_name(monkeypatch):
    """A file with `ACCEPTS` and `adapt`, and its name in `LIBRARIES`: the network then works, and errors name it."""

    class Layer:
        weight = jnp.ones((3, 2))

    def adapt(obj, call):
        return Adapted(lambda w, x, *, key=None: x @ w, obj.weight) if isinstance(obj, Layer) else None

    stranger = types.SimpleNamespace(ACCEPTS="a Layer", adapt=adapt)
    monkeypatch.setattr(adapters, "LIBRARIES", (stranger, *adapters.LIBRARIES))
    problem = px.Problem(Layer(), px.Categorical())
    assert px.fit(problem, (X, np.arange(8) % 2), px.MAP(), steps=2, key=0).predict(X).probs.shape == (8, 2)
    with pytest.raises(
        TypeError, match=r"network must be a Layer, an Equinox module .*, or a \(function, params\) pair"
    ):
        px.network("a string")
