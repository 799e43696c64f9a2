"""Weights of examples: a weight w counts as w examples, for every method, at the likelihood's own scale."""

import jax
import jax.numpy as jnp
import known
import numpy as np
import optax
import pytest
from sklearn.utils.class_weight import compute_sample_weight

import posteriax as px
from posteriax import families as q
from posteriax.data import Minibatches, full_batch

RNG = np.random.default_rng(0)
X = RNG.normal(size=(12, 3)).astype(np.float32)
LABELS = RNG.integers(0, 4, 12)
TIMES = np.array([0, 1, 2, 3, 1, 1, 2, 0, 1, 4, 1, 2])
WEIGHTED = X, LABELS, TIMES
REPEATED = X.repeat(TIMES, axis=0), LABELS.repeat(TIMES)


def problem():
    return px.Problem((lambda w, x: x @ w, RNG.normal(size=(3, 4)).astype(np.float32)), px.Categorical())


@pytest.mark.parametrize("name", ["VI, full covariance", pytest.param("HMC", marks=pytest.mark.slow)])
def test_weighted_linear_regression_has_its_closed_form(name):
    known.check_recovery(known.METHODS[name], known.weighted_regression())


# whose noise depends on N by default
METHODS = {"SGHMC": (px.SGHMC(warmup_epochs=5, epochs_per_draw=1), {"draws": 10}, "log_joint")}
SLOW_METHODS = {
    "MAP": (px.MAP(optax.sgd(1e-3)), {"steps": 20}, "log_joint"),
    "SWAG": (px.SWAG(learning_rate=1e-2, start_learning_rate=1e-2), {"epochs": 20}, "log_joint"),
    "VI": (px.VI(q.Normal(scale=0.1), "weight", optax.sgd(1e-3)), {"steps": 20}, "elbo"),
    "HMC": (px.HMC(start="network", step_size=0.05, trajectory=0.2, warmup=5), {"draws": 10}, "log_joint"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", [*METHODS, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW_METHODS)])
def test_a_whole_weight_is_so_many_repeated_rows(name):
    """Every step does the same, defaults that depend on N included; only the order of sums differs."""
    method, length, objective = (METHODS | SLOW_METHODS)[name]
    own = problem()
    more = {} if method.full_batch else {"batch_size": 18}  # one batch of either
    weighted = px.fit(own, WEIGHTED, method, key=0, **length, **more).trace
    repeated = px.fit(own, REPEATED, method, key=0, **length, **more).trace
    np.testing.assert_allclose(weighted[objective], repeated[objective], rtol=1e-4)
    if "nll_per_example" in weighted:
        np.testing.assert_allclose(weighted["nll_per_example"], repeated["nll_per_example"], rtol=1e-4)


def test_the_log_joint_and_the_elbo_take_weights():
    own = problem()
    params = own.network.params
    assert float(own.log_joint(params, WEIGHTED)) == pytest.approx(float(own.log_joint(params, REPEATED)), rel=1e-6)
    posterior = px.fit(own, WEIGHTED, px.VI(q.Normal()), steps=3, key=0)
    weighted, repeated = (px.analysis.elbo(posterior, data) for data in (WEIGHTED, REPEATED))
    assert weighted == pytest.approx(repeated, rel=1e-5)


@pytest.mark.parametrize("batch_size", [1, 5, 12])
def test_weighted_minibatches_average_to_the_full_value_over_an_epoch(batch_size):
    own, batches = problem(), Minibatches.of(12, batch_size)
    data = tuple(map(jnp.asarray, (X, LABELS, TIMES.astype(np.float32))))
    order = batches.order(jax.random.key(3), 1)
    values = [own.log_joint(own.latents, batches.take(data, order, i)) for i in range(batches.per_epoch)]
    assert np.mean(values) == pytest.approx(float(own.log_joint(own.latents, REPEATED)), rel=1e-5)


def test_a_full_batch_in_parts_keeps_the_weights():
    """Twelve examples in five parts: padded ones have weight 0."""
    own = problem()
    whole, parts = (own.log_joint(own.latents, full_batch(own.check_weighted(WEIGHTED), n)) for n in (1, 5))
    assert len(full_batch(own.check_weighted(WEIGHTED), 5).weight) == 15
    assert float(parts) == pytest.approx(float(whole), rel=1e-6)


def test_other_weights_are_another_run(tmp_path):
    own = problem()
    px.fit(own, WEIGHTED, px.MAP(), steps=2, key=0, checkpoint=tmp_path)
    with pytest.raises(px.run.CheckpointError, match="data was"):
        px.fit(own, (X, LABELS, TIMES + 1), px.MAP(), steps=2, key=0, checkpoint=tmp_path)
    with pytest.raises(px.run.CheckpointError, match="data was"):
        px.fit(own, (X, LABELS), px.MAP(), steps=2, key=0, checkpoint=tmp_path)


def test_weights_of_classes_are_scikit_learns():
    np.testing.assert_allclose(px.data.class_weights(LABELS), compute_sample_weight("balanced", LABELS), rtol=1e-6)
    assert px.data.class_weights(LABELS).sum() == pytest.approx(12)
    given = {0: 1.0, 1: 0.5, 2: 3.0, 3: 0.0}
    np.testing.assert_allclose(px.data.class_weights(LABELS, given), compute_sample_weight(given, LABELS))


@pytest.mark.parametrize(
    ("y", "weights", "message"),
    [
        ([0, 1, 2], {0: 1.0, 1: 2.0}, "no weight for the class 2"),
        ([0, 1], "equal", 'must be "balanced" or a dictionary'),
        ([0.5, 1.0], "balanced", "whole-number labels"),
        ([[0], [1]], "balanced", r"shape \(2, 1\)"),
    ],
)
def test_bad_class_weights(y, weights, message):
    with pytest.raises(ValueError, match=message):
        px.data.class_weights(y, weights)
