"""A stop rule from outside: `px.fit` relies on nothing but the protocol."""

import numpy as np
import optax
import pytest
from known import linear_regression

import posteriax as px
from posteriax.run import Observer, StopRule

EXACT = linear_regression()


class AfterDraws(StopRule):
    """Ends a run after some draws or steps, and keeps the last example from training."""

    holds_out = True

    def __init__(self, steps, every=5):
        self.steps, self.every = steps, every

    def for_data(self, problem, data, key):
        return self, tuple(array[:-1] for array in data)

    def prepare(self, members):
        if members.count > 2:
            raise ValueError("too many members")
        return members

    def observer(self, program):
        return Counting(self, program)


class Counting(Observer):
    def __init__(self, rule, program):
        self.rule, self.examples, self.over = rule, program.task.num_examples, False

    def identity(self):
        return {"strange rule": str(self.rule.steps)}

    def next_stop(self, step):
        return step + self.rule.every - step % self.rule.every

    def after_chunk(self, run):
        self.over = run.step >= self.rule.steps

    def asks_to_stop(self):
        return self.over

    def saved(self):
        return {"over": self.over}

    def restore(self, saved, arrays):
        self.over = saved["over"]

    def trace_arrays(self):
        return {"trained_on": np.array([self.examples])}

    def notes(self):
        return (f"ended after {self.rule.steps} steps by a stranger",)


@pytest.mark.parametrize(
    ("method", "length"),
    [(px.MAP(optax.adam(0.05)), {"steps": 1000}), (px.HMC(warmup=5, start="network"), {"draws": 1000, "chains": 2})],
    ids=["optimiser", "sampler"],
)
def test_it_ends_a_run_which_is_then_a_normal_result(method, length, tmp_path):
    fit = lambda steps=20, **where: px.fit(  # noqa: E731
        EXACT.problem, EXACT.data, method, key=0, stop=AfterDraws(steps), **length, **where
    )
    posterior = fit(checkpoint=tmp_path)
    assert next(iter(posterior.trace.values())).shape[-1] == 20
    assert posterior.trace["trained_on"].tolist() == [len(EXACT.data[1]) - 1]
    assert posterior.trace.notes[-1] == "ended after 20 steps by a stranger"
    assert posterior.trace.converged is None
    again = fit(checkpoint=tmp_path)  # finished
    np.testing.assert_array_equal(again.mean["w"], posterior.mean["w"])
    with pytest.raises(px.run.CheckpointError, match="strange rule was 20, is now 25"):
        fit(25, checkpoint=tmp_path)


def test_it_may_refuse_a_run():
    with pytest.raises(ValueError, match="too many members"):
        px.fit(EXACT.problem, EXACT.data, px.HMC(), draws=5, chains=3, key=0, stop=AfterDraws(5))
