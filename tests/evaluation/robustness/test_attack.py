"""Attacks: the direction is known in closed form for linear models, and by finite differences for ensembles."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import log_softmax, softmax

import posteriax as px
from posteriax import families as q
from posteriax._internal import memory
from posteriax.evaluation.robustness.attack import slope_of_draws
from posteriax.posterior import DrawsPosterior, VariationalPosterior, plan_program
from posteriax.posterior.trace import Trace
from posteriax.problem import Latents

CLASSES, INPUTS, DRAWS = 4, 6, 5


def posterior_of(apply, params, likelihood=None):
    """A posterior that consists of the given draws, (S, ...)."""
    problem = px.Problem((apply, jax.tree.map(lambda a: a[0], params)), likelihood or px.Categorical())
    return DrawsPosterior(problem, Trace({}), Latents(jax.tree.map(lambda a: a[None], params), {}))


def linear(params, x):
    return x @ params["w"]


def curved(params, x):
    return jnp.tanh(3.0 * x - 1.0) @ params["w"]


@pytest.fixture(scope="module")
def weights():
    return 2.0 * np.random.default_rng(0).normal(size=(DRAWS, INPUTS, CLASSES)).astype(np.float32)


@pytest.fixture(scope="module")
def ensemble(weights):
    return posterior_of(curved, {"w": weights})


@pytest.fixture(scope="module")
def data(ensemble):
    """Inputs well inside [0, 1], and the labels that the ensemble itself gives them, but for every fifth."""
    x = np.random.default_rng(1).uniform(0.3, 0.7, size=(30, INPUTS)).astype(np.float32)
    y = ensemble.predict(x).probs.argmax(axis=1)
    return x, np.where(np.arange(30) % 5 == 0, (y - 1) % CLASSES, y)


@pytest.mark.parametrize("sharpness", [1.0, 1e4], ids=["unsure", "sure to the last digit"])
@pytest.mark.parametrize("target", [None, "next"])
def test_the_first_step_on_a_linear_model_is_the_closed_form(weights, data, target, sharpness):
    x, y = data
    w = sharpness * weights[:1]
    attacked = px.evaluation.PGD(0.01, iterations=1, target=target).run(posterior_of(linear, {"w": w}), x, y)
    aim = y if target is None else (y + 1) % CLASSES
    # d log p_y / dx = w_y - sum_c p_c w_c = sum_c!=y p_c (w_y - w_c), whose sign needs no 1 - p_y
    log_probs = log_softmax(x.astype(np.float64) @ w[0], axis=1)
    log_probs[np.arange(30), aim] = -np.inf
    others = softmax(log_probs, axis=1)
    gradient = w[0].T[aim] - others @ w[0].T
    expected = x + np.float32(0.01) * np.sign(gradient) * (-1 if target is None else 1)
    np.testing.assert_allclose(attacked.x, expected, atol=1e-6)


def test_an_ensembles_gradient_is_that_of_the_log_of_the_mean(weights, ensemble, data):
    x, y = data
    w = weights.astype(np.float64)

    def log_probs(x):  # of the true label, by draw
        return log_softmax(np.einsum("ni,sic->snc", np.tanh(3.0 * x - 1.0), w), axis=2)[:, np.arange(30), y]

    def slopes(function):
        shifts = 1e-5 * np.eye(INPUTS)
        return np.stack([(function(x + d) - function(x - d)) / 2e-5 for d in shifts], axis=1)

    of_mean = slopes(lambda x: np.log(np.exp(log_probs(x)).mean(axis=0)))
    mean_of = slopes(lambda x: log_probs(x).mean(axis=0))
    attacked = px.evaluation.PGD(0.01, iterations=1).run(ensemble, x, y)
    moved = np.sign(attacked.x - x)
    clear = np.abs(of_mean) > 1e-4
    assert clear.mean() > 0.9
    np.testing.assert_array_equal(moved[clear], -np.sign(of_mean[clear]))
    assert (np.sign(mean_of) != np.sign(of_mean)).mean() > 0.05  # another gradient would have been found out


def test_an_untargeted_attack_lowers_the_true_labels_probability_and_succeeds(ensemble, data):
    x, y = data
    attacked = px.evaluation.PGD(0.02, iterations=12).run(ensemble, x, y)
    assert attacked.success.shape == attacked.accuracy.shape == attacked.entropy.shape == (13,)
    assert attacked.success[0] == 0.0
    assert attacked.success[3] < attacked.success[-1] > 0.9
    assert attacked.accuracy[0] == 0.8  # by the labels' making
    assert np.all(ensemble.predict(attacked.x).log_prob(y) < ensemble.predict(x).log_prob(y))


@pytest.mark.parametrize("target", ["next", 2, "array"])
def test_a_targeted_attack_gets_to_the_target(ensemble, data, target):
    x, y = data
    wanted = {"next": (y + 1) % CLASSES, 2: np.full(30, 2), "array": (y + 3) % CLASSES}[target]
    attacked = px.evaluation.PGD(0.02, 15, wanted if target == "array" else target).run(ensemble, x, y)
    np.testing.assert_array_equal(attacked.target, wanted)
    clean, final = (ensemble.predict(inputs).probs.argmax(axis=1) for inputs in (x, attacked.x))
    count = (clean != wanted) & (wanted != y)
    assert 10 < count.sum() < 30 or target == "array"
    assert attacked.success[0] == 0.0
    assert attacked.success[-1] == pytest.approx((final == wanted)[count].mean())
    assert attacked.success[-1] > 0.8


def test_bound_and_range_hold_exactly(ensemble, data):
    x, y = data
    steps, bound = dict(step=0.07, iterations=9), np.float32(0.1)
    attacked = px.evaluation.PGD(**steps, bound=0.1, low=0.25, high=0.75).run(ensemble, x, y).x
    assert np.all((x - bound <= attacked) & (attacked <= x + bound))
    assert np.all((attacked >= 0.25) & (attacked <= 0.75))
    assert np.any(attacked == x + bound) and np.any(attacked == 0.25) and np.any(attacked == 0.75)
    free = px.evaluation.PGD(**steps, low=None, high=None).run(ensemble, x, y).x
    assert np.abs(free - x).max() == pytest.approx(0.63, abs=1e-5)


def variational(family, weights):
    """A posterior of one leaf, at the family's start around those weights."""
    problem = px.Problem((curved, {"w": weights}), px.Categorical())
    (leaf,) = problem.leaf_infos
    own = family.for_leaf(leaf)
    members = jax.tree.map(lambda a: a[None], own.init(jax.random.key(0), jnp.asarray(weights), leaf))
    return VariationalPosterior(problem, Trace({}), {leaf.path: own}, {leaf.path: members})


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["draws", "one logit", "normal", "rank 1", "additive factors"])
def test_what_is_recorded_are_the_predictions_of_the_attacked_draws(weights, ensemble, data, kind):
    posterior = {
        "draws": lambda: ensemble,
        "one logit": lambda: posterior_of(curved, {"w": weights[..., :1]}, px.Bernoulli()),
        "normal": lambda: variational(q.Normal(scale=1.0), weights[0]),
        "rank 1": lambda: variational(q.Rank1(2, scale=1.0), weights[0]),
        "additive factors": lambda: variational(q.Rank1(2, form="additive", scale=1.0), weights[0]),
    }[kind]()
    x, _ = data
    y = posterior.predict(x, draws=4, key=7).probs.argmax(axis=1)
    attacked = px.evaluation.PGD(0.03, iterations=4, draws=4).run(posterior, x, y, key=7)
    for i, inputs in ((0, x), (4, attacked.x)):
        predictive = posterior.predict(inputs, draws=4, key=7)
        np.testing.assert_array_equal(attacked.labels[i], predictive.probs.argmax(axis=1))
        np.testing.assert_allclose(attacked.entropies[i], predictive.entropy(), rtol=1e-4, atol=1e-5)
        assert attacked.accuracy[i] == (predictive.probs.argmax(axis=1) == y).mean()
    assert attacked.accuracy[0] == 1.0 > attacked.accuracy[4] + 0.2


def test_the_key_decides(weights, data):
    posterior = variational(q.Normal(scale=1.0), weights[0])
    run = px.evaluation.PGD(0.03, iterations=4, draws=4).run
    first, again, other = (run(posterior, *data, key=key) for key in (0, jax.random.key(0), 1))
    np.testing.assert_array_equal(first.x, again.x)
    np.testing.assert_array_equal(first.entropies, again.entropies)
    assert not np.allclose(first.entropies, other.entropies, atol=1e-3)


@pytest.mark.parametrize("change", [("EXAMPLES_AT_ONCE", 7), ("WORKING_BYTES", 2000)], ids=["examples", "bytes"])
@pytest.mark.slow
def test_chunks_change_nothing(monkeypatch, ensemble, data, change):
    whole = px.evaluation.PGD(0.02, iterations=3).run(ensemble, *data)
    monkeypatch.setattr(memory, *change)
    plan = plan_program(slope_of_draws, ensemble.problem, data, DRAWS, ensemble.template, x=data[0])
    assert plan.rows < 30 and (plan.draws < DRAWS) == (change[0] == "WORKING_BYTES")
    parts = px.evaluation.PGD(0.02, iterations=3).run(ensemble, *data)
    np.testing.assert_allclose(parts.x, whole.x, atol=1e-6)
    np.testing.assert_array_equal(parts.labels, whole.labels)


def test_a_network_that_couples_examples_gets_them_all_at_once(monkeypatch, weights, data):
    posterior = posterior_of(lambda params, x: (x - x.mean(axis=0)) @ params["w"], {"w": weights})
    x, y = data
    monkeypatch.setattr(memory, "EXAMPLES_AT_ONCE", 7)
    attacked = px.evaluation.PGD(0.02, iterations=1).run(posterior, x, y)
    np.testing.assert_array_equal(attacked.labels[0], posterior.predict(x).probs.argmax(axis=1))


def test_inputs_may_be_a_tree(weights, data):
    x, y = data
    whole = px.evaluation.PGD(0.02, iterations=3).run(posterior_of(linear, {"w": weights}), x, y)
    halves = posterior_of(lambda params, x: jnp.concatenate([x["a"], x["b"]], axis=1) @ params["w"], {"w": weights})
    parts = px.evaluation.PGD(0.02, iterations=3).run(halves, {"a": x[:, :2], "b": x[:, 2:]}, y)
    np.testing.assert_allclose(np.concatenate([parts.x["a"], parts.x["b"]], axis=1), whole.x, atol=1e-6)


def test_an_attack_prints_as_a_table(ensemble, data):
    attacked = px.evaluation.PGD(0.02, iterations=2, bound=0.1).run(ensemble, *data)
    lines = str(attacked).splitlines()
    assert lines[0] == "untargeted PGD attack, 2 steps of 0.02 within 0.1, at most 10 draws, 30 examples"
    assert lines[1].split() == ["iteration", "success", "accuracy", "entropy"]
    assert lines[2].split()[:3] == ["0", "0.000", "0.800"]
    assert len(lines) == 5


def test_the_success_rate_is_unknown_where_nothing_can_be_attacked(ensemble, data):
    x, _ = data
    wrong = (ensemble.predict(x).probs.argmax(axis=1) + 1) % CLASSES
    assert np.isnan(px.evaluation.PGD(0.02, iterations=1).run(ensemble, x, wrong).success).all()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (dict(step=0.0), "step must be a positive number, got 0.0"),
        (dict(step=0.1, iterations=0), "iterations must be a whole number of at least 1, got 0"),
        (dict(step=0.1, draws=0), "draws must be"),
        (dict(step=0.1, bound=-1.0), "bound must be a positive number"),
        (dict(step=0.1, low=1.0), "low must be less than high"),
        (dict(step=0.1, target="previous"), 'target must be None, "next", a label'),
        (dict(step=0.1, target=-1), "target must be"),
        (dict(step=0.1, target=[0.5, 1.0]), "target must be"),
    ],
)
def test_bad_settings_are_named(settings, words):
    with pytest.raises(ValueError, match=words):
        px.evaluation.PGD(**settings)


def test_bad_input_is_named(ensemble, weights, data):
    x, y = data
    run = px.evaluation.PGD(0.02, iterations=1).run
    with pytest.raises(TypeError, match=r"floating point.*got dtype int"):
        run(ensemble, np.zeros((30, INPUTS), int), y)
    with pytest.raises(ValueError, match=r"x has values from .* outside of low=0.0 and high=1.0"):
        run(ensemble, x + 1, y)
    with pytest.raises(ValueError, match="target has the label 4, but there are 4 classes"):
        px.evaluation.PGD(0.02, target=4).run(ensemble, x, y)
    with pytest.raises(ValueError, match="target has 2 labels, but x has 30 examples"):
        px.evaluation.PGD(0.02, target=[0, 1]).run(ensemble, x, y)
    with pytest.raises(TypeError, match=r"px.Categorical\(\) or px.Bernoulli\(\), got Normal"):
        run(posterior_of(linear, {"w": weights}, px.Normal(scale=1.0)), x, np.zeros((30, CLASSES)))
    with pytest.raises(TypeError, match="posterior must be"):
        run(ensemble.predict(x), x, y)
    tokens = posterior_of(lambda params, x: jnp.stack([x @ params["w"]] * 3, axis=1), {"w": weights})
    with pytest.raises(ValueError, match="one label per example"):
        run(tokens, x, np.zeros((30, 3), int))
    kink = posterior_of(lambda params, x: jnp.sqrt(x) @ params["w"], {"w": weights})
    zeros = np.where(np.arange(30)[:, None] == 4, 0.0, x) @ np.zeros((INPUTS, INPUTS))
    norm = posterior_of(lambda params, x: jnp.linalg.norm(x, axis=1, keepdims=True) @ params["w"][:1], {"w": weights})
    run(kink, x, y)
    with pytest.raises(RuntimeError, match="not finite near example 0"):
        run(norm, zeros, y)
