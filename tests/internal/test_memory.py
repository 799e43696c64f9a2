"""The planner of memory, and what is decided once."""

import gc
import weakref

import equinox as eqx
import jax
import numpy as np
import pytest

import posteriax as px
from posteriax import problem as problem_module
from posteriax._internal import memory
from posteriax.posterior import prediction


def program(bytes_each):
    """A program that needs so many bytes for every draw and example, and a list of what was asked for."""
    asked = []

    def compiled(draws, rows):
        asked.append((draws, rows))
        return (draws, rows), bytes_each * draws * rows

    return compiled, asked


@pytest.mark.parametrize("bytes_each", [1, 10_000, 10**7])
def test_a_plan_keeps_to_the_budget_by_examples_first(monkeypatch, bytes_each):
    monkeypatch.setattr(memory, "WORKING_BYTES", 10**6)
    compiled, asked = program(bytes_each)
    plan = memory.plan_chunks(compiled, draws=4, examples=300, draw_bytes=100, couples_examples=lambda: False)
    assert bytes_each * plan.draws * plan.rows <= 5 * 10**5 or (plan.draws, plan.rows) == (1, 1)
    assert plan.run == (plan.draws, plan.rows) == asked[-1]
    assert plan.draws == 4 or plan.rows == 1


def test_a_network_that_couples_examples_gets_them_all():
    compiled, _ = program(10**6)
    plan = memory.plan_chunks(compiled, draws=8, examples=3000, draw_bytes=100, couples_examples=lambda: True)
    assert (plan.draws, plan.rows) == (1, 3000)


def test_chunks_cover_all_draws_and_examples_once():
    plan = memory.ChunkPlan(None, draws=3, rows=4)
    x = {"a": np.arange(10), "b": np.arange(20).reshape(10, 2)}
    seen = [chunk["a"][: 10 - start] for start, chunk in plan.chunks(x)]
    np.testing.assert_array_equal(np.concatenate(seen), np.arange(10))
    assert all(len(chunk["b"]) == 4 for _, chunk in plan.chunks(x))
    taken = [indices[:count] for indices, count in (plan.chosen(first, 8) for first in range(0, 8, 3))]
    np.testing.assert_array_equal(np.concatenate(taken), np.arange(8))


def test_whether_examples_are_coupled_is_tried_once_per_problem(monkeypatch, moons):
    tried = []
    known = problem_module.couples_examples
    monkeypatch.setattr(problem_module, "couples_examples", lambda net, x: tried.append(1) or known(net, x))
    problem = px.Problem(eqx.nn.MLP(2, 2, 4, 1, key=jax.random.key(0)), px.Categorical())
    x = moons[0][0]
    assert not problem.couples_examples(x[:1]) and not tried  # one example can not tell
    assert not any(problem.couples_examples(some) for some in (x, x[:7], x))
    assert len(tried) == 1


@pytest.mark.slow
def test_compiled_predictions_are_forgotten_with_their_problem(moons):
    problem = px.Problem(eqx.nn.MLP(2, 2, 4, 1, key=jax.random.key(0)), px.Categorical())
    posterior = px.fit(problem, moons[0], px.MAP(), steps=2, key=0)
    posterior.predict(moons[0][0])
    seen = weakref.ref(posterior.problem)
    assert seen() in prediction._compiled
    del posterior, problem
    gc.collect()
    assert seen() is None
