"""Methods that run unsupervised: they end converged, are repeated gentler, or are called failed."""

from dataclasses import dataclass, replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import posteriax as px
from posteriax.tabular import (
    Budget,
    Circumstances,
    fit_until_converged,
    recipe_of,
    seconds_of,
    until_converged,
    why_unusable,
)
from posteriax.tabular.estimators import BayesianMLPRegressor
from posteriax.tabular.recipes import RECIPES

RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (120, 2)).astype(np.float32)
STEEP = np.sin(3 * X[:, 0]) + 0.005 * RNG.normal(size=120).astype(np.float32)  # little noise: large curvature
NET = eqx.nn.MLP(2, 1, 8, 1, activation=jnp.tanh, key=jax.random.key(0))
PROBLEM = px.Problem(NET, px.Normal(scale="learned"))


@pytest.fixture(scope="module")
def mode():
    return fit_until_converged(PROBLEM, (X, STEEP), "map", key=0, length={"steps": 1500})


@pytest.mark.slow
def test_swag_that_diverges_is_repeated_with_smaller_steps(mode):
    outcome = fit_until_converged(PROBLEM, (X, STEEP), "swag", key=0, mode=replace(mode, status="converged"))
    assert outcome.status == "converged"
    assert outcome.details[0].startswith("failed:")  # the first attempt's rate is too large here
    reached = px.evaluate(outcome.posterior.predict(X), STEEP)["rmse"]
    assert reached < 2 * px.evaluate(mode.posterior.predict(X), STEEP)["rmse"]


@dataclass(frozen=True, eq=False)
class Exploding(px.MAP):
    """Steps that grow without bound."""

    optimizer: optax.GradientTransformation = optax.sgd(1e3)


@pytest.mark.slow
def test_a_method_that_explodes_is_called_failed_and_has_no_posterior():
    outcome = fit_until_converged(PROBLEM, (X, STEEP), Exploding(), key=0)
    assert (outcome.status, outcome.posterior) == ("failed", None)
    assert "not finite" in outcome.details[-1] or "untrained" in outcome.details[-1]
    with pytest.raises(RuntimeError, match="failed:"):
        BayesianMLPRegressor(Exploding(), hidden_layer_sizes=(8,), random_state=0).fit(X, STEEP)


def test_predictions_worse_than_the_untrained_networks_are_unusable(mode):
    assert why_unusable(mode.posterior, PROBLEM, (X, STEEP)) == ""
    far = jax.tree.map(lambda leaf: 30 * leaf, mode.posterior.draws)
    assert "untrained" in why_unusable(replace(mode.posterior, draws=far), PROBLEM, (X, STEEP))
    own = mode.posterior.draws
    near = own._replace(likelihood={"log_scale": own.likelihood["log_scale"] + 2.5})  # noise 12 times as large: 2 nats
    assert "the mode it started at" in why_unusable(
        replace(mode.posterior, draws=near), PROBLEM, (X, STEEP), mode.posterior
    )


@pytest.mark.slow
def test_a_run_that_ends_by_its_limit_does_not_claim_to_have_converged():
    outcome = fit_until_converged(PROBLEM, (X, STEEP), px.VI(), key=0, seconds=1e-3)
    assert outcome.status == "stopped at the budget" and outcome.posterior is not None


@pytest.mark.parametrize("name", RECIPES)
def test_every_method_has_settings_for_small_and_large_data(name, mode):
    assert RECIPES[name].sentence.endswith(".")
    for count in (10, 100, 10**6):
        for run in RECIPES[name].attempts(Circumstances(count), mode.posterior):
            assert all(value >= 1 for value in run.arguments.values())


@pytest.mark.parametrize("name", ["mean-field", "k-tied"])
def test_variational_inference_starts_at_the_mode_unless_its_length_is_given(name, mode, monkeypatch):
    started = []
    monkeypatch.setattr(
        until_converged, "fit", lambda problem, data, method, **_: started.append(method.start) or fail()
    )
    for length in (None, {"steps": 2}):
        assert fit_until_converged(PROBLEM, (X, STEEP), name, key=0, mode=mode, length=length).status == "failed"
    assert started == [mode.posterior, "auto"]


def fail():
    raise RuntimeError("not to be run")


def test_an_unknown_method_is_named_with_all_that_there_are():
    with pytest.raises(ValueError, match="unknown method 'magic'; there are map, ensemble"):
        recipe_of("magic")


def test_what_a_run_leaves_over_goes_to_those_after_it():
    times = iter([0.0, 0.0, 10.0, 10.0, 100.0])
    budget = Budget(90.0, {"a": 1, "b": 1, "c": 1}, clock=lambda: next(times))
    assert [budget.share(name) for name in "abc"] == [30.0, 40.0, 80.0]
    assert budget.left() == 0.0
    with pytest.raises(ValueError, match="90s, 10m or 1h; got 'soon'"):
        seconds_of("soon")
