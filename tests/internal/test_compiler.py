"""The guard: every program of the package is compiled by one function, which corrects wrong releases."""

import ast
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import jaxlib.version
import numpy as np
import pytest

import posteriax
from posteriax._internal import compiler

PACKAGE = Path(posteriax.__file__).parent
COMPILING = {"jit", "pjit", "pmap", "filter_jit", "filter_pmap"}


def test_no_module_compiles_by_another_way():
    """Names that compile come from the one compiler module alone: neither `jax.jit` nor `from jax import jit`."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        if path == Path(compiler.__file__):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            attribute = isinstance(node, ast.Attribute) and node.attr in COMPILING and ast.unparse(node.value)
            imported = isinstance(node, ast.ImportFrom) and {n.name for n in node.names} & COMPILING
            if (attribute and attribute != "compiler") or (imported and node.module != "posteriax._internal.compiler"):
                found.append(f"{path.relative_to(PACKAGE)}:{node.lineno}")
    assert found == []


def test_right_releases_are_left_alone(monkeypatch, recwarn):
    monkeypatch.setattr(jaxlib.version, "__version_info__", (0, 10, 1))
    monkeypatch.setenv("XLA_FLAGS", "--some_flag=1")
    assert type(compiler.jit(jnp.sin)) is type(jax.jit(jnp.sin))
    compiler.guard()
    assert os.environ["XLA_FLAGS"] == "--some_flag=1"
    assert not recwarn.list


@pytest.mark.parametrize(
    ("version", "wrong"), [((0, 10, 0), False), ((0, 10, 2), True), ((0, 11, 0), True), ((0, 11, 2), True)]
)
def test_the_wrong_releases(version, wrong):
    assert compiler.computes_wrongly(version) is wrong


@pytest.fixture
def wrong_release(monkeypatch):
    """As with jaxlib 0.10.2. The option is one that XLA refuses, so that an error tells whether it was given."""
    monkeypatch.setattr(jaxlib.version, "__version_info__", (0, 10, 2))
    monkeypatch.delenv(compiler.UNGUARDED, raising=False)
    monkeypatch.setattr(compiler, "WITHOUT_FUSION", {"xla_no_such_option": ""})
    monkeypatch.setattr(compiler, "_guarded", {"process": False, "warned": True})


def given(call, *args):
    try:
        call(*args)
    except jax.errors.JaxRuntimeError as error:
        assert "xla_no_such_option" in str(error)
        return True
    return False


def test_programs_for_a_cpu_get_the_option(wrong_release):
    function = compiler.jit(lambda x: jnp.sin(x).sum())
    x = jnp.ones(3)
    assert given(function, x)
    assert given(function, np.ones(3))
    assert given(lambda: function.lower(x).compile())
    assert given(lambda: function.lower(jax.ShapeDtypeStruct((3,), jnp.float32)).compile())
    assert given(jax.grad(function), x)  # not within another program: this one is compiled by itself
    assert given(jax.vmap(function), jnp.ones((2, 3)))
    assert given(compiler.jit(lambda x: x + 1, compiler_options={"xla_backend_optimization_level": 1}), x)


def test_programs_for_other_devices_do_not(wrong_release, monkeypatch, recwarn):
    monkeypatch.setattr(compiler, "_guarded", {"process": False, "warned": False})
    monkeypatch.setattr(compiler, "platform_of", lambda arguments: "gpu")
    assert not given(compiler.jit(lambda x: x + 1), jnp.ones(3))
    assert not recwarn.list


def test_functions_within_another_program_do_not(wrong_release):
    """JAX refuses options there; the program around decides."""
    function = compiler.jit(lambda x, power: (x**power).sum(), static_argnums=1)
    assert jax.jit(lambda x: function(x, 2) + 1)(jnp.full(3, 2.0)) == 13.0
    assert jax.jit(jax.grad(lambda x: function(x, 2)))(jnp.ones(3)).tolist() == [2.0] * 3
    assert jax.jit(lambda: function(np.ones(3), 2))() == 3.0  # no argument is traced, but the call is
    assert jax.eval_shape(lambda x: function(x, 2), jnp.ones(3)).shape == ()
    assert jax.make_jaxpr(lambda x: function(x, 2))(jnp.ones(3)).out_avals[0].shape == ()


def test_the_platform_is_that_of_the_arguments(monkeypatch):
    cpu = jax.devices()[0]
    elsewhere = SimpleNamespace(tree=jax.tree, default_backend=lambda: "gpu", config=SimpleNamespace())
    elsewhere.config.jax_default_device = None
    for name in ("Array", "ShapeDtypeStruct", "core"):
        setattr(elsewhere, name, getattr(jax, name))
    monkeypatch.setattr(compiler, "jax", elsewhere)
    assert compiler.platform_of((1.0, np.ones(3))) == "gpu"
    assert compiler.platform_of((np.ones(3), jnp.ones(3))) == "cpu"
    elsewhere.config.jax_default_device = cpu
    assert compiler.platform_of(np.ones(3)) == "cpu"


@pytest.mark.parametrize(("platforms", "possible"), [("cpu", False), ("cuda,cpu", True), ("tpu", True)])
def test_where_there_may_be_an_accelerator_its_compiler_is_given_no_flag(monkeypatch, recwarn, platforms, possible):
    monkeypatch.setattr(jaxlib.version, "__version_info__", (0, 10, 2))
    monkeypatch.delenv(compiler.UNGUARDED, raising=False)
    monkeypatch.setattr(compiler, "_guarded", {"process": False, "warned": False})
    monkeypatch.setattr(compiler, "jax", SimpleNamespace(config=SimpleNamespace(jax_platforms=platforms)))
    monkeypatch.setattr(compiler, "backend_started", lambda: False)
    monkeypatch.setenv("XLA_FLAGS", "--some_flag=1")
    compiler.guard()
    assert os.environ["XLA_FLAGS"] == ("--some_flag=1" if possible else f"--some_flag=1 {compiler.FLAG}")
    assert len(recwarn.list) == (0 if possible else 1)


def test_who_has_switched_it_off_already_is_not_warned(monkeypatch):
    monkeypatch.setattr(jaxlib.version, "__version_info__", (0, 10, 2))
    monkeypatch.setattr(compiler, "_guarded", {"process": False, "warned": False})
    monkeypatch.setenv("XLA_FLAGS", compiler.FLAG)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiler.guard()


SESSION = """
import json, sys, warnings
import jax, jaxlib.version
jaxlib.version.__version_info__, jaxlib.version.__version__ = (0, 10, 2), "0.10.2"  # which is not installed
if sys.argv[1] == "late":
    jax.devices()
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import posteriax as px
    probs = jax.numpy.array([[0.2, 0.8], [0.6, 0.4]])
    px.metrics.ece_equal_width(probs, jax.numpy.array([1, 0]))
    px.metrics.ece_equal_mass(probs, jax.numpy.array([1, 0]))
import os
print(json.dumps([[str(w.message) for w in caught], os.environ.get("XLA_FLAGS", "")]))
"""


@pytest.mark.every_day("early")
@pytest.mark.parametrize("order", ["early", "late"])
def test_a_session_with_a_wrong_release_is_warned_once(order):
    """In processes of their own. XLA of the tested release knows the option, and takes it."""
    own = {k: v for k, v in os.environ.items() if k not in {"XLA_FLAGS", compiler.UNGUARDED}} | {"JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, "-c", SESSION, order], env=own, capture_output=True, text=True, check=True, timeout=120
    )
    (message,), flags = json.loads(done.stdout)
    assert "jaxlib 0.10.2 returns wrong numbers on CPUs" in message
    assert ("for this whole process" in message) == (order == "early") == (flags == compiler.FLAG)
    assert ("outside jit, are not covered" in message) == (order == "late")
