"""Gradients of weights with few outputs are computed in the fast form on a CPU, and are the same."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posteriax._internal.cpu_tuning import with_fast_operations


def gradient(x, w, y):
    """Of a least-squares loss of a dense layer, in its weights."""
    return jax.grad(lambda w: ((x @ w - y) ** 2).sum())(w)


def gradient_of_transposed(x, w, y):
    """The same for weights that are stored as (outputs, inputs)."""
    return jax.grad(lambda w: ((jax.vmap(lambda row: w @ row)(x) - y) ** 2).sum())(w.T).T


def problem(examples, inputs, outputs):
    rng = np.random.default_rng(0)
    shapes = (examples, inputs), (inputs, outputs), (examples, outputs)
    return [jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in shapes]


@pytest.mark.slow
@settings(deadline=None, max_examples=15)
@given(st.sampled_from([200, 300, 1000]), st.integers(1, 60), st.integers(1, 20), st.booleans())
def test_gradients_stay_the_same(examples, inputs, outputs, transposed):
    fun, args = gradient_of_transposed if transposed else gradient, problem(examples, inputs, outputs)
    plain, fast = jax.jit(fun)(*args), jax.jit(with_fast_operations(fun))(*args)
    np.testing.assert_allclose(fast, plain, atol=1e-5 * float(jnp.abs(plain).max()))


def products_in(fun, *args):
    """The shapes of all matrix products in the compiled program."""
    text = jax.jit(fun).lower(*args).compile().as_text()
    lines = [line for line in text.splitlines() if " dot(" in line]
    return [line.split("= f32[")[1].split("]")[0] for line in lines]


@pytest.mark.parametrize("fun", [gradient, gradient_of_transposed])
def test_the_compiled_program_has_the_fast_form(fun):
    args = problem(1000, 50, 3)
    assert "3,50" in products_in(with_fast_operations(fun), *args)


def test_the_compiler_alone_would_choose_the_slow_form():
    """If this fails, XLA has learned, and the rule can go."""
    assert "3,50" not in products_in(gradient, *problem(1000, 50, 3))


@pytest.mark.parametrize(("examples", "inputs", "outputs"), [(1000, 50, 32), (100, 50, 3), (1000, 5, 4)])
def test_other_products_are_left_alone(examples, inputs, outputs):
    args = problem(examples, inputs, outputs)
    assert "optimization_barrier" not in str(jax.make_jaxpr(with_fast_operations(gradient))(*args))
