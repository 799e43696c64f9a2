import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from posteriax.cli import environment
from posteriax.cli.app import make_app


@pytest.fixture
def run(monkeypatch):
    monkeypatch.setattr(environment, "use_all_cores", lambda: None)  # this process's backend has started
    monkeypatch.setattr(environment, "use_compilation_cache", lambda: None)
    return lambda *args: CliRunner().invoke(make_app(), list(args))


def test_help_lists_the_commands(run):
    text = run("--help").output
    assert "demo" in text
    assert "doctor" in text
    assert "laptop" in run("study", "run", "--help").output


def test_every_core_is_a_device_and_programs_are_kept(tmp_path):
    """In a process of its own: both must be set before JAX's backend starts."""
    code = (
        "from posteriax.cli import environment as e; e.use_all_cores(); e.use_compilation_cache(); import jax; "
        "print(len(jax.devices()), jax.config.jax_compilation_cache_dir)"
    )
    environment = {k: v for k, v in os.environ.items() if not k.startswith("JAX_")} | {"XDG_CACHE_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment, timeout=120
    )
    assert done.stdout.split() == [str(os.cpu_count()), str(tmp_path / "posteriax" / "compiled")]


def test_importing_the_library_starts_no_backend_and_loads_no_extras():
    code = (
        "import sys, posteriax, jax\n"
        "from jax._src import xla_bridge\n"
        "assert not xla_bridge._backends, 'a backend was started'\n"
        "heavy = {'flax', 'haiku', 'keras', 'torch', 'matplotlib', 'sklearn', 'arviz', 'typer', 'blackjax', 'pandas'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.strip() == "[]"


@pytest.mark.slow
@pytest.mark.parametrize("package", ["pandas", pytest.param("typer", marks=pytest.mark.slow)])
def test_a_package_that_is_not_installed_is_named(package, tmp_path):
    code = f"import sys; sys.modules[{package!r}] = None; from posteriax.cli import main; main()"
    command = [sys.executable, "-c", code, "compare", str(tmp_path / "trees.csv"), "--target", "y"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode != 0
    assert f"needs {package}: pip install 'posteriax[cli]'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_the_demo_prints_both_tables_draws_four_figures_and_reports(tmp_path):
    out = tmp_path / "figures"
    command = [str(Path(sys.executable).with_name("posteriax")), "demo", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
    assert done.stdout.count("nll ↓") == 2
    assert done.stderr == ""
    assert len(list(out.glob("*.png"))) == 4
    assert (out / "report.html").stat().st_size > 10_000
    assert "posteriax compare data.csv" in done.stdout
    text = " ".join(done.stdout.split())  # however wide the terminal is
    for line in ("How sure", "Targets that 90 %"):  # MAP is sure where HMC is not
        (found,) = re.findall(rf"{line}[^:]*(?:: no idea\))?: MAP ([\d.]+), .*? HMC ([\d.]+)\.", text)
        map_share, hmc_share = map(float, found)
        assert abs(map_share - hmc_share) > 0.1
