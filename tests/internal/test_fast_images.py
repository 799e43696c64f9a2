"""Convolutions and pooling gradients rewritten for CPUs compute what they computed before."""

import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

from posteriax._internal import cpu_tuning
from posteriax._internal.cpu_operations import MANY, PART
from posteriax._internal.cpu_tuning import with_fast_operations
from posteriax.networks.tracing.program import all_equations


def normal(*shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


def assert_same(fun, *args):
    """To 1e-5 of the largest entry, for every output."""
    before, after = jax.jit(fun)(*args), jax.jit(with_fast_operations(fun))(*args)
    for old, new in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True):
        assert old.shape == new.shape and old.dtype == new.dtype
        np.testing.assert_allclose(new, old, atol=1e-5 * max(float(jnp.abs(old).max()), 1e-3), rtol=0)


def output_and_gradients(**params):
    """A convolution and its gradients with respect to both operands, inside a loop, as in a run."""

    def conv(x, kernel):
        return lax.conv_general_dilated(x, kernel, **params)

    def both(x, kernel):
        out, pull_back = jax.vjp(conv, x, kernel)
        return out, *pull_back(jnp.sin(out))

    def looped(x, kernel):
        zeros = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), jax.eval_shape(both, x, kernel))
        return lax.fori_loop(0, 1, lambda _, seen: jax.tree.map(jnp.add, seen, both(x, kernel)), zeros)

    return looped


LAYOUTS = {
    1: [("NWC", "WIO", "NWC"), ("NCW", "OIW", "NCW")],
    2: [("NHWC", "HWIO", "NHWC"), ("NCHW", "OIHW", "NCHW"), ("NHWC", "OIHW", "NCHW")],
    3: [("NDHWC", "DHWIO", "NDHWC"), ("NCDHW", "OIDHW", "NCDHW")],
}


def arranged(spec: str, sizes: dict[str, int]) -> tuple[int, ...]:
    return tuple(sizes[letter] for letter in spec)


@st.composite
def convolutions(draw):
    """Parameters of a valid convolution and the shapes of its operands."""
    axes = draw(st.integers(1, 3))
    small = st.integers(1, 3)
    layout = draw(st.sampled_from(LAYOUTS[axes]))
    window = [draw(small) for _ in range(axes)]
    dilation = [draw(st.integers(1, 2)) for _ in range(axes)]
    spread = [draw(st.integers(1, 2)) for _ in range(axes)]
    images = [(n - 1) * d + 1 + draw(st.integers(0, 4)) for n, d in zip(window, dilation, strict=True)]
    kind = draw(st.sampled_from(["plain", "feature groups", "batch groups"]))
    groups = draw(st.integers(2, 3)) if kind != "plain" else 1
    ins, outs, batch = draw(small), groups * draw(small), draw(small) * (groups if kind == "batch groups" else 1)
    letters = "DHW"[-axes:]
    channels = ins * groups if kind == "feature groups" else ins
    params = {
        "window_strides": [draw(st.integers(1, 2)) for _ in range(axes)],
        "padding": draw(st.sampled_from(["SAME", "VALID", [(1, 2)] * axes])),
        "lhs_dilation": spread if draw(st.booleans()) else [1] * axes,
        "rhs_dilation": dilation,
        "dimension_numbers": layout,
        "feature_group_count": groups if kind == "feature groups" else 1,
        "batch_group_count": groups if kind == "batch groups" else 1,
    }
    if isinstance(params["padding"], str) and params["lhs_dilation"] != [1] * axes:
        params["padding"] = [(2, 2)] * axes  # JAX has no names for the padding of transposed convolutions
    x = arranged(layout[0], {"N": batch, "C": channels, **dict(zip(letters, images, strict=True))})
    kernel = arranged(layout[1], {"I": ins, "O": outs, **dict(zip(letters, window, strict=True))})
    return params, x, kernel


@settings(deadline=None, max_examples=int(os.environ.get("CONVOLUTIONS", "6")), derandomize=True)
@given(convolutions())
def test_any_convolution_and_its_gradients_stay_the_same(case):
    params, x, kernel = case
    assert_same(output_and_gradients(**params), normal(*x), normal(*kernel, seed=1))


CURVED = {
    "plain": ({}, (2, 6, 5, 2), (3, 3, 2, 3)),
    "strided, padded on one side": (
        {"window_strides": (2, 3), "padding": [(0, 2), (3, 1)]},
        (2, 6, 7, 2),
        (3, 2, 2, 3),
    ),
    "dilated": ({"rhs_dilation": (2, 1)}, (2, 7, 5, 2), (3, 3, 2, 3)),
    "transposed": ({"lhs_dilation": (2, 2), "padding": [(2, 2), (1, 3)]}, (2, 4, 4, 2), (3, 3, 2, 3)),
    "grouped": ({"feature_group_count": 2}, (2, 5, 5, 4), (3, 3, 2, 6)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CURVED)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_second_derivatives_stay_the_same(name, dtype):
    """Forwards over backwards, as in kappa, and backwards over backwards; for one kernel and for several."""
    params, x, kernel = CURVED[name]
    params = {"window_strides": (1, 1), "padding": "SAME", "dimension_numbers": ("NHWC", "HWIO", "NHWC")} | params

    def loss(x, kernel):
        return jnp.sum(jnp.sin(lax.conv_general_dilated(x, kernel, **params)))

    def curvature(x, kernel):
        gradient = jax.grad(loss, (0, 1))
        _, along = jax.jvp(gradient, (x, kernel), (jnp.cos(x), jnp.cos(kernel)))
        return along, jax.grad(lambda *a: sum(jnp.sum(g**3) for g in gradient(*a)), (0, 1))(x, kernel)

    with jax.enable_x64(dtype == "float64"):
        rng = np.random.default_rng(0)
        x, one, two = (jnp.asarray(rng.normal(size=s), dtype) for s in (x, kernel, (2, *kernel)))
        assert_same(curvature, x, one)
        assert_same(jax.vmap(curvature, (None, 0)), x, two)


def test_members_with_their_own_kernels_stay_the_same():
    fun = output_and_gradients(window_strides=(2, 2), padding="SAME", dimension_numbers=("NCHW", "OIHW", "NCHW"))
    assert_same(jax.vmap(fun), normal(2, 3, 4, 7, 6), normal(2, 5, 4, 3, 3, seed=1))


def test_inside_a_loop_every_convolution_is_channels_last():
    fun = output_and_gradients(window_strides=(1, 1), padding="SAME", dimension_numbers=("NCHW", "OIHW", "NCHW"))
    program = jax.make_jaxpr(with_fast_operations(fun))(normal(2, 3, 9, 9), normal(4, 3, 3, 3)).jaxpr
    found = [eqn for eqn in all_equations(program) if eqn.primitive.name == "conv_general_dilated"]
    fast = lax.ConvDimensionNumbers((0, 3, 1, 2), (3, 2, 0, 1), (0, 3, 1, 2))
    assert len(found) == 3 and all(eqn.params["dimension_numbers"] == fast for eqn in found)


def test_the_gradient_of_a_strided_kernel_is_a_product():
    fun = output_and_gradients(window_strides=(2, 2), padding="SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    program = jax.make_jaxpr(with_fast_operations(fun))(normal(2, 8, 8, 3), normal(3, 3, 3, 4)).jaxpr
    names = [eqn.primitive.name for eqn in all_equations(program)]
    assert names.count("conv_general_dilated") == 2 and names.count("dot_general") == 9


@pytest.mark.parametrize("padding", ["SAME", "VALID", [(0, 3), (4, 1)]])
def test_the_gradient_of_strided_inputs_multiplies_no_zeros(padding):
    """Also where the stride is longer than the kernel, and where inputs at the border reach no output."""
    fun = output_and_gradients(window_strides=(2, 3), padding=padding, dimension_numbers=("NHWC", "HWIO", "NHWC"))
    args = normal(2, 8, 10, 3), normal(3, 2, 3, 4, seed=1)
    assert_same(fun, *args)
    program = jax.make_jaxpr(with_fast_operations(fun))(*args).jaxpr
    found = [eqn for eqn in all_equations(program) if eqn.primitive.name == "conv_general_dilated"]
    assert found and all(eqn.params["lhs_dilation"] == (1, 1) for eqn in found)


@pytest.mark.parametrize("padding", ["VALID", [(0, 1), (-1, 0)]])
def test_the_gradient_of_the_inputs_of_a_large_kernel_is_a_product_for_each_of_its_rows(padding):
    fun = output_and_gradients(window_strides=(1, 1), padding=padding, dimension_numbers=("NCHW", "OIHW", "NCHW"))
    args = normal(20, 2, 10, 11), normal(MANY, 2, 5, 5, seed=1)
    assert_same(fun, *args)
    program = jax.make_jaxpr(with_fast_operations(fun))(*args).jaxpr
    names = [eqn.primitive.name for eqn in all_equations(program)]
    assert names.count("conv_general_dilated") == 2 and names.count("dot_general") == 5


@pytest.mark.parametrize(("stride", "examples", "size"), [(1, 64, 10), (2, 64, 10), (1, 64, 32)])
def test_the_gradient_of_a_kernel_is_summed_over_parts_of_a_large_batch(stride, examples, size):
    fun = output_and_gradients(
        window_strides=(stride, stride), padding="SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    args = normal(examples, size, size, 3), normal(3, 3, 3, 4, seed=1)
    assert_same(fun, *args)
    program = jax.make_jaxpr(with_fast_operations(fun))(*args).jaxpr
    part = PART if size < 32 else 2 * PART
    slices = [eqn for eqn in all_equations(program) if eqn.primitive.name == "dynamic_slice"]
    assert slices and all(eqn.outvars[0].aval.shape[0] == part for eqn in slices)
    for odd in (examples - 1, 2):  # not a multiple of the parts, or too few: at once, as before
        few = jax.make_jaxpr(with_fast_operations(fun))(args[0][:odd], args[1]).jaxpr
        assert "dynamic_slice" not in {eqn.primitive.name for eqn in all_equations(few)}


@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((32, 10, 12, 6), (0, 1, 2)),
        ((32, 10, 12, 6), (1, 2)),
        ((2048, 9), (0,)),
        ((5, 64, 60, 2), (0, 2)),
        ((40, 37, 16), (0, 1)),
    ],
)
def test_long_sums_are_taken_in_stages(shape, axes):
    """To the rounding of a sum in another order. 37 is prime, so there is nothing to split: that sum stays as it is."""
    x = normal(*shape)
    fun = lambda x: jnp.sum(jnp.square(x), axis=axes)  # noqa: E731
    fast = with_fast_operations(fun)
    np.testing.assert_allclose(jax.jit(fast)(x), np.square(np.asarray(x, np.float64)).sum(axes), rtol=1e-6)
    sums = [eqn for eqn in all_equations(jax.make_jaxpr(fast)(x).jaxpr) if eqn.primitive.name == "reduce_sum"]
    assert len(sums) == (1 if 37 in shape else 2)


@pytest.mark.parametrize(
    ("shape", "axes"), [((32, 10, 12, 6), (3,)), ((8, 10, 12, 6), (0, 1, 2)), ((600, 32, 2), (1,))]
)
def test_sums_that_are_fast_already_are_left_alone(shape, axes):
    """Over the last axis, of few terms, or over one short axis."""
    fun = lambda x: jnp.sum(x, axis=axes)  # noqa: E731
    x = normal(*shape)
    assert str(jax.make_jaxpr(with_fast_operations(fun))(x)) == str(jax.make_jaxpr(fun)(x))


@pytest.mark.parametrize("size", [8, 9], ids=["windows fit", "an incomplete window"])
def test_pooling_gradients_go_to_the_first_of_equal_entries(size):
    def pooled(x):
        return jnp.sum(jnp.cos(lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")))

    x = jnp.maximum(normal(3, size, size, 2), 0)  # a ReLU makes ties
    old, new = jax.jit(jax.grad(pooled))(x), jax.jit(with_fast_operations(jax.grad(pooled)))(x)
    np.testing.assert_array_equal(old, new)
    assert "select_and_scatter" not in str(jax.make_jaxpr(with_fast_operations(jax.grad(pooled)))(x))


def test_gradients_of_windows_with_nan_or_infinities_are_not_lost():
    def pooled(x):
        return lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")

    x = np.array(normal(2, 4, 4, 3))
    x[0, :2, :2], x[0, 2, 2], x[1, 0, 0], x[1, 2:, 2:] = -np.inf, np.inf, np.nan, np.nan

    def passed_on(x):
        out, pull_back = jax.vjp(pooled, x)
        return pull_back(1.0 + jnp.arange(out.size, dtype=out.dtype).reshape(out.shape))[0]

    old, new = jax.jit(passed_on)(x), jax.jit(with_fast_operations(passed_on))(x)
    finite = ~np.isnan(x).reshape(2, 2, 2, 2, 2, 3).any(axis=(2, 4))
    finite = finite.repeat(2, axis=1).repeat(2, axis=2)  # of whole windows: with a NaN, which entry gets it is open
    np.testing.assert_array_equal(np.where(finite, new, 0), np.where(finite, old, 0))
    np.testing.assert_array_equal(new.reshape(2, 2, 2, 2, 2, 3).sum((2, 4)).ravel(), 1.0 + np.arange(24))


def test_overlapping_windows_are_left_alone():
    def pooled(x):
        return jnp.sum(jnp.cos(lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")))

    x = jnp.maximum(normal(3, 8, 8, 2), 0)
    assert "select_and_scatter" in str(jax.make_jaxpr(with_fast_operations(jax.grad(pooled)))(x))
    assert_same(jax.grad(pooled), x)


def test_branches_scans_and_inner_functions_are_rewritten():
    def conv(x, w):
        return lax.conv_general_dilated(x, w, (1,), "SAME", dimension_numbers=("NCW", "OIW", "NCW"))

    def fun(x, w):
        x = lax.cond(x[0, 0, 0] > 0, jax.jit(conv), lambda x, w: conv(2 * x, w), x, w)
        x, _ = lax.scan(lambda x, _: (conv(x, w), None), x, length=2)
        return lax.while_loop(lambda c: c[1] < 2, lambda c: (jax.checkpoint(conv)(c[0], w), c[1] + 1), (x, 0))[0]

    x, w = normal(2, 3, 6), normal(3, 3, 3, seed=1)
    assert_same(fun, x, w)
    program = jax.make_jaxpr(with_fast_operations(fun))(x, w).jaxpr
    found = [eqn for eqn in all_equations(program) if eqn.primitive.name == "conv_general_dilated"]
    assert len(found) == 4
    assert all(eqn.params["dimension_numbers"].lhs_spec == (0, 2, 1) for eqn in found)


def test_a_program_without_images_is_unchanged():
    fun = lambda x, w: lax.scan(lambda c, _: (jnp.tanh(c @ w), None), x, length=3)[0]  # noqa: E731
    args = normal(2, 3), normal(3, 3)
    assert str(jax.make_jaxpr(with_fast_operations(fun))(*args)) == str(jax.make_jaxpr(fun)(*args))


def test_accelerators_and_the_switch_keep_the_program(monkeypatch):
    fun = lambda x: x  # noqa: E731
    assert with_fast_operations(fun, "tpu") is fun
    monkeypatch.setenv(cpu_tuning.SWITCH, ",".join(cpu_tuning.NAMES))
    assert with_fast_operations(fun, "cpu") is fun
