"""Fixed leaves: which they are, what is computed once, and that nothing else changes."""

import jax
import jax.numpy as jnp
import numpy as np
import other_networks
import pytest

import posteriax as px
from posteriax import priors as p
from posteriax.networks.tracing.cut import find_cut
from posteriax.networks.tracing.program import trace_program

RNG = np.random.default_rng(0)
PARAMS = {
    "encoder": {"w": RNG.normal(size=(3, 5)).astype(np.float32), "b": np.ones(5, np.float32)},
    "head": {"w": RNG.normal(size=(5, 2)).astype(np.float32), "b": np.zeros(2, np.float32)},
}
X, Y = RNG.normal(size=(12, 3)).astype(np.float32), np.arange(12) % 2


def two_layers(params, x):
    hidden = jnp.tanh(x @ params["encoder"]["w"] + params["encoder"]["b"])
    return hidden @ params["head"]["w"] + params["head"]["b"]


def problem(fixed, function=two_layers, params=PARAMS, **more):
    return px.Problem((function, params), px.Categorical(), fixed=fixed, **more)


HEAD = ["head/b", "head/w"]


@pytest.mark.parametrize(
    ("fixed", "inferred"),
    [
        ("encoder/**", HEAD),
        ("encoder", HEAD),
        ("!head", HEAD),
        (["**", "!head"], HEAD),
        (["encoder", "head/b"], ["head/w"]),
        (["encoder", "!encoder/b"], ["encoder/b", *HEAD]),
        (["!**/b"], ["encoder/b", "head/b"]),
        ((), ["encoder/b", "encoder/w", *HEAD]),
    ],
)
def test_patterns_say_which_leaves_are_inferred(fixed, inferred):
    assert problem(fixed).leaf_names == inferred


def test_a_pattern_that_matches_nothing_lists_the_leaves():
    with pytest.raises(ValueError, match=r'"encodre" matches no leaf.*encoder/w \(3, 5\)'):
        problem("encodre")


def test_fixing_everything_is_refused():
    with pytest.raises(ValueError, match="nothing to infer"):
        problem("**")


@pytest.mark.parametrize("fixed", [3, [3], "", {"encoder": True}, True])
def test_a_pattern_must_be_text(fixed):
    with pytest.raises(TypeError, match=r'fixed must be a pattern of paths such as "encoder/\*\*", or several, got'):
        problem(fixed)


def test_params_keep_their_paths_and_count_only_inferred_leaves():
    net = problem("encoder").network
    assert net.num_parameters == 12
    assert net.params["encoder"] == {"w": None, "b": None}
    assert set(net.fixed.values) == {"encoder/b", "encoder/w"}


def test_log_joint_is_that_of_the_whole_network_without_the_fixed_leaves_prior():
    prior = p.Normal(0.7)
    some, every = problem("encoder", prior=prior), problem((), prior=prior)
    densities = every.priors.network["encoder"]
    of_fixed = sum(densities[name].log_prob(PARAMS["encoder"][name]).sum() for name in ("w", "b"))
    expected = every.log_joint(PARAMS, (X, Y)) - of_fixed
    np.testing.assert_allclose(some.log_joint(some.network.params, (X, Y)), expected, rtol=1e-5)
    np.testing.assert_allclose(some.log_joint(PARAMS, (X, Y)), expected, rtol=1e-5)  # all leaves are accepted too


def test_a_problem_of_a_network_with_fixed_leaves_keeps_or_replaces_them():
    net = problem("encoder").network
    assert px.Problem(net, px.Categorical()).leaf_names == HEAD
    assert px.Problem(net, px.Categorical(), fixed="head").leaf_names == ["encoder/b", "encoder/w"]


def part_of(function, fixed, params=PARAMS, x=X):
    return problem(fixed, function, params).fixed_part(x)


def test_features_are_the_outputs_of_the_fixed_part():
    part = part_of(two_layers, "encoder")
    hidden = np.tanh(X @ PARAMS["encoder"]["w"] + PARAMS["encoder"]["b"])
    np.testing.assert_allclose(part.features(X).values[0], hidden, atol=1e-6)
    assert part.numbers == 5


def test_the_smallest_values_are_kept():
    def repeated(params, x):  # what reaches the head is ten times as large as what it is made from
        hidden = jnp.tile(x @ params["encoder"]["w"], (1, 10))
        return jnp.exp(hidden) @ jnp.tile(params["head"]["w"], (10, 1)) + hidden[:, :2]

    def pooled(params, x):
        return jnp.max(x @ params["encoder"]["w"], axis=1, keepdims=True) * params["head"]["b"]

    assert part_of(repeated, "encoder").numbers == 5
    assert part_of(pooled, "encoder").numbers == 1


def test_a_value_used_early_and_late_does_not_move_the_expensive_part_behind_the_cut():
    def skip(params, x):
        deep = jnp.tanh(x @ params["encoder"]["w"])
        deeper = jnp.tanh(deep @ params["encoder"]["v"])
        return deep @ params["head"]["w"] + deeper @ params["head"]["w"]

    params = {**PARAMS, "encoder": {"w": PARAMS["encoder"]["w"], "v": np.eye(5, dtype=np.float32)}}
    assert part_of(skip, "encoder", params).numbers == 10


def test_what_comes_after_inferred_leaves_or_costs_nothing_is_not_kept():
    assert part_of(two_layers, "head") is None
    assert part_of(two_layers, "**/b") is None
    assert part_of(lambda w, x: (2 * x) @ w["encoder"]["w"] @ w["head"]["w"], "head/b") is None


def test_calls_inside_the_network_are_cut_too():
    @jax.jit
    def inner(params, x):
        return jax.checkpoint(lambda w, a: jax.nn.relu(a @ w["encoder"]["w"]) @ w["head"]["w"])(params, x)

    part = part_of(lambda params, x: inner(params, x) + params["head"]["b"], "encoder")
    assert part.numbers == 5
    net = problem("encoder", lambda params, x: inner(params, x) + params["head"]["b"]).network
    np.testing.assert_allclose(net.apply(net.params, part.features(X)), net.apply(net.params, X), atol=1e-6)


def test_examples_merged_with_another_axis_are_not_mistaken_for_them():
    def merged(params, x):  # rows are examples times positions
        rows = jnp.stack([x, -x], axis=1).reshape(-1, 3) @ params["encoder"]["w"]
        return (rows @ params["head"]["w"]).reshape(-1, 2, 2).sum(axis=1)

    part = part_of(merged, "encoder")
    assert part is None or part.features(X).values[0].shape[0] == len(X)


def test_coupled_features_are_recognised():
    def standardised(params, x):
        hidden = x @ params["encoder"]["w"]
        return (hidden - hidden.mean(axis=0)) @ params["head"]["w"]

    def numbered(params, x):  # depends on the place in the batch
        return (x @ params["encoder"]["w"] + jnp.arange(len(x))[:, None]) @ params["head"]["w"]

    assert part_of(two_layers, "encoder").treats_examples_alone(X)
    for function in (standardised, numbered):
        assert not part_of(function, "encoder").treats_examples_alone(X)


def test_randomness_in_the_fixed_part_comes_after_the_cut():
    def noisy(params, x, *, key=None):
        hidden = jnp.tanh(x @ params["encoder"]["w"])
        kept = 1.0 if key is None else jax.random.bernoulli(key, 0.5, hidden.shape)
        return jnp.tanh(hidden * kept @ jnp.eye(5)) @ params["head"]["w"]

    part, net = problem("encoder", noisy).fixed_part(X, training=True), problem("encoder", noisy).network
    features = part.features(X)
    for key in (None, jax.random.key(1), jax.random.key(2)):
        outputs = net.apply(net.params, features, key=key)
        np.testing.assert_allclose(outputs, net.apply(net.params, X, key=key), atol=1e-6)
    with pytest.raises(ValueError, match="without a key"):
        net.apply(net.params, problem("encoder", noisy).fixed_part(X).features(X), key=jax.random.key(0))


def test_gradients_through_features_are_those_through_inputs():
    some = problem("encoder")
    features = some.fixed_part(X).features(X)
    weight = np.ones(len(Y), np.float32)
    through = [
        jax.grad(some.log_likelihood)(some.network.params, px.data.Batch(x, Y, weight))["head"] for x in (features, X)
    ]
    for one, other in zip(*map(jax.tree.leaves, through), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


def test_the_last_of_equally_small_cuts_is_taken():
    def function(w, x, key):
        h = x @ jnp.ones((3, 4))
        wide = jnp.concatenate([h, h * h], axis=1)
        narrow = jnp.sin(jnp.max(wide, axis=1, keepdims=True))
        return narrow * w + narrow * narrow * w

    spec = jax.ShapeDtypeStruct((), jnp.float32)
    key = jax.eval_shape(lambda: jax.random.key(0))
    programs = [trace_program(function, spec, jax.ShapeDtypeStruct((n, 3), jnp.float32), key) for n in (5, 7)]
    (crossing,) = find_cut(*programs)
    assert programs[0].avals[crossing.slot].shape == (5, 1)
    (made_by,) = (step for step in programs[0].steps if crossing.slot in step.outputs)
    assert made_by.name == "sin"


@pytest.mark.parametrize(
    "name",
    [n if n == "Equinox shared CNN" else pytest.param(n, marks=pytest.mark.slow) for n in other_networks.CASES],
)
def test_features_replace_inputs_in_networks_of_every_library(name):
    case = other_networks.CASES[name]()
    whole = px.network(case.net, call=case.call)
    paths = [line.split(" ")[0] for line in px.paths(whole)]
    last = [path for path in paths if "head" in path or path.startswith("Dense_1")] or paths[-2:]
    net = px.Problem(whole, px.Categorical(), fixed=[f"!{path}" for path in last])
    x = jax.tree.map(np.asarray, case.x)
    for key in (None, jax.random.key(1)):
        part = net.fixed_part(x, training=key is not None)
        if part is None:  # dropout right after an embedding leaves nothing that is worth computing once
            assert key is not None
            continue
        outputs = jax.jit(lambda p, f, key=key, net=net: net.network.apply(p, f, key=key))(
            net.network.params, jax.jit(part.features)(x)
        )
        expected = jax.jit(lambda p, a, key=key: whole.apply(p, a, key=key))(whole.params, x)
        np.testing.assert_allclose(outputs, expected, rtol=1e-4, atol=1e-5)
        if not case.coupled:
            assert part.treats_examples_alone(x)
