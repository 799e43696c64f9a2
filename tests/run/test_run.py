"""The driver: chunks change nothing, keys decide everything, trouble stops it with a name."""

import gc
import subprocess
import sys
import weakref

import equinox as eqx
import jax
import known
import numpy as np
import optax
import pytest

import posteriax as px
from posteriax import families as q
from posteriax.run import fitting, loop
from posteriax.run import program as program_module
from posteriax.run.layout import members_mesh
from posteriax.run.loop import StopOnInterrupt
from posteriax.run.program import Program


@pytest.fixture(scope="module")
def problem():
    return px.Problem(eqx.nn.MLP(2, 2, 8, 1, key=jax.random.key(0)), px.Categorical())


def leaves(posterior):
    return jax.tree.leaves(posterior.draws if hasattr(posterior, "draws") else posterior.variational)


def test_chunks_of_any_length_give_the_same_bits(problem, moons, monkeypatch):
    """Of a sampler; those of minibatches are in data/test_augmentation.py."""
    posteriors = []
    for seconds, most in ((1e9, 1000), (0.0, 1000)):
        monkeypatch.setattr(loop, "SECONDS_PER_CHUNK", seconds)  # 0: one step at a time
        monkeypatch.setattr(program_module, "STEPS_PER_CHUNK", most)
        posteriors.append(px.fit(problem, moons[0], px.HMC(warmup=7, start="network"), key=1, draws=12, chains=2))
    for a, b in zip(*map(leaves, posteriors), strict=True):
        np.testing.assert_array_equal(a, b)
    for name in posteriors[0].trace:
        np.testing.assert_array_equal(posteriors[0].trace[name], posteriors[1].trace[name])


def test_the_same_key_gives_the_same_posterior_and_another_key_another(problem, moons):
    one, same, other = (
        px.fit(problem, moons[0], px.MAP(), steps=5, batch_size=10, key=k) for k in (3, jax.random.key(3), 4)
    )
    for a, b, c in zip(leaves(one), leaves(same), leaves(other), strict=True):
        np.testing.assert_array_equal(a, b)
        assert not np.array_equal(a, c)


def test_epochs_count_steps_of_balanced_batches(problem, moons):
    assert px.fit(problem, moons[0], px.MAP(), epochs=2, batch_size=25, key=0).trace["log_joint"].shape == (6,)


def test_a_run_that_blows_up_stops_and_names_step_and_leaf(problem, moons):
    x, y = moons[0]
    with pytest.raises(FloatingPointError, match=r"MAP stopped at step \d+ of 500: log_joint is not finite, .*weight"):
        px.fit(problem, (1e3 * x, y), px.MAP(optax.sgd(1e6)), steps=500, key=0)


@pytest.mark.slow
def test_progress_goes_to_standard_error_and_is_silent_in_a_pipe(problem, moons, capsys):
    px.fit(problem, moons[0], px.MAP(), steps=5, key=0)
    assert capsys.readouterr() == ("", "")
    px.fit(problem, moons[0], px.MAP(), steps=5, key=0, progress=True)
    out, err = capsys.readouterr()
    assert out == ""
    assert "MAP" in err
    assert "5/5" in err
    assert "log_joint" in err


def test_the_whole_loop_is_one_program_and_its_state_is_donated(problem, moons):
    """Steps 2 to n must not recompile, and the old state's memory is given back."""
    from posteriax.methods import Task
    from posteriax.methods.ensemble import Ensemble

    x, y = moons[0]
    task = Task(problem=problem, example=jax.ShapeDtypeStruct((2,), np.float32), num_examples=len(y), steps=50)
    program = Program(Ensemble(px.MAP(), 1).bind(task), None, members_mesh(1, None))
    keys, states = program.begin(jax.random.key(0), (x, y))
    for first in range(3):
        old = states
        states = program.chunk(keys, states, (x, y), np.int32(first), np.int32(first + 1 + first))[0]
        assert jax.tree.leaves(old)[0].is_deleted()
    assert len(program.chunk.compiled) == 1


def test_members_run_on_all_devices(problem, moons, two_devices):
    from posteriax.methods import Task
    from posteriax.methods.ensemble import Ensemble

    x, y = moons[0]
    task = Task(problem=problem, example=jax.ShapeDtypeStruct((2,), np.float32), num_examples=len(y), steps=50)
    program = Program(Ensemble(px.MAP(), 2).bind(task), None, members_mesh(2, None))
    _, states = program.begin(jax.random.key(0), (x, y))
    assert len(jax.tree.leaves(states)[0].sharding.device_set) == 2


@pytest.mark.slow
def test_recording_gradients_changes_nothing_of_the_run():
    """Not even where a linear model starts, which is for VI without an optimizer of the user's."""
    exact = known.linear_regression()
    plain, recorded = (
        px.fit(exact.problem, exact.data, px.VI(q.Normal()), steps=30, key=0, record=record)
        for record in (None, px.run.GradientNoise(window=5, every=10))
    )
    for a, b in zip(leaves(plain), leaves(recorded), strict=True):
        np.testing.assert_array_equal(a, b)
    assert set(recorded.trace) - set(plain.trace) == {"gradient_noise", "gradient_noise_step"}


@pytest.mark.slow
def test_nothing_keeps_a_problem_alive_after_its_run(moons):
    def run() -> weakref.ref:
        problem = px.Problem((lambda w, x: x @ w, np.zeros((2, 2), np.float32)), px.Categorical())
        px.fit(problem, moons[0], px.VI(q.Normal()), steps=2, key=0)
        return weakref.ref(problem)

    gone = run()
    gc.collect()
    assert gone() is None


def test_an_observer_sees_every_step_once_and_may_end_the_run(problem, moons, monkeypatch):
    begun, seen = [], []

    class Third(StopOnInterrupt):
        def next_stop(self, step):
            begun.append(step)
            return step + 7

        def asks_to_stop(self):
            return len(begun) == 3

        def after_chunk(self, run):
            seen.append((run.step, run.ending))

    monkeypatch.setattr(fitting, "StopOnInterrupt", Third)
    monkeypatch.setattr(loop, "SECONDS_PER_CHUNK", 1e9)
    with pytest.raises(px.run.Interrupted, match="MAP was stopped at step 15 of 50"):
        px.fit(problem, moons[0], px.MAP(), steps=50, key=0)
    assert seen == [(1, False), (8, False), (15, True)]


def test_double_precision_works_with_methods_of_either_kind():
    """In a process of its own: the switch is global."""
    code = """
import jax; jax.config.update("jax_enable_x64", True)
import numpy as np, posteriax as px
from posteriax import families as q
x = np.random.default_rng(0).normal(size=(20, 2)); y = x[:, :1]
hmc, vi = (px.HMC(warmup=3), {"draws": 2}), (px.VI(q.Normal()), {"steps": 3})
for dtype, (method, length) in ((np.float64, hmc), (np.float64, vi), (np.float32, hmc)):
    problem = px.Problem((lambda w, x: x @ w, np.zeros((2, 1), dtype)), px.Normal(scale=0.5))
    posterior = px.fit(problem, (x, y), method, key=0, **length)
    assert jax.tree.leaves(posterior.sample(0, 2))[0].dtype == dtype, (dtype, method)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)
