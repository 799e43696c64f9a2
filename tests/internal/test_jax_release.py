"""What importing posteriax does with each release of JAX. The releases are made up, except in the last test."""

import ast
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import posteriax
from posteriax._internal import jax_release

pytestmark = pytest.mark.quick

RIGHT, WRONG = (0, 10, 1), (0, 10, 2)


@pytest.fixture
def installed(monkeypatch):
    """Pretend that a release of JAX is installed, and that this process has no accelerator and no backend yet."""
    monkeypatch.delenv(jax_release.UNGUARDED, raising=False)
    monkeypatch.setenv("XLA_FLAGS", "--mine=1")
    monkeypatch.setattr(jax_release, "backend_started", lambda: False)
    monkeypatch.setattr(jax_release, "accelerator_installed", lambda: False)
    return lambda release: monkeypatch.setattr(jax_release, "installed_release", lambda package: release)


def test_an_older_jax_is_refused_and_a_newer_one_warned_about(installed, monkeypatch):
    installed((0, 8, 3))
    with pytest.raises(ImportError, match=r"needs jax 0\.9\.0 or later, but 0\.8\.3 is installed: pip install -U jax"):
        jax_release.check_jax()
    installed((0, 11, 0))
    untested = pytest.warns(UserWarning, match=r"tested with jax up to 0\.10\.2, and 0\.11\.0 is installed")
    unknown = pytest.warns(
        UserWarning, match=r"jaxlib 0\.10\.2 returns wrong .*, and whether 0\.11\.0 does is not known"
    )
    with untested, unknown:
        jax_release.check_jax()
    monkeypatch.setenv("XLA_FLAGS", jax_release.FLAG)
    with untested:
        jax_release.check_jax()


@pytest.mark.parametrize("release", [(0, 9, 0), RIGHT])
def test_releases_that_compute_correctly_are_left_alone(installed, release):
    installed(release)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        jax_release.check_jax()
    assert os.environ["XLA_FLAGS"] == "--mine=1"


def test_an_affected_release_gets_the_flag_and_one_warning(installed):
    installed(WRONG)
    with pytest.warns(UserWarning, match=r"jaxlib 0\.10\.2 returns wrong numbers on CPUs"):
        jax_release.check_jax()
    assert os.environ["XLA_FLAGS"] == f"--mine=1 {jax_release.FLAG}"
    with warnings.catch_warnings():  # the flag is there now
        warnings.simplefilter("error")
        jax_release.check_jax()
    assert jax_release.environment_without_guard()["XLA_FLAGS"] == "--mine=1"


def test_an_affected_release_whose_backend_has_started_is_refused(installed, monkeypatch):
    installed(WRONG)
    monkeypatch.setattr(jax_release, "backend_started", lambda: True)
    with pytest.raises(
        ImportError, match=f"import posteriax before the first JAX computation, or set XLA_FLAGS={jax_release.FLAG}"
    ):
        jax_release.check_jax()
    monkeypatch.setenv(jax_release.UNGUARDED, "1")
    jax_release.check_jax()
    assert os.environ["XLA_FLAGS"] == "--mine=1"


def test_an_accelerators_compiler_is_given_no_flag(installed, monkeypatch):
    """It is another build of XLA, and a flag that it does not know would end the process."""
    installed(WRONG)
    monkeypatch.setattr(jax_release, "accelerator_installed", lambda: True)
    with pytest.warns(UserWarning, match="if you compute on the CPU, set XLA_FLAGS="):
        jax_release.check_jax()
    assert os.environ["XLA_FLAGS"] == "--mine=1"


@pytest.mark.parametrize(("platforms", "expected"), [("cpu", False), ("cuda,cpu", True), ("tpu", True)])
def test_an_accelerator_is_expected_where_jax_is_told_so(monkeypatch, platforms, expected):
    monkeypatch.delitem(sys.modules, "jax")
    monkeypatch.setenv("JAX_PLATFORMS", platforms)
    assert jax_release.accelerator_installed() is expected


def test_importing_posteriax_imports_no_jax_and_starts_no_backend():
    """So that the flag can still be set, and the command line can set what JAX reads when it is imported."""
    script = """
import sys
import posteriax as px
assert "jax" not in sys.modules
px.Problem, px.fit, px.compare, px.metrics, px.zoo, px.analysis, px.HMC
from posteriax._internal.jax_release import backend_started
assert "jax" in sys.modules and not backend_started()
assert not {"scipy.stats", "sklearn", "pandas", "matplotlib"} & set(sys.modules)
assert set(px.__all__) <= set(dir(px)) and all(hasattr(px, name) for name in px.__all__)
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", script], check=True, timeout=120)


def test_only_one_module_knows_about_wrong_releases():
    package = Path(posteriax.__file__).parent
    naming = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if any(
            isinstance(node, ast.Constant) and "ynn_fusion" in str(node.value)
            for node in ast.walk(ast.parse(path.read_text()))
        )
    }
    assert naming == {"_internal/jax_release.py"}
