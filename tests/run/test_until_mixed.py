"""Drawing until chains agree: the run ends where ArviZ's R-hat and effective draws say so, interrupted or not."""

import arviz
import known
import numpy as np
import pytest

import posteriax as px
from posteriax.posterior import draws
from posteriax.posterior.draws import DrawsPosterior
from posteriax.problem import Latents
from posteriax.run import loop, until_mixed

EXACT = known.linear_regression()
X = EXACT.data[0]
SHORT = px.HMC(warmup=30, step_size=0.05, trajectory=0.15, start="network")  # takes its time to mix


def fit(stop=None, method=SHORT, problem=EXACT.problem, **settings):
    return px.fit(problem, EXACT.data, method, key=0, stop=stop, **{"draws": 3000, "chains": 4, **settings})


def draws_of(posterior):
    """(chains, draws, weights)"""
    leaf = np.asarray(posterior.draws.network["w"])
    return leaf.reshape(*leaf.shape[:2], -1)


def by_arviz(draws):
    """The largest R-hat and the fewest effective draws of the predictions at X, in float64."""
    predictions = arviz.convert_to_dataset(draws.astype(np.float64) @ X.T.astype(np.float64))
    return float(arviz.rhat(predictions).x.max()), float(arviz.ess(predictions).x.min())


@pytest.mark.slow
def test_it_stops_at_the_first_look_at_which_arviz_would():
    stopped = fit(px.run.UntilMixed(X, rhat=1.03, effective_draws=150))
    looks = stopped.trace["checked_draws"]
    long = draws_of(fit(draws=int(looks[-1])))
    verdicts = []
    for look, rhat, effective in zip(
        looks, stopped.trace["checked_rhat"], stopped.trace["checked_effective_draws"], strict=True
    ):
        halves = [by_arviz(long[:, first:look]) for first in (0, look // 2)]
        verdicts.append(any(worst < 1.03 and least >= 150 for worst, least in halves))
        assert any(rhat == pytest.approx(r, abs=1e-3) and effective == pytest.approx(e, rel=0.02) for r, e in halves)
    assert verdicts == [False] * (len(looks) - 1) + [True]
    assert len(looks) > 2
    assert looks[0] == np.ceil(150 / 4)
    assert (np.diff(looks) >= 0.19 * looks[:-1]).all()
    assert (looks[1:] <= np.maximum(2 * looks[:-1], looks[:-1] + 10)).all()
    np.testing.assert_array_equal(draws_of(stopped), long[:, -draws_of(stopped).shape[1] :])
    assert stopped.trace.notes[-1].startswith(f"converged after {looks[-1]} draws of each chain: R-hat")
    assert stopped.trace.converged is True


def far_away():
    """Starts for four chains at four corners, some three hundred posterior widths out."""
    corners = 40.0 * np.array([[1, 1, 1, 1], [-1, 1, -1, 1], [1, -1, -1, -1], [-1, -1, 1, 1]], np.float32)
    return DrawsPosterior(EXACT.problem, px.posterior.Trace({}), Latents({"w": corners[:, None, :, None]}, {}))


@pytest.mark.slow
def test_draws_on_the_way_to_the_posterior_count_as_warm_up(tmp_path, monkeypatch):
    slow = px.HMC(warmup=1, step_size=0.02, trajectory=0.04, start=far_away(), thin=2)
    posterior = fit(px.run.UntilMixed(X, rhat=1.15, effective_draws=20), slow)
    looked, kept = int(posterior.trace["checked_draws"][-1]), draws_of(posterior).shape[1]
    assert kept == looked - looked // 2
    every = draws_of(fit(method=slow, draws=looked))
    np.testing.assert_array_equal(draws_of(posterior), every[:, looked // 2 :])
    assert by_arviz(every)[0] > 1.15 > by_arviz(every[:, looked // 2 :])[0]
    assert posterior.trace.warmup == 1 + 2 * (looked // 2)
    assert posterior.trace.notes[-1].endswith(f"the first {looked // 2} of each count as warm-up")
    assert posterior.to_arviz().sample_stats["lp"].shape == (4, kept)
    assert posterior.diagnose(X).sampler.transitions == 2 * kept
    # draws that stay on disk
    monkeypatch.setattr(draws, "IN_MEMORY_BYTES", 0)
    where = {"checkpoint": tmp_path, "checkpoint_every": 1e-9}
    stored = fit(px.run.UntilMixed(X, rhat=1.15, effective_draws=20), slow, **where)
    assert isinstance(stored.draws.network["w"], draws.StoredDraws)
    np.testing.assert_array_equal(draws_of(stored), draws_of(posterior))
    np.testing.assert_array_equal(stored.predict(X).per_draw(), posterior.predict(X).per_draw())
    np.testing.assert_array_equal(stored.mean["w"], posterior.mean["w"])


class Dying(px.run.UntilMixed):
    """Dies at its third look."""

    def judge(self, values):
        if len(LOOKS) == 2:
            raise InterruptedError
        LOOKS.append(values)
        return super().judge(values)


LOOKS: list = []


@pytest.mark.slow
def test_a_killed_run_ends_at_the_same_draw(tmp_path):
    rule = {"rhat": 1.03, "effective_draws": 150}
    plain, where = fit(px.run.UntilMixed(X, **rule)), {"checkpoint": tmp_path, "checkpoint_every": 1e-9}
    with pytest.raises(InterruptedError):
        fit(Dying(X, **rule), **where)
    resumed = fit(px.run.UntilMixed(X, **rule), **where)
    np.testing.assert_array_equal(draws_of(resumed), draws_of(plain))
    assert resumed.trace.notes == plain.trace.notes
    for name in plain.trace:
        np.testing.assert_array_equal(resumed.trace[name], plain.trace[name])
    again = fit(Dying(X, **rule), **where)  # finished: it looks no more
    np.testing.assert_array_equal(draws_of(again), draws_of(plain))
    stricter = fit(px.run.UntilMixed(X, rhat=1.02, effective_draws=300), **where)
    more = int(stricter.trace["checked_draws"][-1])
    assert more > plain.trace["checked_draws"][-1]
    np.testing.assert_array_equal(draws_of(stricter), draws_of(fit(draws=more))[:, -draws_of(stricter).shape[1] :])


class Clock:
    """A second passes whenever it is looked at."""

    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        self.now += 1.0
        return self.now


@pytest.mark.slow
def test_a_limit_of_seconds_ends_the_run_and_more_seconds_continue_it(tmp_path, monkeypatch):
    monkeypatch.setattr(until_mixed, "time", Clock())
    monkeypatch.setattr(loop, "SECONDS_PER_CHUNK", 1e-9)  # chunks of one step
    unreachable = {"rhat": 1.0001, "effective_draws": 100_000}
    quick = px.HMC(warmup=5, step_size=0.05, trajectory=0.15, start="network")
    stopped = fit(px.run.UntilMixed(X, seconds=40, **unreachable), quick, checkpoint=tmp_path)
    note = stopped.trace.notes[-1]
    taken = stopped.trace["checked_draws"][-1]
    assert note.startswith(f"not converged after {taken} draws of each chain, at its limit of 40 seconds: R-hat ")
    assert stopped.trace.converged is False
    assert 4 <= taken < 3000
    again = fit(px.run.UntilMixed(X, seconds=40, **unreachable), quick, checkpoint=tmp_path)
    np.testing.assert_array_equal(draws_of(again), draws_of(stopped))
    longer = fit(px.run.UntilMixed(X, seconds=60, **unreachable), quick, checkpoint=tmp_path)
    assert longer.trace["checked_draws"][-1] > taken
    monkeypatch.setattr(until_mixed, "time", Clock())
    with pytest.raises(RuntimeError, match="of 5000 warm-up steps, and its time is too short for the others"):
        fit(px.run.UntilMixed(X, seconds=6), px.HMC(warmup=5000, step_size=0.05, trajectory=0.15))


@pytest.mark.slow
def test_a_run_that_reaches_its_end_says_so_and_can_be_continued(tmp_path):
    rule = {"rhat": 1.03, "effective_draws": 150}
    posterior = fit(px.run.UntilMixed(X, **rule), draws=50, checkpoint=tmp_path)
    assert posterior.trace["checked_draws"].tolist() == [38, 50]
    assert posterior.trace.notes[-1].startswith("not converged after 50 draws of each chain: R-hat 1.")
    again = fit(px.run.UntilMixed(X, **rule), draws=50, checkpoint=tmp_path)
    assert again.trace.notes == posterior.trace.notes
    continued, plain = fit(px.run.UntilMixed(X, **rule), checkpoint=tmp_path), fit(px.run.UntilMixed(X, **rule))
    np.testing.assert_array_equal(draws_of(continued), draws_of(plain))
    np.testing.assert_array_equal(continued.trace["checked_draws"], plain.trace["checked_draws"])


@pytest.mark.slow
def test_ctrl_c_does_not_change_where_a_run_ends(tmp_path, monkeypatch):
    rule, calls = {"rhat": 1.03, "effective_draws": 150}, iter(range(100))
    with monkeypatch.context() as patch, pytest.raises(px.run.Interrupted):
        patch.setattr(loop, "SECONDS_PER_CHUNK", 1e-9)  # chunks of one step
        patch.setattr(loop.StopOnInterrupt, "asks_to_stop", lambda self: next(calls) > 90)
        fit(px.run.UntilMixed(X, **rule), checkpoint=tmp_path)
    resumed, plain = fit(px.run.UntilMixed(X, **rule), checkpoint=tmp_path), fit(px.run.UntilMixed(X, **rule))
    np.testing.assert_array_equal(draws_of(resumed), draws_of(plain))
    assert resumed.trace.notes == plain.trace.notes


@pytest.mark.slow
def test_of_many_draws_evenly_spaced_ones_are_examined(monkeypatch):
    monkeypatch.setattr(until_mixed, "EXAMINED", 60)
    seen = []

    class Looking(px.run.UntilMixed):
        def judge(self, values):
            seen.append(values)
            return super().judge(values)._replace(again=2.0)

    posterior = fit(Looking(X, rhat=1.0001, effective_draws=40), draws=400)
    every = np.concatenate(
        [draws_of(posterior)[:, :0], draws_of(fit(draws=400))], axis=1
    )  # the posterior may lack the first half
    strides = []
    for look, values in zip(posterior.trace["checked_draws"], seen, strict=True):
        stride = -(-int(look) // values.shape[1])
        strides.append(stride)
        assert values.shape[1] <= 60
        np.testing.assert_allclose(values, every[:, :look:stride] @ X.T, rtol=1e-4, atol=1e-5)
    assert strides == sorted(strides)
    assert strides[-1] == 8


def test_the_progress_bar_shows_what_was_found(monkeypatch):
    shown = []
    monkeypatch.setattr(
        "posteriax._internal.progress.Progress.update", lambda self, done, rate, text: shown.append(text)
    )
    fit(px.run.UntilMixed(X, rhat=1.03, effective_draws=150))
    assert any("acceptance" in text and "R-hat 1." in text and "effective draws" in text for text in shown)


@pytest.mark.slow
def test_classes_are_compared_by_their_probabilities():
    (x, y), (x_test, _) = px.data.two_moons(train=30, test=300)
    problem = px.Problem((lambda w, x: x @ w, np.zeros((2, 2), np.float32)), px.Categorical())
    stop = px.run.UntilMixed(x_test, rhat=1.1, effective_draws=100, points=20)
    posterior = px.fit(problem, (x, y), px.HMC(warmup=50), draws=2000, chains=2, key=0, stop=stop)
    probs = posterior.predict(x_test[stop.chosen]).per_draw().reshape(2, -1, 20)
    rhat = arviz.rhat(arviz.convert_to_dataset(probs.astype(np.float64))).x.max()
    assert posterior.trace["checked_rhat"][-1] == pytest.approx(float(rhat), abs=1e-3)
    assert len(stop.chosen) == 20


BAD = {
    "rhat": (dict(rhat=1.0), ValueError, "rhat must be a number above 1, got 1.0"),
    "effective": (dict(effective_draws=0), ValueError, "effective_draws must be a positive number"),
    "seconds": (dict(seconds=-1), ValueError, "seconds must be a positive number"),
    "points": (dict(points=0), ValueError, "points must be a whole number"),
    "x": (dict(x=X * np.nan), ValueError, "x has 120 non-finite values"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_settings(name):
    settings, error, message = BAD[name]
    with pytest.raises(error, match=message):
        px.run.UntilMixed(**{"x": X, **settings})


def test_bad_runs_are_refused_before_anything_is_compiled(monkeypatch):
    monkeypatch.setattr("posteriax.run.fitting._run", None)
    with pytest.raises(ValueError, match="compares chains: run several, chains=4"):
        fit(px.run.UntilMixed(X), chains=1)
    with pytest.raises(ValueError, match="the network fails for x of shape"):
        fit(px.run.UntilMixed(X[:, :2]))
    with pytest.raises(ValueError, match=r"stop=UntilMixed\(...\) is for samplers: MAP optimises"):
        px.fit(EXACT.problem, EXACT.data, px.MAP(), steps=10, key=0, stop=px.run.UntilMixed(X))
    with pytest.raises(ValueError, match=r"HMC has no posterior before its end.*stop=px.run.UntilMixed\(x\)"):
        fit(px.evaluation.EarlyStopping(validation=EXACT.data))
    with pytest.raises(
        TypeError, match=r"px.evaluation.EarlyStopping\(...\) or, for samplers, px.run.UntilMixed\(...\); got 5"
    ):
        fit(5)
