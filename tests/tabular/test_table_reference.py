"""The reference: sampled until its chains agree, or until its time is over, and it says which."""

import itertools

import jax
import known
import numpy as np
import pytest

import posteriax as px
from posteriax.posterior.draws import DrawsPosterior
from posteriax.problem import Latents
from posteriax.run import loop, until_mixed
from posteriax.tabular import reference, sample_reference

EXACT = known.linear_regression()
X = EXACT.data[0]


@pytest.mark.slow
def test_it_converges_to_the_known_posterior():
    outcome = sample_reference(EXACT.problem, EXACT.data, X, seconds=600, key=0)
    assert outcome.status == "converged"
    rhat, effective = (outcome.posterior.trace[f"checked_{name}"][-1] for name in ("rhat", "effective_draws"))
    assert rhat < 1.01
    assert effective >= 400
    draws = np.asarray(outcome.posterior.draws.network["w"]).reshape(-1, 4)
    np.testing.assert_allclose(draws.mean(axis=0), EXACT.mean, atol=5 * EXACT.scales.max() / effective**0.5)
    assert any(f"draws of each chain: R-hat {rhat:.3f}" in line for line in outcome.details)
    assert outcome.details[-1].startswith("HMC, 4 chains of")


def test_gradients_decide_which_sampler_is_affordable():
    names = [reference.affordable_sampler(gradients).name for gradients in (1e4, 1e5, 7e5, 1e6, 1e8)]
    assert names == ["MCLMC", "MCLMC", "MCLMC", "HMC", "HMC"]
    for gradients in (1e5, 7e5):
        cheap = reference.affordable_sampler(gradients)
        # two gradients a step, for each of four chains
        assert 8 * cheap.warmup <= 0.2 * gradients
        assert 8 * (cheap.warmup + 1000 * cheap.thin) <= 0.8 * gradients
    assert reference.affordable_sampler(1e8, exact=False).name == "MCLMC"


def test_chains_of_deep_networks_start_at_networks_that_were_trained_briefly(monkeypatch):
    asked = []

    def watched(problem, data, method, **settings):
        if isinstance(method, px.Ensemble):
            return px.fit(problem, data, method, **settings | {"steps": 3})
        asked.append((method.name, settings["chains"], getattr(method.start, "support", method.start)))
        raise RuntimeError("no luck")

    monkeypatch.setattr(reference, "seconds_per_gradient", lambda *_: 1e-5)
    monkeypatch.setattr(reference, "fit", watched)
    x, y = np.random.default_rng(0).normal(size=(2, 30)).astype(np.float32)
    for hidden, expected in [((4, 4), ("MCLMC", 8, 8)), ((4,), ("HMC", 4, "map"))]:
        net = px.zoo.uci_mlp(inputs=1, hidden=hidden, outputs=1, key=jax.random.key(0))
        problem = px.Problem(net, px.Normal(scale=1.0))
        sample_reference(problem, (x[:, None], y), x[:, None], seconds=60, key=0)
        assert asked[0] == expected
        asked.clear()


def test_thinned_draws_are_spread_over_every_chain():
    problem = px.Problem((lambda w, x: x * w, np.zeros(1, np.float32)), px.Normal(scale=0.1))
    draws = np.arange(40, dtype=np.float32).reshape(2, 20, 1)
    posterior = DrawsPosterior(problem, px.posterior.Trace({}), Latents(draws, {}))
    assert reference.evenly_thinned(posterior, 40) is posterior
    thinned = reference.evenly_thinned(posterior, 10).draws.network
    assert thinned[..., 0].tolist() == [[0, 4, 8, 12, 16], [20, 24, 28, 32, 36]]


class Clock:
    """A second passes whenever it is looked at."""

    def __init__(self):
        self.ticks = itertools.count()

    def monotonic(self):
        return float(next(self.ticks))


@pytest.mark.slow
def test_at_the_end_of_its_time_it_says_what_it_would_take(monkeypatch):
    monkeypatch.setattr(until_mixed, "time", Clock())
    monkeypatch.setattr(loop, "SECONDS_PER_CHUNK", 1e-9)  # chunks of one step
    slow = px.HMC(warmup=5, step_size=0.05, trajectory=0.15)
    outcome = sample_reference(EXACT.problem, EXACT.data, X, seconds=60, key=0, method=slow)
    assert outcome.status == "stopped at the budget"
    assert outcome.posterior is not None
    rhat, effective = (outcome.posterior.trace[f"checked_{name}"][-1] for name in ("rhat", "effective_draws"))
    times = max((rhat - 1) / 0.01, 400 / effective)
    assert outcome.details[-1].startswith((f"About {times:.1f} times the time would be enough", "The chains are"))


def test_chains_in_different_places_are_not_promised_to_mix():
    x = np.ones((1, 1), np.float32)
    problem = px.Problem((lambda w, x: x * w, np.zeros(1, np.float32)), px.Normal(scale=0.1))
    stop = px.run.UntilMixed(x, effective_draws=100)
    draws = np.repeat([1.0, -1.0], 2)[:, None, None] + 0.01 * np.random.default_rng(0).normal(size=(4, 400, 1))

    def said(rhats):
        looks = {"checked_draws": np.array([100, 200, 400]), "checked_rhat": np.array(rhats)}
        trace = px.posterior.Trace(looks | {"checked_effective_draws": np.array([4.0, 4.0, 4.0])})
        posterior = DrawsPosterior(problem, trace, Latents(draws.astype(np.float32), {}))
        return reference.what_it_takes(posterior, stop, took=60.0)

    assert "in 2 groups that predict differently, and R-hat is not falling" in said([9.0, 8.8, 9.1])
    assert said([1.16, 1.08, 1.04]) == "About 25.0 times the time would be enough, 25 minutes."


def test_a_sampler_that_fails_gives_way_to_one_that_fits_any_time(monkeypatch):
    asked, warmups = [], []

    def failing(problem, data, method, **settings):
        asked.append(method.name)
        warmups.append(method.warmup)
        raise RuntimeError("no luck")

    monkeypatch.setattr(reference, "seconds_per_gradient", lambda *_: 1e-5)
    monkeypatch.setattr(reference, "fit", failing)
    outcome = sample_reference(EXACT.problem, EXACT.data, X, seconds=60, key=0)
    assert asked == ["HMC", "MCLMC", "MCLMC", "MCLMC"]  # the later ones with shorter warm-ups
    assert warmups[1] > warmups[3]
    assert outcome.status == "failed"
    assert outcome.posterior is None
    assert outcome.details == ("HMC failed: no luck", *["MCLMC failed: no luck"] * 3)


def test_the_time_of_a_gradient_is_positive_and_weights_count():
    weighted = (*EXACT.data, np.ones(30, np.float32))
    assert reference.seconds_per_gradient(EXACT.problem, weighted) > 0
    with pytest.raises(ValueError, match="weight must have shape"):
        reference.seconds_per_gradient(EXACT.problem, (*EXACT.data, np.ones(3)))
