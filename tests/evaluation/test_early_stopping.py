"""Early stopping: the best posterior of a run on held-out data, whether or not the run was interrupted."""

import dataclasses

import equinox as eqx
import jax
import numpy as np
import optax
import pytest

import posteriax as px
from posteriax import families as q
from posteriax.run import loop

NET = eqx.nn.MLP(2, 2, 16, 1, key=jax.random.key(0))
STEADY = px.MAP(optax.adam(0.05))  # no schedule: a shorter run is the beginning of a longer one
(X, Y), _ = px.data.two_moons(train=80, test=1)
TRAIN, VALID = (X[:40], Y[:40]), (X[40:], Y[40:])


def problem(likelihood=None):
    return px.Problem(NET, likelihood or px.Categorical())


def fit(stop=None, method=STEADY, data=TRAIN, **settings):
    return px.fit(problem(), data, method, key=0, stop=stop, **{"epochs": 60, "batch_size": 10, **settings})


def weights(posterior):
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(posterior.mean)])


def expected_stop(losses, patience):
    """Plain Python: how many evaluations there are, and which is the best."""
    best = 0
    for i, loss in enumerate(losses):
        best = i if loss < losses[best] else best
        if i - best == patience:
            return i + 1, best
    return len(losses), best


@pytest.mark.slow
@pytest.mark.parametrize(
    ("metric", "sign", "method"),
    [
        pytest.param("nll", 1, px.VI(q.Normal()), id="VI"),
        pytest.param("accuracy", -1, STEADY, id="accuracy", marks=pytest.mark.slow),
        pytest.param("nll", 1, px.Ensemble(STEADY, 2), id="ensemble", marks=pytest.mark.slow),
    ],
)
def test_it_returns_the_best_posterior_that_a_watch_sees(metric, sign, method):
    seen, values = [], []

    def look(posterior):
        seen.append(posterior)
        values.append(px.evaluate(posterior.predict(VALID[0], draws=32), VALID[1])[metric])
        return {}

    fit(method=method, watch=px.run.Watch(look, every=8))  # four batches per epoch
    count, best = expected_stop([sign * value for value in values], patience=3)
    posterior = fit(px.evaluation.EarlyStopping(validation=VALID, metric=metric, patience=3, every=2), method)
    np.testing.assert_array_equal(posterior.trace[f"validation_{metric}"], values[:count])
    np.testing.assert_array_equal(posterior.trace["validation_step"], 8 * np.arange(1, count + 1))
    np.testing.assert_array_equal(weights(posterior), weights(seen[best]))
    name = "elbo" if isinstance(method, px.VI) else "log_joint"
    assert posterior.trace[name].shape[-1] == 8 * count
    note = posterior.trace.notes[-1]
    value = f"validation {metric} {values[best]:.4g}"
    if count < len(values):
        assert note == f"stopped at epoch {2 * count} of 60; best at {2 * best + 2}: {value}"
    else:
        assert note == f"best at epoch {2 * best + 2} of 60: {value}"


@pytest.mark.slow
def test_a_long_run_stops_and_is_a_normal_result(tmp_path):
    stop = px.evaluation.EarlyStopping(validation=VALID, patience=2)
    posterior = fit(stop)
    assert len(posterior.trace["log_joint"]) < 240
    assert posterior.trace.notes[-1].startswith("stopped at epoch")
    posterior.save(tmp_path / "a.posterior")
    assert px.load(tmp_path / "a.posterior", NET).trace.notes == posterior.trace.notes
    assert str(posterior.diagnose())


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Scripted(px.evaluation.EarlyStopping):
    """Measures what it is told, and dies where it is told to."""

    script: list

    name = "script"
    settings = "a script"

    def check(self, problem, x, y):
        pass

    def measure(self, posterior, x, y):
        value = self.script.pop(0)
        if value is None:
            raise InterruptedError
        return value

    def loss(self, value):
        return value


@pytest.mark.slow
def test_the_best_state_survives_a_kill_in_the_checkpoint(tmp_path):
    values = [3.0, 1.0, 2.0, 2.0, 2.0, 2.0]
    plain = fit(Scripted(script=[*values], validation=VALID, patience=3))
    script = [*values[:4], None, *values[4:]]  # dies after the best
    where = {"checkpoint": tmp_path, "checkpoint_every": 1e-9}
    with pytest.raises(InterruptedError):
        fit(Scripted(script=script, validation=VALID, patience=3), **where)
    resumed = fit(Scripted(script=script, validation=VALID, patience=3), **where)
    assert resumed.trace.notes[-1] == "stopped at epoch 5 of 60; best at 2: validation script 1"
    for name in plain.trace:
        np.testing.assert_array_equal(resumed.trace[name], plain.trace[name])
    np.testing.assert_array_equal(weights(resumed), weights(plain))
    np.testing.assert_array_equal(weights(plain), weights(fit(epochs=2)))
    again = fit(Scripted(script=[], validation=VALID, patience=3), **where)  # finished: it measures nothing more
    np.testing.assert_array_equal(weights(again), weights(plain))
    with pytest.raises(px.run.CheckpointError, match=r"early stopping was .*patience 3.*is now .*patience 4"):
        fit(Scripted(script=[], validation=VALID, patience=4), **where)
    with pytest.raises(px.run.CheckpointError, match="early stopping was"):
        fit(Scripted(script=[], validation=TRAIN, patience=3), **where)
    with pytest.raises(px.run.CheckpointError, match=r"early stopping was .*is now None"):
        fit(**where)


@pytest.mark.slow
def test_a_fraction_is_split_off_by_the_key_and_not_trained_on():
    """With the weights held still, the log joint is that of the remaining examples, at their N."""
    seen = []

    class Looking(Scripted):
        def measure(self, posterior, x, y):
            seen.append((x, y))
            return 1.0

    still = px.MAP(optax.sgd(0.0))
    count = np.arange(1.0, 41.0)
    traces = [
        px.fit(problem(), (*TRAIN, count), still, key=key, epochs=1, stop=Looking(script=[], fraction=0.25)).trace[
            "log_joint"
        ]
        for key in (0, 0, 1)
    ]
    assert traces[0] == traces[1]
    assert traces[0] != traces[2]
    rows = {tuple(row) for row in seen[0][0].tolist()}
    assert len(rows) == 10
    left = np.array([tuple(row) not in rows for row in TRAIN[0].tolist()])
    truth = problem().log_joint(problem().network.params, (TRAIN[0][left], TRAIN[1][left], count[left]))
    assert traces[0][0] == pytest.approx(float(truth), rel=1e-5)


@pytest.mark.slow
def test_ctrl_c_returns_the_best_so_far(monkeypatch):
    calls = iter(range(100))
    with monkeypatch.context() as patch, pytest.raises(px.run.Interrupted) as stopped:
        patch.setattr(loop.StopOnInterrupt, "asks_to_stop", lambda self: next(calls) > 9)
        fit(Scripted(script=[3.0, 1.0, *[2.0] * 20], validation=VALID, patience=50))
    assert stopped.value.posterior.trace.notes[-1] == "best at epoch 2 of 60: validation script 1"
    np.testing.assert_array_equal(weights(stopped.value.posterior), weights(fit(epochs=2)))


BAD = {
    "no data": (dict(), ValueError, "give either validation"),
    "both": (dict(validation=VALID, fraction=0.1), ValueError, "give either validation"),
    "fraction": (dict(fraction=1.0), ValueError, "fraction must lie strictly between 0 and 1"),
    "patience": (dict(validation=VALID, patience=0), ValueError, "patience must be a whole number"),
    "every": (dict(validation=VALID, every=0), ValueError, "every must be a positive number"),
    "name": (dict(validation=VALID, metric="loss"), ValueError, "there is no score 'loss'. There are accuracy, nll"),
    "reference": (dict(validation=VALID, metric="agreement"), ValueError, "metric 'agreement' cannot say which"),
    "draws": (dict(validation=VALID, draws=0), ValueError, "draws must be a whole number"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_settings(name):
    settings, error, message = BAD[name]
    with pytest.raises(error, match=message):
        px.evaluation.EarlyStopping(**settings)


def test_bad_runs_are_refused_before_anything_is_compiled(monkeypatch):
    monkeypatch.setattr("posteriax.run.fitting._run", None)
    stop = px.evaluation.EarlyStopping(validation=VALID)
    with pytest.raises(ValueError, match="stop= is for methods that optimise: HMC"):
        px.fit(problem(), TRAIN, px.HMC(), draws=2, key=0, stop=stop)
    with pytest.raises(ValueError, match="stop= is not for SWAG"):
        fit(stop, px.SWAG())
    with pytest.raises(ValueError, match=r"metric 'rmse' does not suit Categorical.*have shape \(40, 2\)"):
        fit(px.evaluation.EarlyStopping(validation=VALID, metric="rmse"))
    with pytest.raises(ValueError, match="validation: y has labels up to 7"):
        fit(px.evaluation.EarlyStopping(validation=(VALID[0], VALID[1] + 6)))
    with pytest.raises(TypeError, match="validation: data must be a pair"):
        fit(px.evaluation.EarlyStopping(validation=VALID[0]))
    with pytest.raises(ValueError, match="holds out 0"):
        fit(px.evaluation.EarlyStopping(fraction=0.001))
    with pytest.raises(
        TypeError, match=r"stop must be px.run.UntilLevel\(...\), px.evaluation.EarlyStopping\(...\) or, .*; got 5"
    ):
        fit(5)

    class Batches:
        def __len__(self):
            return 1

        def __iter__(self):
            yield TRAIN

    with pytest.raises(ValueError, match="not a loader: give validation"):
        fit(px.evaluation.EarlyStopping(fraction=0.1), data=Batches(), batch_size=None)


def test_a_value_that_is_not_a_number_is_said():
    with pytest.raises(FloatingPointError, match="the validation script is NaN at step 4"):
        fit(Scripted(script=[np.nan], validation=VALID))
