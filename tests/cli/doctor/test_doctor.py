"""The doctor: its NumPy is correct, its checks catch what is wrong, and its verdict says so."""

import subprocess
import sys

import jax
import numpy as np
import pytest
import scipy.signal
from typer.testing import CliRunner

from posteriax.cli import environment
from posteriax.cli.app import make_app
from posteriax.cli.doctor import CheckResult, Examination, checks, examination
from posteriax.cli.doctor.checks import CHECKS, Truth, excess, threefry

pytestmark = pytest.mark.quick

CORRECT, WRONG = CheckResult("sum", 0.1), CheckResult("two convolutions, relu, pooling", 5.7e3)
CRASHED = CheckResult("sum of products of seven axes", float("inf"), crash="SIGSEGV")


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_a_correct_result_passes_and_one_wrong_entry_does_not(check):
    inputs = check.inputs(np.random.default_rng(1))
    truth = check.truth(*inputs)
    result = np.asarray(jax.jit(check.program)(*inputs))
    assert excess(result, truth) <= 1.0
    scale = np.abs(truth.value).max()
    for place in (0, -1):
        wrong = result.astype(np.float64)
        wrong.flat[place] += max(0.01 * scale, 1.0 if result.dtype.kind in "iu" else 0.0)
        assert excess(wrong, truth) > 1.0
    wrong = result.astype(np.float64)
    wrong.flat[-1] = np.nan
    assert excess(wrong, truth) == np.inf
    assert excess(result[..., :-1], truth) == np.inf


def test_what_must_be_exact_is():
    assert excess(np.array([1, 2]), Truth(np.array([1.0, 2.0]), 0.0)) == 0.0
    assert excess(np.array([1, 3]), Truth(np.array([1.0, 2.0]), 0.0)) == np.inf


def test_convolutions_in_numpy_are_scipys_and_gradients_their_adjoints():
    rng = np.random.default_rng(0)
    x, kernel, slope = rng.normal(size=(2, 6, 5, 3)), rng.normal(size=(3, 3, 3, 4)), rng.normal(size=(2, 6, 5, 4))
    out = checks.conv64(x, kernel)
    for n in range(2):
        for o in range(4):
            parts = [scipy.signal.correlate(x[n, :, :, c], kernel[:, :, c, o], "same") for c in range(3)]
            np.testing.assert_allclose(out[n, :, :, o], sum(parts), rtol=1e-10, atol=1e-12)
    # the convolution is linear in both: <slope, conv(x, kernel)> = <gradient of x, x> = <gradient of kernel, kernel>
    inner = np.vdot(slope, out)
    assert np.vdot(checks.input_gradient64(slope, kernel), x) == pytest.approx(inner, rel=1e-10)
    assert np.vdot(checks.kernel_gradient64(x, slope), kernel) == pytest.approx(inner, rel=1e-10)


def test_windows_hold_the_entries_of_two_by_two_squares():
    x = np.arange(2 * 4 * 6 * 3.0).reshape(2, 4, 6, 3)
    windows = checks.windows64(x)
    assert windows[1, 1, 2, 0].tolist() == [x[1, 2, 4, 0], x[1, 2, 5, 0], x[1, 3, 4, 0], x[1, 3, 5, 0]]
    np.testing.assert_array_equal(checks.from_windows64(windows), x)


@pytest.mark.parametrize(
    ("key", "counter", "words"),
    [  # the known answers that come with Random123 (Salmon et al. 2011)
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
        ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
    ],
)
def test_threefry_gives_its_known_answers(key, counter, words):
    assert threefry(key, *counter) == words


def test_a_worker_that_crashes_leaves_what_it_had_found_and_where_it_was():
    lines = '{"starts": "sum"}\n{"name": "sum", "excess": 0.1}\n{"starts": "scan"}\n'
    assert examination.read_results(lines, -11) == (CORRECT, CheckResult("scan", float("inf"), crash="SIGSEGV"))
    (only,) = examination.read_results("", 1, "Traceback ...\nImportError: no jax\n")
    assert (only.name, only.crash, only.correct) == ("starting JAX", "ImportError: no jax", False)


@pytest.mark.parametrize(
    ("found", "code", "says", "says_not"),
    [
        (Examination((CORRECT,)), 0, ["CORRECT: as posteriax compiles here", "0.1 ok"], ["WRONG"]),
        (
            Examination((CORRECT, WRONG)),
            1,
            ["WRONG: as posteriax", "5.7e+03 WRONG", "pip install"],
            ["CORRECT"],
        ),
        (Examination((CORRECT, CRASHED)), 1, ["SIGSEGV WRONG", "1 of 2 programs are wrong"], ["CORRECT"]),
        (
            Examination((CORRECT,), plain=(CORRECT, WRONG)),
            0,
            ["CORRECT: as posteriax", "WRONG: as JAX"],
            [],
        ),
        (Examination((WRONG,), compiled_by="JAX by itself"), 1, ["WRONG: as JAX by itself compiles"], ["CORRECT"]),
    ],
    ids=["correct", "wrong", "crashed", "correct by the guard", "unguarded"],
)
def test_the_verdict_and_the_exit_code(monkeypatch, found, code, says, says_not):
    monkeypatch.setattr(environment, "use_all_cores", lambda: None)
    monkeypatch.setattr(environment, "use_compilation_cache", lambda: None)
    monkeypatch.setattr(examination, "examine", lambda unguarded: found)
    done = CliRunner().invoke(make_app(), ["doctor"])
    assert done.exit_code == code
    assert f"jaxlib {jax.lib.__version__}" in done.output
    for words in says:
        assert words in done.output
    for words in says_not:
        assert words not in done.output


@pytest.mark.parametrize(("excess", "code", "says"), [(0.1, 0, "CORRECT"), (2.0, 1, "WRONG")])
def test_the_doctor_runs_where_only_the_core_is_installed(excess, code, says):
    """The other commands need typer, and say so."""
    program = f"""
import sys
sys.modules["typer"] = None
from posteriax.cli import main
from posteriax.cli.doctor import CheckResult, Examination, examination
examination.examine = lambda unguarded: Examination((CheckResult("sum", {excess}),))
sys.argv = ["posteriax", "doctor"]
main()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert done.returncode == code, done.stderr
    assert f"{says}: as posteriax compiles here" in done.stdout


def test_unguarded_asks_for_programs_as_jax_compiles_them(monkeypatch):
    environments = []
    monkeypatch.setattr(examination, "_run", lambda environment: environments.append(environment) or (CORRECT,))
    assert examination.examine(unguarded=True).compiled_by == "JAX by itself"
    assert environments[0]["POSTERIAX_UNGUARDED"] == "1"
    monkeypatch.setattr(examination.jax_release, "is_guarded", lambda: True)
    monkeypatch.setenv("XLA_FLAGS", f"--mine=1 {examination.jax_release.FLAG}")
    assert examination.examine().plain == (CORRECT,)
    assert [e.get("XLA_FLAGS") for e in environments[1:]] == [f"--mine=1 {examination.jax_release.FLAG}", "--mine=1"]


@pytest.mark.slow  # `make test` begins with it
def test_this_installation_computes_correctly():
    done = subprocess.run([sys.executable, "-m", "posteriax", "doctor"], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(" ok ") == len(CHECKS)
